"""Tensor maps: 128 bytes that describe a tensor in global memory and the boxes copied from it.

NVIDIA publishes no layout of the 128 bytes, so the layout here is our own. Programs get maps from the host (see
`encoded`) and may change them only with `tensormap.replace`. For the meaning of the fields see ISA 5.5 (tensors) and
9.7.9.28.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.kernel.memory.space import Buffer
from ptxdiff.emulator.numeric.vectorise import Array

BYTES = 128
_LAYOUT = struct.Struct("<Q5I4x4Q15I")
_PLACES = {"global_address": (0, 8), "global_dim": (8, 4), "global_stride": (32, 8), "box_dim": (64, 4)}
_PLACES |= {"element_stride": (84, 4), "rank": (104, 4), "elemtype": (108, 4), "interleave_layout": (112, 4)}
_PLACES |= {"swizzle_mode": (116, 4), "fill_mode": (120, 4)}
COUNTS = {"global_dim": 5, "global_stride": 4, "box_dim": 5, "element_stride": 5}
"""Fields with a number for each dimension; strides have none for the innermost."""
_SIZES = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)
_TF32, _TF32_FTZ, _F32_FTZ = 11, 12, 8
PADDED_NIBBLES = 14
"""The code of .b4x16_p64: sixteen 4-bit elements have 8 bytes in the tensor, and in shared memory 8 of padding more."""
_NIBBLES = 128
"""How many 4-bit elements a row of a box has; corners and sizes are multiples of it (cuTensorMapEncodeTiled)."""
_FLOATS = {6: 0x7FFF, 7: 0x7FFFFFFF, 9: 0x7FFFFFFFFFFFFFFF, 10: 0x7FFF, 11: 0x7FFFFFFF}
_SWIZZLES = (16, 32, 64, 128)
GREATEST_BOX = 256


@dataclass(frozen=True)
class TensorMap:
    """A tensor and its boxes, innermost dimension first. Sizes are in elements. `strides`: bytes, without the innermost
    dimension.

    `size`: bytes of an element. `swizzle`: bytes of a row in which 16-byte chunks are exchanged; 16: no swizzle.
    `fill`: the code of elements outside the tensor. `padded`: an element is 16 of 4 bits, which in shared memory are
    the first half of a chunk; sizes and the box count those, corners the 4-bit elements.
    """

    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    size: int
    swizzle: int
    fill: int
    padded: bool = False

    @property
    def bytes(self) -> int:
        """The size of a box in shared memory."""
        return int(np.prod(self.box)) * (16 if self.padded else self.size)

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
    """

    buffer: Buffer
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element: int
    swizzle: int
    fill: int

    @property
    def bytes(self) -> bytes:
        """The map, once the buffer is placed."""
        # Padded 4-bit elements are counted by the map, and the tensor has bytes, with two of them in each.
        element = 1 if self.element == PADDED_NIBBLES else _SIZES[self.element]
        strides = [s * element for s in self.strides[-2::-1]]
        sizes, box = list(self.sizes[::-1]), list(self.box[::-1])
        return encoded(self.buffer.address + self.offset, sizes, strides, box, self.element, self.swizzle, self.fill)


def place(field: str, number: int) -> tuple[int, int]:
    """The offset of a field in the 128 bytes, and its size."""
    start, size = _PLACES[field]
    return start + number * size, size


def encoded(
    address: int, sizes: list[int], strides: list[int], box: list[int], elemtype: int, swizzle_mode: int, fill_mode: int
) -> bytes:
    """The 128 bytes of a map that the host makes; dimensions innermost first, strides in bytes."""

    def padded(numbers: list[int], count: int, least: int) -> list[int]:
        return [*numbers, *[least] * (count - len(numbers))]

    fields = [address, *padded(sizes, 5, 1), *padded(strides, 4, 0), *padded(box, 5, 1), *[1] * 5]
    return _LAYOUT.pack(*fields, len(sizes) - 1, elemtype, 0, swizzle_mode, fill_mode).ljust(BYTES, b"\0")


def decoded(data: bytes) -> TensorMap | str:
    """The map that 128 bytes encode, or an error message for a map that the emulator cannot copy with."""
    numbers = _LAYOUT.unpack_from(data)
    address, sizes, strides, box, steps = numbers[0], numbers[1:6], numbers[6:10], numbers[10:15], numbers[15:20]
    rank, elemtype, interleave, swizzle_mode, fill_mode = numbers[20:]
    rank += 1
    if elemtype == PADDED_NIBBLES:
        return _padded(address, sizes[:rank], strides[: rank - 1], box[:rank], steps[:rank], numbers[22:])
    if rank > 5 or elemtype >= len(_SIZES) or swizzle_mode > 4 or fill_mode > 1:
        return f"rank {rank}, element type {elemtype}, swizzle mode {swizzle_mode}, fill mode {fill_mode} are no such"
    if swizzle_mode == 4 or interleave or elemtype in (_F32_FTZ, _TF32_FTZ, _TF32):
        combination = f"interleave layout {interleave}, swizzle mode {swizzle_mode}, element type {elemtype}"
        return f"the emulator runs no map with {combination}: only no interleave, swizzles up to 128 bytes, no rounding"
    size = _SIZES[elemtype]
    if any(step != 1 for step in steps[:rank]):
        return f"the emulator runs no map with element strides {steps[:rank]} other than 1"
    if address % 16 or any(s % 16 or not s for s in strides[: rank - 1]):
        return f"address 0x{address:x} and strides {strides[: rank - 1]} are to be multiples of 16 bytes"
    if any(not s > 0 for s in sizes[:rank]) or any(not 0 < b <= GREATEST_BOX for b in box[:rank]):
        return f"sizes {sizes[:rank]} and box {box[:rank]}: a box has 1 to {GREATEST_BOX} elements along each dimension"
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
    return TensorMap(address, sizes[:rank], strides[: rank - 1], box[:rank], size, swizzle, fill)


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
    return TensorMap(address, whole, strides, rows, 8, _SWIZZLES[swizzle_mode], 0, True)


def rows_of(found: TensorMap, corner: list[int]) -> tuple[Array, Array, int, int]:
    """The rows of a box along the innermost dimension, in their order in shared memory.

    Returns the address of each row's first element (even if it lies outside the tensor), which rows contain elements of
    the tensor, and the range of each row's elements (first, one past the last) inside the tensor.
    """
    if found.padded:
        corner = [corner[0] // 16, *corner[1:]]
    low, high = max(0, -corner[0]), min(found.box[0], found.sizes[0] - corner[0])
    outer = list(zip(found.box[1:], corner[1:], found.sizes[1:], found.strides, strict=True))
    address = np.zeros(1, np.int64) + found.address + corner[0] * found.size
    inside = np.ones(1, np.bool_)
    for box, first, size, stride in outer:
        at = first + np.arange(box, dtype=np.int64)
        address = (at[:, None] * stride + address[None, :]).reshape(-1)
        inside = ((at >= 0) & (at < size))[:, None] & inside[None, :]
        inside = inside.reshape(-1)
    return address, inside & (high > low), low, max(low, high)


def swizzled(found: TensorMap, start: int) -> Array:
    """The address in shared memory of each 16-byte chunk of a box at an address, in the box's order."""
    address = start + 16 * np.arange(found.bytes // 16, dtype=np.int64)
    exchanged: Array = address ^ (address >> 7 & found.swizzle // 16 - 1) << 4
    return exchanged
