"""Stochastic rounding of four float32 to one word, in plain Triton."""

import triton
import triton.language as tl

from .narrow import stochastically_narrowed


@triton.jit
def reversed16(x):
    """The low 16 bits in reverse order."""
    return tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1) >> 16


@triton.jit
def in_integers(
    p, q, r, s, rbits, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr
):
    """Elements in pairs: one reads its 16 random bits upwards, the other downwards."""
    if EXPONENT + MANTISSA == 3:  # e2m1 takes bytes 0 and 2, and 1 and 3
        rbits = (rbits & 0xFF0000FF) | ((rbits & 0xFF00) << 8) | ((rbits >> 8) & 0xFF00)
    low, high = rbits & 0xFFFF, rbits >> 16
    code = stochastically_narrowed(p, low, 16, EXPONENT, MANTISSA, LARGEST, NAN)
    width: tl.constexpr = 4 if EXPONENT + MANTISSA == 3 else 8
    code |= stochastically_narrowed(q, reversed16(low), 16, EXPONENT, MANTISSA, LARGEST, NAN) << width
    code |= stochastically_narrowed(r, high, 16, EXPONENT, MANTISSA, LARGEST, NAN) << (2 * width)
    code |= stochastically_narrowed(s, reversed16(high), 16, EXPONENT, MANTISSA, LARGEST, NAN) << (3 * width)
    return code.to(tl.uint16) if width == 4 else code
