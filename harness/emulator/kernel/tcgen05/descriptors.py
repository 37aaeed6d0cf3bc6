"""The layouts of matrices in shared memory that tcgen05's descriptors state (ISA 9.7.16.4.1).

The layouts are those of wgmma (`ptxdiff.emulator.kernel.wgmma.descriptors`), here for elements of any size: the
smallest part is a chunk of 16 bytes, eight chunks make a core matrix, and a swizzle has rows of 32, 64 or 128 bytes.
Two things differ: the places of the fields, and a swizzle of 128 bytes in parts of 32, which MN-major tf32 uses. There
a group has four rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxdiff.emulator.numeric.vectorise import Array

_FIELD = (1 << 14) - 1
_USED = _FIELD | _FIELD << 16 | _FIELD << 32 | 7 << 46 | 7 << 49 | 1 << 52 | 7 << 61


@dataclass(frozen=True)
class Swizzle:
    """A swizzle: bytes of a row, and bytes of the parts that it exchanges."""

    row: int
    part: int = 16


SWIZZLES = {0: Swizzle(16), 1: Swizzle(128, 32), 2: Swizzle(128), 4: Swizzle(64), 6: Swizzle(32)}
"""The swizzle for each mode (the three highest bits); rows of 16 bytes: no swizzle."""


@dataclass(frozen=True)
class MatrixDescriptor:
    """A matrix's address in shared memory and its two offsets, all in bytes, and its swizzle."""

    start: int
    leading: int
    stride: int
    swizzle: Swizzle

    @property
    def code(self) -> int:
        """The descriptor's 64 bits."""
        mode = next(m for m, found in SWIZZLES.items() if found == self.swizzle)
        parts = (self.start >> 4 & _FIELD, (self.leading >> 4 & _FIELD) << 16, (self.stride >> 4 & _FIELD) << 32)
        return sum(parts) | 1 << 46 | mode << 61


def decoded(code: int) -> MatrixDescriptor | str:
    """The descriptor that 64 bits encode, or an error message for bits that the emulator does not support."""
    if code & ~_USED:
        return f"it has set bits outside its fields (0x{code & ~_USED:x})"
    if code >> 46 & 7 != 1:
        return f"bits 46 to 48 are {code >> 46 & 7}, which ISA 9.7.16.4.1 fixes at 1 (a descriptor of wgmma has 0)"
    if code >> 49 & 7 and code >> 61:  # ISA 9.7.15.5.1: the field applies to all modes with a swizzle
        return f"its base offset is {code >> 49 & 7}; the emulator supports only 0, the base offset of aligned matrices"
    if code >> 52 & 1:
        return "its leading dimension is an absolute address (bit 52), which the emulator does not run"
    if code >> 61 not in SWIZZLES:
        return f"its swizzling mode is {code >> 61}; there are 0, 1, 2, 4 and 6"
    parts = [(code >> at & _FIELD) << 4 for at in (0, 16, 32)]
    return MatrixDescriptor(parts[0], parts[1], parts[2], SWIZZLES[code >> 61])


@cache
def _along(across: bool, swizzle: Swizzle, rows: int, depth: int, each: int) -> tuple[Array, Array, Array]:
    """For each chunk: the bytes within the swizzle's rows, and the multiples of the leading and of the stride offset.

    across: MN-major. depth: bytes of a row along k; if across, k itself. each: elements of a chunk. Shape of the
    results: rows x chunks along k; if across, k x chunks along the rows.
    """
    row_bytes = swizzle.row
    if across:
        k, chunk = np.meshgrid(np.arange(depth), np.arange(-(-rows // each)), indexing="ij")
        if row_bytes == 16:
            return k % 8 * 16, k // 8, chunk
        group = 4 if swizzle.part == 32 else 8
        return k % group * row_bytes + chunk % (row_bytes // 16) * 16, chunk // (row_bytes // 16), k // group
    row, chunk = np.meshgrid(np.arange(rows), np.arange(depth // 16), indexing="ij")
    if row_bytes == 16:
        return row % 8 * 16, chunk, row // 8
    return row % 8 * row_bytes + chunk * 16, 0 * row, row // 8


def addresses(found: MatrixDescriptor, across: bool, rows: int, depth: int, each: int) -> Array:
    """The address in shared memory of every chunk; see `_along`."""
    own, leading, stride = _along(across, found.swizzle, rows, depth, each)
    address = found.start + own + leading * found.leading + stride * found.stride
    if found.swizzle.part == 32:
        return np.asarray(address ^ (address >> 7 & 3) << 5)
    return np.asarray(address ^ (address >> 7 & found.swizzle.row // 16 - 1) << 4)
