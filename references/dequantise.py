"""Small integers and 4-bit codes to floats: fields of a byte or a word, zero points, scales, and the table of nf4.

Codes are zero-extended bit patterns in and out. The elements of a byte or word are its fields from the low bits up. A
result has one code for each, in that order, along the last dimension, like an output of format `F16X2`. Integers up to
8 bits are exact in float16, bfloat16 and float32. A zero point is subtracted in integers, so only the product with the
scale is rounded: to nearest, ties to even. A NaN scale gives the canonical NaN, and so does zero times infinity. The
integer 0 counts as positive, and the sign of a zero product is the exclusive or of the signs. Subnormals are kept, and
overflow gives infinity.

Sources: T. Dettmers, A. Pagnoni, A. Holtzman, L. Zettlemoyer, "QLoRA", 2023, appendix E (nf4); OCP Microscaling 1.0,
5.3.3 (e2m1); IEEE 754-2019 (products).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references import arithmetic, conversion
from ptxdiff.references.formats import E2M1, F16, Format
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import round_float64

if TYPE_CHECKING:
    from torch import Tensor

# The 16 values of nf4 as float32: quantiles of the normal distribution, scaled to [-1, 1], with an exact zero.
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def fields(codes: Tensor, *, bits: int, width: int = 8, signed: bool = False) -> Tensor:
    """The fields of `bits` bits as integers; signed: two's complement.

    Codes of shape (..., N) give (..., N * width / bits): the fields of one code lie side by side, from the low bits up.
    """
    places = torch.arange(0, width, bits, device=codes.device)
    values = (codes[..., None] >> places) & ((1 << bits) - 1)
    top = 1 << bits - 1
    return ((values ^ top) - top if signed else values).flatten(-2)


def integers(
    codes: Tensor, *, bits: int, width: int = 8, signed: bool = False, zero: int = 0, fmt: Format = F16
) -> Tensor:
    """The fields minus a zero point, in a float format; shapes as those of `fields`."""
    return _looked_up(fields(codes, bits=bits, width=width), _numbers(bits, signed, zero), fmt)


def _numbers(bits: int, signed: bool, zero: int) -> list[float]:
    count = 1 << bits
    return [float((k - count if signed and 2 * k >= count else k) - zero) for k in range(count)]


def _looked_up(indices: Tensor, values: list[float], fmt: Format) -> Tensor:
    """values[index] as codes, each rounded once."""
    table = round_float64(fmt, torch.tensor(values, dtype=torch.float64, device=indices.device))
    return table[indices]


def affine(codes: Tensor, zero: Tensor, scale: Tensor, *, bits: int, fmt: Format = F16) -> Tensor:
    """(Field - zero point) * scale for the fields of bytes, in `fmt`; each byte has one zero point (low `bits` bits)
    and one scale."""
    count = 8 // bits
    points = (zero & ((1 << bits) - 1)).repeat_interleave(count, -1)
    values = round_float64(fmt, (fields(codes, bits=bits) - points).double())
    return arithmetic.mul(values, scale.repeat_interleave(count, -1), fmt=fmt)


def nf4(codes: Tensor, *, width: int = 8, fmt: Format = F16) -> Tensor:
    """The nf4 values of the nibbles, rounded to a format."""
    return _looked_up(fields(codes, bits=4, width=width), list(NF4), fmt)


def e2m1(codes: Tensor, *, width: int = 8, fmt: Format = F16) -> Tensor:
    """The e2m1 values of the nibbles, exact in float16 and bfloat16; -0 stays."""
    return conversion.convert(fields(codes, bits=4, width=width), source=E2M1, target=fmt)


def scaled(codes: Tensor, scale: Tensor, *, fmt: Format = F16) -> Tensor:
    """The e2m1 values of a byte's two nibbles, times the byte's scale in `fmt`, rounded once."""
    return arithmetic.mul(e2m1(codes, fmt=fmt), scale.repeat_interleave(2, -1), fmt=fmt)


def interleaved(codes: Tensor, *, groups: int) -> tuple[Tensor, ...]:
    """The elements of 32-bit words as `groups` outputs of pairs: output k has the elements k and k + groups of each
    word.

    codes: 2 * groups elements for each word, along the last dimension. Shifts and masks of a whole word give this
    order, for which weights are rearranged in advance.
    """
    words = codes.reshape(*codes.shape[:-1], -1, 2, groups)
    return tuple(words[..., k].flatten(-2) for k in range(groups))


def table(fmt: Format = F16) -> list[int]:
    """The 16 codes of nf4 in a format, as kernels keep them in registers."""
    codes: list[int] = _looked_up(torch.arange(16), list(NF4), fmt).tolist()
    return codes
