"""Bit manipulation of PTX on int64 code tensors: fields, shifts, permutations, logic, counts.

Codes are zero-extended bit patterns (64 bits: two's complement) in and out. Second operands that are positions, lengths
or amounts are unsigned 32-bit codes.

Source: PTX ISA 9, integer and logic instructions (bfe, bfi, bfind, fns, brev, popc, clz, bmsk, szext; lop3, shf, shl,
shr, cnot; prmt).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ptxdiff.references.formats import I32, U32, Format, sign
from ptxdiff.references.integers import number, wrap
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import MAX64, bit_length, shift_right

if TYPE_CHECKING:
    from torch import Tensor

Mode = Literal["clamp", "wrap"]
MASK32 = 0xFFFFFFFF


def _low_bits(count: Tensor, width: int = 64) -> Tensor:
    """A mask of the `count` low bits, count >= 0; all `width` bits if count is larger."""
    full = -1 if width == 64 else (1 << width) - 1
    return torch.where(count >= width, full, (1 << count.clamp(max=width - 1)) - 1)


def shl(a: Tensor, amount: Tensor, *, fmt: Format = U32) -> Tensor:
    """`shl`: amounts of at least the width give 0."""
    return torch.where(amount >= fmt.code_bits, 0, wrap(fmt, a << amount.clamp(max=fmt.code_bits - 1)))


def shr(a: Tensor, amount: Tensor, *, fmt: Format = U32) -> Tensor:
    """`shr`: fills with the sign for signed formats, else with zeros; amounts of at least the width give only the
    fill."""
    if fmt.has_sign:
        return wrap(fmt, number(fmt, a) >> amount.clamp(max=63))
    return torch.where(amount >= fmt.code_bits, 0, shift_right(a, amount.clamp(max=fmt.code_bits - 1)))


def shf(low: Tensor, high: Tensor, amount: Tensor, *, left: bool, mode: Mode = "wrap") -> Tensor:
    """`shf.l` and `shf.r`: the high or low 32 bits of {high, low} shifted; the amount clamped to 32 or taken mod 32."""
    count = amount.clamp(max=32) if mode == "clamp" else amount & 31
    if left:
        return ((high << count) | (low >> (32 - count))) & MASK32
    return ((high << (32 - count)) | (low >> count)) & MASK32


def _in_range(fmt: Format, amount: Tensor) -> Tensor:
    """A position or length.

    The ISA restricts them to 0..255; in 32-bit forms an H200 uses the low 8 bits of larger ones.
    """
    return amount & 255 if fmt.code_bits == 32 else amount


def bfe(a: Tensor, position: Tensor, length: Tensor, *, fmt: Format = U32) -> Tensor:
    """`bfe`: the field of `length` bits at `position`, extended by its top bit for signed formats.

    Bits beyond the operand are the operand's sign (0 if unsigned); length 0 gives 0. Position and length: `_in_range`.
    """
    position, length = _in_range(fmt, position), _in_range(fmt, length)
    value = number(fmt, a)
    amount = position.clamp(max=63)
    field = value >> amount if fmt.has_sign else torch.where(position > 63, 0, shift_right(value, amount))
    field = field & _low_bits(length)
    if fmt.has_sign:
        top = shift_right(field, (length - 1).clamp(0, 63)) & 1
        field = torch.where((top == 1) & (length > 0), field | ~_low_bits(length), field)
    return wrap(fmt, field)


def bfi(a: Tensor, b: Tensor, position: Tensor, length: Tensor, *, fmt: Format = U32) -> Tensor:
    """`bfi`: `b` with its field of `length` bits at `position` (both: `_in_range`) replaced by the low bits of `a`."""
    position, length = _in_range(fmt, position), _in_range(fmt, length)
    amount = position.clamp(max=63)
    mask = torch.where(position >= fmt.code_bits, 0, _low_bits(length) << amount)
    return wrap(fmt, (b & ~mask) | ((a << amount) & mask))


def bfind(a: Tensor, *, fmt: Format = U32, shift_amount: bool = False) -> Tensor:
    """`bfind`: the position of the highest bit that differs from the sign, or the left shift that moves it to the top.

    0xffffffff if there is none.
    """
    value = torch.where(sign(fmt, a) == 1, wrap(fmt, ~a), a)
    length = _length(value)
    found = fmt.code_bits - length if shift_amount else length - 1
    return torch.where(length == 0, MASK32, found)


def _length(pattern: Tensor) -> Tensor:
    """`bit_length` of an unsigned 64-bit pattern."""
    return torch.where(pattern < 0, 64, bit_length(pattern & MAX64))


def clz(a: Tensor, *, fmt: Format = U32) -> Tensor:
    """`clz`: the number of leading zeros; the width for 0."""
    return fmt.code_bits - _length(a)


def popc(a: Tensor) -> Tensor:
    """`popc`: the number of one bits."""
    count = a - (shift_right(a, 1) & 0x5555555555555555)
    count = (count & 0x3333333333333333) + (shift_right(count, 2) & 0x3333333333333333)
    count = (count + shift_right(count, 4)) & 0x0F0F0F0F0F0F0F0F
    return shift_right(count * 0x0101010101010101, 56)


def brev(a: Tensor, *, fmt: Format = U32) -> Tensor:
    """`brev`: the bits in reverse order."""
    for step, mask in (
        (1, 0x5555555555555555),
        (2, 0x3333333333333333),
        (4, 0x0F0F0F0F0F0F0F0F),
        (8, 0x00FF00FF00FF00FF),
        (16, 0x0000FFFF0000FFFF),
        (32, 0x00000000FFFFFFFF),
    ):
        a = ((a & mask) << step) | (shift_right(a, step) & mask)
    return shift_right(a, 64 - fmt.code_bits)


def fns(mask: Tensor, base: Tensor, offset: Tensor) -> Tensor:
    """`fns`: the position of the n-th set bit counted from `base`, upwards for positive n; 0xffffffff if there is none.

    `offset` is n as an s32 code; for n = 0 the result is `base` if that bit is set. `base` above 31 is undefined.
    """
    n = number(I32, offset)
    position = torch.full_like(mask, MASK32)
    for place in range(32):
        up = _low_bits(torch.full_like(base, place + 1), 32) & ~_low_bits(base, 32)
        down = _low_bits(base + 1, 32) & ~_low_bits(torch.full_like(base, place), 32)
        counted = torch.where(n > 0, popc(mask & up), popc(mask & down))
        inside = torch.where(n > 0, base <= place, base >= place)
        hit = torch.where(n == 0, base == place, inside & (counted == n.abs()))
        position = torch.where(hit & ((mask >> place) & 1 == 1), place, position)
    return position


def bmsk(position: Tensor, width: Tensor, *, mode: Mode = "clamp") -> Tensor:
    """`bmsk`: `width` ones from bit `position` on; both mod 32 in wrap mode.

    In clamp mode positions of at least 32 give 0, and the ones end at bit 31.
    """
    start, count = position & 31, width & 31
    mask = (_low_bits(count) << start) & MASK32
    if mode == "wrap":
        return mask
    mask = torch.where(width >= 32, (MASK32 << start) & MASK32, mask)
    return torch.where(position >= 32, 0, mask)


def szext(a: Tensor, bits: Tensor, *, fmt: Format = I32, mode: Mode = "clamp") -> Tensor:
    """`szext`: the low `bits` bits of a, sign- or zero-extended to 32.

    For `bits` >= 32: clamp gives a, wrap takes it mod 32.
    """
    count = bits & 31
    low = a & _low_bits(count)
    if fmt.has_sign:
        negative = (low >> (count - 1).clamp(min=0)) & (count > 0)
        low = low | (-negative & ~_low_bits(count))
    result = low & MASK32
    return torch.where(bits >= 32, a, result) if mode == "clamp" else result


def lop3(a: Tensor, b: Tensor, c: Tensor, table: int) -> Tensor:
    """`lop3.b32`: bit 4a + 2b + c of `table` (0..255) for each bit position."""
    result = torch.zeros_like(a)
    for row in range(8):
        if table >> row & 1:
            picked = [x if row >> place & 1 else ~x for x, place in ((a, 2), (b, 1), (c, 0))]
            result = result | (picked[0] & picked[1] & picked[2])
    return result & MASK32


def cnot(a: Tensor) -> Tensor:
    """`cnot`: 1 for 0, else 0."""
    return (a == 0).to(torch.int64)


# For each mode and selector 0..3, the source bytes of the result's bytes 3, 2, 1, 0 (PTX ISA, prmt).
PERMUTATIONS: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "f4e": ((3, 2, 1, 0), (4, 3, 2, 1), (5, 4, 3, 2), (6, 5, 4, 3)),
    "b4e": ((5, 6, 7, 0), (6, 7, 0, 1), (7, 0, 1, 2), (0, 1, 2, 3)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((3, 2, 1, 0), (3, 2, 1, 1), (3, 2, 2, 2), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 1, 0), (3, 2, 1, 0)),
    "rc16": ((1, 0, 1, 0), (3, 2, 3, 2), (1, 0, 1, 0), (3, 2, 3, 2)),
}


def prmt(a: Tensor, b: Tensor, selector: Tensor | int, *, mode: str | None = None) -> Tensor:
    """`prmt`: four bytes of {b, a}; without a mode each nibble of `selector` picks one, its top bit replicating the
    sign.
    """
    both = a | (b << 32)
    result = torch.zeros_like(a)
    for place in range(4):
        if mode is None:
            control = (selector >> (4 * place)) & 15
            byte = shift_right(both, (control & 7) * 8) & 255
            byte = byte + ((byte >> 7) * 255 - byte) * (control >> 3)
        else:
            sources = torch.tensor([row[3 - place] for row in PERMUTATIONS[mode]], device=a.device)
            byte = shift_right(both, sources[selector & 3] * 8) & 255
        result = result | (byte << (8 * place))
    return result
