"""`brx.idx` with its table of labels, and names that a scope may declare once; ptxas accepts the same lines."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from tests.support.emulator.legality import check

LINES = [
    *(
        f"{{ ts: .branchtargets L1, L2; brx.idx {index}, ts; L1: L2: mov.b32 %b32_0, 2; }}"
        for index in ("%u32_0", "%b32_0", "%s32_0", "%f32_0", "%u64_0", "%u16_0", "1", "%laneid", "WARP_SZ")
    ),
    "{ ts: .branchtargets L1; brx.idx.uni %u32_0, ts; L1: ret; }",
    "{ ts: .branchtargets L1; brx.uni.idx %u32_0, ts; L1: ret; }",
    "{ ts: .branchtargets L1; brx %u32_0, ts; L1: ret; }",
    "{ ts: .branchtargets L1; @!%pred_0 brx.idx %u32_0, ts; L1: ret; }",
    "{ ts: .branchtargets L1; brx.idx %u32_0, ts, 5; L1: ret; }",
    "{ ts: .branchtargets L1; brx.idx %u32_0; L1: ret; }",
    "{ ts: .branchtargets L1; { brx.idx %u32_0, ts; } L1: ret; }",
    "{ ts: .branchtargets L1, L1; brx.idx %u32_0, ts; L1: ret; }",
    "{ brx.idx %u32_0, ts; ts: .branchtargets L1, L2; L1: L2: mov.b32 %b32_0, 2; }",
    "{ ts: .branchtargets L1; ts: .branchtargets L1; L1: ret; }",
    "{ ts: .branchtargets L1, nowhere; L1: ret; }",
    "{ ts: .branchtargets L1; { L1: ret; } brx.idx %u32_0, ts; }",
    "{ ts: .branchtargets L1; bra ts; L1: ret; }",
    "{ ts: us: .branchtargets L1; brx.idx %u32_0, ts; L1: ret; }",
    "{ L1: brx.idx %u32_0, L1; }",
    "{ .reg .b32 a; a: ret; }",
    "{ a: ret; .reg .b32 a; }",
    "{ .reg .b32 a<3>; a1: ret; }",
    "{ .reg .b32 a; { a: ret; } }",
    "{ .reg .b32 a, a; }",
    "mov.u32 %u32_0, %tid.r;",
    "mov.u32 %u32_0, %ctaid.a;",
]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_emulator_accepts_what_ptxas_accepts(target: str) -> None:
    check(LINES, target)


def test_each_lane_goes_to_its_label() -> None:
    """Inputs from 8 on do not branch, because the guard is false."""
    asm = """{ .reg .b32 i; .reg .pred p;
        there: .branchtargets one, two, three, one;
        and.b32 i, $1, 3; mov.b32 $0, 0; setp.lt.u32 p, $1, 8;
        @p brx.idx i, there;
        add.u32 $0, $0, 100;
        one: add.u32 $0, $0, 1;
        two: add.u32 $0, $0, 2;
        three: add.u32 $0, $0, 4; }"""
    got = emulate(asm, "=&r,r", [np.arange(10, dtype=np.uint32)], "uint32")
    assert got.tolist() == [7, 6, 4, 7, 7, 6, 4, 7, 107, 107]
