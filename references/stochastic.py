"""Stochastic rounding: PTX's `cvt.rs` from float32, with the random bits it is given.

The rule (LLVM's guide to its NVPTX intrinsics; the ISA's text names the bits and leaves the rest to figures): the
random bits are added to the trailing bits of the significand that the target has no room for, and a carry out of them
rounds the magnitude up, no carry leaves it truncated. Here the random bits stand beside the highest of the discarded
bits; discarded bits below the random ones cannot carry and do not matter. A value that the target holds exactly never
changes.

Which bits of the 32-bit operand `rbits` serve which element follows the text of the ISA:

| target | random bits per element | from |
|---|---|---|
| f16x2 | 13 | low 13 of the upper half for a, of the lower half for b |
| bf16x2 | 16 | upper half for a, lower half for b |
| e4m3x4 e5m2x4 e2m3x4 e3m2x4 | 16 | upper half for a and b, lower half for e and f |
| e2m1x4 | 16 | upper bytes of both halves for a and b, lower bytes of both for e and f |

The text gives no order of the two bytes for e2m1x4 (taken here: the upper half's byte on top), nor whether two elements
that share bits use them alike (taken here: yes); its figures are not part of the sources used. Nothing here has been
confirmed on hardware.
"""

from __future__ import annotations

import torch
from torch import Tensor

from references.formats import BF16, E2M1, F16, F32, F64, Format, is_infinity, is_nan, to_float64
from references.rounding import MAX64, attach_sign, nan_code
from references.rounding import relu as clamp_negative


def convert(x: Tensor, random: Tensor, *, target: Format, satfinite: bool = False, relu: bool = False) -> Tensor:
    """float32 codes to codes of `target`; `random` holds `random_bits(target)` bits per element.

    NaN gives the canonical NaN, or the largest finite value where the target has none; infinities stay or, with
    `satfinite`, become the largest finite value, as does overflow. `relu` turns negative results and -0 into +0.
    """
    if not target.infinity and not satfinite:
        raise ValueError(f"{target.name} has no infinity: cvt.rs to it saturates, pass satfinite=True")
    codes = to_float64(F32, x).view(torch.int64)
    size = codes & MAX64
    significand = torch.where(size == 0, 0, (size & ((1 << 52) - 1)) | (1 << 52))
    raised = (size >> 52) - (1023 + target.min_exponent)
    # 29 bits of a float64 that came from float32 are zero; a shift beyond 62 leaves nothing to carry from.
    right = (52 - target.mantissa_bits - raised.clamp(max=0)).clamp(max=62)
    kept = significand >> right
    rest = significand - (kept << right)
    kept = kept + (rest + (random << (right - random_bits(target))) >> right)
    code = (raised.clamp(min=0) << target.mantissa_bits) + kept
    beyond = target.max_finite + (0 if satfinite else 1)
    overflow = (code > target.max_finite) | is_infinity(F64, codes)
    code = attach_sign(target, codes < 0, torch.where(overflow, beyond, code))
    code = torch.where(is_nan(F64, codes), nan_code(target), code)
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
    return torch.stack([low, low, high, high], -1)
