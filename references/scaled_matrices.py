"""Products of block-scaled matrices as tensor cores compute them: `d = (a * scale_a) (b * scale_b) + c` on codes.

One instruction multiplies 32 elements along k of formats of at most 8 bits, or 64 of e2m1 with two in a byte; its
rounded result is the next instruction's accumulator. Within one instruction every term is truncated toward zero to F
fraction bits relative to the largest exponent of all terms and the accumulator; nothing else is rounded. The sum is
rounded toward zero to float32. The terms depend on the kind:

* `MX8`, blocks of 32 that share a ue8m0 scale: a product of two elements with both scales. Its exponent is the sum of
  the four exponents; F is 25. A term that is zero has the exponent -133.
* `FOUR`, e2m1 in blocks of 32 (ue8m0) or 16 (ue8m0, or e4m3 without its sign): the sum of 16 products, which is exact,
  with the significands of both scales, also exact. Its exponent is the sum of the two scales' exponents, independent of
  the sum of products; F is 35. The exponent is -139 if all 16 products are zero, or a scale is; a sum that cancels to
  zero keeps its exponent.

A subnormal's exponent is that of the smallest normal number. The result is NaN (0x7fffffff) for a NaN element, a NaN
scale, zero times infinity, infinities of both signs; never -0; and infinity where it is too large.

Codes are int64 tensors: `a` is m x k, `b` k x n, `c` and the result m x n, `scale_a` m x k / block, `scale_b`
n x k / block.

Source: Xie, Wang, Yang, Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (arXiv
2511.10909), scaled and group-scaled truncated fused dot-product-add, Blackwell; PTX ISA 9.7.16.10.7, block scaling. No
hardware of this generation was available.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptxdiff.references.formats import E2M1, F32, UE8M0, Format, is_infinity, is_nan, is_zero, sign
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import bit_length, decompose, nan_code, round_exact

if TYPE_CHECKING:
    from torch import Tensor

    Operand = tuple[Format, Tensor]


@dataclass(frozen=True)
class Kind:
    """A kind: elements along k of one instruction, products summed before scaling, F, and the exponent of zero
    terms."""

    k: int
    group: int
    fraction: int
    zero: int


MX8 = Kind(k=32, group=1, fraction=25, zero=-133)
FOUR = Kind(k=64, group=16, fraction=35, zero=-139)


def dot(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    c: Tensor,
    *,
    a_format: Format,
    b_format: Format,
    scale_format: Format = UE8M0,
    block: int = 32,
    kind: Kind = MX8,
) -> Tensor:
    """The codes of d. Raises ValueError if k is no multiple of an instruction's k, or of a block."""
    k = a.shape[1]
    if k % kind.k or k % block or (kind is FOUR and (a_format, b_format) != (E2M1, E2M1)):
        raise ValueError(f"no product of {a_format.name} and {b_format.name} over {k} elements in blocks of {block}")
    for start in range(0, k, kind.k):
        some, blocks = slice(start, start + kind.k), slice(start // block, (start + kind.k) // block)
        x = (scale_format, scale_a[:, blocks].repeat_interleave(block, 1).unsqueeze(1))
        y = (scale_format, scale_b[:, blocks].repeat_interleave(block, 1).unsqueeze(0))
        c = _instruction((a_format, a[:, some].unsqueeze(1)), (b_format, b[some].T.unsqueeze(0)), x, y, c, kind)
    return c


def _unsigned(scale: Operand) -> Operand:
    """A scale of e4m3 without its sign."""
    return (scale[0], scale[1] & 0x7F) if scale[0].signed else scale


def _instruction(a: Operand, b: Operand, x: Operand, y: Operand, c: Tensor, kind: Kind) -> Tensor:
    """One instruction: elements and scales of m x 1 x k and 1 x n x k, and an accumulator of m x n."""
    x, y = _unsigned(x), _unsigned(y)
    (minus_a, size_a, unit_a), (minus_b, size_b, unit_b) = decompose(*a), decompose(*b)
    (_, size_x, unit_x), (_, size_y, unit_y) = decompose(*x), decompose(*y)
    minus_c, size_c, unit_c = decompose(F32, c)
    size, unit = size_a * size_b, unit_a + unit_b
    signed = torch.where(minus_a ^ minus_b, -size, size)
    of_scales = unit_x + unit_y
    exponent = of_scales + x[0].mantissa_bits + y[0].mantissa_bits
    empty = size == 0
    if kind.group == 1:
        exponent = exponent + unit + a[0].mantissa_bits + b[0].mantissa_bits
    else:
        least = -2 * E2M1.mantissa_bits  # 0.5 * 0.5: the exponent of the smallest product of two e2m1 numbers
        groups = (*size.shape[:-1], size.shape[-1] // kind.group, kind.group)
        signed = (signed << (unit - least)).reshape(groups).sum(-1)
        empty = empty.reshape(groups).all(-1)
        unit = torch.full(empty.shape, least)
        of_scales, exponent, size_x, size_y = (
            t.broadcast_to(size.shape)[..., :: kind.group] for t in (of_scales, exponent, size_x, size_y)
        )
    term = signed * size_x * size_y
    exponent = torch.where(empty | (size_x * size_y == 0), kind.zero, exponent)
    of_c = torch.where(size_c == 0, kind.zero, unit_c + F32.mantissa_bits)
    last = torch.maximum(exponent.amax(-1), of_c) - kind.fraction
    terms = torch.cat([term, torch.where(minus_c, -size_c, size_c).unsqueeze(-1)], -1)
    units = torch.cat([(unit + of_scales).expand_as(term), unit_c.unsqueeze(-1)], -1)
    total = _cut(terms, units - last.unsqueeze(-1)).sum(-1)
    result = round_exact(F32, total < 0, total.abs(), last, rounding="rz")
    beyond = (total != 0) & (bit_length(total.abs()) + last > F32.bias + 1)
    infinity = F32.max_finite + 1
    result = torch.where(beyond, infinity | (total < 0).to(torch.int64) << F32.sign_shift, result)
    result = torch.where(is_zero(F32, result), 0, result)
    return _specials(a, b, x, y, c, result)


def _cut(value: Tensor, up: Tensor) -> Tensor:
    """`value * 2^up`, truncated toward zero."""
    size = (value.abs() << up.clamp(0, 40)) >> (-up).clamp(0, 63)
    return torch.where(value < 0, -size, size)


def _specials(a: Operand, b: Operand, x: Operand, y: Operand, c: Tensor, result: Tensor) -> Tensor:
    """The result, with special values for NaN and infinities.

    Scales are positive, and no zero scale occurs with an infinity.
    """
    minus = sign(*a) ^ sign(*b)
    infinite = is_infinity(*a) | is_infinity(*b)
    up = (infinite & (minus == 0)).any(-1) | (is_infinity(F32, c) & (sign(F32, c) == 0))
    down = (infinite & (minus == 1)).any(-1) | (is_infinity(F32, c) & (sign(F32, c) == 1))
    nothing = (is_infinity(*a) & is_zero(*b)) | (is_zero(*a) & is_infinity(*b))
    bad = nothing | is_nan(*a) | is_nan(*b) | is_nan(*x) | is_nan(*y)
    nan = bad.any(-1) | is_nan(F32, c) | (up & down)
    infinity = F32.max_finite + 1
    result = torch.where(up, infinity, torch.where(down, infinity | 1 << F32.sign_shift, result))
    return torch.where(nan, nan_code(F32), result)
