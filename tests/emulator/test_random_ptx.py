"""For any text `emulate` returns a result or raises its own error; for a well-typed text it returns a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ptxdiff.emulator import PtxError, asm_block, emulate
from ptxdiff.emulator.binding.builder import BINDERS
from ptxdiff.emulator.errors import InternalError
from ptxdiff.emulator.kernel.run import load_kernel
from ptxdiff.emulator.machine import lockstep as machine
from ptxdiff.emulator.targets import ByAnswers
from tests.support.emulator import random_campaign, random_texts
from tests.support.emulator import random_ptx as rp
from tests.support.emulator.legality import errors_of_ptxas, needs

QUICK, LONG = 70, 20_000
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
UNSHRUNK = (Phase.explicit, Phase.generate)
"""For tests that expect an error: nobody reads its example, so it is not made smaller."""
SPECIAL = {"%laneid": 3, "%tid.x": 4, "%clock64": 5}
"""Values of the special registers that well-typed programs read."""
INPUTS = [np.array([0x3F800000, 0, 0x80000001, 0x7FC00001, 0xFFFFFFFF], np.uint32), np.arange(5, dtype=np.uint32)]
SOURCES = {
    "mutated": rp.mutated(),
    "operands": rp.random_operands(),
    "characters": rp.characters(),
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit of steps, so that endless loops end sooner."""
    monkeypatch.setattr(machine, "STEP_LIMIT", 2000)


def answers(asm: str, constraints: str, **more: Any) -> bool:
    """Whether `emulate` returns a result (True) or raises a PtxError (False); other exceptions are raised."""
    try:
        got = emulate(asm, constraints, INPUTS, "uint32", **more)
    except InternalError as error:
        raise error.__cause__ or error from None
    except PtxError:
        return False
    assert got.shape == (5,)
    return True


def check(source: str, examples: int, phases: Sequence[Phase] = tuple(Phase)) -> list[bool]:
    """Run many examples of one kind; returns for each whether `emulate` returned a result."""
    answered: list[bool] = []

    @settings(RELAXED, max_examples=examples, phases=phases)
    @given(SOURCES[source], st.sampled_from(rp.TARGETS), st.sampled_from([1] * 9 + [2]), st.booleans())
    def one(block: tuple[str, str], target: str, pack: int, fuse: bool) -> None:
        answered.append(answers(*block, target=target, pack=pack, fuse=fuse, padding=3))

    one()
    return answered


def check_well_typed(examples: int, phases: Sequence[Phase] = tuple(Phase)) -> None:
    """Run programs that must give a result."""

    @settings(RELAXED, max_examples=examples, phases=phases)
    @given(rp.well_typed())
    def one(program: tuple[str, str]) -> None:
        asm, target = program
        assert emulate(asm, "=&r,r,r", INPUTS, "uint32", target=target, special=SPECIAL).shape == (5,)

    one()


@pytest.mark.parametrize("source", SOURCES)
def test_any_text_gives_a_result_or_an_error_of_the_emulator(source: str) -> None:
    check(source, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_many_texts_give_a_result_or_an_error_of_the_emulator(source: str) -> None:
    """Twenty thousand blocks of each kind: minutes each."""
    check(source, LONG)


def test_mutations_keep_some_blocks_valid() -> None:
    """If one of the two outcomes were missing, the tests above would show little."""
    answered = check("mutated", 300)
    assert 10 < sum(answered) < len(answered) - 10


def test_well_typed_programs_run() -> None:
    check_well_typed(QUICK)


@pytest.mark.slow
def test_many_well_typed_programs_run() -> None:
    check_well_typed(LONG)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_107a", "sm_120a"])
def test_well_typed_programs_assemble(target: str) -> None:
    """ptxas accepts the programs of the generator."""
    needs(target)
    lines: list[str] = []

    @settings(RELAXED, max_examples=1500)
    @given(rp.well_typed())
    def one(program: tuple[str, str]) -> None:
        if program[1] == target:
            lines.append(program[0].replace("$0", "%u32_0").replace("$1", "%u32_1").replace("$2", "%u32_2"))

    one()
    assert len(lines) > 100
    assert not [error for error in errors_of_ptxas(lines, target) if error]


def test_an_unexpected_exception_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted parser raises a KeyError at a vector."""

    def vector(parser: Any) -> Any:
        return {}[parser.text]

    monkeypatch.setattr("ptxdiff.emulator.text.parser._Parser.vector", vector)
    with pytest.raises(KeyError):
        check("mutated", 300, UNSHRUNK)


@pytest.mark.parametrize("kind", random_texts.KINDS)
def test_a_short_campaign_finds_nothing(kind: str) -> None:
    counts, findings, _ = random_campaign.batch(1, range(60), (kind,))
    assert (counts.total(), findings) == (60, [])
    assert set(counts) - {"answer"}, "nothing was refused: the emulator cannot have read the texts"


@pytest.mark.slow
def test_a_campaign_finds_nothing() -> None:
    """Twenty thousand texts: minutes. `python -m tests.support.emulator.random_campaign --texts 500000` runs more."""
    for _, _, findings, _ in random_campaign.campaign(2, 20_000):
        assert findings == []


def test_a_text_of_a_campaign_can_be_made_again_from_its_number() -> None:
    assert [random_texts.made(3, n).text for n in range(99)] == [random_texts.made(3, n).text for n in range(99)]


@pytest.mark.parametrize(
    ("fault", "kind", "name"),
    [(ZeroDivisionError(), "foreign", "ZeroDivisionError"), (InternalError("x"), "internal", "InternalError")],
)
def test_a_campaign_reports_exceptions_that_are_faults(fault: Exception, kind: str, name: str) -> None:
    def fails() -> None:
        raise fault

    _, found = random_campaign.outcome(random_texts.Text("ret;", fails, "=r"), 7)
    assert found is not None
    assert (found.kind, found.place[0], found.number) == (kind, name, 7)
    assert "ret;" in found.text


def test_a_campaign_reports_slow_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_campaign, "SLOW", -1.0)
    word, found = random_campaign.outcome(random_texts.Text("ret;", lambda: None, "=r"), 7)
    assert word == "slow"
    assert found is not None


def test_a_campaign_with_a_finding_has_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise KeyError("a fault")

    monkeypatch.setattr(random_texts, "emulate", broken)
    assert random_campaign.main(["--texts", "3", "--kinds", "words"]) == 1
    printed = capsys.readouterr().out
    assert "foreign ('KeyError'" in printed
    assert "3 texts" in printed


OPERANDS = [
    *("%r1", "%rd1", "%p1", "%h1", "%f1", "!%p1", "-%r1", "%v", "%r9", "1", "-1", "1.5", "99999999999", "_", "%tid.x"),
    *(
        "[%rd1]",
        "[%r1+4]",
        "[s]",
        "[p]",
        "[q]",
        "[1]",
        "[s+9223372036854775807]",
        "s",
        "p",
        "T",
        "{%r1, %r2}",
        "{%rd1}",
    ),
    *("{%r1, %r2}", "{%r1, %r2, %r3, %r4}", "{_, 1}", "%p1|%p2", "%r1|%p1", "_|_", "(%r1)", "(q, q)", "vprintf", "f"),
]


def test_instructions_of_kernels_with_operands_of_any_kind() -> None:
    """Each instruction that the machine runs itself has its own check of operands."""
    random = np.random.default_rng(0)
    for form in (f for f in rp.EVERY if f.function is None):
        for _ in range(4):
            chosen = tuple(random.choice([*([None] * g.optional), *g.choices]) for g in form.groups)
            operands = random.choice(OPERANDS, random.integers(0, 6))
            line = f"{rp.Bound(form, chosen).spelling} {', '.join(operands)};"
            try:
                load_kernel(KERNEL.replace("LINE", line))
            except InternalError as error:
                raise AssertionError(line) from error
            except PtxError:
                continue


KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.func f(.param .b32 q) { ret; }
.shared .b8 s[64];
.visible .entry k(.param .u64 p) {
.reg .b32 %r<5>; .reg .b64 %rd<5>; .reg .pred %p<5>; .reg .b16 %h<5>; .reg .f32 %f<5>; .reg .v4 .b32 %v;
.param .b32 q; L: T: .branchtargets L; LINE ret; }
"""


def test_an_operation_without_a_binder_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks with random operands contain instructions of the machine, whose binders are removed here."""
    asm_block.assemble.cache_clear()
    for name in list(BINDERS):
        monkeypatch.delitem(BINDERS, name)
    with pytest.raises(InternalError, match=r"no loaded module registers a binder for operation '\w+'"):
        check("operands", 1500, UNSHRUNK)


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the caches of checked blocks."""
    asm_block.assemble.cache_clear()
    monkeypatch.setattr(asm_block, "_blocks", ByAnswers(512))


def test_a_lookup_that_finds_no_label_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Well-typed programs have loops and branches."""
    _forget(monkeypatch)
    monkeypatch.setattr("ptxdiff.emulator.binding.resolver.Scope.label", lambda scope, name: None)
    with pytest.raises(PtxError, match="there is no label"):
        check_well_typed(QUICK, UNSHRUNK)


def test_a_scope_that_hides_no_name_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Well-typed programs declare a name again in an inner block."""
    _forget(monkeypatch)
    monkeypatch.setattr("ptxdiff.emulator.binding.resolver.Scope.__init__", _shared_scope)
    with pytest.raises(PtxError, match="declared twice"):
        check_well_typed(QUICK, UNSHRUNK)


def _shared_scope(scope: Any, outer: Any = None) -> None:
    scope.outer, scope.labels, scope.variables = outer, {}, {}
    scope.names, scope.targets = set(), {}
    scope.registers = {} if outer is None else outer.registers


@pytest.mark.parametrize(
    ("asm", "said"),
    [
        ("mov.b32 $0, " + "(" * 3000 + "1" + ")" * 3000 + ";", "nested too deeply"),
        ("mov.b32 $0, " + "{" * 3000 + "$1" + "}" * 3000 + ";", "nested too deeply"),
        ("mov.b32 $0, " + "$1|" * 3000 + "$1;", "nested too deeply"),
        ("{" * 3000 + "}" * 3000, "nested too deeply"),
        ("mov.b32 $0, " + "-" * 3000 + "1;", "nested too deeply"),
        ("mov.b32 $0, " + "9" * 9000 + ";", "constant"),
        (".reg .b32 a<" + "9" * 9000 + ">;", "9"),
        ("mov.b32 $0, 1e400;", "overflow"),
        ("ld.global.b32 $0, [$1+1e300*1e300];", "an address"),
        ("mov.b32 $0, 0f3F8;", "directly after a number"),
        ("mov.b32 $0, $" + "9" * 9000 + ";", "does not exist"),
        ("mov.b32 $0, $\u0661;", "must be followed by an operand number"),
        ("mov.b32 $0, 1\u0661;", "unexpected character"),
    ],
)
def test_deep_nesting_and_long_numbers_are_refused(asm: str, said: str) -> None:
    with pytest.raises(PtxError, match=said):
        emulate(asm, "=r,r,r", INPUTS, "uint32")


@pytest.mark.parametrize("constraint", ["\u00b9", "\u0661", "9" * 9000])
def test_digits_that_name_no_operand_are_refused(constraint: str) -> None:
    with pytest.raises(PtxError, match="constraint"):
        emulate("mov.b32 $0, $1;", f"=r,{constraint}", INPUTS, "uint32")
