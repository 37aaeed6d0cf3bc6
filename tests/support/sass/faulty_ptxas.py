"""A ptxas with published faults, and a kernel that shows one."""

from __future__ import annotations

import os

import pytest

from ptxdiff.model.assemblers import TRITONS_LEVEL
from ptxdiff.triton.ptxas import assembler_at
from ptxdiff.triton.targets import assembler, tool

ABSOLUTE = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 d) {
.reg .b32 %r<9>; .reg .b64 %p<3>; .reg .b64 %o;
mov.u32 %r0, %tid.x;
mul.wide.u32 %o, %r0, 4;
ld.param.u64 %p0, [a]; ld.param.u64 %p1, [b]; ld.param.u64 %p2, [d];
add.u64 %p0, %p0, %o; add.u64 %p1, %p1, %o; add.u64 %p2, %p2, %o;
ld.global.b32 %r1, [%p0]; ld.global.b32 %r2, [%p1];
neg.s32 %r3, %r1;
max.s32 %r4, %r1, %r3;
max.s32 %r5, %r4, %r2;
st.global.b32 [%p2], %r5;
ret;
}
"""
"""pytorch/pytorch issue 190973: max(max(x, -x), y) becomes max(max(x, x), y)."""


def faulty_ptxas(*versions: str) -> str:
    """The path of a ptxas of one of these releases; skips the test where there is none."""
    known = (os.environ.get("PTXDIFF_FAULTY_PTXAS", ""), str(tool("ptxas")), assembler("sm_100a").path)
    for path in known:
        if path and assembler_at(path, TRITONS_LEVEL).version.startswith(versions):
            return path
    pytest.skip(f"no ptxas of {' or '.join(versions)} here; PTXDIFF_FAULTY_PTXAS names one")
