"""Stochastic rounding: PTX's `cvt.rs` from float32, with given random bits.

The rule (PTX ISA 9, 9.7.9.21): the random bits are added, as an integer, to the discarded bits of the significand; a
carry out of them rounds the magnitude up, no carry truncates it. The random bits are aligned with the highest discarded
bits. Discarded bits below the random ones cannot cause a carry and have no effect. The discarded bits begin below the
last place of the result, also of a subnormal result: with n random bits, a value below 2^-n of the smallest subnormal
always becomes zero. A value that the target holds exactly never changes.

The bits of the 32-bit operand `rbits` for each element, the most significant first (a is the first source and goes to
the top of the result, f the last):

| target | bits per element | a | b | e | f |
|---|---|---|---|---|---|
| f16x2 | 13 | 28..16 | 12..0 | | |
| bf16x2 | 16 | 31..16 | 15..0 | | |
| e4m3x4 e5m2x4 e2m3x4 e3m2x4 | 16 | 16..31 | 31..16 | 0..15 | 15..0 |
| e2m1x4 | 16 | 8..15, 24..31 | 31..24, 15..8 | 0..7, 16..23 | 23..16, 7..0 |

Elements that share bits read them in opposite orders. The ISA's text says which bits belong to which pair of elements.
The orders within a pair are in its figures 38 to 41; public measurements on a Blackwell GPU agree for bf16x2, e4m3x4
and e2m1x4 (a benchmark of casts, quant_cast_bench). This project has not confirmed them on hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references import bits
from ptxdiff.references.formats import BF16, E2M1, F16, F32, U16, Format, is_infinity, is_nan
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import attach_sign, bit_length, decompose, nan_code
from ptxdiff.references.rounding import relu as clamp_negative

if TYPE_CHECKING:
    from torch import Tensor


def convert(x: Tensor, random: Tensor, *, target: Format, satfinite: bool = False, relu: bool = False) -> Tensor:
    """float32 codes to codes of `target`; `random` holds `random_bits(target)` bits per element.

    NaN gives the canonical NaN, or the largest finite value if the target has no NaN; infinities stay or, with
    `satfinite`, become the largest finite value, as does overflow. `relu` turns negative results and -0 into +0.
    """
    if not target.infinity and not satfinite:
        raise ValueError(f"{target.name} has no infinity: cvt.rs to it saturates, pass satfinite=True")
    negative, significand, exponent = decompose(F32, x)
    lowest = target.min_exponent - target.mantissa_bits
    unit = (exponent + bit_length(significand) - target.precision).clamp(min=lowest)
    # The magnitude in units of the random bits' last place: drop lower bits, then add the random bits.
    places = random_bits(target)
    left = exponent - unit + places
    scaled = (significand << left.clamp(0, places)) >> (-left).clamp(0, 63)
    kept = (scaled + random) >> places
    # For normals the leading one in `kept` adds the missing 1 to the exponent field; a subnormal has no leading one.
    code = ((unit - lowest) << target.mantissa_bits) + kept
    beyond = target.max_finite + (0 if satfinite else 1)
    code = torch.where((code > target.max_finite) | is_infinity(F32, x), beyond, code)
    code = torch.where(is_nan(F32, x), nan_code(target), attach_sign(target, negative, code))
    return clamp_negative(target, code) if relu else code


def random_bits(target: Format) -> int:
    """How many random bits one element of a target format takes."""
    return 13 if target is F16 else 16


def share(rbits: Tensor, *, target: Format) -> Tensor:
    """The random bits of each element from 32-bit codes `rbits`: a new last dimension, the first element (the one in
    the low bits of the packed result: b, or f) first; 2 long for float16 and bfloat16, else 4.
    """
    low, high = rbits & 0xFFFF, (rbits >> 16) & 0xFFFF
    if target is F16:
        return torch.stack([low & 0x1FFF, high & 0x1FFF], -1)
    if target is BF16:
        return torch.stack([low, high], -1)
    if target is E2M1:
        low, high = (low & 0xFF) | (high & 0xFF) << 8, (low >> 8) | (high & 0xFF00)
    return torch.stack([low, bits.brev(low, fmt=U16), high, bits.brev(high, fmt=U16)], -1)
