"""Right rewrites are proved, wrong variants get counterexamples that the emulator confirms."""

from __future__ import annotations

import json
from functools import partial

import pytest

pytest.importorskip("torch")
pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff import Case, asm
from ptxdiff.model.variants import CaseError
from ptxdiff.proving import doubles, verdicts
from ptxdiff.proving import terms as t
from ptxdiff.proving.verdicts import TermFault, prove
from ptxdiff.references import arithmetic, conversion
from ptxdiff.references.formats import F16, F32, U8, U32
from tests.support.proving.rewrites import OPERATIONS, RARE, RIGHT, WRONG, block, case_of, corrupted


def proved(name: str, number: int, seconds: float = 60.0) -> verdicts.Verdict:
    operation = OPERATIONS[name]
    return prove(case_of(operation, {"text": block(operation.texts[number])}), "text", "sm_90a", seconds=seconds)


def disproved(name: str, rare: str) -> verdicts.Verdict:
    operation = OPERATIONS[name]
    return prove(case_of(operation, {"text": corrupted(operation.texts[0], RARE[rare])}), "text", "sm_90a")


@pytest.mark.parametrize(("name", "number"), RIGHT[::6])
def test_right_rewrites_are_proved(name: str, number: int) -> None:
    found = proved(name, number)
    assert (found.verdict, found.packs) == ("proved", (1,)), found
    assert found.program
    assert found.rules


@pytest.mark.slow  # asks a solver about forty rewrites
@pytest.mark.parametrize(("name", "number"), RIGHT)
def test_all_right_rewrites_are_proved(name: str, number: int) -> None:
    """The slowest, a product as a fused one with -0, took three minutes of a processor's time."""
    assert proved(name, number, seconds=600).verdict == "proved"


@pytest.mark.parametrize(("name", "rare"), WRONG[::8])
def test_variants_that_are_wrong_on_rare_inputs_get_a_counterexample(name: str, rare: str) -> None:
    found = disproved(name, rare)
    assert found.verdict == "counterexample", found
    assert set(found.inputs) == {"a", "b"}


@pytest.mark.slow  # asks a solver about forty variants
@pytest.mark.parametrize(("name", "rare"), WRONG)
def test_all_variants_that_are_wrong_on_rare_inputs_get_a_counterexample(name: str, rare: str) -> None:
    assert disproved(name, rare).verdict == "counterexample"


def test_there_are_forty_of_each() -> None:
    assert len(RIGHT) >= 40
    assert len(WRONG) == len(set(WRONG)) == 40


def two_words(text: str, **options: object) -> Case:
    return Case(
        inputs={"a": U32, "b": U32}, outputs={"y": U32}, reference=lambda a, b: (a + b) & 0xFFFFFFFF,
        variants={"it": asm(text, "=r,r,r", pack=1), "add": asm("add.u32 $0, $1, $2;", "=r,r,r", pack=1)}, **options,
    )  # fmt: skip


def test_a_variant_against_another_one() -> None:
    case = two_words("sub.u32 $0, $2, $1;")
    assert prove(case, "add", "sm_90a", against="it").verdict == "counterexample"
    assert prove(case, "add", "sm_90a", against="add").verdict == "proved"
    with pytest.raises(CaseError, match="no variant is called 'nothing'"):
        prove(case, "add", "sm_90a", against="nothing")


def test_the_terms_alone_decide_what_is_equal_as_written() -> None:
    found = prove(two_words("add.u32 $0, $2, $1;"), "it", "sm_90a")
    assert (found.verdict, found.solver) == ("proved", "")


def test_another_elements_bits_are_a_counterexample() -> None:
    case = Case(
        inputs={"x": U8}, outputs={"y": U8}, reference=lambda x: x,
        variants={"it": asm("prmt.b32 $0, $1, 0, 0x3201;", "=r,r", pack=4)},
    )  # fmt: skip
    found = prove(case, "it", "sm_90a")
    assert found.verdict == "counterexample"
    assert len(found.inputs["x"]) == 4


def test_a_loop_with_a_constant_end_is_unrolled() -> None:
    text = """{ .reg .b32 i, s; .reg .pred p; mov.b32 i, 0; mov.b32 s, $1;
        again: add.u32 s, s, 1; add.u32 i, i, 1; setp.lt.u32 p, i, 5; @p bra again;
        sub.u32 s, s, 5; add.u32 $0, s, $2; }"""
    assert prove(two_words(text), "it", "sm_90a").verdict == "proved"


def test_a_loop_over_an_input_is_not_settled() -> None:
    text = """{ .reg .b32 i, s; .reg .pred p; mov.b32 i, $1; mov.b32 s, $2;
        again: setp.eq.u32 p, i, 0; @p bra done; add.u32 s, s, 1; sub.u32 i, i, 1; bra again;
        done: mov.b32 $0, s; }"""
    found = prove(two_words(text), "it", "sm_90a", seconds=1)
    assert found.verdict == "not settled"


def test_a_result_with_undefined_bits_is_never_proved() -> None:
    found = prove(two_words("{ .reg .b32 t; add.u32 t, $1, $2; @%p or.b32 $0, t, 0; }".replace("%p", "q").replace(
        ".reg .b32 t;", ".reg .b32 t; .reg .pred q; setp.ne.u32 q, $1, 7;")), "it", "sm_90a")  # fmt: skip
    assert found.verdict == "not settled"
    assert found.reason.startswith("undefined bits")


def test_an_output_that_may_share_a_register_is_not_settled() -> None:
    text = "{ .reg .b32 t; mov.b32 t, $1; mov.b32 $0, t; add.u32 $0, $0, $2; }"
    found = prove(two_words(text), "it", "sm_90a")
    assert found.verdict == "not settled"
    assert "share a register" in found.reason


def test_an_output_that_shares_a_register_without_another_bit_is_proved() -> None:
    """The sum is written before the last read of $1, of which only bits that the sum keeps are read."""
    text = (
        "{ .reg .b32 t; and.b32 t, $2, 0; or.b32 $0, $1, t; and.b32 t, $1, 0; add.u32 $0, $0, t; add.u32 $0, $0, $2; }"
    )
    from ptxdiff.emulator import sharing

    assert sharing(text, "=r,r,r", "sm_90a").hazards
    found = prove(two_words(text), "it", "sm_90a")
    assert found.verdict == "not settled"  # $0 and $2 in one register: the last sum reads $0 twice
    text = "{ .reg .b32 t; or.b32 $0, $1, $2; and.b32 t, $1, 0; or.b32 $0, $0, t; }"
    case = Case(
        inputs={"a": U32, "b": U32}, outputs={"y": U32}, reference=lambda a, b: a | b,
        variants={"it": asm(text, "=r,r,r", pack=1)},
    )  # fmt: skip
    assert sharing(text, "=r,r,r", "sm_90a").hazards
    assert prove(case, "it", "sm_90a").verdict == "proved"


def test_a_triton_function_is_not_settled() -> None:
    triton = pytest.importorskip("triton")
    from ptxdiff import plain

    @triton.jit
    def double(x):
        return x + x

    case = Case(inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x, variants={"it": plain(double)})
    assert prove(case, "it", "sm_90a").reason == "not modelled: a kernel, which has no asm of its own"


def test_a_domain_is_an_assumption() -> None:
    from ptxdiff.model.match import Domain

    text = "{ .reg .pred p; .reg .b32 t; add.u32 t, $1, $2; setp.eq.u32 p, $1, 5; @p xor.b32 t, t, 1; mov.b32 $0, t; }"
    assert prove(two_words(text), "it", "sm_90a").verdict == "counterexample"
    without = Domain("a is not 5", lambda v: v["a"] != 5)
    assert prove(two_words(text, where=without), "it", "sm_90a").verdict == "proved"


def test_wrong_terms_are_an_internal_error_that_names_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counterexample that the emulator does not confirm never accuses a variant."""
    from ptxdiff.proving import definitions

    monkeypatch.setitem(definitions.INTEGER, __import__("ast").Add, lambda a, b: t.add(t.add(a, b), t.const(1, 64)))
    with pytest.raises(TermFault, match=r"add.u32 of .* by its definition"):
        prove(two_words("add.u32 $0, $1, $2;"), "it", "sm_90a")


@pytest.mark.slow
def test_floats_by_the_solvers_theory() -> None:
    """a - b is not b - a, and a * 2 is a + a, also for subnormals and NaN."""

    def twice(a):
        return arithmetic.add(a, a)

    case = Case(
        inputs={"a": F32}, outputs={"y": F32}, reference=twice,
        variants={
            "mul": asm("mul.rn.f32 $0, $1, 0f40000000;", "=r,r", pack=1),
            "ftz": asm("mul.rn.ftz.f32 $0, $1, 0f40000000;", "=r,r", pack=1),
        },
    )  # fmt: skip
    found = prove(case, "mul", "sm_90a")
    assert found.verdict == "proved"
    assert any(one.startswith("floats: unsat") for one in found.tried) or not found.tried[-1].startswith("floats: sat")
    wrong = prove(case, "ftz", "sm_90a")
    assert wrong.verdict == "counterexample"
    (bits,) = wrong.inputs["a"]
    assert 0 < bits & 0x7FFFFFFF < 0x00800000


def test_a_bound_of_one_ulp_for_a_conversion() -> None:
    """Towards zero is within one ulp of the nearest, where both are normal numbers; one less is not."""
    from ptxdiff.model.match import Domain, ulp

    case = Case(
        inputs={"a": F32}, outputs={"y": F16}, reference=partial(conversion.convert, source=F32, target=F16),
        match=ulp(1), where=Domain("normal", lambda v: (abs(v["a"]) < 65000) & (abs(v["a"]) > 1e-4)),
        variants={
            "rz": asm("cvt.rz.f16.f32 $0, $1;", "=h,r", pack=1),
            "off": asm("{ .reg .b16 t; cvt.rz.f16.f32 t, $1; max.u16 t, t, 9; sub.u16 $0, t, 1; }", "=h,r", pack=1),
        },
    )  # fmt: skip
    assert prove(case, "rz", "sm_90a").verdict == "proved"
    assert prove(case, "off", "sm_90a").verdict == "counterexample"


def test_approximate_instructions_are_not_settled() -> None:
    case = Case(
        inputs={"a": F32}, outputs={"y": F32}, reference=lambda a: a,
        variants={
            "one": asm("ex2.approx.ftz.f32 $0, $1;", "=r,r", pack=1),
            "two": asm("{ .reg .b32 t; mov.b32 t, $1; ex2.approx.ftz.f32 $0, t; }", "=r,r", pack=1),
        },
    )  # fmt: skip
    found = prove(case, "one", "sm_90a")
    assert found.verdict in ("not settled", "counterexample")
    assert prove(case, "one", "sm_90a", against="two").verdict == "proved"


def test_the_command_prints_and_records(tmp_path, capsys, monkeypatch) -> None:
    from ptxdiff.cli import main
    from ptxdiff.records import read

    source = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U32

case = Case(
    inputs={"a": U32}, outputs={"y": U32}, reference=lambda a: a ^ 1,
    variants={"right": asm("xor.b32 $0, $1, 1;", "=r,r", pack=1), "wrong": asm("or.b32 $0, $1, 1;", "=r,r", pack=1)},
)
"""
    (tmp_path / "flip.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    assert main(["prove", "flip.py", "--records", "out.jsonl"]) == 1
    said = capsys.readouterr().out
    assert "flip::right [sm_90a]: proved for all inputs, pack 1" in said
    assert "flip::wrong [sm_90a]: counterexample" in said
    one, two = read(tmp_path / "out.jsonl").proofs
    assert (one.verdict, two.verdict) == ("proved", "counterexample")
    assert one.program
    assert one.rules
    assert main(["prove", "flip.py", "right", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "proved"


def test_doubles_are_what_the_processor_computes() -> None:
    """Numbers of the functions that the solver's theory stands for."""
    for a in (0.0, -0.0, 1.5, 5e-324, 1e308, float("inf"), float("nan")):
        for b in (1.0, -1.0, 2.0**-1074, float("-inf")):
            (found,) = t.evaluate([doubles.add(t.variable("a", 64), t.variable("b", 64))],
                                  {"a": doubles.pattern(a), "b": doubles.pattern(b)})  # fmt: skip
            assert found == doubles.pattern(a + b)
