"""Products of block-scaled matrices as Blackwell's tensor cores compute them: `d = a b + c` on codes, into float32.

Every run of k/blocks neighbours along k has a scale in each row of `a` and in each column of `b`. There are two kinds:

- Formats of 8, 6 and 4 bits with ue8m0 (mxf8f6f4): a term is a product times both scales. Its exponent is the sum of
  all four exponents, those of subnormals that of the smallest normal number. A zero product has exponent -133. Terms
  keep 25 fraction bits below the largest exponent.
- e2m1 only (mxf4, mxf4nvf4): sixteen products are summed exactly; that sum times both scales' significands is a term,
whose exponent is the sum of the scales' exponents. If all sixteen products are zero, or a scale is, it is -139. Terms
keep 35 fraction bits.

In both the accumulator is one more term, and terms are truncated toward zero. Their sum is exact and is rounded toward
zero. Overflow gives infinity; NaN is 0x7fffffff; no sum is -0. The whole k of an instruction is one sum.

Source: Xie, Wang, Yang, Yang, "MMA-Sim" (arXiv 2511.10909): ST-FDPA and GST-FDPA. PTX ISA 9, "Block scaling", for the
threads that give scales. Not confirmed on hardware.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ptxdiff.references.formats import E2M1, E4M3, F32, Format
from ptxdiff.references.formats import is_infinity as infinite
from ptxdiff.references.formats import is_nan as nan
from ptxdiff.references.lazily import torch

if TYPE_CHECKING:
    from torch import Tensor

_QUIET, _INFINITY = 0x7FFFFFFF, 0x7F800000
Number = tuple[int, int, "int | None"]
"""A value as an integer, the exponent of its last bit, and the exponent for alignment; None: that of zero."""
_NOTHING: Number = (0, 0, None)


def scale_words(scales: Tensor, byte: int, thread: int, rows: int) -> Tensor:
    """The operand of 32 threads that holds scales, 16 x blocks of `a` or 8 x blocks of `b`; other bytes are zero.

    rows: 16 for `a`, whose scales come from two neighbouring threads of four: the first gives that of its row, the
    other that of the row 8 below. 8 for `b`, whose scales come from one thread.
    """
    found = torch.zeros(32, dtype=torch.int64)
    for line in range(rows):
        quad, lower = line % 8, line // 8
        lane = 4 * quad + (2 * thread + lower if rows == 16 else thread)
        for block in range(scales.shape[1]):
            found[lane] |= int(scales[line, block]) << (8 * (byte + block))
    return found


def _number(fmt: Format, code: int) -> Number:
    """A finite code."""
    low = code & ((1 << fmt.mantissa_bits) - 1)
    field = code >> fmt.mantissa_bits & ((1 << fmt.exponent_bits) - 1)
    if field == 0 and low == 0:
        return _NOTHING
    exponent = max(field, 1) - fmt.bias
    size = low + ((field > 0) << fmt.mantissa_bits)
    negative = code >> (fmt.mantissa_bits + fmt.exponent_bits) & 1
    return (-size if negative else size), exponent - fmt.mantissa_bits, exponent


def _scale(kind: str, code: int) -> Number | None:
    """A scale; None for NaN. The highest bit of ue4m3 is ignored."""
    if kind == "ue8m0":
        return None if code == 0xFF else (1, code - 127, code - 127)
    code &= 0x7F
    return None if code == 0x7F else _number(E4M3, code)


def _scales(kind: str, codes: Tensor) -> list[list[Number | None]]:
    return [[_scale(kind, code) for code in row] for row in codes.tolist()]


def dot(
    a: Tensor, b: Tensor, c: Tensor, a_scales: Tensor, b_scales: Tensor, *,
    a_format: Format, b_format: Format, scale: str, grouped: bool,
) -> Tensor:  # fmt: skip
    """Codes of m x k, k x n and m x n (float32); scales m x blocks and n x blocks, of format `scale`: ue8m0, ue4m3.

    grouped: sixteen products form a term, only for e2m1. Raises ValueError for other formats.
    """
    if grouped and not a_format == b_format == E2M1:
        raise ValueError(f"{a_format.name} and {b_format.name}: products of e2m1 alone are summed in groups")
    found = torch.empty_like(c)
    of_a, of_b = _scales(scale, a_scales), _scales(scale, b_scales)
    columns = b.T.tolist()
    for i, (row, accumulators) in enumerate(zip(a.tolist(), c.tolist(), strict=True)):
        for j, (column, accumulator) in enumerate(zip(columns, accumulators, strict=True)):
            pairs, scales = list(zip(row, column, strict=True)), list(zip(of_a[i], of_b[j], strict=True))
            found[i, j] = _element(pairs, accumulator, scales, (a_format, b_format), 16 if grouped else 1)
    return found


def dot_sparse(
    a: Tensor, kept: Tensor, b: Tensor, c: Tensor, a_scales: Tensor, b_scales: Tensor, *,
    a_format: Format, b_format: Format, scale: str, grouped: bool,
) -> Tensor:  # fmt: skip
    """As `dot`, where a's elements outside `kept` (m x k, true or false) are not there, nor what they would meet.

    A scale is for its share of the k columns, kept or not. That sixteen kept products are summed is an assumption.
    Raises ValueError where the scales of a row have different numbers of kept elements.
    """
    each, found = a.shape[1] // a_scales.shape[1], torch.empty_like(c)
    of_a, of_b = _scales(scale, a_scales), _scales(scale, b_scales)
    of_columns = b.T.tolist()
    for i, (row, accumulators) in enumerate(zip(a.tolist(), c.tolist(), strict=True)):
        columns = [int(p) for p in kept[i].nonzero().flatten()]
        shares = [[p for p in columns if p // each == block] for block in range(a_scales.shape[1])]
        if len({len(share) for share in shares}) > 1:
            raise ValueError(f"row {i}: a scale is for {' or '.join(str(len(s)) for s in shares)} kept elements")
        for j, (column, accumulator) in enumerate(zip(of_columns, accumulators, strict=True)):
            pairs, scales = [(row[p], column[p]) for p in columns], list(zip(of_a[i], of_b[j], strict=True))
            found[i, j] = _element(pairs, accumulator, scales, (a_format, b_format), 16 if grouped else 1)
    return found


def _element(
    pairs: list[tuple[int, int]], accumulator: int, scales: list[tuple[Number | None, Number | None]],
    formats: tuple[Format, Format], group: int,
) -> int:  # fmt: skip
    if any(x is None or y is None for x, y in scales):
        return _QUIET
    special = _special(pairs, accumulator, formats)
    if special is not None:
        return special
    zero, fraction = (-139, 35) if group > 1 else (-133, 25)
    terms: list[Number] = [_number(F32, accumulator)]
    each = len(pairs) // len(scales)
    for start in range(0, len(pairs), group):
        x, y = scales[start // each]
        assert x is not None
        assert y is not None
        terms.append(_term(pairs[start : start + group], x, y, formats))
    exponents = [zero if exponent is None else exponent for _, _, exponent in terms]
    last = max(exponents) - fraction
    return _toward_zero(sum(_cut(size, unit - last) for size, unit, _ in terms), last)


def _cut(size: int, up: int) -> int:
    """`size * 2^up`, truncated toward zero."""
    cut = abs(size) << up if up >= 0 else abs(size) >> -up
    return -cut if size < 0 else cut


def _term(pairs: list[tuple[int, int]], x: Number, y: Number, formats: tuple[Format, Format]) -> Number:
    """One product with its scales, or the sum of several with theirs."""
    if x[2] is None or y[2] is None:
        return _NOTHING
    factors = [(_number(formats[0], a), _number(formats[1], b)) for a, b in pairs]
    products = [(p[0] * q[0], p[1] + q[1]) for p, q in factors]
    if not any(size for size, _ in products):
        return _NOTHING
    scales = x[2] + y[2]
    if len(pairs) == 1:
        ((p, q),) = factors
        assert p[2] is not None
        assert q[2] is not None
        scales += p[2] + q[2]
    unit = min(place for size, place in products if size)
    total = sum(size << (place - unit) for size, place in products if size)
    return total * x[0] * y[0], unit + x[1] + y[1], scales


@cache
def _codes(fmt: Format) -> tuple[frozenset[int], frozenset[int]]:
    """The codes that are NaN, and those that are infinite, of a format of at most 8 bits."""
    codes = torch.arange(1 << fmt.code_bits)
    return frozenset(codes[nan(fmt, codes)].tolist()), frozenset(codes[infinite(fmt, codes)].tolist())


def _special(pairs: list[tuple[int, int]], accumulator: int, formats: tuple[Format, Format]) -> int | None:
    """The result of a sum with NaN or infinities; None if there are none. A product with an infinity has its sign."""
    signs = set()
    if accumulator & 0x7FFFFFFF > _INFINITY:
        return _QUIET
    if accumulator & 0x7FFFFFFF == _INFINITY:
        signs.add(accumulator >> 31)
    (nans_a, infinities_a), (nans_b, infinities_b) = _codes(formats[0]), _codes(formats[1])
    for a, b in pairs:
        if a in nans_a or b in nans_b:
            return _QUIET
        left, right = a in infinities_a, b in infinities_b
        if left or right:
            if (not left and _number(formats[0], a)[2] is None) or (not right and _number(formats[1], b)[2] is None):
                return _QUIET
            signs.add(a >> (formats[0].code_bits - 1) ^ b >> (formats[1].code_bits - 1))
    if len(signs) == 2:
        return _QUIET
    return (_INFINITY | signs.pop() << 31) if signs else None


def _toward_zero(total: int, last: int) -> int:
    """float32 of `total * 2^last`."""
    size, sign = abs(total), (total < 0) << 31
    unit = max(size.bit_length() + last - 24, -149)
    whole = _cut(size, last - unit)
    if whole == 0:
        return 0
    if unit > 127 - 23:
        return _INFINITY | sign
    return sign | (whole if whole < 1 << 23 else whole - (1 << 23) + (unit + 150 << 23))
