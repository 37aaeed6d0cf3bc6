"""What others know of an operation is stated on its form: a new operation of the machine needs no other place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxdiff.emulator import UndefinedBits, isa
from ptxdiff.emulator.binding.builder import BINDERS, binds
from ptxdiff.emulator.binding.constraints import destination
from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.isa import registry
from ptxdiff.emulator.isa.facts import ARITHMETIC, Facts, true_of
from ptxdiff.emulator.isa.forms import FORMS, find
from ptxdiff.emulator.isa.lookup import facts_of
from ptxdiff.emulator.kernel.load import load_kernel
from ptxdiff.emulator.kernel.memory.happens_before import orders_parts
from ptxdiff.emulator.machine.operations import RUNNERS, runs
from ptxdiff.emulator.text.nodes import Instruction
from ptxdiff.fuzz.pieces import Piece
from ptxdiff.lint.engine import lint
from ptxdiff.lint.snippet import Snippet
from tests.support.emulator.module_text import launch, module

UNDEFINED = "setp.ne.u32 %p1, %r8, 0;"
"""A predicate from a register that was never written."""


@pytest.fixture
def novel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Declare an operation with the given opcode and facts, and a binder and a runner that do nothing.

    Each test has an opcode of its own, because checked modules are kept.
    """
    opcode, stated = request.param

    @binds("novel")
    def bind(builder: object, node: Instruction, bound: object) -> Step:
        return Step("novel", node, bound)  # type: ignore[arg-type]

    @runs("novel")
    def run(frame: object, step: Step, active: object) -> None:
        """Do nothing."""

    registry.operation(f"{opcode}{{.strong}}.b32", "novel", section="0", **stated)
    yield
    for table, name in ((FORMS, opcode), (BINDERS, "novel"), (RUNNERS, "novel")):
        del table[name]
    for cached in (find, facts_of, load_kernel):
        cached.cache_clear()


@pytest.mark.parametrize("novel", [("novel", {})], indirect=True, ids=["nothing stated"])
@pytest.mark.usefixtures("novel")
class TestUnknownOperation:
    """An operation whose author states no fact is taken for one that acts."""

    def test_an_undefined_predicate_is_refused(self) -> None:
        launch(module("novel.b32;"))
        with pytest.raises(UndefinedBits):
            launch(module(f"{UNDEFINED} @%p1 novel.b32;"))

    def test_the_reducer_keeps_it(self) -> None:
        assert Piece("novel.b32").acts

    def test_the_linter_says_that_it_has_an_effect(self) -> None:
        assert "pure-side-effect" in {f.rule for f in lint(Snippet("novel.b32;", "=r,r", pure=True))}


@pytest.mark.parametrize(
    "novel",
    [("harmless", {"facts": Facts(False, orders_blocks="strong", orders_parts=True, destinations=0)})],
    indirect=True,
    ids=["stated"],
)
@pytest.mark.usefixtures("novel")
def test_stated_facts_reach_those_who_ask() -> None:
    weak, strong = (load_kernel(module(f"harmless{m}.b32;")) for m in ("", ".strong"))
    assert (weak.synchronises, strong.synchronises) == (False, True)
    step = next(s for s in weak.program.steps if s.kind == "novel")
    assert orders_parts(step)
    assert step.facts.registers_only
    assert destination(step.node) is None
    assert not Piece("harmless.b32").acts
    assert "pure-side-effect" not in {f.rule for f in lint(Snippet("harmless.b32;", "=r,r", pure=True))}


@pytest.mark.parametrize("text", ["trap;", "fence.acq_rel.gpu;", "bar.warp.sync -1;", "cp.async.wait_all;"])
def test_effects_under_an_undefined_predicate_are_refused(text: str) -> None:
    """A trap, which an assertion ends with, and an order of accesses must not depend on undefined bits."""
    with pytest.raises(UndefinedBits, match="undefined bits reach the predicate"):
        launch(module(f"{UNDEFINED} @%p1 {text}"))


def test_facts_by_spelling() -> None:
    """Forms that share an opcode differ; a wrong modifier leaves the form that fits best; unknown ones compute."""
    assert facts_of("bar", ("sync",)).destinations == 0
    assert facts_of("bar", ("red", "popc", "u32")).destinations == 1
    assert facts_of("mbarrier", ("pending_count", "b32")).effects is False
    assert facts_of("tcgen05", ("ld", "red", "sync", "aligned", "32x32b", "x2", "min", "u32")).destinations == 2
    assert facts_of("wmma", ("store", "d")).effects is True
    assert facts_of("wmma", ("mma",)).effects is False
    assert facts_of("no_such_opcode", ()) == ARITHMETIC
    assert true_of(facts_of("ld", ("volatile", "global", "b32")).effects, ("volatile", "global", "b32"))
    assert not true_of(facts_of("ld", ("global", "b32")).effects, ("global", "b32"))


OWN_TABLES = {"harness/emulator/kernel/memory/grid_order.py", "harness/lint/rules/syntax.py"}
"""Files with sets for a question of their own: the memory model's kinds of step, and which opcodes are complete."""


def test_no_room_keeps_a_table_of_operations() -> None:
    """Sets of three and more names of machine operations, outside of the declarations, are tables of facts."""
    isa.load()
    names = {f.operation for forms in FORMS.values() for f in forms if f.operation}
    opcodes = {opcode for opcode, forms in FORMS.items() if any(f.operation for f in forms)}
    found = []
    rooms = ("emulator/kernel", "emulator/machine", "comparing", "lint", "fuzz", "conformance")
    root = Path(__file__).parents[3]
    files = [p for room in rooms for p in (root / "harness" / room).rglob("*.py")]
    for path in (*files, *(root / "harness" / "emulator").glob("*.py")):
        place = str(path.relative_to(root))
        for node in ast.walk(ast.parse(path.read_text())):
            if place not in OWN_TABLES and isinstance(node, (ast.Set, ast.List, ast.Tuple)):
                words = {e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
                if len(words & (names | opcodes)) > 2 and words <= names | opcodes:
                    found.append(f"{place}:{node.lineno}: {sorted(words)}")
    assert not found
