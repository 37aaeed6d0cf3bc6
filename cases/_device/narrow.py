"""Number formats of 4 to 19 bits by integer arithmetic, for GPUs without the conversions.

A format is given by its numbers of exponent and mantissa bits; its bias is that of IEEE 754.
"""

import triton
import triton.language as tl


@triton.jit
def narrowed(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr):
    """uint32 codes of float32 numbers: to nearest, ties to even, subnormals kept.

    Larger numbers become `LARGEST` (the largest finite code or infinity) with their sign; NaN becomes `NAN`.
    """
    BIAS: tl.constexpr = (1 << (EXPONENT - 1)) - 1
    SHIFT: tl.constexpr = 23 - MANTISSA
    # Adding this power of two, whose last place is the format's smallest number, rounds a subnormal result.
    MAGIC: tl.constexpr = (151 - BIAS - MANTISSA) << 23
    bits = x.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    rounded = (size + ((size >> SHIFT) & 1) + ((1 << (SHIFT - 1)) - 1)) >> SHIFT
    magic = tl.full(size.shape, MAGIC, tl.uint32).to(tl.float32, bitcast=True)
    subnormal = (size.to(tl.float32, bitcast=True) + magic).to(tl.uint32, bitcast=True) - MAGIC
    code = tl.where(size < ((128 - BIAS) << 23), subnormal, rounded - ((127 - BIAS) << MANTISSA))
    code = tl.minimum(code, LARGEST) | ((bits >> 31) << (EXPONENT + MANTISSA))
    return tl.where(size > 0x7F800000, NAN, code)


@triton.jit
def widened(code, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, FIRST_SPECIAL: tl.constexpr):
    """float32 numbers of unsigned codes; magnitudes from `FIRST_SPECIAL` on are infinity or NaN, as in float32.

    The fields move unchanged to float32's places; one exact product then corrects the bias, also for subnormals.
    """
    BIAS: tl.constexpr = (1 << (EXPONENT - 1)) - 1
    bits = code.to(tl.uint32)
    size = (bits & ((1 << (EXPONENT + MANTISSA)) - 1)) << (23 - MANTISSA)
    scale = tl.full(size.shape, (254 - BIAS) << 23, tl.uint32).to(tl.float32, bitcast=True)
    value = (size.to(tl.float32, bitcast=True) * scale).to(tl.uint32, bitcast=True)
    value = tl.where(size >= (FIRST_SPECIAL << (23 - MANTISSA)), size | 0x7F800000, value)
    return (value | ((bits >> (EXPONENT + MANTISSA)) << 31)).to(tl.float32, bitcast=True)


@triton.jit
def stochastically_narrowed(
    x, random, PLACES: tl.constexpr, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr,
    NAN: tl.constexpr,
):  # fmt: skip
    """uint32 codes of float32 numbers, rounded with `PLACES` random bits as in PTX's cvt.rs.

    The random bits are added to the highest discarded bits; a carry rounds the magnitude up.
    `LARGEST` and `NAN` as in `narrowed`.
    """
    BIAS: tl.constexpr = (1 << (EXPONENT - 1)) - 1
    bits = x.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    field = (size >> 23).to(tl.int32)
    significand = (size & 0x7FFFFF) | (tl.minimum(field, 1) << 23).to(tl.uint32)
    place = tl.maximum(field, 1) - (127 - BIAS)  # the exponent field of the result, below 1 if it is subnormal
    dropped = tl.minimum(23 - MANTISSA - PLACES + tl.maximum(1 - place, 0), 31)
    kept = ((significand >> dropped.to(tl.uint32)) + random) >> PLACES
    code = ((tl.maximum(place, 1) - 1) << MANTISSA).to(tl.uint32) + kept
    code = tl.minimum(code, LARGEST) | ((bits >> 31) << (EXPONENT + MANTISSA))
    return tl.where(size > 0x7F800000, NAN, code)
