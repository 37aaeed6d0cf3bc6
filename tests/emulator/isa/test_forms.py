"""Rules for all instruction forms: compiled definitions agree with Python, and every form is described and found."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import FORMS, Bound, Form, find
from ptxdiff.emulator.numeric import vectorise
from ptxdiff.emulator.numeric.vectorise import Array, ArrayFunction
from tests.support.emulator.isa.defined_forms import SCALAR_FORMS, ends, functions, inputs, operands_of
from tests.support.sampling import spread

isa.load()


def agree(bound: Bound, run: Callable[..., Array], edges: int = 48, noise: int = 48) -> None:
    """Check that one of the two compiled versions of a spelling's definition agrees with its Python version."""
    columns = inputs(bound, edges, noise)
    lanes = len(columns[0]) if columns else 1
    for result, function in enumerate(functions(bound)):
        fast = run(function, lanes, *columns)
        slow = [function.one(*(int(c[i]) for c in columns)) for i in range(lanes)]
        wrong = [i for i in range(lanes) if int(fast[i]) != slow[i]]
        shown = [[hex(int(c[i])) for c in columns] for i in wrong[:3]]
        assert not wrong, f"{bound.spelling} result {result}: numba and Python differ on {shown}"


@pytest.mark.sample(4)
@pytest.mark.parametrize("form", spread(SCALAR_FORMS, 24, operands_of, lambda f: f.pattern))
def test_shared_code_and_python_agree(form: Form) -> None:
    """One compilation serves all spellings: the first and the last are run on many values, those between on a few."""
    for bound in ends(form):
        agree(bound, ArrayFunction.shared)
    between = list(form.spellings())[1:-1]
    for bound in islice(between, 0, None, max(1, len(between) // 8)):
        agree(bound, ArrayFunction.shared, 8, 8)


def one_of_a_kind() -> list[Bound]:
    """Last spellings that cover each module, each number of operands, and each type of an operand and of a result.

    A form is chosen if it adds one of these. The slow test below runs the others.
    """
    met: set[tuple[object, ...]] = set()
    found: list[Bound] = []
    for form in SCALAR_FORMS:
        last = ends(form)[-1]
        for function in functions(last):
            kinds: set[tuple[object, ...]] = {("module", form.module), ("result", function.width)}
            kinds |= {("operands", len(function.sources)), *(("operand", s) for s in function.sources)}
            if not kinds <= met:
                met |= kinds
                found.append(last)
    # LLVM compiles `sad` to an absolute value if it may assume that differences never overflow (`wrapping`).
    distances = [bound for form in FORMS["sad"] for bound in ends(form)]
    return list(dict.fromkeys([*found, *distances]))


@pytest.mark.sample(3)
@pytest.mark.parametrize("bound", one_of_a_kind(), ids=lambda b: b.spelling)
def test_specialised_code_and_python_agree(bound: Bound) -> None:
    agree(bound, ArrayFunction.compiled)


@pytest.mark.slow  # compiles 700 functions for their constants alone, a fifth of a second each
@pytest.mark.parametrize("form", SCALAR_FORMS, ids=lambda f: f.pattern)
def test_specialised_code_and_python_agree_at_the_ends(form: Form) -> None:
    for bound in ends(form):
        agree(bound, ArrayFunction.compiled)


def test_many_lanes_run_in_specialised_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few lanes run in Python, more in shared code, many in specialised code; one of them computes a whole call."""
    monkeypatch.setattr(vectorise, "_SHARED_LANES", 1 << 15)
    monkeypatch.setattr(vectorise, "_shared", {})
    bound = find("sub", ("u16",))[0]
    known = bound.array_function()
    function = ArrayFunction(known.function, known.constants, known.sources, known.width)
    ran = []
    for name in ("_interpret", "shared", "compiled"):
        real = getattr(ArrayFunction, name)
        monkeypatch.setattr(
            ArrayFunction, name, lambda self, *args, n=name, real=real: ran.append(n) or real(self, *args)
        )
    for lanes in (1000, 20_000, 20_000, 5):
        a, b = np.arange(lanes, dtype=np.uint16), np.full(lanes, 3, np.uint16)
        assert (function(lanes, a, b) == a - b).all()
    assert ran == ["_interpret", "shared", "compiled", "compiled"]


def test_forms_are_described_and_found() -> None:
    assert [f.pattern for f in SCALAR_FORMS if not f.documentation] == [], "a definition's docstring gives its rule"
    assert [f.pattern for f in SCALAR_FORMS if not f.section[:1].isdigit()] == []
    spelled = [bound for form in SCALAR_FORMS for bound in form.spellings()]
    lost = [
        bound.spelling
        for bound in spelled
        if not any(b.form is bound.form for b in find(bound.form.opcode, tuple(c for c in bound.chosen if c)))
    ]
    assert lost == []
