"""Deliberate idioms of experts are no findings, but the same text with one mistake is."""

import pytest

from ptxdiff.lint.engine import lint
from ptxdiff.lint.snippet import Snippet

QUIET = {
    "an opaque barrier": ("", "=r,0", True),
    "an opaque barrier with a comment": ("// opaque $0", "=r,0", True),
    "an opaque move": ("mov.b32 $0, $1;", "=r,r", True),
    "a tied operand that is read and written": ("add.s32 $0, $0, 1;", "=r,0", True),
    "a sink in a vector": ("{ .reg .b32 h; mov.b64 {_, h}, $1; mov.b32 $0, h; }", "=r,l", True),
    "no inputs": ("mov.u32 $0, 0x7f;", "=r", True),
    "an argument for its shape alone": ("mov.u32 $0, %smid;", "=r,r", False),
    "an output that nobody wants": ("st.global.b32 [$1], $2;", "=r,l,r", False),
    "no output": ("bar.sync 0;", "", False),
    "both halves of a predicate": (
        "{ .reg .pred p; setp.gt.s32 p, $1, 0; @p mov.b32 $0, 1; @!p mov.b32 $0, 2; }", "=&r,r", True,
    ),
    "two predicates that exclude each other": (
        "{ .reg .pred p, q; setp.gt.s32 p|q, $1, 0; @p mov.b32 $0, 1; @q mov.b32 $0, 2; }", "=&r,r", True,
    ),
    "both sides of a branch": (
        "{ .reg .pred p; setp.gt.s32 p, $1, 0; @p bra A; mov.b32 $0, 1; bra.uni B; A: mov.b32 $0, 2; B: }", "=r,r",
        True,
    ),
    "a loop": (
        "{ .reg .pred p; .reg .b32 i; mov.b32 i, $1; mov.b32 $0, 0; A: add.s32 $0, $0, i; sub.s32 i, i, 1; "
        "setp.gt.s32 p, i, 0; @p bra A; }", "=&r,r", None,
    ),
    "a wait": (
        "{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra D; bra W; D: }", "r,r", False,
    ),
    "a load over a default": ("{ .reg .pred p; setp.ne.s32 p, $2, 0; mov.b32 $0, 0; @p ld.global.b32 $0, [$1]; }",
                              "=&r,l,r", False),
    "a variable of the module": ("mov.u32 $0, shared_memory;", "=r", False),
    "a vector register": ("{ .reg .v4 .b32 %acc; mov.b32 %acc.x, $1; mov.b32 $0, %acc.x; }", "=r,r", True),
    "a range": ("{ .reg .b32 %tmp32_<2>; not.b32 %tmp32_1, $1; mov.b32 $0, %tmp32_1; }", "=r,r", True),
    "a hexadecimal float": ("mul.rn.f32 $0, $1, 0f2F800000;", "=f,f", True),
    "an approximate instruction beside arithmetic": (
        "{ .reg .f32 t; mul.rn.f32 t, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, t; }", "=f,f", True,
    ),
    "a comparison of an approximation with zero": (
        "{ .reg .f32 t; .reg .pred p; rcp.approx.f32 t, $1; setp.eq.f32 p, t, 0f00000000; selp.b32 $0, 1, 0, p; }",
        "=r,f", True,
    ),
    "a clamp before a cut": (
        "{ .reg .s32 t; .reg .b8 u; cvt.rni.s32.f32 t, $1; min.s32 t, t, 127; max.s32 t, t, -128; cvt.s8.s32 u, t; "
        "cvt.s32.s8 $0, u; }", "=r,f", True,
    ),
    "a matrix shape in a name": ("tcgen05.wait::ld.sync.aligned;", "", False),
}  # fmt: skip


@pytest.mark.parametrize(("asm", "constraints", "pure"), QUIET.values(), ids=QUIET)
def test_an_idiom_is_quiet(asm, constraints, pure):
    found = lint(Snippet(asm, constraints, pure=pure))
    assert [f"{f.rule}: {f.message}" for f in found] == []


WRONG = {
    "one half of a predicate": (
        "{ .reg .pred p; setp.gt.s32 p, $1, 0; @p mov.b32 $0, 1; @p mov.b32 $0, 2; }", "=&r,r", "output-conditional",
    ),
    "a predicate that was set again": (
        "{ .reg .pred p; setp.gt.s32 p, $1, 0; @p mov.b32 $0, 1; setp.lt.s32 p, $1, -5; @!p mov.b32 $0, 2; }", "=&r,r",
        "output-conditional",
    ),
    "one side of a branch": (
        "{ .reg .pred p; setp.gt.s32 p, $1, 0; @p bra A; mov.b32 $0, 1; A: }", "=r,r", "output-conditional",
    ),
    "a range of predicates": (
        "{ .reg .pred p<2>; setp.gt.s32 p0, $1, 0; setp.gt.s32 p2, $1, 0; selp.b32 $0, 1, 0, p2; }", "=r,r",
        "register-range",
    ),
    "a variable with a percent sign": ("mov.u32 $0, %shared_memory;", "=r", "undeclared-register"),
    "a register of other braces": (
        "{ { .reg .b32 t; not.b32 t, $1; } mov.b32 $0, $1; and.b32 $0, $0, t; }", "=&r,r", "undeclared-register",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("asm", "constraints", "rule"), WRONG.values(), ids=WRONG)
def test_the_same_idiom_with_a_mistake_is_found(asm, constraints, rule):
    assert [f.rule for f in lint(Snippet(asm, constraints, pure=True))] == [rule]


def test_an_input_that_leaves_an_output_unwritten_is_shown():
    asm = "{ .reg .pred p; setp.gt.s32 p, $1, 2; @p mov.b32 $0, 1; }"
    (finding,) = lint(Snippet(asm, "=r,r", pure=True))
    assert "With $1 = 0x0 nothing writes it." in finding.message
