"""Exact rounding of real numbers to codes of any format, in torch int64. All references round here.

A real number is given as sign, integer significand, exponent of its unit and a sticky bit ("the true value lies
strictly between this significand and the next"), or as a float64 that is exact or rounded to odd. Every step is integer
arithmetic without data-dependent control flow: it runs on CPU and CUDA tensors and under `torch.compile`.

Rounding modes have PTX's names: rn (to nearest, ties to even), rna (ties away from zero), rz (toward zero), rm (toward
minus infinity), rp (toward plus infinity).

Flushing (`.ftz`) belongs to rounding, because it depends on when a result is tiny (IEEE 754 7.5). Before rounding: the
exact result lies below the smallest normal value. After rounding: it still does when rounded to the format's precision
as if the exponent had no lower end. An H200 decides after rounding (all inputs of mul.ftz.f16 and rcp.rn.ftz.f32).
Flushing the subnormal codes of a rounded result is a third rule, which keeps more: a result between a quarter and half
an ulp below the smallest normal value rounds up to that value in the format, but is tiny.

Sources: IEEE 754-2019 sections 4.3, 7.4 and 7.5; PTX ISA, rounding modifiers and `.ftz`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from ptxdiff.references.formats import F32, F64, Format, encode, is_infinity, is_nan, is_subnormal, sign
from ptxdiff.references.lazily import torch

if TYPE_CHECKING:
    from torch import Tensor

Rounding = Literal["rn", "rna", "rz", "rm", "rp"]
ROUNDINGS: tuple[Rounding, ...] = ("rn", "rna", "rz", "rm", "rp")

Tininess = Literal["before", "after"]
"""When tininess is decided: before rounding, or after rounding with an unbounded exponent."""

Ftz = bool | Literal["results"]
"""The `ftz=` of a reference: True flushes operands and results as `.ftz` does, "results" results alone."""

MIN64 = -(1 << 63)
MAX64 = (1 << 63) - 1


# ---- 64-bit helpers: torch's int64 is signed -------------------------------------------------------------


def shift_right(value: Tensor, count: Tensor | int) -> Tensor:
    """Logical right shift of 64-bit patterns; `count` from 0 to 63."""
    mask = (MAX64 >> count) << 1 | 1 if isinstance(count, int) else ((torch.full_like(count, MAX64) >> count) << 1) | 1
    return (value >> count) & mask


def unsigned_less(left: Tensor, right: Tensor) -> Tensor:
    """Whether `left < right`, both read as unsigned 64-bit integers."""
    return (left ^ MIN64) < (right ^ MIN64)


def bit_length(value: Tensor) -> Tensor:
    """Bits needed for a non-negative int64, 0 for 0: Python's `int.bit_length`."""
    length = torch.zeros_like(value)
    for step in (32, 16, 8, 4, 2, 1):
        wide = (value >> step > 0).to(torch.int64) * step
        length, value = length + wide, value >> wide
    return length + value


# ---- Observing what a reference rounds ---------------------------------------------------------------------

Rounded = Callable[[Format, Rounding], "Tensor"]
Observer = Callable[[Format, Rounding, Rounded], "Tensor"]
"""Called for each rounding with its format, its mode and a function that rounds the same exact values to any format in
any mode; returns the codes that the reference gets."""


class _Observers(threading.local):
    """The observers of one thread: other threads' references keep their results."""

    def __init__(self) -> None:
        self.active: list[Observer] = []

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """The same for every value: who observes is no part of what a reference computes."""
        return _Observers, ()


_observers = _Observers()


@contextlib.contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Within this block, `observer` decides the result of every `round_exact` and `round_float64`.

    Input sets are made with it: inputs that lie at the boundaries of a reference's intermediate roundings.
    """
    _observers.active.append(observer)
    try:
        yield
    finally:
        _observers.active.pop()


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Within this block no observer is called."""
    before, _observers.active = _observers.active, []
    try:
        yield
    finally:
        _observers.active = before


def _observed(
    fmt: Format, function: Callable[..., Tensor], values: tuple[Any, ...], rounding: Rounding, rest: dict[str, Any]
) -> Tensor:
    def rounded(other: Format, mode: Rounding) -> Tensor:
        return function(other, *values, rounding=mode, **rest)

    observer = _observers.active.pop()  # what the observer itself computes is not observed
    try:
        return observer(fmt, rounding, rounded)
    finally:
        _observers.active.append(observer)


# ---- Rounding --------------------------------------------------------------------------------------------


def _round_up(negative: Tensor, kept: Tensor, rest: Tensor, shift: Tensor, rounding: Rounding) -> Tensor:
    """1 if `kept + rest / 2^shift` rounds up to the next magnitude, else 0; for shift 0 the rest is 0."""
    if rounding == "rz":
        return torch.zeros_like(kept)
    if rounding in ("rm", "rp"):
        return (rest > 0).to(torch.int64) & (negative if rounding == "rm" else ~negative)
    half = 1 << (shift - 1).clamp(min=0)
    # Above half, or a tie that rounds up: for rn if `kept` is odd, for rna always.
    return (rest + (kept & 1 if rounding == "rn" else 1) > half).to(torch.int64)


def _check_overflow(fmt: Format, satfinite: bool) -> None:
    if fmt.nan == "none" and not satfinite:
        raise ValueError(f"{fmt.name} has neither infinity nor NaN: overflow must saturate, pass satfinite=True")


def round_exact(
    fmt: Format,
    negative: Tensor,
    significand: Tensor,
    exponent: Tensor,
    sticky: Tensor | None = None,
    *,
    rounding: Rounding = "rn",
    satfinite: bool = False,
    ftz: bool = False,
    tininess: Tininess = "after",
) -> Tensor:
    """The code of `+-(significand + sticky/2) * 2^exponent`, rounded once; all int64, `negative` bool, one
    shape.

    `significand` is at least 0 and below 2^61; `sticky` is 0 or 1. If it is 1, `significand` needs at least
    `fmt.precision + 1` bits (fewer if the result is subnormal by as much); otherwise the bits that decide the rounding
    are missing.

    Overflow gives infinity, or the largest finite value if the mode rounds toward zero on that side or with
    `satfinite`. A format without infinity overflows to its NaN (OCP, non-saturating), and one without NaN must
    saturate: `ValueError`. Underflow gives subnormals and signed zeros, with `ftz` a zero of the result's sign if the
    result is tiny; ue8m0 has neither and ends at 2^-127.
    """
    if _observers.active:
        rest = {"satfinite": satfinite, "ftz": ftz, "tininess": tininess}
        return _observed(fmt, _round_exact, (negative, significand, exponent, sticky), rounding, rest)
    return _round_exact(fmt, negative, significand, exponent, sticky, rounding, satfinite, ftz, tininess)


def _round_exact(
    fmt: Format,
    negative: Tensor,
    significand: Tensor,
    exponent: Tensor,
    sticky: Tensor | None,
    rounding: Rounding,
    satfinite: bool,
    ftz: bool,
    tininess: Tininess,
) -> Tensor:
    _check_overflow(fmt, satfinite)
    significand = (significand << 1) | (0 if sticky is None else sticky)
    exponent = exponent - 1
    lowest = fmt.min_exponent - fmt.mantissa_bits
    free = exponent + bit_length(significand) - fmt.precision
    unit = torch.where(significand == 0, lowest, free.clamp(min=lowest))
    # A shift of 63 reduces a significand below 2^62 to 0 with less than half a unit of rest, so larger shifts are
    # equivalent.
    right = (unit - exponent).clamp(0, 63)
    kept = significand >> right
    rest = significand - (kept << right)
    kept = kept << (exponent - unit).clamp(0, 63)
    kept = kept + _round_up(negative, kept, rest, right, rounding)
    # For normals the leading one in `kept` adds the missing 1 to the exponent field; a subnormal has field 0 and no
    # leading one.
    field = unit - lowest - (0 if fmt.has_zero else 1)
    largest = fmt.max_finite >> fmt.ignored_bits
    last_field = (largest >> fmt.mantissa_bits) - 1
    code = ((field.clamp(max=last_field) << fmt.mantissa_bits) + kept).clamp(min=0)
    code = torch.where(field > last_field, largest + 1, code)
    code = _overflow(fmt, negative, code, rounding, satfinite)
    if ftz and fmt.has_zero:
        code = torch.where(_is_tiny(fmt, negative, significand, exponent, free, rounding, tininess), 0, code)
    return attach_sign(fmt, negative, code)


def _is_tiny(
    fmt: Format, negative: Tensor, significand: Tensor, exponent: Tensor, unit: Tensor, rounding: Rounding, when: str
) -> Tensor:
    """Whether `significand * 2^exponent` is tiny; `unit` is its last place in the format's precision with an unbounded
    exponent."""
    lowest = fmt.min_exponent - fmt.mantissa_bits
    if when == "before":
        return unit < lowest
    right = (unit - exponent).clamp(0, 63)
    kept = significand >> right
    kept = kept + _round_up(negative, kept, significand - (kept << right), right, rounding)
    return torch.where(kept >> fmt.precision == 1, unit + 1, unit) < lowest


def _overflow(fmt: Format, negative: Tensor, code: Tensor, rounding: Rounding, satfinite: bool) -> Tensor:
    largest = fmt.max_finite >> fmt.ignored_bits
    beyond = largest if satfinite else largest + 1  # infinity, or in a format without infinity NaN, is the next code
    code = torch.where(code > largest, beyond, code)
    if rounding in ("rn", "rna"):
        return code
    toward_zero = {"rz": negative | True, "rm": ~negative, "rp": negative}[rounding]
    return torch.where((code > largest) & toward_zero, largest, code)


def attach_sign(fmt: Format, negative: Tensor, magnitude: Tensor) -> Tensor:
    """A code from the sign and the magnitude that `ptxdiff.references.formats.magnitude` gives."""
    code = magnitude << fmt.ignored_bits
    return code | (negative.to(torch.int64) << fmt.sign_shift) if fmt.has_sign else code


def decompose(fmt: Format, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(negative, significand, exponent) of finite float codes: `+-significand * 2^exponent`, exactly."""
    size = (codes >> fmt.ignored_bits) & (fmt.magnitude_mask >> fmt.ignored_bits)
    field = size >> fmt.mantissa_bits
    fraction = size & ((1 << fmt.mantissa_bits) - 1)
    if not fmt.has_zero:
        return codes < 0, torch.ones_like(codes), field - fmt.bias
    normal = (field > 0).to(torch.int64)
    exponent = field + (1 - normal) - fmt.bias - fmt.mantissa_bits
    return sign(fmt, codes) == 1, fraction | (normal << fmt.mantissa_bits), exponent


def round_float64(
    fmt: Format,
    value: Tensor,
    *,
    rounding: Rounding = "rn",
    satfinite: bool = False,
    ftz: bool = False,
    tininess: Tininess = "after",
    by_hand: bool = False,
) -> Tensor:
    """The code of a float64 tensor, specials included; exact for values that are exact or rounded to odd.

    A float32 tensor with exact values is accepted too. NaN gives the canonical NaN, or the largest positive finite
    value in a format without NaN (PTX ISA, cvt). An infinity gives infinity, or in a format without infinity its NaN;
    with `satfinite` it gives the largest finite value. The sign of zero is kept. With `ftz` a tiny result becomes a
    zero of its sign. Otherwise the result is that of `round_exact`; this function is faster, because significands are
    already normalised.

    Why rounding to odd suffices: a value rounded to odd with 53 bits lies on the same side of every number of at most
    52 bits as the true value. The rounding decision changes only at format values and midpoints, which have at most
    `fmt.precision + 1` bits, so the format may have up to 51 bits. Conversion to float64 rounds nothing.

    Conversion to float32 uses the processor's; `by_hand` uses integers instead, for tests of that conversion.
    """
    if _observers.active:
        rest = {"satfinite": satfinite, "ftz": ftz, "tininess": tininess, "by_hand": by_hand}
        return _observed(fmt, _round_float64, (value,), rounding, rest)
    return _round_float64(fmt, value, rounding, satfinite, ftz, tininess, by_hand)


def _round_float64(
    fmt: Format, value: Tensor, rounding: Rounding, satfinite: bool, ftz: bool, tininess: Tininess, by_hand: bool
) -> Tensor:
    if fmt.precision > 51:
        codes = value.view(torch.int64)
        result = torch.where(is_nan(F64, codes), nan_code(fmt), codes)
        return flush_subnormals(fmt, result) if ftz else result
    _check_overflow(fmt, satfinite)
    result = _rounded_float64(fmt, value, rounding, satfinite, by_hand)
    if not ftz or not fmt.has_zero:
        return result
    single = value.dtype == torch.float32 and fmt.precision < F32.precision
    size = value.view(torch.int32) & F32.magnitude_mask if single else value.double().view(torch.int64) & MAX64
    limit = encode(F32 if single else F64, _tiny_below(fmt, rounding, tininess))
    tiny = size < limit
    if tininess == "after" and rounding in ("rm", "rp"):
        # Rounding away from zero gives a normal number for everything above the largest subnormal.
        last = encode(F32 if single else F64, Fraction(2) ** fmt.min_exponent * (1 - Fraction(1, 1 << fmt.precision)))
        outward = (sign(fmt, result) == 1) == (rounding == "rm")
        tiny = torch.where(outward, size <= last, tiny)
    return torch.where(tiny, result & ~fmt.magnitude_mask, result)


def _tiny_below(fmt: Format, rounding: Rounding, tininess: Tininess) -> Fraction:
    """The smallest magnitude that is not tiny: the smallest normal value, or the least magnitude that rounds up to
    it."""
    nearest = tininess == "after" and rounding in ("rn", "rna")
    return Fraction(2) ** fmt.min_exponent * (1 - Fraction(nearest, 2 << fmt.precision))


def _rounded_float64(fmt: Format, value: Tensor, rounding: Rounding, satfinite: bool, by_hand: bool) -> Tensor:
    if fmt is F32 and rounding == "rn" and not satfinite and not by_hand:
        codes = value.to(torch.float32).view(torch.int32).to(torch.int64) & fmt.code_mask
        return torch.where(is_nan(F32, codes), nan_code(fmt), codes)
    source = F32 if value.dtype == torch.float32 and fmt.precision < F32.precision else F64
    codes = value.view(torch.int32) if source is F32 else value.double().view(torch.int64)
    if rounding == "rn" and fmt.has_zero:
        code = _to_nearest_even(fmt, source, codes)
    else:
        source, codes = F64, value.double().view(torch.int64)
        code = _by_shifting(fmt, codes, rounding)
    negative = codes < 0
    result = _overflow(fmt, negative, code, rounding, satfinite)
    if rounding in ("rz", "rm", "rp") and not satfinite:
        # An infinity is exact: in no mode does it round down to the largest finite value.
        infinite = is_infinity(source, codes)
        result = torch.where(infinite, (fmt.max_finite >> fmt.ignored_bits) + 1, result)
    return torch.where(is_nan(source, codes), nan_code(fmt), attach_sign(fmt, negative, result.to(torch.int64)))


def _to_nearest_even(fmt: Format, source: Format, codes: Tensor) -> Tensor:
    """The magnitude of float32 or float64 codes in a narrower format, before overflow; in the codes' own width.

    For a normal result, the lower bits of the code are rounded off, and a carry increments the exponent. For a
    subnormal result, the value is added to a power of two whose ulp is the format's smallest value, so that the
    addition rounds.
    """
    size = codes & source.magnitude_mask
    shift = source.mantissa_bits - fmt.mantissa_bits
    odd_place = (size >> shift) & 1
    normal = (size + odd_place + ((1 << (shift - 1)) - 1) >> shift) - ((source.bias - fmt.bias) << fmt.mantissa_bits)
    lowest = fmt.min_exponent - fmt.mantissa_bits
    sum_ = size.view(getattr(torch, source.name)) + 2.0 ** (lowest + source.mantissa_bits)
    subnormal = sum_.view(codes.dtype) & ((2 << fmt.mantissa_bits) - 1)  # at most the smallest normal value
    return torch.where(size < encode(source, 2.0**fmt.min_exponent), subnormal, normal)


def _by_shifting(fmt: Format, codes: Tensor, rounding: Rounding) -> Tensor:
    """The magnitude of float64 codes in a narrower format in any rounding mode, before overflow."""
    size = codes & MAX64
    field = size >> 52
    # A subnormal float64 is far below half of any other format's smallest value: its leading bit does not matter.
    significand = torch.where(size == 0, 0, (size & ((1 << 52) - 1)) | (1 << 52))
    raised = field - (1023 + fmt.min_exponent)  # binades above the smallest normal value of the format
    right = 52 - fmt.mantissa_bits - raised.clamp(-63 + 52 - fmt.mantissa_bits, 0)
    kept = significand >> right
    rest = significand - (kept << right)
    kept = kept + _round_up(codes < 0, kept, rest, right, rounding)
    code = (raised.clamp(min=0) << fmt.mantissa_bits) + kept
    return code if fmt.has_zero else (code - 1).clamp(min=0)


def nan_code(fmt: Format) -> int:
    """The result of converting a NaN: the canonical NaN as an int64, or the largest finite value in a format without
    NaN.
    """
    code = fmt.max_finite if fmt.canonical_nan is None else fmt.canonical_nan
    return code - (1 << 64) if code > MAX64 else code


# ---- float64 with rounding to odd ------------------------------------------------------------------------


def odd(value: Tensor, error: Tensor) -> Tensor:
    """`value + error` rounded to odd, for a float64 `value` rounded to nearest and an `error` with the sign of its
    rounding error.

    Round to odd: exact, or else the neighbour with an odd significand. Where the nearest result is even and
    inexact, the odd neighbour lies on the side of the error. Infinities and NaNs are unchanged.
    """
    codes = value.view(torch.int64)
    outward = (error > 0) == (value > 0)  # one code up is away from zero
    step = torch.where(outward, 1, -1)
    inexact_even = (error != 0) & ((codes & 1) == 0) & torch.isfinite(value) & torch.isfinite(error)
    return torch.where(inexact_even, codes + step, codes).view(torch.float64)


def odd_sum(left: Tensor, right: Tensor) -> Tensor:
    """`left + right` in float64, rounded to odd: Knuth's TwoSum gives the exact error as long as nothing
    overflows.

    It uses only additions and subtractions, so contraction to fma changes the result only if an argument is an inexact
    product; pass only exact products.
    """
    total = left + right
    virtual = total - left
    error = (left - (total - virtual)) + (right - virtual)
    return odd(total, error)


# ---- Result modifiers ------------------------------------------------------------------------------------


def flush_subnormals(fmt: Format, codes: Tensor) -> Tensor:
    """Subnormal codes become zero of the same sign (PTX ISA: sign-preserving zero): what `.ftz` does to operands.

    For results, round with `ftz=True`: see the module's text.
    """
    return torch.where(is_subnormal(fmt, codes), codes & ~fmt.magnitude_mask, codes)


def operand(fmt: Format, codes: Tensor, ftz: Ftz) -> Tensor:
    """An operand of an instruction, flushed if `ftz` is True; unchanged for False and "results"."""
    return flush_subnormals(fmt, codes) if ftz is True else codes


def exact_result(fmt: Format, codes: Tensor, ftz: Ftz) -> Tensor:
    """A result that needed no rounding, flushed as `ftz` says."""
    return flush_subnormals(fmt, codes) if ftz else codes


def relu(fmt: Format, codes: Tensor) -> Tensor:
    """`.relu`: negative results and negative zero become +0, NaN the canonical NaN (PTX ISA, cvt and fma)."""
    clamped = torch.where(sign(fmt, codes) == 1, 0, codes)
    return torch.where(is_nan(fmt, codes), nan_code(fmt), clamped)


def saturate(fmt: Format, codes: Tensor) -> Tensor:
    """`.sat`: clamp to [0, 1]; NaN and negative values become +0 (PTX ISA, `.sat`)."""
    one = encode(fmt, 1.0)
    low = (sign(fmt, codes) == 1) | is_nan(fmt, codes)
    return torch.where(low, 0, torch.where(codes > one, one, codes))
