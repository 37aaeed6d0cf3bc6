"""Machine code of right assemblers is proved; that of a faulty one never is, and gets a launch that shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("triton")
pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff.conformance import taught
from ptxdiff.proving import solving, translation
from ptxdiff.proving import terms as t
from ptxdiff.proving.solving import TermFault
from tests.support.proving.machine_code import by_hand, kernel, proved
from tests.support.proving.machine_code import translation as of
from tests.support.sass.fault_kernels import ABSOLUTE
from tests.support.sass.ptxas_releases import release

SUM = kernel("add.u32 %y, %a, %b;")
RIGHT = {
    "sum": "add.u32 %y, %a, %b;",
    "wide": "mov.b64 %w0, {%a, %b}; mul.lo.u64 %w1, %w0, 5; add.u64 %w1, %w1, %w0; mov.b64 {%r0, %y}, %w1;",
    "select": "setp.lt.s32 %q0, %a, %b; selp.b32 %y, %a, %b, %q0;",
    "branch": "mov.u32 %y, %a; setp.gt.u32 %q0, %b, 7; @%q0 bra on; shl.b32 %y, %b, 3; on:",
    "loop": "mov.u32 %y, 0; mov.u32 %r1, 0; again: xor.b32 %y, %y, %a; add.u32 %y, %y, %b; add.u32 %r1, %r1, 1; "
    "setp.lt.u32 %q0, %r1, 5; @%q0 bra again;",
    "bytes": "prmt.b32 %y, %a, %b, 0x7250; bfe.u32 %r1, %a, 5, 9; add.u32 %y, %y, %r1;",
    "floats": "mul.rn.ftz.f32 %r1, %a, %b; add.rn.f32 %r2, %r1, %a; fma.rz.f32 %y, %r2, %b, %a;",
    "halves": "add.f16x2 %r1, %a, %b; fma.rn.relu.f16x2 %y, %r1, %a, %b;",
    "approximate": "ex2.approx.ftz.f32 %r1, %a; rcp.approx.ftz.f32 %r2, %b; sub.f32 %y, %r2, %r1;",
    "conversions": "cvt.rn.f32.s32 %r1, %a; cvt.rzi.u32.f32 %r2, %b; add.u32 %y, %r1, %r2;",
    "counts": "popc.b32 %r1, %a; clz.b32 %r2, %b; mad.lo.u32 %y, %r1, %r2, %a;",
}


QUICK = ("sum", "floats", "a word of 2^32", "one thread")


def sampled(names: Iterable[str]) -> list[Any]:
    """The others ask a solver about each of a dozen kernels."""
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", sampled(RIGHT))
def test_what_ptxas_makes_is_proved(name: str) -> None:
    found = proved(of(kernel(RIGHT[name])))
    assert (found.verdict, found.reason) == ("proved", ""), found
    assert found.program
    assert found.rules


RARE = {
    "a word of 2^32": (
        "xor.b32 %y, %a, 1;", "xor.b32 %y, %a, 1; setp.eq.u32 %q0, %a, 0x9E3779F9; @%q0 add.u32 %y, %y, 1;",
    ),
    "two words of 2^64": (
        "add.u32 %y, %a, %b;",
        "add.u32 %y, %a, %b; mov.b64 %w0, {%a, %b}; setp.eq.u64 %q0, %w0, 0x165667B19E3779F9; @%q0 xor.b32 %y, %y, 4;",
    ),
    "the sign of a comparison": (
        "setp.lt.s32 %q0, %a, %b; selp.b32 %y, %a, %b, %q0;", "setp.lt.u32 %q0, %a, %b; selp.b32 %y, %a, %b, %q0;",
    ),
    "a flush": ("add.rn.f32 %y, %a, %b;", "add.rn.ftz.f32 %y, %a, %b;"),
    "a rounding": ("fma.rn.f32 %y, %a, %b, %a;", "mul.rn.f32 %r1, %a, %b; add.rn.f32 %y, %r1, %a;"),
    "one thread": ("mov.u32 %y, %a;", "mov.u32 %y, %a; setp.eq.u32 %q0, %i, 17; @%q0 mov.u32 %y, %b;"),
    "a store": ("mov.u32 %y, %a;", "mov.u32 %y, %a; add.u32 %i, %i, 0; setp.eq.u32 %q0, %b, 3; @%q0 ret;"),
}  # fmt: skip


@pytest.mark.parametrize("name", sampled(RARE))
def test_machine_code_of_another_text_gets_a_launch_that_shows_it(name: str) -> None:
    text, other = (kernel(body) for body in RARE[name])
    found = proved(of(text, made_of=other))
    assert found.verdict == "counterexample", found
    assert found.reason.startswith("machine code stores 0x")
    assert proved(of(other)).verdict == "proved"


def test_a_published_fault_is_found_and_other_levels_are_proved() -> None:
    """pytorch/pytorch issue 190973."""
    ptxas = release("12.8", "12.9", "13.0", "13.1", "13.2", "13.3")
    wrong = proved(of(ABSOLUTE, ptxas=ptxas, level=3))
    assert wrong.verdict == "counterexample", wrong
    assert proved(of(ABSOLUTE, ptxas=ptxas, level=0)).verdict == "proved"


LOADS = """
S2R R0, SR_TID.X
MOV R1, 0x4
IMAD.WIDE.U32 R2, R0, R1, c[0x0][0x210]
LDG.E R4, [R2.64]
IMAD.WIDE.U32 R6, R0, R1, c[0x0][0x218]
LDG.E R5, [R6.64]
IMAD.WIDE.U32 R2, R0, R1, c[0x0][0x220]
"""
STORE = "STG.E [R2.64], R4\nEXIT\n"


def by(body: str) -> solving.Verdict:
    return proved(of(SUM, code=by_hand(body, 2)))


def test_machine_code_by_hand() -> None:
    assert by(f"{LOADS} IADD3 R4, R5, R4, RZ\n{STORE}").verdict == "proved"
    assert by(f"{LOADS} IADD3 R4, R5, R4, R4\n{STORE}").verdict == "counterexample"


@pytest.mark.parametrize(("ends", "verdict"), [("@P0 EXIT !P0", "proved"), ("@P0 EXIT P0", "counterexample")])
def test_an_end_under_two_predicates(ends: str, verdict: str) -> None:
    """No thread has both a predicate and its opposite; those that end store nothing."""
    compared = "ISETP.GE.AND P0, PT, R4, 0x10, PT\n"
    assert by(f"{LOADS} {compared}{ends}\nIADD3 R4, R5, R4, RZ\n{STORE}").verdict == verdict


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"{LOADS} IADD3 R4, R5, R4, R9\n{STORE}", "does not run"),  # R9 was never written
        (f"{LOADS} LDG.E R7, [R2.64]\nIADD3 R4, R5, R4, RZ\n{STORE}", "a load that the PTX does not have"),
        (f"{LOADS} STG.E [R2.64], RZ\nLDG.E R4, [R2.64]\n{STORE}", "after a store"),
        (f"{LOADS} SHFL.IDX PT, R4, R4, 0x0, 0x1f\n{STORE}", "not a matter of one thread"),
        (f"{LOADS} R2UR UR4, R4\nIADD3 R4, R5, UR4, RZ\n{STORE}", "differs between the threads"),
        (
            f"{LOADS} ISETP.GE.AND P0, PT, R0, 0x10, PT\n@P0 BRA `(.L_x_1)\nUMOV UR4, 0x0\n"
            f"IADD3 R4, R5, R4, UR4\n.L_x_1:\n{STORE}",
            "elsewhere",
        ),
        (f"{LOADS} DSETP.MIN.AND P0, P1, R4, R4, PT\nIADD3 R4, R5, R4, RZ\n{STORE}", "not known for all operands"),
        (f"{LOADS} IADD3.NEW R4, R5, R4, RZ\n{STORE}", "no row"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_never_proved(body: str, reason: str) -> None:
    found = by(body)
    assert found.verdict == "not settled"
    assert reason in found.reason


def test_a_form_that_is_not_taught_is_not_proved(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taught, "PATH", tmp_path / "none.jsonl")
    found = proved(of(SUM))
    assert (found.verdict, found.reason.partition(":")[0]) == ("not settled", "not taught")


def test_stores_in_another_order_are_compared_by_the_memory_they_leave() -> None:
    both = ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry kernel(.param .u64 pa, .param .u64 py) {{\n"
    both += ".reg .b64 %p<2>; .reg .b32 %r<2>;\nld.param.u64 %p0, [pa]; ld.param.u64 %p1, [py];\n"
    both += "ld.global.b32 %r0, [%p0]; {}\nret; }}\n"
    one, two = "st.global.b32 [%p1], %r0;", "st.global.b32 [%p1+4], 7;"
    assert proved(of(both.format(one + two), made_of=both.format(two + one))).verdict == "proved"
    again = "ld.param.u64 %py, [py]; add.u64 %py, %py, %o; st.global.b32 [%py], {}; mov.u32 %y, {};"
    first, last = (kernel(again.format(*pair)) for pair in (("%b", "%a"), ("%a", "%b")))
    assert proved(of(first)).verdict == "proved"
    assert proved(of(first, made_of=last)).verdict == "counterexample"


TWO_PRODUCTS = kernel("mul.f32 %r1, %a, %b; mul.f32 %r2, %b, %b; add.f32 %y, %r1, %r2;")


@pytest.mark.slow
def test_ptxas_may_fuse_some_products_and_not_others() -> None:
    """The emulator fuses the first product; machine code that fused the second is right, and other code is not."""
    fused = kernel("mul.rn.f32 %r1, %a, %b; fma.rn.f32 %y, %b, %b, %r1;")
    assert proved(of(TWO_PRODUCTS, made_of=fused)).verdict == "proved"
    wrong = kernel("mul.rn.f32 %r1, %a, %b; fma.rn.f32 %y, %b, %a, %r1;")
    assert proved(of(TWO_PRODUCTS, made_of=wrong)).verdict == "counterexample"
    moved = kernel("mul.f32 %r1, %a, %b; mov.b32 %r2, %r1; add.f32 %y, %r2, %a;")
    found = proved(of(moved, made_of=kernel("fma.rn.f32 %y, %a, %b, %a;")))
    assert found.reason.startswith("not modelled: a sum that ptxas may fuse"), found


def test_a_second_proof_asks_no_solver_and_changed_machine_code_does(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))
    asked: list[str] = []
    ask = solving.ask

    def noted(query, *rest):
        asked.append(query.text)
        return ask(query, *rest)

    monkeypatch.setattr(solving, "ask", noted)
    text = kernel("and.b32 %r1, %a, %b; xor.b32 %r2, %a, %b; shl.b32 %r1, %r1, 1; add.u32 %y, %r1, %r2;")
    first = proved(of(text))
    assert first.verdict == "proved"
    assert asked
    asked.clear()
    second = proved(of(text))
    assert (second.verdict, second.program, second.rules) == ("proved", first.program, first.rules)
    assert not asked
    third = proved(of(text, made_of=SUM))
    assert third.verdict == "proved"
    assert third.rules != first.rules
    assert asked


def test_another_ptxas_is_asked_about_only_where_its_machine_code_differs(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kernels by one assembler, then by one that moves the instructions of the first and computes the second in
    another way; and then by one that computes the second wrong."""
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))
    asked: list[str] = []
    ask = solving.ask

    def noted(query, *rest):
        asked.append(query.text)
        return ask(query, *rest)

    def questions(text: str, made_of: str) -> tuple[str, int]:
        asked.clear()
        return proved(of(text, made_of=made_of)).verdict, len(asked)

    monkeypatch.setattr(solving, "ask", noted)
    sums = "and.b32 %r1, %a, %b; {} shl.b32 %r1, %r1, 1; add.u32 %y, %r1, %r2;"
    first, moved = (kernel(sums.format("xor.b32 %r2, %a, %b;")), kernel("xor.b32 %r2, %a, %b;" + sums.format("")))
    second = kernel("or.b32 %r1, %a, %b; and.b32 %r2, %a, %b; sub.u32 %y, %r1, %r2;")
    for text in (first, second):
        verdict, count = questions(text, text)
        assert (verdict, count > 0) == ("proved", True)
    assert questions(first, moved) == ("proved", 0)
    verdict, count = questions(second, kernel("xor.b32 %y, %a, %b;"))
    assert (verdict, count > 0) == ("proved", True)
    assert questions(second, kernel("or.b32 %y, %a, %b;"))[0] == "counterexample"
    assert [questions(t, t) for t in (first, second)] == [("proved", 0), ("proved", 0)]


def test_a_wrong_term_is_a_fault_of_the_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counterexample that the runs do not have is never one of the assembler."""
    from ptxdiff.proving import machine_code

    right = machine_code._with_signs
    monkeypatch.setattr(machine_code, "_with_signs", lambda value, *rest: t.add(right(value, *rest), t.const(1, 32)))
    with pytest.raises(TermFault, match="machine code: a run stores"):
        proved(of(kernel("sub.rn.f32 %y, %a, %b;")))


def test_nothing_stored_is_nothing_proved() -> None:
    text = kernel("").replace("st.global.b32 [%py], %y;", "")
    assert proved(of(text)).reason.startswith("nothing to prove")


def test_no_thread_is_nothing_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    assert translation.possible([t.ult(t.variable("ctaid.x", 4), t.variable("nctaid.x", 4))])
    assert not translation.possible([t.ult(t.variable("ctaid.x", 4), t.variable("ctaid.y", 4))])


CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8, U32

case = Case(
    inputs={"a": U32}, outputs={"y": U32}, reference=lambda a: a ^ 1,
    variants={"right": asm("xor.b32 $0, $1, 1;", "=r,r", pack=1)},
)
bytes = Case(
    inputs={"a": U8}, outputs={"y": U8}, reference=lambda a: a ^ 1,
    variants={"packed": asm("xor.b32 $0, $1, 0x01010101;", "=r,r", pack=4)},
)
"""


@pytest.mark.slow
def test_the_command_proves_the_kernels_of_a_variant(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxdiff.cli import main
    from ptxdiff.records import read

    (tmp_path / "flip.py").write_text(CASE)
    monkeypatch.chdir(tmp_path)
    assert main(["prove", "flip.py", "--against", "sass", "--records", "out.jsonl"]) == 0
    assert "flip::right [sm_90a]: proved against sass of ptxas " in capsys.readouterr().out
    one, two = read(tmp_path / "out.jsonl").proofs
    assert (one.verdict, two.verdict, one.against, two.packs) == ("proved", "proved", "sass", (4,))
    assert one.assembler.startswith("ptxas ")
    assert one.program
    assert one.rules
