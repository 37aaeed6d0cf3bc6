"""Tensor maps: 128 bytes that describe a tensor in global memory and the boxes copied from it.

NVIDIA publishes no layout of the 128 bytes, so the layout here is our own. Programs get maps from the host (see
`encoded`) and may change them only with `tensormap.replace`. For the meaning of the fields see ISA 5.5 (tensors) and
9.7.9.28. What a copy takes of a tensor depends on its mode (ISA 5.5.3 to 5.5.5): `aimed` applies it to a map.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.memory.space import Buffer
from ptxdiff.emulator.numeric.vectorise import Array

BYTES = 128
_LAYOUT = struct.Struct("<Q5II4Q15II")
_PLACES = {"global_address": (0, 8), "global_dim": (8, 4), "global_stride": (32, 8), "box_dim": (64, 4)}
_PLACES |= {"element_stride": (84, 4), "rank": (104, 4), "elemtype": (108, 4), "interleave_layout": (112, 4)}
_PLACES |= {"swizzle_mode": (116, 4), "fill_mode": (120, 4)}
MODE, CORNERS = (28, 4), (124, 4)
"""The places of what only the host can write: the kind of box, an index of `_KINDS`, and the corners of its pixels."""
_KINDS = ("", "im2col", "im2col::w", "im2col::w::128")
COUNTS = {"global_dim": 5, "global_stride": 4, "box_dim": 5, "element_stride": 5}
"""Fields with a number for each dimension; strides have none for the innermost."""
_SIZES = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)
_ROUNDED = (11, 12)
"""The codes of .tf32 and .tf32.ftz: what a copy reads is rounded."""
PADDED_NIBBLES = 14
"""The code of .b4x16_p64: sixteen 4-bit elements have 8 bytes in the tensor, and in shared memory 8 of padding more."""
_NIBBLES = 128
"""How many 4-bit elements a row of a box has; corners and sizes are multiples of it (cuTensorMapEncodeTiled)."""
_FLOATS = {6: 0x7FF7, 9: 0x7FF77FF7_7FF77FF7, 10: 0x7FF7, **dict.fromkeys((7, 8, 11, 12), 0x7FF77FF7)}
"""The NaN beside a tensor, by the code of its elements' type, as an H200 gives it; .tf32 does not round it. The ISA
says no more than NaN.
"""
_UNIT = 16
"""Bytes that a copy to a tensor writes together. Where a row of the tensor ends within them, an H200 also writes, or
reduces, what lies behind the end (180 copies of im2col_no_offs and reductions of tiles, and plain copies of tiles).

The ISA says that nothing outside of the tensor is written.
"""
_SWIZZLES = (16, 32, 64, 128)
GREATEST_BOX = 256
_GREATEST_COLUMN = 1024
"""The most pixels of a column (cuTensorMapEncodeIm2col)."""
CORNER_BITS = {3: 16, 4: 8, 5: 5}
"""By the number of dimensions: the bits of a corner's coordinate, signed, and of an im2col offset, unsigned."""
OF_COLUMNS = 1 << 16
"""Marks channels and pixels where a tile has its box. What `tensormap.replace` writes there has no such mark."""
_WIDE_PIXELS = 128
_GREATEST_HALO = {"im2col::w": 512, "im2col::w::128": 32}
_GREATEST_OFFSET = 32


@dataclass(frozen=True)
class Pixels:
    """The box of a map for im2col: pixels, in the order W, H, D, of which a copy takes a column (ISA 5.5.4).

    `lower`: the first coordinates of the box. `upper`: what is added to the tensor's last coordinates for the last ones
    of the box. `steps`: traversal strides. `kind`: the mode of the copies for which the map is made.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]
    kind: str = "im2col"


@dataclass(frozen=True)
class TensorMap:
    """A tensor and its boxes, innermost dimension first. Sizes are in elements. `strides`: bytes, without the innermost
    dimension.

    `size`: bytes of an element. `swizzle`: bytes of a row in which 16-byte chunks are exchanged; 16: no swizzle.
    `fill`: the code of elements outside the tensor. `padded`: an element is 16 of 4 bits, which in shared memory are
    the first half of a chunk; sizes and the box count those, corners the 4-bit elements. `element`: the code of the
    elements' type. `pixels`: for im2col; the box is then channels and pixels of a column. `rows`: the box is rows of a
    matrix that need not follow each other, each with its own coordinate.
    """

    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    size: int
    swizzle: int
    fill: int
    padded: bool = False
    element: int = 0
    pixels: Pixels | None = None
    rows: bool = False

    @property
    def bytes(self) -> int:
        """The size of a box in shared memory."""
        return int(np.prod(self.box)) * (16 if self.padded else self.size)

    def rounded(self, data: Array) -> Array:
        """What a copy to shared memory makes of the bytes of elements (uint8; the last axis has whole elements).

        Those of .tf32 and .tf32.ftz are rounded to 10 bits of mantissa, to nearest, ties to even, and a NaN becomes
        0x7FFFE000. No other type changes a bit, and no .ftz flushes: so an H200 did on 16,384 codes of each type (all
        exponents; ties; subnormals; NaNs). The ISA does not say it. A copy to the tensor changes no bit of any type.
        """
        if self.element not in _ROUNDED:
            return data
        codes = np.ascontiguousarray(data).view(np.uint32)
        nearest = codes + 0xFFF + (codes >> 13 & 1) & 0xFFFFE000
        return np.where((codes & 0x7FFFFFFF) > 0x7F800000, np.uint32(0x7FFFE000), nearest).view(np.uint8)

    def rounded_doubt(self, doubt: Array) -> Array:
        """The undefined bits of `rounded`: all bits of an element of which one is undefined, where it is rounded."""
        if self.element not in _ROUNDED:
            return doubt
        some = np.ascontiguousarray(doubt).view(np.uint32) != 0
        return np.where(some, np.uint32(0xFFFFFFFF), np.uint32(0)).view(np.uint8)

    def refused(self, corner: list[int]) -> str:
        """An error message for a corner that no box of this map has; "" for others."""
        if self.padded and corner[0] % _NIBBLES:
            return f"the first coordinate {corner[0]} of padded 4-bit elements is no multiple of {_NIBBLES}"
        return ""


@dataclass(frozen=True)
class HostMap:
    """A tensor map that the host makes for a buffer, as an argument of a kernel.

    `offset`: the tensor's offset in the buffer in bytes. `sizes`, `strides` (of all dimensions, in elements) and `box`
    have the innermost dimension last, like a tensor's shape. `element`, `swizzle`, `fill`: codes of the fields.
    `pixels`: for im2col (cuTensorMapEncodeIm2col); `box` is then the pixels of a column and the channels of a pixel.
    For im2col::w and im2col::w::128 (cuTensorMapEncodeIm2colWide) its corners have only the coordinate W.
    """

    buffer: Buffer
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element: int
    swizzle: int
    fill: int
    pixels: Pixels | None = None

    @property
    def bytes(self) -> bytes:
        """The map, once the buffer is placed. Raises PtxError for corners that no map can hold."""
        # Padded 4-bit elements are counted by the map, and the tensor has bytes, with two of them in each.
        element = 1 if self.element == PADDED_NIBBLES else _SIZES[self.element]
        strides = [s * element for s in self.strides[-2::-1]]
        sizes, box = list(self.sizes[::-1]), list(self.box[::-1])
        address = self.buffer.address + self.offset
        return encoded(address, sizes, strides, box, self.element, self.swizzle, self.fill, self.pixels)


def place(field: str, number: int) -> tuple[int, int]:
    """The offset of a field in the 128 bytes, and its size."""
    start, size = _PLACES[field]
    return start + number * size, size


def encoded(
    address: int, sizes: list[int], strides: list[int], box: list[int], elemtype: int, swizzle_mode: int,
    fill_mode: int, pixels: Pixels | None = None,
) -> bytes:  # fmt: skip
    """The 128 bytes of a map that the host makes; dimensions innermost first, strides in bytes.

    Raises PtxError for corners of pixels that no map can hold.
    """

    def padded(numbers: Sequence[int], count: int, least: int) -> list[int]:
        return [*numbers, *[least] * (count - len(numbers))]

    kind, steps, corners = 0, [1] * 5, 0
    if pixels is not None:
        kind, steps = _KINDS.index(pixels.kind), padded((1, *pixels.steps), 5, 1)
        corners = _packed(pixels, len(sizes))
        box = [b | OF_COLUMNS for b in padded(box, 5, 1)]
    fields = [address, *padded(sizes, 5, 1), kind, *padded(strides, 4, 0), *padded(box, 5, 1), *steps]
    return _LAYOUT.pack(*fields, len(sizes) - 1, elemtype, 0, swizzle_mode, fill_mode, corners)


def _packed(pixels: Pixels, rank: int) -> int:
    """Both corners in 32 bits. Raises PtxError for one that has too many coordinates, or too great ones."""
    bits = CORNER_BITS.get(rank, 0)
    dimensions = rank - 2 if pixels.kind == "im2col" else 1
    total = 0
    for corner in (pixels.upper, pixels.lower):
        if not bits or len(corner) != dimensions or any(not -(1 << bits - 1) <= c < 1 << bits - 1 for c in corner):
            text = f"a tensor map for {pixels.kind} of {rank} dimensions has 3 to 5, and {dimensions} coordinates of"
            raise PtxError(f"{text} {bits} bits in each corner of its pixels, not {corner}")
        for coordinate in (*[0] * (rank - 2 - dimensions), *corner[::-1]):
            total = total << bits | coordinate & (1 << bits) - 1
    return total


def _unpacked(corners: int, rank: int, kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The lower and the upper corner."""
    bits, dimensions = CORNER_BITS[rank], rank - 2
    each = [corners >> bits * k & (1 << bits) - 1 for k in range(2 * dimensions)]
    signed = tuple(c - (1 << bits) if c >> bits - 1 else c for c in each)
    kept = dimensions if kind == "im2col" else 1
    return signed[:kept], signed[dimensions:][:kept]


def decoded(data: bytes) -> TensorMap | str:
    """The map that 128 bytes encode, or an error message for a map that the emulator cannot copy with."""
    numbers = _LAYOUT.unpack_from(data)
    address, sizes, strides, box, steps = numbers[0], numbers[1:6], numbers[7:11], numbers[11:16], numbers[16:21]
    rank, elemtype, interleave, swizzle_mode, fill_mode, corners = numbers[21:]
    rank += 1
    if numbers[6] >= len(_KINDS):
        return f"kind {numbers[6]} of box is no such"
    kind = _KINDS[numbers[6]]
    if elemtype == PADDED_NIBBLES:
        if kind:
            return f"the emulator runs no map of padded 4-bit elements for {kind}"
        return _padded(address, sizes[:rank], strides[: rank - 1], box[:rank], steps[:rank], numbers[23:26])
    if rank > 5 or elemtype >= len(_SIZES) or swizzle_mode > 4 or fill_mode > 1:
        return f"rank {rank}, element type {elemtype}, swizzle mode {swizzle_mode}, fill mode {fill_mode} are no such"
    if swizzle_mode == 4 or interleave:
        combination = f"interleave layout {interleave}, swizzle mode {swizzle_mode}"
        return f"the emulator runs no map with {combination}: only no interleave, swizzles up to 128 bytes"
    size = _SIZES[elemtype]
    pixels = None
    if kind:
        found = _pixels(kind, sizes[:rank], box, steps[:rank], corners, swizzle_mode)
        if isinstance(found, str):
            return found
        pixels, box = found
    elif any(step != 1 for step in steps[:rank]):
        return f"the emulator runs no map with element strides {steps[:rank]} other than 1"
    if address % 16 or any(s % 16 or not s for s in strides[: rank - 1]):
        return f"address 0x{address:x} and strides {strides[: rank - 1]} are to be multiples of 16 bytes"
    if any(not s > 0 for s in sizes[:rank]) or any(
        not 0 < b <= (_GREATEST_COLUMN if pixels and k else GREATEST_BOX) for k, b in enumerate(box[:rank])
    ):
        most = f"channels of a pixel, {_GREATEST_COLUMN} pixels" if pixels else "elements along each dimension"
        return f"sizes {sizes[:rank]} and box {box[:rank]}: a box has 1 to {GREATEST_BOX} {most}"
    swizzle, row = _SWIZZLES[swizzle_mode], box[0] * size
    if row % 16:
        return f"a row of a box has {row} bytes, no multiple of 16"
    if swizzle > 16 and row > swizzle:
        return f"a row of a box has {row} bytes, more than the {swizzle} of its swizzle"
    if swizzle > 16 and row != swizzle:
        return f"the emulator runs no box whose rows ({row} bytes) are shorter than its swizzle ({swizzle} bytes)"
    if fill_mode and elemtype not in _FLOATS:
        return f"element type {elemtype} has no NaN to fill with"
    fill = _FLOATS[elemtype] if fill_mode else 0
    return TensorMap(
        address, sizes[:rank], strides[: rank - 1], box[:rank], size, swizzle, fill, element=elemtype, pixels=pixels
    )


def _pixels(
    kind: str, sizes: tuple[int, ...], box: tuple[int, ...], steps: tuple[int, ...], corners: int, swizzle_mode: int
) -> tuple[Pixels, tuple[int, ...]] | str:
    """The pixels of a map for im2col, with channels of a pixel and pixels of a column; or an error message."""
    rank = len(sizes)
    if rank not in CORNER_BITS:
        return f"a map for {kind} has 3 to 5 dimensions, not {rank}"
    if any(b & OF_COLUMNS == 0 for b in box):
        return f"a kernel has replaced the box of a map for {kind}, which has channels and pixels instead"
    if kind != "im2col" and not swizzle_mode:
        return f"a map for {kind} without a swizzle: these modes need one (ISA 5.5.5)"
    if steps[-1] != 1 or any(not 0 < s <= 8 for s in steps[1:]):
        return f"the emulator runs no map for {kind} with traversal strides {steps[1:]}: 1 to 8, and 1 along N"
    lower, upper = _unpacked(corners, rank, kind)
    pixels = Pixels(lower, upper, steps[1 : 1 + len(lower)], kind)
    if any(a > b for a, b in _bounds(pixels, sizes)):
        return f"the pixels between the corners {lower} and {upper} of sizes {sizes[1 : 1 + len(lower)]} are none"
    return pixels, (box[0] & ~OF_COLUMNS, box[1] & ~OF_COLUMNS)


def _bounds(pixels: Pixels, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """The first and the last coordinate of the box of pixels along W, H and D."""
    return [(a, size - 1 + b) for a, b, size in zip(pixels.lower, pixels.upper, sizes[1:], strict=False)]


def aimed(
    found: TensorMap, mode: str, coordinates: list[int], info: Sequence[int] = (), *, stores: bool = False
) -> tuple[TensorMap, list[int]] | str:
    """A map and the corner of a box as a copy in a mode takes them, or an error message for a wrong use.

    mode: the modifier: "" for tile. info: the im2col offsets along W, H and D, or wHalo and wOffset. stores: the copy
    writes to the tensor.
    """
    rank, kind = len(found.sizes), found.pixels.kind if found.pixels else "tile"
    of_mode = "tile" if mode in ("", "tile") else mode.removesuffix("_no_offs")
    if mode in ("tile::gather4", "tile::scatter4"):
        return _rows(found, mode, coordinates)
    if of_mode != kind:
        return f"a copy in mode .{of_mode} by a tensor map that was made for .{kind}"
    if len(coordinates) != rank:
        return f"{len(coordinates)} coordinates for a tensor map of {rank} dimensions"
    if refused := found.refused(coordinates):
        return refused
    if stores and coordinates[0] * found.size % _UNIT and coordinates[0] + found.box[0] > found.sizes[0]:
        text = f"a copy over the end of a tensor's rows from {coordinates} on, {coordinates[0] * found.size} bytes from"
        return f"{text} the start of a row: which bytes it writes is known for multiples of {_UNIT} bytes alone"
    if found.pixels is None:
        return found, coordinates
    if stores and (min(found.pixels.lower) < 0 or max(found.pixels.upper) > 0 or min(coordinates) < 0):
        text = f"a copy to a tensor from {coordinates} by pixels with the corners {found.pixels.lower} and"
        return f"{text} {found.pixels.upper}: none may lie outside of the tensor (ISA 9.7.9.27.1.1)"
    return _columns(found, found.pixels, coordinates, info)


def _rows(found: TensorMap, mode: str, coordinates: list[int]) -> tuple[TensorMap, list[int]] | str:
    if len(found.sizes) != 2 or found.pixels or found.padded or found.box[1] != 1:
        return f"a copy in mode .{mode} by a tensor map of other than rows: 2 dimensions, and a box of one row"
    named = [row for row in coordinates[1:] if 0 <= row < found.sizes[1]]
    if mode == "tile::scatter4" and len(set(named)) < len(named):
        return f"a copy to the rows {coordinates[1:]}, of which two are the same: nothing says which comes last"
    return replace(found, box=(found.box[0], 4), rows=True), coordinates


def _columns(
    found: TensorMap, pixels: Pixels, coordinates: list[int], info: Sequence[int]
) -> tuple[TensorMap, list[int]] | str:
    """The map and corner of a column, moved by its offsets: bounds and the first pixel alike (ISA 5.5.4.1, 5.5.5.4)."""
    within = list(zip(coordinates[1:-1], _bounds(pixels, found.sizes), strict=False))
    box = found.box
    if pixels.kind == "im2col":
        bits = CORNER_BITS[len(found.sizes)]
        if any(not 0 <= one < 1 << bits for one in info):
            return f"the im2col offsets {list(info)} of {len(found.sizes)} dimensions are to be 0 to {(1 << bits) - 1}"
        if any(not a <= c <= b for c, (a, b) in within):
            text = f"a column begins at {coordinates[1:-1]} (W first), outside of its pixels"
            return f"{text}: from {[a for _, (a, _) in within]} to {[b for _, (_, b) in within]}"
        moved = tuple(info) or (0,) * len(pixels.lower)
    else:
        halo, offset = info
        if not 0 <= halo < _GREATEST_HALO[pixels.kind] or not 0 <= offset < _GREATEST_OFFSET:
            text = f"wHalo {halo} and wOffset {offset} of .{pixels.kind} are to be below {_GREATEST_HALO[pixels.kind]}"
            return f"{text} and {_GREATEST_OFFSET}"
        if halo:
            return f"the emulator runs no .{pixels.kind} with a halo (wHalo {halo}), whose place the ISA leaves open"
        if any(c > b for c, (_, b) in within):
            return f"a column begins at W = {coordinates[1]}, beyond its pixels, which end at {within[0][1][1]}"
        moved = (offset,)
        if pixels.kind == "im2col::w::128":
            box = (box[0], _WIDE_PIXELS)
    lower = tuple(a + m for a, m in zip(pixels.lower, moved, strict=True))
    upper = tuple(a + m for a, m in zip(pixels.upper, moved, strict=True))
    first = [c + m for c, m in zip(coordinates[1:], moved, strict=False)]
    corner = [coordinates[0], *first, *coordinates[1 + len(moved) :]]
    return replace(found, box=box, pixels=replace(pixels, lower=lower, upper=upper)), corner


def _padded(
    address: int, sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], steps: tuple[int, ...],
    rest: tuple[int, ...],
) -> TensorMap | str:  # fmt: skip
    """The map of padded 4-bit elements, or an error message (rules: cuTensorMapEncodeTiled, 16U4_ALIGN16B)."""
    interleave, swizzle_mode, fill_mode = rest
    if len(sizes) > 5 or interleave or fill_mode or swizzle_mode not in (0, 3) or any(step != 1 for step in steps):
        combination = (
            f"interleave layout {interleave}, swizzle mode {swizzle_mode}, fill mode {fill_mode}, element strides"
        )
        return f"{combination} {steps}: padded 4-bit elements have none, a swizzle of 128 bytes or none, zeros, and 1"
    if address % 32 or any(s % 32 or not s for s in strides):
        return f"address 0x{address:x} and strides {strides} of padded 4-bit elements are to be multiples of 32 bytes"
    if sizes[0] % _NIBBLES or box[0] != _NIBBLES:
        combination = f"rows have {sizes[0]} padded 4-bit elements, and those of a box {box[0]}"
        return f"{combination}: a multiple of {_NIBBLES}, and {_NIBBLES}"
    if any(not s > 0 for s in sizes) or any(not 0 < b <= GREATEST_BOX for b in box):
        return f"sizes {sizes} and box {box}: a box has 1 to {GREATEST_BOX} elements along each dimension"
    whole, rows = (sizes[0] // 16, *sizes[1:]), (box[0] // 16, *box[1:])
    return TensorMap(address, whole, strides, rows, 8, _SWIZZLES[swizzle_mode], 0, True, PADDED_NIBBLES)


def rows_of(found: TensorMap, corner: list[int], *, stores: bool = False) -> tuple[Array, Array, int, int]:
    """The rows of a box along the innermost dimension, in their order in shared memory.

    found, corner, stores: as of `aimed`. Returns the address of each row's first element (even if it lies outside the
    tensor), which rows contain elements of the tensor, and the range of each row's elements (first, one past the last)
    inside the tensor, or, of a copy to the tensor, of those that it writes.
    """
    if found.padded:
        corner = [corner[0] // 16, *corner[1:]]
    low, high = max(0, -corner[0]), min(found.box[0], found.sizes[0] - corner[0])
    if stores and high > low:
        high = min(found.box[0], high + -high * found.size % _UNIT // found.size)
    address = np.zeros(1, np.int64) + found.address + corner[0] * found.size
    inside: Array = np.ones(1, np.bool_)
    if found.pixels is not None or found.rows:
        at = np.array(corner[1:], np.int64)[:, None] if found.rows else _column(found, found.pixels, corner)
        table = np.array(found.sizes[1:], np.int64), np.array(found.strides, np.int64)
        inside = np.logical_and.reduce((at >= 0) & (at < table[0]), axis=1)
        return address + (at * table[1]).sum(axis=1), inside & (high > low), low, max(low, high)
    outer = list(zip(found.box[1:], corner[1:], found.sizes[1:], found.strides, strict=True))
    for box, first, size, stride in outer:
        at = first + np.arange(box, dtype=np.int64)
        address = (at[:, None] * stride + address[None, :]).reshape(-1)
        inside = ((at >= 0) & (at < size))[:, None] & inside[None, :]
        inside = inside.reshape(-1)
    return address, inside & (high > low), low, max(low, high)


def _column(found: TensorMap, pixels: Pixels | None, corner: list[int]) -> Array:
    """The coordinates of each pixel of a column, without that of channels.

    W moves first, by its traversal stride. Past the last pixel of the box a coordinate goes back to the first one, and
    the next one moves: H, D and at last N. H and D stay where they are in the modes that only move along W.
    """
    assert pixels is not None
    bounds, at = _bounds(pixels, found.sizes), list(corner[1:])
    places = np.empty((found.box[1], len(at)), np.int64)
    for number in range(found.box[1]):
        places[number] = at
        for k, ((first, last), step) in enumerate(zip(bounds, pixels.steps, strict=True)):
            at[k] += step
            if at[k] <= last:
                break
            at[k] = first
        else:
            at[-1] += 1
    return places


def swizzled(found: TensorMap, start: int) -> Array:
    """The address in shared memory of each 16-byte chunk of a box at an address, in the box's order."""
    address = start + 16 * np.arange(found.bytes // 16, dtype=np.int64)
    exchanged: Array = address ^ (address >> 7 & found.swizzle // 16 - 1) << 4
    return exchanged
