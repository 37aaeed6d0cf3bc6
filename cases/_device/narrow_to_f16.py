"""8 and 6 bits to float16 in plain Triton."""

import triton
import triton.language as tl

from .narrow import widened


@triton.jit
def in_integers(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, FIRST_SPECIAL: tl.constexpr):
    """Through float32; the conversion to float16 is exact."""
    return widened(x, EXPONENT, MANTISSA, FIRST_SPECIAL).to(tl.float16)


@triton.jit
def cast(x, TYPE: tl.constexpr):
    """Triton's cast of a byte that is bitcast to a float."""
    return x.to(TYPE, bitcast=True).to(tl.float16)


# float16 and e5m2 have the same exponent: the byte is the upper half. Four bytes go to two registers.
UPPER_BYTES = """
    {
        prmt.b32 $0, $2, 0, 0x1404;
        prmt.b32 $1, $2, 0, 0x3424;
    }
"""

# Sign and magnitude of e4m3 move to float16's places; 2^8 corrects the bias. 0x7f, which is NaN, becomes 480.
FIELDS = """
    {
        .reg .b32 lower, upper, sign, size, scale;
        mov.b32 scale, 0x5C005C00;  // 2^8, twice
        prmt.b32 lower, $2, 0, 0x1404;
        prmt.b32 upper, $2, 0, 0x3424;
        and.b32 sign, lower, 0x80008000;
        and.b32 size, lower, 0x7F007F00;
        shr.b32 size, size, 1;
        or.b32 lower, size, sign;
        and.b32 sign, upper, 0x80008000;
        and.b32 size, upper, 0x7F007F00;
        shr.b32 size, size, 1;
        or.b32 upper, size, sign;
        mul.rn.f16x2 $0, lower, scale;
        mul.rn.f16x2 $1, upper, scale;
    }
"""
