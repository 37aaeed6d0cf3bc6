"""A fused product, clamped, in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def in_triton(a, b):
    """a * b + 1.0 may be fused or not: the compiler's setting decides, so there is a variant for each."""
    y = tl.clamp(a * b + 1.0, 0.0, 6.0).to(tl.float16)  # some releases of Triton clamp in float32
    return y, y * y


CLAMPED = """
            {
                .reg .b32 one, zero, six;
                mov.b32 one, 0x3C003C00;   // 1.0, twice
                mov.b32 zero, 0x00000000;
                mov.b32 six, 0x46004600;   // 6.0, twice
                fma.rn.f16x2 $0, $2, $3, one;
                max.f16x2 $0, $0, zero;
                min.f16x2 $0, $0, six;
                mul.rn.f16x2 $1, $0, $0;
            }
            """
