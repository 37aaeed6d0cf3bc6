"""Kernels of published faults of ptxas, for `test_faults`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def two_packed_sums(out, D1: tl.constexpr, D2: tl.constexpr):
    """Two groups of registers whose sums LLVM packs into 16 bits."""
    place = tl.reshape(tl.arange(0, D1 * D2), (1, D1, D2))
    odd = tl.expand_dims(tl.expand_dims(tl.arange(0, D1) % 2 == 1, 0), 2)
    value = tl.where(odd, (place * 9 + 1) % 1000, place)
    tl.store(out + place, value, mask=place % 2 == 0)


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

LEAST_MAGNITUDE = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u64 d) {
.reg .pred %least, %less, %tie, %first; .reg .b16 %h<5>; .reg .b32 %r<7>; .reg .b64 %p, %q, %o;
mov.u32 %r0, %tid.x;
ld.param.u64 %p, [a]; ld.param.u64 %q, [d];
mul.wide.u32 %o, %r0, 2; add.u64 %p, %p, %o;
mul.wide.u32 %o, %r0, 4; add.u64 %q, %q, %o;
ld.global.u16 %h0, [%p];
mov.b32 %r1, {%h0, %h0};
shfl.sync.down.b32 %r2, %r1, 1, 31, -1;
shfl.sync.down.b32 %r3, %r0, 1, 31, -1;
mov.b32 {%h1, %h4}, %r2;
abs.s16 %h2, %h0;
abs.s16 %h3, %h1;
setp.lt.u16 %less, %h3, %h2;
setp.eq.u16 %tie, %h3, %h2;
setp.lt.s32 %first, %r3, %r0;
and.pred %first, %first, %tie;
or.pred %least, %less, %first;
selp.b32 %r4, %r3, %r0, %least;
st.global.b32 [%q], %r4;
ret;
}
"""
"""NVIDIA/cccl issue 10958, one step of its reduction: the index of the least magnitude of a lane and the next one."""
