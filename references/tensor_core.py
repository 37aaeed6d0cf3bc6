"""Matrix products as tensor cores compute them, generation by generation: `d = a b + c` on codes.

A product over k is computed in blocks of at most L terms, in order; each block's result is the next block's
accumulator. Within a block every product of two significands is exact. Its exponent is the sum of its factors'
exponents; a subnormal has the exponent of the smallest normal number. Every term is truncated toward zero to F fraction
bits relative to the largest exponent of all products and the accumulator. The sum of the terms is exact and is rounded
once: to float32 toward zero, to float16 to nearest even. A zero term has a fixed exponent (see `Generation.zero`).

No sum is -0. Overflow gives infinity, even when rounding toward zero. NaN is 0x7fffffff or 0x7fff: for a NaN operand,
zero times infinity, and infinities of both signs.

Codes are int64 tensors (see `ptxdiff.references.formats`): `a` is m x k, `b` k x n, `c` and the result m x n.

Sources: Xie, Wang, Yang, Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (arXiv
2511.10909): truncated fused dot-product-add and its parameters; Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor
Cores" (arXiv 2512.07004); PTX ISA 9, mma, for integers, single bits and float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ptxdiff.references import arithmetic, double
from ptxdiff.references.conversion import convert
from ptxdiff.references.formats import E4M3, E5M2, F16, F32, TF32, Format, is_infinity, is_nan, is_zero, sign
from ptxdiff.references.integers import clamp, number, wrap
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import Rounding, bit_length, decompose, nan_code, round_exact

if TYPE_CHECKING:
    from torch import Tensor

    Operand = tuple[Format, Tensor]


@dataclass(frozen=True)
class Generation:
    """How a generation's tensor cores add.

    `fraction`: F, the fraction bits that a term keeps. `block`: bytes of `a` in one block; L is the number of terms
    that fit. `coarse`: fraction bits that 8-bit floats keep in their terms and in a float32 result, if fewer.
    """

    fraction: int
    block: int
    coarse: int = 0

    def zero(self, accumulator: Format) -> int:
        """The exponent of a zero term."""
        return (4 if accumulator == F16 else -108) - self.fraction


VOLTA = Generation(fraction=23, block=8)
TURING = AMPERE = Generation(fraction=24, block=16)
ADA = Generation(fraction=24, block=16, coarse=13)
HOPPER = BLACKWELL = Generation(fraction=25, block=32)
HOPPER_WGMMA = Generation(fraction=25, block=32, coarse=13)

_BYTES = {TF32: 4, E4M3: 1, E5M2: 1}  # others: 2 for float16 and bfloat16, 1 for formats of fewer bits


def dot(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    a_format: Format,
    b_format: Format,
    c_format: Format = F32,
    d_format: Format = F32,
    generation: Generation,
) -> Tensor:
    """`a b + c` for formats of at most 19 bits and an accumulator of float16 or float32.

    Raises ValueError for other formats.
    """
    if a_format.precision > 11 or b_format.precision > 11 or d_format not in (F16, F32) or c_format not in (F16, F32):
        raise ValueError(f"no tensor core multiplies {a_format.name} and {b_format.name} into {d_format.name}")
    narrow = a_format.code_bits <= 8
    size = _BYTES.get(a_format, 1 if narrow else 2)
    terms = generation.block // size
    fraction = generation.coarse if narrow and generation.coarse else generation.fraction
    accumulator, format_of_it = c, c_format
    for start in range(0, a.shape[1], terms):
        some = slice(start, start + terms)
        accumulator = _block(
            (a_format, a[:, some].unsqueeze(1)),
            (b_format, b[some].T.unsqueeze(0)),
            (format_of_it, accumulator),
            d_format,
            fraction,
            generation.zero(d_format),
        )
        if fraction < d_format.mantissa_bits:
            accumulator = _cut(d_format, accumulator, fraction)
        format_of_it = d_format
    return accumulator


def _block(a: Operand, b: Operand, c: Operand, to: Format, fraction: int, zero: int) -> Tensor:
    """One block: operands of m x 1 x L, 1 x n x L and m x n codes."""
    negative_a, size_a, unit_a = decompose(*a)
    negative_b, size_b, unit_b = decompose(*b)
    negative_c, size_c, unit_c = decompose(*c)
    size = torch.cat([size_a * size_b, size_c.unsqueeze(-1)], -1)
    unit = torch.cat([unit_a + unit_b, unit_c.unsqueeze(-1)], -1)
    negative = torch.cat([negative_a ^ negative_b, negative_c.unsqueeze(-1)], -1)
    # The exponents of the products (sums of their factors' exponents) and of the accumulator.
    leading = torch.cat(
        [unit_a + unit_b + a[0].mantissa_bits + b[0].mantissa_bits, (unit_c + c[0].mantissa_bits).unsqueeze(-1)], -1
    )
    exponent = torch.where(size == 0, zero, leading)
    last = exponent.amax(-1, keepdim=True) - fraction
    up = (unit - last).clamp(0, 40)
    down = (last - unit).clamp(0, 63)
    term = (size << up) >> down
    total = torch.where(negative, -term, term).sum(-1)
    unit_of_total = last.squeeze(-1)
    rounding: Rounding = "rn" if to == F16 else "rz"
    result = round_exact(to, total < 0, total.abs(), unit_of_total, rounding=rounding)
    beyond = (total != 0) & (bit_length(total.abs()) + unit_of_total > to.bias + 1)
    infinity = to.max_finite + 1
    result = torch.where(beyond, infinity + (total < 0).to(torch.int64) * (1 << to.sign_shift), result)
    result = torch.where(is_zero(to, result), 0, result)
    return _specials(a, b, c, to, result)


def _specials(a: Operand, b: Operand, c: Operand, to: Format, result: Tensor) -> Tensor:
    """The result, with special values for NaN and infinities among the operands."""
    negative = sign(*a) ^ sign(*b)
    infinite = is_infinity(*a) | is_infinity(*b)
    up = (infinite & (negative == 0)).any(-1) | (is_infinity(*c) & (sign(*c) == 0))
    down = (infinite & (negative == 1)).any(-1) | (is_infinity(*c) & (sign(*c) == 1))
    nothing = (is_infinity(*a) & is_zero(*b)) | (is_zero(*a) & is_infinity(*b))
    nan = (is_nan(*a) | is_nan(*b) | nothing).any(-1) | is_nan(*c) | (up & down)
    infinity = to.max_finite + 1
    result = torch.where(up, infinity, torch.where(down, infinity | 1 << to.sign_shift, result))
    return torch.where(nan, nan_code(to), result)


def _cut(fmt: Format, codes: Tensor, fraction: int) -> Tensor:
    """Finite codes truncated toward zero to `fraction` fraction bits."""
    cut = codes & ~((1 << (fmt.mantissa_bits - fraction)) - 1)
    return torch.where(is_nan(fmt, codes), codes, cut)


def dot_of_bytes(
    a: Tensor, b: Tensor, c: Tensor, *, a_format: Format, b_format: Format, d_format: Format, generation: Generation
) -> Tensor:
    """8-bit floats by `mma` on tensor cores that do not take them (Hopper; Blackwell before sm_120).

    ptxas converts them to float16: of every four k, the first two go to a first product, which starts at zero, and the
    others to a second, which continues with its result. Each product is one instruction. `c` is added last, rounded to
    nearest even. Source: the code that ptxas 12.9 and 13.4 write for sm_90a.
    """
    within = torch.arange(a.shape[1]) % 4
    total = torch.zeros_like(c)
    for part in (within < 2, within >= 2):
        left, right = (convert(x, source=f, target=F16) for x, f in ((a[:, part], a_format), (b[part], b_format)))
        formats = {"a_format": F16, "b_format": F16, "c_format": d_format, "d_format": d_format}
        total = dot(left, right, total, **formats, generation=generation)
    return arithmetic.add(c, total, fmt=d_format)


def dot_of_quads(a: Tensor, b: Tensor, c: Tensor, *, c_format: Format, d_format: Format) -> Tensor:
    """m8n8k4 of float16 from sm_80 on, whose tensor cores do not have it: float32 instructions, each rounded.

    Into float32, fused multiply-adds first sum the products from zero, and `c` is added last. Into float16, `c` is
    added to the sum of two products, and the result to the sum of the other two. Source: ptxas's __cuda_sm_8x_mma
    functions.
    """
    x, y = convert(a, source=F16, target=F32), convert(b, source=F16, target=F32)
    total = convert(c, source=F16, target=F32) if c_format == F16 else c
    left, right = [x[:, k : k + 1] for k in range(4)], [y[k : k + 1] for k in range(4)]
    if d_format == F32:
        chain = torch.zeros_like(c)
        for k in range(4):
            chain = arithmetic.fma(left[k], right[k], chain)
        return arithmetic.add(total, chain)
    for k in (0, 2):
        pair = arithmetic.fma(left[k + 1], right[k + 1], arithmetic.mul(left[k], right[k]))
        total = arithmetic.add(total, pair)
    return convert(total, source=F32, target=F16)


def dot_double(a: Tensor, b: Tensor, c: Tensor, *, rounding: Rounding = "rn") -> Tensor:
    """float64: a fused multiply-add for each term, in order."""
    for k in range(a.shape[1]):
        c = double.fma(a[:, k : k + 1], b[k : k + 1], c, rounding=rounding)
    return c


def dot_integer(
    a: Tensor, b: Tensor, c: Tensor, *, a_format: Format, b_format: Format, to: Format, saturate: bool = False
) -> Tensor:
    """Integers of 8 or 4 bits into int32 `to`: exact, then wrapped, or with `saturate` clamped (PTX: `.satfinite`)."""
    products = number(a_format, a).unsqueeze(2) * number(b_format, b).unsqueeze(0)
    total = products.sum(1) + number(to, c)
    return clamp(to, total) if saturate else wrap(to, total)


def dot_bits(a: Tensor, b: Tensor, c: Tensor, *, operation: Literal["xor", "and"], to: Format) -> Tensor:
    """Single bits: the number of ones in `a op b` over k, added to int32 `to`, wrapped."""
    left, right = a.unsqueeze(2), b.unsqueeze(0)
    ones = (left ^ right) if operation == "xor" else (left & right)
    return wrap(to, ones.sum(1) + number(to, c))
