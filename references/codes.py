"""The meaning of codes: storage, class, ordinal, exact value, text. Nothing in this module rounds.

See `ptxdiff.references.formats` for the conventions; users import these functions from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import IntEnum
from fractions import Fraction
from typing import Any

from ptxdiff.references.description import Format

Codes = Any  # a Python int, a numpy int64 array or a torch int64 tensor: one code per element


class Class(IntEnum):
    """The class of a code's value; integers are ZERO or NORMAL."""

    ZERO = 0
    SUBNORMAL = 1
    NORMAL = 2
    INFINITY = 3
    NAN = 4


# ---- Storage ---------------------------------------------------------------------------------------------


def _is_torch(array: object) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def as_codes(array: Codes) -> Codes:
    """The bits of a numpy array or torch tensor of any numeric dtype as int64, zero-extended; same shape.

    Python integers pass unchanged. Floating-point arrays give their bit patterns, never their values.
    """
    if isinstance(array, int):
        return array
    bits = array.dtype.itemsize * 8
    if _is_torch(array):
        import torch

        if array.dtype != torch.int64:
            array = array.view(getattr(torch, f"int{bits}")).to(torch.int64)
    elif str(array.dtype) != "int64":
        array = array.view(f"int{bits}").astype("int64")
    return array if bits == 64 else array & ((1 << bits) - 1)


def unpack(fmt: Format, units: Codes) -> Codes:
    """Storage units to codes: the last dimension grows by `codes_per_unit`, the first code from the low bits.

    Padding bits above a code in its slot are dropped.
    """
    units = as_codes(units)
    if fmt.codes_per_unit == 1:
        return units & fmt.code_mask if fmt.code_bits < 64 else units
    shifts = [index * fmt.slot_bits for index in range(fmt.codes_per_unit)]
    if _is_torch(units):
        import torch as library
    else:
        import numpy as library  # type: ignore[no-redef]
    codes = library.stack([(units >> shift) & fmt.code_mask for shift in shifts], -1)
    return codes.reshape((*units.shape[:-1], -1)) if units.shape else codes


def pack(fmt: Format, codes: Codes) -> Codes:
    """Codes to storage units in the format's storage dtype; the last dimension shrinks by `codes_per_unit`.

    `ValueError` if the last dimension is not a multiple of it, or is missing. Bits above a code are dropped.
    """
    codes = as_codes(codes)
    if fmt.code_bits < 64:
        codes = codes & fmt.code_mask
    if fmt.codes_per_unit > 1:
        if not codes.shape or codes.shape[-1] % fmt.codes_per_unit:
            last = codes.shape[-1] if codes.shape else "no"
            raise ValueError(f"{fmt.name} packs {fmt.codes_per_unit} codes a unit, but {last} codes are given")
        slots = codes.reshape((*codes.shape[:-1], codes.shape[-1] // fmt.codes_per_unit, fmt.codes_per_unit))
        codes = slots[..., 0]
        for index in range(1, fmt.codes_per_unit):
            codes = codes | (slots[..., index] << (index * fmt.slot_bits))
    if _is_torch(codes):
        import torch

        return codes.to(getattr(torch, fmt.storage))
    return codes.astype(fmt.storage)


# ---- Classes ---------------------------------------------------------------------------------------------


def sign(fmt: Format, codes: Codes) -> Codes:
    """The sign bit, 0 or 1: of NaNs too; 0 for formats without one."""
    return (codes >> fmt.sign_shift) & 1 if fmt.has_sign else codes & 0


def magnitude(fmt: Format, codes: Codes) -> Codes:
    """The code without its sign and without ignored bits, shifted down; for floats it increases with the absolute
    value.

    uint64 codes do not fit a non-negative int64 and are returned unchanged.
    """
    return (codes & fmt.magnitude_mask) >> fmt.ignored_bits if fmt.magnitude_mask < 1 << 63 else codes


def is_nan(fmt: Format, codes: Codes) -> Codes:
    """Whether each code is a NaN."""
    if fmt.nan == "none":
        return codes != codes
    return magnitude(fmt, codes) > magnitude(fmt, fmt.infinity_code or fmt.max_finite)


def is_infinity(fmt: Format, codes: Codes) -> Codes:
    """Whether each code is an infinity of either sign."""
    infinity = fmt.infinity_code
    return codes != codes if infinity is None else magnitude(fmt, codes) == infinity >> fmt.ignored_bits


def is_zero(fmt: Format, codes: Codes) -> Codes:
    """Whether each code is zero, of either sign."""
    if not fmt.is_float:
        return (codes & fmt.code_mask if fmt.code_bits < 64 else codes) == 0
    return magnitude(fmt, codes) == 0 if fmt.has_zero else codes != codes


def is_subnormal(fmt: Format, codes: Codes) -> Codes:
    """Whether each code is subnormal: not zero, with the smallest exponent and no implicit leading one."""
    if not fmt.is_float or not fmt.has_zero:
        return codes != codes
    size = magnitude(fmt, codes)
    return (size > 0) & (size < 1 << fmt.mantissa_bits)


def is_finite(fmt: Format, codes: Codes) -> Codes:
    """Whether each code is neither NaN nor infinity."""
    return (is_nan(fmt, codes) | is_infinity(fmt, codes)) == 0


def classify(fmt: Format, codes: Codes) -> Codes:
    """The `Class` of each code, as integers."""
    zero, subnormal = is_zero(fmt, codes) * 1, is_subnormal(fmt, codes) * 1
    infinity, nan = is_infinity(fmt, codes) * 1, is_nan(fmt, codes) * 1
    normal = 1 - zero - subnormal - infinity - nan
    return subnormal * Class.SUBNORMAL + normal * Class.NORMAL + infinity * Class.INFINITY + nan * Class.NAN


# ---- Ordinals --------------------------------------------------------------------------------------------

_MIN64 = -(1 << 63)


def ordinal(fmt: Format, codes: Codes) -> Codes:
    """The ordinal of each code in the order of values: neighbours differ by one, and zeros of both signs have 0 (floats
    and signed integers).

    Infinity follows the largest finite value; ordinals of NaNs lie beyond it and have no meaning. uint64 codes are
    shifted down by 2^63 to fit. Differences of 64-bit ordinals can overflow: use `distance`.
    """
    if fmt.kind == "signed":
        return (codes & fmt.max_finite) + sign(fmt, codes) * -(1 << fmt.sign_shift)
    if not fmt.has_sign:
        return codes & fmt.code_mask if fmt.code_bits < 64 else (codes & ~_MIN64) + (((codes >> 63) & 1) ^ 1) * _MIN64
    return magnitude(fmt, codes) * (1 - 2 * sign(fmt, codes))


def from_ordinal(fmt: Format, ordinals: Codes) -> Codes:
    """The code with an ordinal: the inverse of `ordinal`, except that 0 always gives +0."""
    if fmt.kind == "float" and fmt.has_sign:
        negative = (ordinals < 0) * 1
        top = _MIN64 if fmt.code_bits == 64 else 1 << fmt.sign_shift
        codes = ((ordinals * (1 - 2 * negative)) << fmt.ignored_bits) | (negative * top)
    elif fmt.kind == "unsigned" and fmt.code_bits == 64:
        codes = (ordinals & ~_MIN64) + ((ordinals >= 0) * 1) * _MIN64
    else:
        codes = ordinals
    return codes & fmt.code_mask if fmt.code_bits < 64 or isinstance(codes, int) else codes


def distance(fmt: Format, left: Codes, right: Codes) -> Codes:
    """Ulps between two codes: the absolute difference of their ordinals, or 2^63 - 1 if that does not fit."""
    a, b = ordinal(fmt, left), ordinal(fmt, right)
    if isinstance(a, int) and isinstance(b, int):
        return min(abs(a - b), ~_MIN64)
    difference = a - b
    overflow = -((((a ^ b) & (a ^ difference)) < 0) * 1)
    negative = difference >> 63
    absolute = (difference ^ negative) - negative
    return (absolute & ~overflow) | (overflow & ~_MIN64)


def finite_codes(fmt: Format) -> Iterator[int]:
    """Codes of all finite values in ascending order, each value once (+0, not -0); lazily, so also for wide
    formats.
    """
    top = ordinal(fmt, fmt.max_finite)
    lowest = -top if fmt.is_float else -top - 1
    for place in range(lowest if fmt.has_sign else ordinal(fmt, 0), top + 1):
        yield from_ordinal(fmt, place)


# ---- Values ----------------------------------------------------------------------------------------------


def _significand(fmt: Format, codes: Codes) -> tuple[Codes, Codes]:
    """(integer significand, exponent of its unit) of finite floats: the magnitude is significand *
    2^exponent.
    """
    size = magnitude(fmt, codes)
    field = size >> fmt.mantissa_bits
    normal = (field > 0) * 1 if fmt.has_zero else field * 0 + 1
    significand = (size & ((1 << fmt.mantissa_bits) - 1)) | (normal << fmt.mantissa_bits)
    return significand, field + (1 - normal if fmt.has_zero else 0) - fmt.bias - fmt.mantissa_bits


def value(fmt: Format, code: int) -> float | int:
    """The exact value of one code; every float format here fits a Python float. NaNs and infinities become those of
    Python floats.
    """
    code = int(code) & fmt.code_mask
    if not fmt.is_float:
        return code - (sign(fmt, code) << fmt.code_bits) if fmt.has_sign else code
    if is_nan(fmt, code):
        return math.nan
    significand, exponent = _significand(fmt, code)
    size = math.inf if is_infinity(fmt, code) else math.ldexp(significand, exponent)
    return -size if sign(fmt, code) else size


def fraction(fmt: Format, code: int) -> Fraction:
    """The exact value of a finite code as a fraction; `ValueError` for NaN and infinity."""
    number = value(fmt, code)
    if not math.isfinite(number):
        raise ValueError(f"{fmt.name} code {code:#x} is {number}: it has no fraction")
    return Fraction(number)


def to_float64(fmt: Format, codes: Codes) -> Codes:
    """The exact values of an array of codes as float64, numpy or torch; the bits of NaNs are not kept.

    For every float format and integers of up to 32 bits; `ValueError` for wider ones, which float64 cannot hold.
    """
    library, cast = _library(codes)
    if not fmt.is_float:
        if fmt.code_bits > 32:
            raise ValueError(f"{fmt.name} values do not all fit float64")
        return cast(ordinal(fmt, codes), library.float64)
    if fmt.code_bits == 64:
        return codes.view(library.float64)
    if _is_torch(codes) and fmt.name in ("float32", "float16", "bfloat16"):
        bits = library.int32 if fmt.code_bits == 32 else library.int16
        return codes.to(bits).view(getattr(library, fmt.name)).to(library.float64)
    significand, exponent = _significand(fmt, codes)
    scale = ((exponent + 1023) << 52).view(library.float64)
    finite = cast(significand * (1 - 2 * sign(fmt, codes)), library.float64) * scale
    negative_zero = is_zero(fmt, codes) & (sign(fmt, codes) == 1)
    special = library.where(is_nan(fmt, codes), math.nan, math.inf) * cast(1 - 2 * sign(fmt, codes), library.float64)
    finite = library.where(negative_zero, -0.0, finite)
    return library.where(is_finite(fmt, codes), finite, special)


def to_float32(fmt: Format, codes: Codes) -> Codes:
    """The exact values of an array of codes of a float format as float32, numpy or torch; NaNs stay NaNs.

    `ValueError` for formats with values that float32 cannot hold.
    """
    if not fmt.is_float or fmt.code_bits > 32:
        raise ValueError(f"{fmt.name} values do not all fit float32")
    library, cast = _library(codes)
    if _is_torch(codes) and fmt.name in ("float32", "float16", "bfloat16"):
        bits = library.int32 if fmt.code_bits == 32 else library.int16
        return codes.to(bits).view(getattr(library, fmt.name)).to(library.float32)
    return cast(to_float64(fmt, codes), library.float32)


def _library(codes: Codes) -> tuple[Any, Any]:
    if _is_torch(codes):
        import torch

        return torch, lambda array, dtype: array.to(dtype)
    import numpy as np

    return np, lambda array, dtype: array.astype(dtype)


def encode(fmt: Format, number: float | int | Fraction) -> int:
    """The code of a value that the format holds exactly. Raises `ValueError` with the value if it does not.

    -0.0 keeps its sign if the format has a signed zero; NaN gives the canonical NaN.
    """
    if not fmt.is_float:
        if number == int(number) and -(fmt.max_finite + 1) * fmt.has_sign <= number <= fmt.max_finite:
            return int(number) & fmt.code_mask
        raise ValueError(f"{fmt.name} has no code for {number}")
    negative = math.copysign(1.0, number) < 0 if isinstance(number, float) else number < 0
    size = abs(number)
    code: int | None = None
    if size != size:
        negative, code = False, fmt.canonical_nan
    elif size == math.inf:
        code = fmt.infinity_code
    elif size == 0:
        code = 0 if fmt.has_zero else None
    else:
        code = _encode_positive(fmt, Fraction(number) if number > 0 else -Fraction(number))
    if code is None or (negative and not fmt.has_sign):
        raise ValueError(f"{fmt.name} has no code for {number}")
    return code | (int(negative) << fmt.sign_shift)


def _encode_positive(fmt: Format, size: Fraction) -> int | None:
    numerator, denominator = size.numerator, size.denominator
    exponent = max(floor_log2(size), fmt.min_exponent)
    unit = exponent - fmt.mantissa_bits
    significand, rest = divmod(numerator << max(-unit, 0), denominator << max(unit, 0))
    if rest:
        return None
    implicit = 1 << fmt.mantissa_bits
    code = (((exponent + fmt.bias - int(fmt.has_zero)) << fmt.mantissa_bits) + significand) << fmt.ignored_bits
    code -= 0 if fmt.has_zero else implicit
    return code if 0 <= code <= fmt.max_finite else None


def floor_log2(size: Fraction) -> int:
    """The exponent of the largest power of two not above a positive number."""
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    below = size.numerator << max(-exponent, 0) < size.denominator << max(exponent, 0)
    return exponent - int(below)


def render(fmt: Format, code: int) -> str:
    """`0x3f800000 (1.0)`: the bits in hexadecimal, and a decimal number that distinguishes the value from its
    neighbours.

    Formats narrower than float32 get float32's number of digits, so that 65504 is not shown as 65500.
    """
    code = int(code) & fmt.code_mask
    return f"0x{code:0{-(-fmt.code_bits // 4)}x} ({_decimal(fmt, code)})"


def _decimal(fmt: Format, code: int) -> str:
    number = value(fmt, code)
    if isinstance(number, int) or number == 0 or not math.isfinite(number):
        return repr(number)
    unit = min(_significand(fmt, code)[1], math.frexp(number)[1] - 24)
    half = Fraction(2) ** (unit - 2)  # below a power of two the gap is half as wide
    for digits in range(1, 18):
        shortest = float(f"{number:.{digits}g}")
        if math.isfinite(shortest) and abs(Fraction(shortest) - Fraction(number)) < half:
            return repr(shortest)
    return repr(number)
