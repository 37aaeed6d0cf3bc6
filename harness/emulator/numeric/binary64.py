"""float64 arithmetic in every rounding mode, on integers.

The host's float64 rounds to nearest only. In the other modes sums, products, fused products, quotients and roots are
computed exactly on significands; discarded bits are kept as a sticky last bit. Patterns have 64 bits and are read as
signed (see `bits`); modes are RN, RZ, RM, RP of `softfloat`.
"""

from __future__ import annotations

from ptxdiff.emulator.numeric.bits import (
    SIGN64,
    below64,
    clz64,
    high64,
    mask,
    scalar,
    shl64,
    shr64,
    square_root,
    to_float,
    to_int,
    wrap64,
)

F64_NAN = -0x0008000000000000
"""0xfff8000000000000, the NaN of a float64 operation without NaN operands (CUDA's CUDART_NAN)."""


@scalar
def f64_is_nan(a: int) -> bool:
    """Whether a float64 pattern is a NaN."""
    return (a & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000


@scalar
def f64_nan(a: int, b: int) -> int:
    """The NaN result of an operation: the first NaN of these operands, made quiet; the default NaN if neither is one.

    On hardware (H200) a sum or product prefers the NaN of its second operand. A fused multiply-add prefers b, then c,
    then a. The NaN keeps its sign.
    """
    if f64_is_nan(a):
        return a | 0x0008000000000000
    return b | 0x0008000000000000 if f64_is_nan(b) else F64_NAN


@scalar
def significand(a: int) -> int:
    """The significand of a finite non-zero pattern, normalised so that its leading one is bit 52."""
    fraction = a & 0xFFFFFFFFFFFFF
    if a & 0x7FF0000000000000:
        return fraction | 0x10000000000000
    return fraction << (clz64(fraction) - 11)


@scalar
def exponent(a: int) -> int:
    """The biased exponent for `significand`; below 1 for subnormals."""
    found = a >> 52 & 0x7FF
    return found if found else 12 - clz64(a & 0xFFFFFFFFFFFFF)


@scalar
def pack64(negative: int, biased: int, kept: int, rnd: int) -> int:
    """Round `kept * 2**(biased - 1023 - 62)` to a pattern; the leading one of `kept` is bit 62, and bit 0 is sticky."""
    if biased >= 0x7FF:
        return overflow64(negative, rnd)
    base = biased - 1
    if biased < 1:
        drop = min(1 - biased, 62)
        kept = (kept >> drop) | (1 if kept & mask(drop) else 0)
        base = 0
    lost = kept & 0x3FF
    kept >>= 10
    if rnd == 0:
        up = lost > 0x200 or (lost == 0x200 and kept & 1 == 1)
    else:
        up = lost != 0 and rnd != 1 and (negative == 1) == (rnd == 2)
    # kept includes the hidden bit, so the exponent field below is one less; a carry out of it increments the exponent.
    result = (base << 52) + kept + (1 if up else 0)
    if result >= 0x7FF0000000000000:
        return overflow64(negative, rnd)
    return result | SIGN64 if negative else result


@scalar
def overflow64(negative: int, rnd: int) -> int:
    """The result of an overflow: infinity, or the largest finite number if the mode rounds towards it."""
    back = rnd == 1 or (rnd == 2 and negative == 0) or (rnd == 3 and negative == 1)
    result = 0x7FEFFFFFFFFFFFFF if back else 0x7FF0000000000000
    return result | SIGN64 if negative else result


@scalar
def high_right(high: int, low: int, by: int) -> int:
    """Upper half of a 128-bit number (`high` not negative) shifted right."""
    return high >> by if by < 64 else 0


@scalar
def low_right(high: int, low: int, by: int) -> int:
    """Lower half of a 128-bit number shifted right; its last bit is set if ones were shifted out."""
    if by == 0:
        return low
    if by < 64:
        return shl64(high, 64 - by) | shr64(low, by) | (1 if shl64(low, 64 - by) != 0 else 0)
    if by == 64:
        return high | (1 if low != 0 else 0)
    if by < 127:
        return high >> (by - 64) | (1 if low != 0 or high & mask(by - 64) != 0 else 0)
    return 1


@scalar
def normal128(negative: int, biased: int, high: int, low: int, rnd: int) -> int:
    """Round a positive 128-bit number; `biased` is its exponent if its leading one is bit 125."""
    by = clz64(high) - 1 if high else 63 + clz64(low)
    if by < 64:
        kept = high << by | (shr64(low, 64 - by) if by else 0)
        rest = shl64(low, by)
    else:
        kept, rest = shl64(low, by - 64), 0
    return pack64(negative, biased + 1 - by, kept | (1 if rest != 0 else 0), rnd)


@scalar
def fma64(a: int, b: int, c: int, rnd: int) -> int:
    """a * b + c, rounded once. NaNs: see `f64_nan`. An exact zero sum of opposite signs is -0 only in mode RM."""
    negative = 1 if (a ^ b) < 0 else 0
    minus = 1 if c < 0 else 0
    x, y, z = a & 0x7FFFFFFFFFFFFFFF, b & 0x7FFFFFFFFFFFFFFF, c & 0x7FFFFFFFFFFFFFFF
    top = 0x7FF0000000000000
    if x >= top or y >= top or z >= top:
        if y > top or z > top:
            return f64_nan(b, c)
        if x > top:
            return f64_nan(a, a)
        product_infinite = x == top or y == top
        if (product_infinite and (x == 0 or y == 0)) or (product_infinite and z == top and negative != minus):
            return F64_NAN
        if product_infinite:
            return top | SIGN64 if negative else top
        return c
    if x == 0 or y == 0:
        if z != 0:
            return c
        both = negative & minus if rnd != 2 else negative | minus
        return SIGN64 if both else 0
    return _finite_fma64(negative, minus, x, y, z, rnd)


@scalar
def _finite_fma64(negative: int, minus: int, x: int, y: int, z: int, rnd: int) -> int:
    """The fused sum of finite magnitudes x * y and z with their signs; x and y are not zero, z may be."""
    # Shift the product's leading one to bit 125, so that the sum fits in 127 bits.
    left, right = significand(x) << 9, significand(y) << 11
    biased = exponent(x) + exponent(y) - 1023
    high, low = high64(left, right), wrap64(left * right)
    if high >= 1 << 61:
        biased += 1
    else:
        low, high = shl64(low, 1), high << 1 | shr64(low, 63)
    if z == 0:
        return normal128(negative, biased, high, low, rnd)
    other, zeros = significand(z) << 9, 0
    apart = biased - exponent(z)
    if apart >= 0:
        zeros, other = low_right(other, 0, apart), high_right(other, 0, apart)
    else:
        low, high = low_right(high, low, -apart), high_right(high, low, -apart)
        biased -= apart
    if negative == minus:
        total = wrap64(low + zeros)
        carry = 1 if below64(total, low) else 0
        return normal128(negative, biased, high + other + carry, total, rnd)
    if high == other and low == zeros:
        return SIGN64 if rnd == 2 else 0
    if high < other or (high == other and below64(low, zeros)):
        high, low, other, zeros = other, zeros, high, low
        negative = minus
    borrow = 1 if below64(low, zeros) else 0
    return normal128(negative, biased, high - other - borrow, wrap64(low - zeros), rnd)


@scalar
def divide64(a: int, b: int, rnd: int) -> int:
    """a / b, rounded once. 0/0 and inf/inf give the default NaN."""
    negative = 1 if (a ^ b) < 0 else 0
    sign = SIGN64 if negative else 0
    x, y = a & 0x7FFFFFFFFFFFFFFF, b & 0x7FFFFFFFFFFFFFFF
    top = 0x7FF0000000000000
    if x > top or y > top or (x == top and y == top) or (x == 0 and y == 0):
        return f64_nan(a, b)
    if x == top or y == 0:
        return top | sign
    if x == 0 or y == top:
        return sign
    biased = exponent(x) - exponent(y) + 1023
    rest, divisor = significand(x), significand(y)
    if rest < divisor:
        rest <<= 1
        biased -= 1
    quotient = 1
    rest -= divisor
    for _ in range(6):
        # rest is below 2**53, so ten further bits of the quotient at a time fit in 63 bits.
        rest <<= 10
        digit = rest // divisor
        quotient = quotient << 10 | digit
        rest -= digit * divisor
    return pack64(negative, biased, quotient << 2 | (1 if rest else 0), rnd)


@scalar
def root64(a: int, rnd: int) -> int:
    """The square root, rounded once; -0 for -0, the default NaN below zero."""
    x = a & 0x7FFFFFFFFFFFFFFF
    if x > 0x7FF0000000000000:
        return a | 0x0008000000000000
    if x == 0 or a == 0x7FF0000000000000:
        return a
    if a < 0:
        return F64_NAN
    biased = exponent(x) - 1023
    radicand = significand(x) << (biased & 1)
    # The host's root is correct to half an ulp; the sign of the remainder (below 2**55) says on which side it is.
    root = to_int(square_root(to_float(radicand)) * 67108864.0)
    rest = wrap64(shl64(radicand, 52) - wrap64(root * root))
    if rest < 0:
        root -= 1
        rest += 2 * root + 1
    kept = (root << 1 | (1 if rest > root else 0)) << 9
    return pack64(0, (biased >> 1) + 1023, kept | (1 if rest else 0), rnd)
