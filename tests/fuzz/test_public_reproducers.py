"""Public reports of wrong code from ptxas, LLVM and another simulator: the emulator gives the correct result.

Each entry is the reported sequence in its smallest form, newly written, with the values that the report calls right.
"""

import struct

import numpy as np
import pytest

from ptxdiff import run_ptx

HEAD = ".version 8.1\n.target sm_90a\n.address_size 64\n"
REGISTERS = (
    ".reg .b64 %in, %out, %at, %d<8>; .reg .b32 %tid_, %r<8>, %y; .reg .b16 %h<8>; .reg .pred %p<8>; .reg .f32 %f<4>;\n"
    ".reg .f64 %e<4>;"
)


def single(number):
    return struct.unpack("<i", struct.pack("<f", number))[0]


def given(body, *columns):
    """The values of %y after a body, one for each row of %r0, %r1, ...; at most 32 rows."""
    rows = np.zeros((32, 4), np.uint32)
    count = len(columns[0])
    for place, column in enumerate(columns):
        rows[:count, place] = np.array([c & 0xFFFFFFFF for c in column], np.uint32)
    y = np.zeros(32, np.uint32)
    text = f"""{HEAD}.visible .entry k(.param .u64 p, .param .u64 q)
{{
{REGISTERS}
ld.param.u64 %in, [p]; ld.param.u64 %out, [q];
mov.u32 %tid_, %tid.x;
mad.wide.u32 %in, %tid_, 16, %in; mad.wide.u32 %out, %tid_, 4, %out;
ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%in];
{body}
st.global.u32 [%out], %y;
ret;
}}
"""
    run_ptx(text, 1, 32, rows, y, unwritten=[1])
    return y[:count].view(np.int32).tolist()


WIDE = "mov.b64 %d0, {%r0, %r1}; mov.b64 %d1, {%r2, %r3}; "
SATURATED = """cvt.u16.u32 %h0, %r0; cvt.u16.u32 %h1, %r1; sub.s16 %h2, %h0, %h1;
setp.lt.s16 %p0, %h2, %h0; setp.gt.s16 %p1, %h1, 0; xor.pred %p2, %p1, %p0;
shr.s16 %h3, %h2, 15; xor.b16 %h3, %h3, 0x8000; selp.b16 %h4, %h3, %h2, %p2; cvt.s32.s16 %y, %h4;"""

REPORTS = {
    # Two packed additions of the same constant: the second one lost it (ptxas 12.9.86, sm_90a).
    "triton-lang/triton#11581": (
        "mov.b32 %r4, 65537; add.s16x2 %r5, %r0, %r4; add.s16x2 %r6, %r1, %r4; xor.b32 %y, %r5, %r6;",
        [[224, 260, 0x7FFFFFFF], [0, 0, 0]],
        [(224 + 0x10001) ^ 0x10001, (260 + 0x10001) ^ 0x10001, struct.unpack("<i", b"\x00\x00\x00\x80")[0] ^ 0x10001],
    ),
    # max(max(x, -x), y) became max(x, y) (ptxas 12.8 to 13.3, sm_100): 13 of 18 ... -13 are at most 6 from 0.
    "triton-lang/triton#11032": (
        "neg.s32 %r4, %r0; max.s32 %r5, %r0, %r4; max.s32 %y, %r5, %r1;",
        [list(range(18, -14, -1)), [6] * 32],
        [max(abs(x), 6) for x in range(18, -14, -1)],
    ),
    # 0 - (-32768) with signed saturation is 32767 (NVPTX gave -32768).
    "llvm/llvm-project#160482": (SATURATED, [[0, 0, 5, -32768], [-32768, 32767, -3, 1]], [32767, -32767, 8, -32768]),
    # (a & 0xff) > (b & 0xff) is false for 0x100 and 1, because only the low byte counts.
    "llvm/llvm-project#79920": (
        "and.b32 %r4, %r0, 255; and.b32 %r5, %r1, 255; cvt.u16.u32 %h0, %r4; cvt.u16.u32 %h1, %r5;\n"
        "setp.gt.u16 %p0, %h0, %h1; selp.b32 %y, 1, 0, %p0;",
        [[0x100, 0x102, 2], [1, 1, 1]],
        [0, 1, 1],
    ),
    # shf.l: b has the upper bits, a the lower ones; NVPTX exchanged them.
    "llvm/llvm-project#110025": (
        "shf.l.wrap.b32 %y, %r0, %r1, %r2;",
        [[-0x80000000, 1], [1, 0], [1, 33]],
        [3, 0],
    ),
    # A rotation by more than the width rotates by the amount modulo the width.
    "llvm/llvm-project#40692": (
        "shf.l.wrap.b32 %y, %r0, %r0, %r1;",
        [[0x01010101] * 3, [1, 33, 64]],
        [0x02020202, 0x02020202, 0x01010101],
    ),
    # 2^19 + 2 x 1 in 64 bits.
    "JuliaGPU/CUDAnative.jl#58": (
        WIDE + "mov.b64 %d2, 524288; shl.b64 %d3, %d0, 1; add.s64 %d4, %d3, %d2; cvt.u32.u64 %y, %d4;",
        [[1, -1], [0, -1]],
        [524290, 524286],
    ),
    # A NaN is not less than one, so that the negated predicate chooses the first operand.
    "gpgpu-sim/gpgpu-sim_distribution#343 selp": (
        "mov.b32 %f0, %r0; setp.lt.f32 %p0, %f0, 0f3F800000; selp.s32 %y, -2147483648, 7, !%p0;",
        [[0x7FC00000, single(0.5)]],
        [-(1 << 31), 7],
    ),
    "gpgpu-sim/gpgpu-sim_distribution#343 bfe": (
        "bfe.u32 %y, %r0, %r1, %r2;",
        [[-1, -1, -1], [31, 32, 200], [8, 8, 8]],
        [1, 0, 0],
    ),
    # 2^24 + 1 rounded toward zero, and to nearest even.
    "gpgpu-sim/gpgpu-sim_distribution#343 cvt.rz": (
        "cvt.rz.f32.s32 %f0, %r0; mov.b32 %y, %f0;",
        [[16777217, 16777219, -16777219, 2147483647]],
        [single(16777216.0), single(16777218.0), single(-16777218.0), single(2147483520.0)],
    ),
    "llvm/llvm-project#106600": (
        "cvt.rn.f32.s32 %f0, %r0; mov.b32 %y, %f0;",
        [[16777217, 16777219, 2147483647]],
        [single(16777216.0), single(16777220.0), single(2147483648.0)],
    ),
    "gpgpu-sim/gpgpu-sim_distribution#343 add.rm": (
        "mov.b32 %f0, %r0; mov.b32 %f1, %r1; add.rm.f32 %f2, %f0, %f1; mov.b32 %y, %f2;",
        [[single(1.0), single(-1.0)], [single(2**-30), single(-(2**-30))]],
        [single(1.0), single(-(1 + 2**-23))],
    ),
    "gpgpu-sim/gpgpu-sim_distribution#343 add.u64": (
        WIDE + "add.u64 %d2, %d0, %d1; shr.u64 %d3, %d2, 32; cvt.u32.u64 %y, %d3;",
        [[-1, -1], [-1, 0], [1, 1], [0, -0x80000000]],
        [0, 1 - (1 << 31)],
    ),
    # A division by zero gives infinity, and the kernel continues.
    "numba/numba#7806": (
        "cvt.rn.f64.s32 %e0, %r0; mov.f64 %e1, 0d3FF0000000000000; div.rn.f64 %e2, %e1, %e0;\n"
        "cvt.rn.f32.f64 %f0, %e2; mov.b32 %y, %f0;",
        [[0, 2]],
        [0x7F800000, single(0.5)],
    ),
}


@pytest.mark.parametrize("report", REPORTS)
def test_the_emulator_gives_the_value_that_is_right(report):
    body, columns, right = REPORTS[report]
    assert given(body, *columns) == right
