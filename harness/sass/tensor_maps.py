"""Tensor maps as the device has them: 128 bytes, of which ptxas shows where each field lies.

NVIDIA publishes no layout. But for `tensormap.replace` ptxas writes loads, stores and logic that put one field into its
bits; `_PLACES` is read from what it makes of each field on sm_90a and sm_100a. Where the map of a column of pixels
(im2col) has its pixels and corners is read from maps that the driver makes (cuTensorMapEncodeIm2col, on an H200): those
of five dimensions that differ in one number. A map with a bit of no field is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.async_copy.tensor_maps import (
    BYTES,
    CORNER_BITS,
    CORNERS,
    COUNTS,
    MODE,
    OF_COLUMNS,
    TensorMap,
    decoded,
    place,
)


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
_COLUMNS = 2 * _WORD
"""The bit that a map for im2col has, and one for tiles has not."""
_CORNERS = ((14 * _WORD, 0), (14 * _WORD + 16, 1))
"""The first bit of the lower corner and of the upper one: 16 bits, W lowest. Signed numbers: of 5 bits in 5 dimensions.

Seen for 5 dimensions. That 4 have twice 8 bits and 3 have 16 follows from the numbers that the driver takes.
"""
_CORNER = 16
_PIXELS = (15 * _WORD, 10)
"""The pixels of a column, less 1. The channels of a pixel are where a tile has the first size of its box."""
_WIDE = (30 * _WORD, 2)
"""Made up: the kind of the modes that move along W alone (2, 3). Which bits the driver has for them is not known."""
_IGNORED = (((1 << _WORD) - 1) << 16 * _WORD) | 0x710 << 18 * _WORD
"""Bits of the driver's maps, for tiles too, that say nothing to a device: how many bytes a box has, and after how many
bytes of shared memory the exchange of a swizzle begins again (16, 256, 512 or 1,024).

`tensormap.replace` changes the box and leaves them, and a map that a kernel makes of zeros has none of them.
"""
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
        data, total = _without_columns(data)
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
    left = int.from_bytes(data, "little") & ~_IGNORED
    found = bytearray(BYTES)
    columns, pixels = left >> _COLUMNS & 1, 0
    if columns:
        left, kind, corners, pixels = _of_columns(left)
        _write(found, MODE, kind)
        _write(found, CORNERS, corners)
    for name, number, field in _fields():
        start, size = place(name, number)
        if columns and name == "box_dim" and number:  # their bits are those of the corners
            _write(found, (start, size), (pixels if number == 1 else 1) | OF_COLUMNS)
            continue
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
        if columns and name == "box_dim":
            value |= OF_COLUMNS
        found[start : start + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    if left:
        return f"its bit {(left & -left).bit_length() - 1} is of no field that is known"
    return decoded(bytes(found))


def _read(data: bytes, where: tuple[int, int]) -> int:
    return int.from_bytes(data[where[0] : sum(where)], "little")


def _write(data: bytearray, where: tuple[int, int], value: int) -> None:
    data[where[0] : sum(where)] = value.to_bytes(where[1], "little")


def _without_columns(data: bytes) -> tuple[bytes, int]:
    """The emulator's map for im2col as one for tiles whose box is the channels; and the device's bits of the rest.

    Raises PtxError for a number that the device does not hold.
    """
    plain, kind, corners = bytearray(data), _read(data, MODE), _read(data, CORNERS)
    pixels = _read(data, place("box_dim", 1)) & ~OF_COLUMNS
    if not 0 < pixels <= 1 << _PIXELS[1]:
        raise PtxError(f"a tensor map of the host with {pixels} pixels in a column, which the device cannot hold")
    bits = _corner_bits(_read(data, place("rank", 0)))
    total = 1 << _COLUMNS | (pixels - 1) << _PIXELS[0] | (kind if kind > 1 else 0) << _WIDE[0]
    for first, number in _CORNERS:
        total |= (corners >> bits * number & (1 << bits) - 1) << first
    for number in range(COUNTS["box_dim"]):
        where = place("box_dim", number)
        _write(plain, where, 1 if number else _read(data, where) & ~OF_COLUMNS)
    return bytes(plain), total


def _of_columns(left: int) -> tuple[int, int, int, int]:
    """What is left of the bits of a map for im2col; its kind and corners as the emulator has them; its pixels."""
    bits = _corner_bits(left >> _PLACES["rank"][0].parts[0][0] & 7)
    kind = left >> _WIDE[0] & 3
    corners = sum((left >> first & (1 << bits) - 1) << bits * number for first, number in _CORNERS)
    pixels = left >> _PIXELS[0] & (1 << _PIXELS[1]) - 1
    taken = 1 << _COLUMNS | (kind if kind > 1 else 0) << _WIDE[0] | ((1 << _PIXELS[1]) - 1) << _PIXELS[0]
    for first, _ in _CORNERS:
        taken |= ((1 << bits) - 1) << first
    return left & ~taken, kind or 1, corners, pixels + 1


def _corner_bits(rank: int) -> int:
    """How many bits each corner has, by the field of the rank; the rest of its 16 bits is of no field."""
    return CORNER_BITS[rank + 1] * (rank - 1) if rank + 1 in CORNER_BITS else _CORNER
