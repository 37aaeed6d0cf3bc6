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
