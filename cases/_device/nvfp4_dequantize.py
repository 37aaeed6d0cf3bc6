"""NVFP4 values times a scale, to e4m3, in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def in_triton(q, s):
    """e2m1 by its fields (0.5 is its only subnormal), then float32 arithmetic and a cast, which saturates."""
    size = (q & 7).to(tl.uint32)
    bits = tl.where(size < 2, size * 0x3F000000, (size + 252) << 22) | ((q & 8).to(tl.uint32) << 28)
    product = bits.to(tl.float32, bitcast=True) * s.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    return product.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


# Conversions and products in pairs of float16.
OVER_F16 = """
            {
                .reg .b8 lower, upper, none;
                .reg .b16 s0, s1, y0, y1;
                .reg .b32 pairs, x0, x1, z0, z1;
                and.b32 x0, $1, 0x0f0f0f0f;
                shr.b32 pairs, x0, 4;
                or.b32 pairs, pairs, x0;
                mov.b32 {lower, none, upper, none}, pairs;
                cvt.rn.f16x2.e2m1x2 x0, lower;
                cvt.rn.f16x2.e2m1x2 x1, upper;
                mov.b32 {s0, s1}, $2;
                cvt.rn.f16x2.e4m3x2 z0, s0;
                cvt.rn.f16x2.e4m3x2 z1, s1;
                mul.rn.f16x2 x0, x0, z0;
                mul.rn.f16x2 x1, x1, z1;
                cvt.rn.satfinite.e4m3x2.f16x2 y0, x0;
                cvt.rn.satfinite.e4m3x2.f16x2 y1, x1;
                mov.b32 $0, {y0, y1};
            }
            """
