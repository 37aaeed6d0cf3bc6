"""Functions of Triton are parsed once in a worker, and no compilation changes their trees."""

from __future__ import annotations

import ast
from contextlib import nullcontext
from dataclasses import replace

import pytest

from ptxdiff.triton import stages
from ptxdiff.triton.elementwise import Elementwise, PlainFunction
from ptxdiff.triton.spec import FunctionRef, KernelSpec
from tests.triton import sample_kernels

MARK = "_is_unused"
"""What Triton's code generator sets on the value of each expression statement."""


def spec(name: str, constants: tuple[object, ...] = (), inputs: int = 1) -> KernelSpec:
    function = PlainFunction(FunctionRef.of(getattr(sample_kernels, name)), constants)
    return Elementwise(function, ("fp32",) * inputs, ("fp32",), (100,)).spec("sm_90a", enable_fp_fusion=False)


KERNELS = {
    "reciprocal": spec("reciprocal"),
    "multiply_add": spec("multiply_add", inputs=2),
    "powers": spec("powers", (3,)),
    "fewer powers": spec("powers", (2, 0.5)),
    "statements": spec("statements", (True,)),
    "other branches": spec("statements", (False,)),
}


@pytest.fixture(autouse=True)
def compiled_here(monkeypatch):
    """Compile in the test's own process, and share no stages between kernels."""
    stages.forget()
    monkeypatch.setattr(stages, "nothing_written", lambda: False)
    monkeypatch.setattr(stages, "forget_output", lambda: None)


def changed(tree: ast.AST, text: str) -> list[str]:
    """How a tree differs from that of its text, apart from the mark on values of expression statements."""
    found = [] if ast.dump(tree, include_attributes=True) == _dumped(text) else ["other nodes"]
    unused = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        more = vars(node).keys() - {*node._fields, *node._attributes}
        if more - {MARK} or (MARK in more and (id(node) not in unused or vars(node)[MARK] is not True)):
            found.append(f"{type(node).__name__} has {sorted(more)}")
    return found


def _dumped(text: str) -> str:
    return ast.dump(ast.parse(text), include_attributes=True)


def test_compilations_leave_the_trees_as_they_were(parsed):
    for kernel in KERNELS.values():
        stages.lower(kernel)
    met = list(parsed)
    assert len(met) >= 8  # the kernels, the template's functions, and those of Triton that they call
    with stages.parsed_once():
        for function in met:
            assert changed(function.parse(), function.src) == []
    assert parsed == met  # these are the trees that the compilations used


def _without_a_statement(tree: ast.Module) -> None:
    del tree.body[0].body[-1]


def _on_another_line(tree: ast.Module) -> None:
    tree.body[0].body[0].lineno += 1


def _with_a_note(tree: ast.Module) -> None:
    tree.body[0].note = 1


def _with_a_mark_elsewhere(tree: ast.Module) -> None:
    tree.body[0].body[-1].value._is_unused = True


@pytest.mark.parametrize(
    "change", [_without_a_statement, _on_another_line, _with_a_note, _with_a_mark_elsewhere], ids=lambda c: c.__name__
)
def test_a_change_of_a_tree_is_detected(change):
    text = "def f(x):\n    y = x\n    return y\n"
    tree = ast.parse(text)
    assert changed(tree, text) == []
    change(tree)
    assert changed(tree, text)


def test_a_kept_tree_gives_the_same_kernel(monkeypatch):
    for kernel in KERNELS.values():  # whose trees are then kept
        stages.lower(kernel)
    kept = {name: stages.lower(kernel) for name, kernel in KERNELS.items()}
    monkeypatch.setattr(stages, "parsed_once", nullcontext)
    assert {name: stages.lower(kernel) for name, kernel in KERNELS.items()} == kept


@pytest.fixture
def parsed(monkeypatch):
    """The functions that Triton parses."""
    functions: list[stages.JITFunction] = []
    parse = stages.JITFunction.parse

    def noted(function):
        functions.append(function)
        return parse(function)

    monkeypatch.setattr(stages.JITFunction, "parse", noted)
    yield functions
    stages.forget()


def names(functions: list[stages.JITFunction]) -> list[str]:
    return [f.__name__ for f in functions]


def test_a_function_is_parsed_once(parsed):
    stages.lower(KERNELS["powers"])
    assert names(parsed).count("powers") == 1
    stages.lower(KERNELS["fewer powers"])
    assert names(parsed).count("powers") == 1
    assert len(parsed) == len(set(names(parsed)))


def test_a_function_with_another_source_is_parsed_again(parsed):
    function = stages.JITFunction(sample_kernels.negated.fn)
    with stages.parsed_once():
        before = function.parse()
        function._unsafe_update_src(function.src.replace("-x", "x"))
        after = function.parse()
    assert ast.dump(before) != ast.dump(after)
    assert after.body[0].name == "negated"
    assert names(parsed) == ["negated", "negated"]


def test_triton_parses_by_itself_afterwards():
    own = stages.JITFunction.parse
    inside = []

    def fail():
        inside.append(stages.JITFunction.parse)
        raise KeyError

    with pytest.raises(KeyError), stages.parsed_once():
        fail()
    assert inside != [own]
    assert stages.JITFunction.parse is own


def test_a_build_by_name_and_a_fork_parse_by_themselves(parsed):
    kernel = spec("negated")
    for _ in range(2):
        stages.lower(kernel, {FunctionRef.of(sample_kernels.negated): sample_kernels.negated})
        stages.lower(replace(kernel, compiler="tlx"))
    met = names(parsed).count("negated")
    assert met >= 4
    with stages.parsed_once():
        sample_kernels.negated.parse()
    assert names(parsed).count("negated") == met + 1  # no tree was kept
