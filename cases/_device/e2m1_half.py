"""e2m1 and the half formats in plain Triton."""

import triton
import triton.language as tl

from .narrow import narrowed


@triton.jit
def half_of(x, IS_BF16: tl.constexpr):
    """The upper and the lower half of a 32-bit register as floats."""
    bits = x.to(tl.uint16)
    return bits.to(tl.bfloat16 if IS_BF16 else tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def in_integers(x, IS_BF16: tl.constexpr):
    """Both codes by rounding the float32 of each half."""
    low = narrowed(half_of(x & 0xFFFF, IS_BF16), 2, 1, 7, 7)
    return (low | (narrowed(half_of(x >> 16, IS_BF16), 2, 1, 7, 7) << 4)).to(tl.uint8)


@triton.jit
def by_fields(x, IS_BF16: tl.constexpr):
    """Move codes to the half's fields, two in a register; a product with a power of two corrects the bias."""
    codes = (x & 15).to(tl.uint32) | ((x >> 4).to(tl.uint32) << 16)
    place: tl.constexpr = 6 if IS_BF16 else 9
    fields = ((codes & 0x00070007) << place) | ((codes & 0x00080008) << 12)
    factor: tl.constexpr = 0x7E807E80 if IS_BF16 else 0x74007400  # 2^126 or 2^14, twice
    product: tl.constexpr = "mul.rn.bf16x2 $0, $1, $2;" if IS_BF16 else "mul.rn.f16x2 $0, $1, $2;"
    return tl.inline_asm_elementwise(product, "=r,r,r", [fields, factor], dtype=tl.uint32, is_pure=True, pack=1)
