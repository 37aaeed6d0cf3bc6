"""Conversions between formats: PTX's `cvt`, element by element, and the table-based quantisation to e2m1.

All functions take and return int64 code tensors, one code per element (two's complement for 64-bit formats);
the format describes the packing. `ftz=True` flushes float32 operands and float32 results and nothing else (ISA);
`ftz="results"` flushes only float32 results.

Sources: PTX ISA 9, cvt; OCP Microscaling 1.0 (formats); IEEE 754-2019 5.4 and 5.8. NaN becomes the canonical NaN of a
float format. In e2m1, e2m3 and e3m2, which have no NaN, it becomes the largest positive value. As an integer it becomes
0; if the source is float64 or the target has 64 bits, only the top bit is set (ISA: "1 << (BitWidth(dtype) - 1)"). ISA
and NVIDIA's cuda_fp8.h: ue8m0 takes the magnitude of its operand.

The following is not defined by the ISA and was measured on an H200. Conversions to and from float64 keep the sign and
the upper bits of a NaN's payload and set the quiet bit; bfloat16 to float32 keeps a NaN's bits; with `.ftz` a float32
NaN becomes the canonical one first. To float16, `.ftz` flushes nothing: with rm and rp a subnormal operand gives the
smallest result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references.formats import (
    BF16,
    E2M1,
    F16,
    F32,
    F64,
    Format,
    encode,
    is_infinity,
    is_nan,
    magnitude,
    sign,
    to_float32,
    to_float64,
)
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import (
    MIN64,
    Ftz,
    Rounding,
    attach_sign,
    bit_length,
    decompose,
    nan_code,
    operand,
    round_exact,
    round_float64,
    saturate,
    shift_right,
    unsigned_less,
)
from ptxdiff.references.rounding import (
    relu as clamp_negative,
)

if TYPE_CHECKING:
    from torch import Tensor


def convert(
    codes: Tensor,
    *,
    source: Format,
    target: Format,
    rounding: Rounding = "rn",
    satfinite: bool = False,
    relu: bool = False,
    sat: bool = False,
    ftz: Ftz = False,
) -> Tensor:
    """`cvt` of each code from one format to another.

    `rounding` applies to float and integer results (PTX spells the latter .rni, .rzi, .rmi, .rpi). Integer results
    saturate when the source is a float; between integers only with `sat`. `satfinite` turns infinities and overflow
    into the largest finite value, `relu` negative results and -0 into +0, `sat` clamps a float result to [0, 1].
    """
    if target.is_float and source.is_float:
        result = _float_to_float(codes, source, target, rounding, satfinite, ftz)
    elif target.is_float:
        result = _integer_to_float(codes, source, target, rounding)
    elif source.is_float:
        return float_to_integer(codes, source=source, target=target, rounding=rounding, ftz=ftz)
    else:
        return integer_to_integer(codes, source=source, target=target, sat=sat)
    if sat:
        result = saturate(target, result)
    return clamp_negative(target, result) if relu else result


def _single(codes: Tensor, source: Format, ftz: Ftz) -> Tensor:
    """An operand of cvt; only float32 is flushed."""
    return operand(source, codes, ftz) if source is F32 else codes


def _float_to_float(
    codes: Tensor, source: Format, target: Format, rounding: Rounding, satfinite: bool, ftz: Ftz
) -> Tensor:
    if target is not F16:
        codes = _single(codes, source, ftz)
    narrow = source.code_bits <= 32 and target.precision < F32.precision
    value = to_float32(source, codes) if narrow else to_float64(source, codes)
    if not target.has_sign:
        value = value.abs()
    flushes = bool(ftz) and target is F32
    result = round_float64(target, value, rounding=rounding, satfinite=satfinite, ftz=flushes, by_hand=True)
    if F64 in (source, target) or (source is BF16 and target is F32 and not ftz):
        if ftz and source is F32:
            codes = torch.where(is_nan(F32, codes), nan_code(F32), codes)
        result = torch.where(is_nan(source, codes), _carried_nan(codes, source, target), result)
    return result


def _carried_nan(codes: Tensor, source: Format, target: Format) -> Tensor:
    """NaNs converted to another format with sign and payload; quiet to and from float64; `nan_code` if it has no
    NaN."""
    if target.infinity_code is None:
        return torch.full_like(codes, nan_code(target))
    shift = target.mantissa_bits - source.mantissa_bits
    payload = codes & ((1 << source.mantissa_bits) - 1)
    payload = payload << shift if shift >= 0 else payload >> -shift
    quiet = 1 << (target.mantissa_bits - 1) if F64 in (source, target) else 0
    return attach_sign(target, sign(source, codes) == 1, payload | quiet | target.infinity_code)


def _integer_to_float(codes: Tensor, source: Format, target: Format, rounding: Rounding) -> Tensor:
    negative = sign(source, codes) == 1
    value = codes | -(negative.to(torch.int64) << source.sign_shift) if source.has_sign else codes
    size = torch.where(negative, -value, value)  # the pattern of 2^63 negates to itself
    wide = ~unsigned_less(size, torch.full_like(size, 1 << 60))
    significand = torch.where(wide, shift_right(size, 4), size)
    sticky = (wide & (size & 15 != 0)).to(torch.int64)
    exponent = wide.to(torch.int64) * 4
    return round_exact(target, negative, significand, exponent, sticky, rounding=rounding)


def float_to_integer(
    codes: Tensor, *, source: Format, target: Format, rounding: Rounding = "rz", ftz: Ftz = False
) -> Tensor:
    """Round to an integral value and clamp to the target's range; infinities clamp, NaN as in the module's
    text.
    """
    codes = _single(codes, source, ftz)
    negative, size, beyond = _integral(codes, source, rounding)
    if target.kind == "signed":
        top = 1 << target.sign_shift if target.code_bits < 64 else MIN64
        beyond = beyond | ~unsigned_less(size, torch.full_like(size, top))
        clamped = torch.where(beyond, torch.where(negative, top, top - 1 if top > 0 else ~MIN64), size)
        result = torch.where(negative & ~beyond, -clamped, clamped)
    else:
        top = (1 << target.code_bits) - 1 if target.code_bits < 64 else -1
        beyond = beyond | unsigned_less(torch.full_like(size, top), size)
        result = torch.where(negative, 0, torch.where(beyond, top, size))
    if target.code_bits < 64:
        result = result & target.code_mask
    invalid = 0
    if source is F64 or target.code_bits == 64:
        invalid = 1 << target.sign_shift if target.code_bits < 64 else MIN64
    return torch.where(is_nan(source, codes), invalid, result)


def _integral(codes: Tensor, source: Format, rounding: Rounding) -> tuple[Tensor, Tensor, Tensor]:
    """(negative, magnitude of the integral value as a 64-bit pattern, whether it needs more than 64 bits)."""
    negative, significand, exponent = decompose(source, codes)
    beyond = (bit_length(significand) + exponent > 64) | is_infinity(source, codes)
    whole = significand << exponent.clamp(0, 63)
    # Rounding to as many bits as lie left of the binary point rounds to an integer; done here step by step.
    right = (-exponent).clamp(0, 63)
    kept = significand >> right
    rest = significand - (kept << right)
    compared = rest - (1 << (right - 1).clamp(min=0))
    up = {
        "rn": (compared > 0) | ((compared == 0) & (kept & 1 == 1)),
        "rna": compared >= 0,
        "rz": rest < 0,
        "rm": negative & (rest > 0),
        "rp": ~negative & (rest > 0),
    }[rounding]
    rounded = kept + (up & (right > 0)).to(torch.int64)
    return negative, torch.where(exponent >= 0, whole, rounded), beyond


def integral_value(codes: Tensor, *, fmt: Format = F32, rounding: Rounding = "rn", ftz: Ftz = False) -> Tensor:
    """`cvt.rni.f32.f32` and similar forms: round to an integral value of the same format; the sign of zero is kept. No
    result is tiny.
    """
    codes = _single(codes, fmt, ftz)
    negative, size, _ = _integral(codes, fmt, rounding)
    _, _, exponent = decompose(fmt, codes)
    result = round_exact(fmt, negative, size & ~MIN64, torch.zeros_like(size), rounding="rz")
    result = torch.where((exponent >= 0) | is_infinity(fmt, codes), codes, result)
    return torch.where(is_nan(fmt, codes), nan_code(fmt), result)


def integer_to_integer(codes: Tensor, *, source: Format, target: Format, sat: bool = False) -> Tensor:
    """Extend according to the source's signedness, or truncate; with `sat`, clamp to the target's range instead of
    truncating.
    """
    negative = sign(source, codes) == 1
    value = codes | -(negative.to(torch.int64) << source.sign_shift) if source.has_sign else codes
    if sat:
        low = 0 if target.kind == "unsigned" else -(1 << target.sign_shift)
        high = target.max_finite if target.code_bits < 64 or target.kind == "signed" else -1
        above = unsigned_less(torch.full_like(value, high), value) & ~negative
        value = torch.where(above, high, torch.where(negative & (value < low), low, value))
    return value & target.code_mask if target.code_bits < 64 else value


# ---- The table -------------------------------------------------------------------------------------------

# Midpoints between neighbouring magnitudes 0 0.5 1 1.5 2 3 4 6 of e2m1 (OCP Microscaling 1.0, table 5), and
# whether the tie goes up: to the neighbour whose code is even.
E2M1_MIDPOINTS = (
    (0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True), (5.0, False),
)  # fmt: skip


def to_e2m1(x: Tensor) -> Tensor:
    """float32 codes to e2m1 by table: to nearest, ties to even, saturating; `cvt.rn.satfinite.e2m1x2.f32`,
    one element.

    |x| > 5 and infinities give 6.0 with the sign of x; -0 and small negative values give -0; any NaN gives
    +6.0 (0x7).
    """
    size = magnitude(F32, x)
    code = torch.zeros_like(x)
    for midpoint, tie_goes_up in E2M1_MIDPOINTS:
        threshold = encode(F32, midpoint)
        code = code + ((size >= threshold) if tie_goes_up else (size > threshold)).to(torch.int64)
    code = code | (sign(F32, x) << E2M1.sign_shift)
    return torch.where(is_nan(F32, x), E2M1.max_finite, code)
