"""IEEE 754 arithmetic on float16, bfloat16 and float32: one exact operation, rounded once, in every rounding
mode.

All functions take and return int64 code tensors, one code per element, broadcast like torch operators; `fmt` is the
format of operands and result. Subnormals are kept, unless `ftz=True` selects `.ftz`: subnormal operands become zeros of
their sign, and so do tiny results, where tininess is decided as on hardware (`ptxdiff.references.rounding`). With
`ftz="results"` the caller flushes the operands. NaN results are the canonical NaN of the format.

Intermediates are float64. Operands have at most p = 24 significant bits, so a product (2p <= 48 bits) is exact. A sum
is rounded to odd. For quotients and roots the nearest float64 rounds to the same result as the true value: where a / b
is not itself a boundary f (a number of at most p + 1 bits: a format value or a midpoint), it differs from f by a
relative 2^-(2p+1) >= 2^-49 or more, since a - f*b is a whole multiple of the last place of f*b. For a root the same
argument with a - f*f gives 2^-(2p+3) = 2^-51. The float64 result has a relative error of at most 2^-53, and f is a
float64. The exponents of all these intermediates are well inside float64's range (at least 2^-298, below 2^257).

Sources: IEEE 754-2019 5.4.1, 6.1 to 6.3 (specials and signs of zero); PTX ISA 9, floating-point instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references.formats import F32, Format, is_nan, magnitude, sign, to_float32, to_float64
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import Ftz, Rounding, exact_result, nan_code, odd_sum, operand, round_float64

if TYPE_CHECKING:
    from torch import Tensor


def _exact(fmt: Format, codes: Tensor, ftz: Ftz = False) -> Tensor:
    if not fmt.is_float or fmt.precision > 24:
        raise ValueError(f"{fmt.name}: float64 intermediates are exact for float formats up to float32 only")
    value: Tensor = to_float64(fmt, operand(fmt, codes, ftz))
    return value


def _zero_sign(total: Tensor, left: Tensor, right: Tensor, rounding: Rounding) -> Tensor:
    """An exact zero sum of operands with unlike signs is +0, or -0 when rounding down (IEEE 754 6.3)."""
    like = torch.signbit(left) == torch.signbit(right)
    zero = -0.0 if rounding == "rm" else 0.0
    return torch.where((total == 0) & ~like, zero, total)


def add(a: Tensor, b: Tensor, *, fmt: Format = F32, rounding: Rounding = "rn", ftz: Ftz = False) -> Tensor:
    """`a + b`. inf - inf is NaN; x - x is +0, or -0 with rm."""
    left, right = _exact(fmt, a, ftz), _exact(fmt, b, ftz)
    total = _zero_sign(odd_sum(left, right), left, right, rounding)
    return round_float64(fmt, total, rounding=rounding, ftz=bool(ftz))


def sub(a: Tensor, b: Tensor, *, fmt: Format = F32, rounding: Rounding = "rn", ftz: Ftz = False) -> Tensor:
    """`a - b`, the same as `a + (-b)`."""
    left, right = _exact(fmt, a, ftz), -_exact(fmt, b, ftz)
    total = _zero_sign(odd_sum(left, right), left, right, rounding)
    return round_float64(fmt, total, rounding=rounding, ftz=bool(ftz))


def mul(a: Tensor, b: Tensor, *, fmt: Format = F32, rounding: Rounding = "rn", ftz: Ftz = False) -> Tensor:
    """`a * b`. 0 * inf is NaN; the sign is the exclusive or of the signs, of zeros and infinities too."""
    # float32 represents products of float16 exactly: they have 22 bits and are multiples of 2^-48.
    exact = to_float32 if fmt.precision <= 12 and fmt.exponent_bits <= 5 else _exact
    left, right = (exact(fmt, operand(fmt, code, ftz)) for code in (a, b))
    return round_float64(fmt, left * right, rounding=rounding, ftz=bool(ftz))


def product(a: Tensor, b: Tensor, *, left: Format, right: Format, fmt: Format, satfinite: bool = False) -> Tensor:
    """`a * b` of codes of two formats, rounded once to a third, to nearest even.

    With `satfinite` overflow gives the largest finite value of `fmt`. Sources: PTX ISA 9.4, 9.7.6.3.
    """
    return round_float64(fmt, _exact(left, a) * _exact(right, b), satfinite=satfinite)


def fma(a: Tensor, b: Tensor, c: Tensor, *, fmt: Format = F32, rounding: Rounding = "rn", ftz: Ftz = False) -> Tensor:
    """`a * b + c`, rounded once. 0 * inf + c is NaN whatever c is."""
    left, right = _exact(fmt, a, ftz) * _exact(fmt, b, ftz), _exact(fmt, c, ftz)
    total = _zero_sign(odd_sum(left, right), left, right, rounding)
    return round_float64(fmt, total, rounding=rounding, ftz=bool(ftz))


def div(a: Tensor, b: Tensor, *, fmt: Format = F32, rounding: Rounding = "rn", ftz: Ftz = False) -> Tensor:
    """`a / b`. x / 0 is infinity, 0 / 0 and inf / inf are NaN."""
    return round_float64(fmt, _exact(fmt, a, ftz) / _exact(fmt, b, ftz), rounding=rounding, ftz=bool(ftz))


def sqrt(a: Tensor, *, fmt: Format = F32, rounding: Rounding = "rn", ftz: Ftz = False) -> Tensor:
    """The square root: -0 for -0, NaN for negative operands."""
    return round_float64(fmt, torch.sqrt(_exact(fmt, a, ftz)), rounding=rounding, ftz=bool(ftz))


# ---- Signs and selection ---------------------------------------------------------------------------------


def absolute(a: Tensor, *, fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """`abs`: the sign bit cleared; NaN gives the canonical NaN (the ISA leaves its bits open)."""
    a = exact_result(fmt, a, ftz)
    return torch.where(is_nan(fmt, a), nan_code(fmt), a & (fmt.magnitude_mask | ((1 << fmt.ignored_bits) - 1)))


def negate(a: Tensor, *, fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """`neg`: the sign bit flipped; NaN gives the canonical NaN (the ISA leaves its bits open)."""
    a = exact_result(fmt, a, ftz)
    flipped = a ^ (torch.ones_like(a) << fmt.sign_shift)
    return torch.where(is_nan(fmt, a), nan_code(fmt), flipped)


def copysign(a: Tensor, b: Tensor, *, fmt: Format = F32) -> Tensor:
    """`copysign d, a, b`: the sign of `a` on the magnitude of `b` (PTX's order), NaNs included, bits
    unchanged.
    """
    top = torch.ones_like(a) << fmt.sign_shift
    return (a & top) | (b & ~top)


def maximum(
    a: Tensor,
    b: Tensor,
    *,
    fmt: Format = F32,
    nan: bool = False,
    xorsign_abs: bool = False,
    absolute: bool = False,
    ftz: Ftz = False,
) -> Tensor:
    """`max`: the larger; +0 is larger than -0. A NaN operand gives the other one, two NaNs the canonical NaN.

    With `nan` (`.NaN`) any NaN operand gives the canonical NaN. `xorsign_abs` compares magnitudes and gives
    the result the exclusive or of the operands' signs; `absolute` (`.abs`) compares magnitudes and drops
    signs.
    """
    result = _select(operand(fmt, a, ftz), operand(fmt, b, ftz), fmt, +1, nan, xorsign_abs, absolute)
    return exact_result(fmt, result, ftz)


def minimum(
    a: Tensor,
    b: Tensor,
    *,
    fmt: Format = F32,
    nan: bool = False,
    xorsign_abs: bool = False,
    absolute: bool = False,
    ftz: Ftz = False,
) -> Tensor:
    """`min`: the smaller; -0 is smaller than +0. NaNs and modifiers as in `maximum`."""
    result = _select(operand(fmt, a, ftz), operand(fmt, b, ftz), fmt, -1, nan, xorsign_abs, absolute)
    return exact_result(fmt, result, ftz)


def _select(a: Tensor, b: Tensor, fmt: Format, direction: int, nan: bool, xorsign_abs: bool, absolute: bool) -> Tensor:
    signs = (sign(fmt, a) ^ sign(fmt, b)) << fmt.sign_shift
    nan_a, nan_b = is_nan(fmt, a), is_nan(fmt, b)
    if xorsign_abs or absolute:
        a, b = a & fmt.magnitude_mask, b & fmt.magnitude_mask
    # Ordinals do not serve here: -0 and +0 have equal ordinals, but -0 must be the smaller.
    place_a, place_b = (magnitude(fmt, code) ^ -sign(fmt, code) for code in (a, b))
    a_wins = place_a > place_b if direction > 0 else place_a < place_b
    result = torch.where((a_wins & ~nan_a) | nan_b, a, b)
    if xorsign_abs:
        result = result | signs
    return torch.where((nan_a | nan_b) if nan else (nan_a & nan_b), nan_code(fmt), result)
