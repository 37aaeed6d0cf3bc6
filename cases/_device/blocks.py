"""Steps of block-scaled quantisers: largest magnitudes, MX scales, elements, tiled scale offsets."""

import triton
import triton.language as tl

from .narrow import narrowed


@triton.jit
def largest_magnitude(blocks):
    """The largest magnitude along the last dimension, as uint32 bits: a NaN is larger than infinity and stays."""
    return tl.max(blocks.to(tl.uint32, bitcast=True) & 0x7FFFFFFF, 2)


@triton.jit
def mx_scale(amax, RULE: tl.constexpr, EMAX: tl.constexpr, MANTISSA: tl.constexpr, RATIO: tl.constexpr):
    """ue8m0 codes as uint32, from `largest_magnitude`. RATIO: for rceil rules, 1 / max or max."""
    if RULE == "rceil" or RULE == "rceil-div":
        value = amax.to(tl.float32, bitcast=True)
        ratio = value * RATIO if RULE == "rceil" else tl.div_rn(value, tl.full(value.shape, RATIO, tl.float32))
        size = ratio.to(tl.uint32, bitcast=True)
        up = tl.where(size < 0x800000, size > 0x400000, (size & 0x7FFFFF) != 0)
        code = (size >> 23) + up.to(tl.uint32)
    else:
        if RULE == "even":
            amax += 1 << (22 - MANTISSA)  # a value that rounds to infinity counts as infinity
        field = (amax >> 23) + (((amax & 0x7FFFFF) != 0).to(tl.uint32) if RULE == "ceil" else 0)
        code = tl.maximum(field, EMAX) - EMAX
    return tl.where(amax < 0x7F800000, tl.minimum(code, 254), 255)


@triton.jit
def power(code):
    """2^(code - 127) for ue8m0 codes, NaN for 0xff."""
    field = code.to(tl.uint32)
    bits = tl.where(field == 0, 0x400000, field << 23)
    return tl.where(field == 255, 0x7FFFFFFF, bits).to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def inverse_power(code):
    """2^(127 - code) for ue8m0 codes, NaN for 0xff."""
    return power(tl.where(code == 255, 255, 254 - code))


@triton.jit
def to_bytes(
    x, ASM: tl.constexpr, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr
):
    """A byte for each float32: by `ASM` on two elements, or by integers if `ASM` is empty."""
    if ASM != "":
        return tl.inline_asm_elementwise(ASM, "=r,r,r", [x], dtype=tl.uint8, is_pure=True, pack=2)
    return narrowed(x, EXPONENT, MANTISSA, LARGEST, NAN).to(tl.uint8)


@triton.jit
def e2m1_pairs(low, high, HARDWARE: tl.constexpr):
    """Two e2m1 codes in a byte, the first in the low nibble; NaN is +6."""
    if HARDWARE:
        # The first source of the instruction goes to the upper nibble.
        asm: tl.constexpr = "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $2, $1; cvt.u32.u8 $0, t; }"
        return tl.inline_asm_elementwise(asm, "=r,r,r", [low, high], dtype=tl.uint8, is_pure=True, pack=1)
    return (narrowed(low, 2, 1, 7, 7) | (narrowed(high, 2, 1, 7, 7) << 4)).to(tl.uint8)


@triton.jit
def tiled_offset(row, column, TILES):
    """The offset of the scale of a row and a column for tensor cores: tiles of 128 x 4, `TILES` in a row of tiles."""
    tile = (row // 128) * TILES + column // 4
    return tile * 512 + (row % 32) * 16 + ((row % 128) // 32) * 4 + column % 4
