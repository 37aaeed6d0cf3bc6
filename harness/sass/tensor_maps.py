"""Tensor maps as the device has them: 128 bytes, of which ptxas shows where each field lies.

NVIDIA publishes no layout. But for `tensormap.replace` ptxas writes loads, stores and logic that put one field into its
bits; `_PLACES` is read from what it makes of each field on sm_90a and sm_100a. The maps of the host have the same bits
here, without those of no field that a device's map may have besides: a map with one of them is refused. What a map for
im2col has instead of a box lies in bits that no field has (`_OF_COLUMNS`): where a device has it, nothing shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.async_copy.tensor_maps import BYTES, CORNERS, COUNTS, MODE, TensorMap, decoded, place


class _Field(NamedTuple):
    """Where a field lies. parts: first bit, number of bits, and the lowest bit of the number that stands there.

    bias: is taken away from the value before. shift: bits of the value that are not kept, below the others.
    """

    parts: tuple[tuple[int, int, int], ...]
    bias: int = 0
    shift: int = 0


_WORD = 32
_PLACES: dict[str, tuple[_Field, ...]] = {
    "global_address": (_Field(((0, 64, 0),)),),
    "rank": (_Field(((2 * _WORD + 4, 3, 0),)),),
    "elemtype": (_Field(((2 * _WORD + 7, 4, 0), (2 * _WORD + 16, 1, 4))),),
    "interleave_layout": (_Field(((2 * _WORD + 11, 2, 0),)),),
    "swizzle_mode": (_Field(((2 * _WORD + 13, 2, 0), (2 * _WORD + 22, 1, 2))),),
    "fill_mode": (_Field(((2 * _WORD + 15, 1, 0),)),),
    "global_stride": tuple(_Field((((3 + k) * _WORD, 32, 0), (7 * _WORD + 4 * k, 4, 32)), shift=4) for k in range(4)),
    "global_dim": tuple(_Field((((8 + k) * _WORD, 32, 0),), bias=1) for k in range(5)),
    "element_stride": tuple(_Field(((13 * _WORD + 3 * k, 3, 0),), bias=1) for k in range(5)),
    "box_dim": tuple(_Field(((13 * _WORD + 24 + 8 * k, 8, 0),), bias=1) for k in range(5)),
}
_OF_COLUMNS = [
    ((16 + k) * _WORD, start, size)
    for k, (start, size) in enumerate((MODE, CORNERS, *(place("box_dim", k) for k in range(COUNTS["box_dim"]))))
]
"""The first bit of each number of a map for im2col, and its place in the emulator's. The first one is 0 for tiles."""
_ELEMENTS = {code: code for code in range(11)} | {11: 7 | 16, 12: 8 | 16} | {code: code - 2 for code in (13, 14, 15)}
"""The bits of an element's type, by its code in PTX. The highest one says that a float32 is rounded to tf32."""


def _fields() -> Iterator[tuple[str, int, _Field]]:
    for name, fields in _PLACES.items():
        assert len(fields) == COUNTS.get(name, 1)
        for number, field in enumerate(fields):
            yield name, number, field


def of_the_device(data: bytes) -> bytes:
    """The device's bits of a map in the emulator's (128 bytes). Raises PtxError for a number that they do not hold."""
    total = 0
    if any(data[slice(MODE[0], sum(MODE))]):
        plain = bytearray(data)
        for number, (bit, start, size) in enumerate(_OF_COLUMNS):
            total |= int.from_bytes(data[start : start + size], "little") << bit
            plain[start : start + size] = (number > 1).to_bytes(size, "little")
        data = bytes(plain)
    for name, number, field in _fields():
        start, size = place(name, number)
        value = int.from_bytes(data[start : start + size], "little")
        given, held = value, 0
        value = _ELEMENTS[value] if name == "elemtype" else value - field.bias >> field.shift
        for first, bits, low in field.parts:
            part = value >> low & (1 << bits) - 1
            total |= part << first
            held |= part << low
        if name != "elemtype" and (held << field.shift) + field.bias != given:
            raise PtxError(f"a tensor map of the host whose {name} {number} is {given}, which the device cannot hold")
    return total.to_bytes(BYTES, "little")


def read_map(data: bytes) -> TensorMap | str:
    """The map that 128 bytes of the device encode, or an error message for one that does not run here."""
    left = int.from_bytes(data, "little")
    found = bytearray(BYTES)
    columns = []
    if left >> _OF_COLUMNS[0][0] & (1 << _WORD) - 1:
        columns = [left >> bit & (1 << _WORD) - 1 for bit, _, _ in _OF_COLUMNS]
        for column, (bit, _, _) in zip(columns, _OF_COLUMNS, strict=True):
            left &= ~(column << bit)
    for name, number, field in _fields():
        start, size = place(name, number)
        value = 0
        for first, bits, low in field.parts:
            part = left >> first & (1 << bits) - 1
            left &= ~(part << first)
            value |= part << low
        if name == "elemtype":
            codes = {bits: code for code, bits in _ELEMENTS.items()}
            if value not in codes:
                return f"the element type of bits 0x{value:x} is not known"
            value = codes[value]
        else:
            value = (value << field.shift) + field.bias
        if columns and name == "box_dim" and value != 1:
            return "the box of a map for im2col was replaced, which has channels and pixels instead"
        found[start : start + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    if left:
        return f"its bit {(left & -left).bit_length() - 1} is of no field that is known"
    for column, (_, start, size) in zip(columns, _OF_COLUMNS, strict=False):
        found[start : start + size] = column.to_bytes(size, "little")
    return decoded(bytes(found))
