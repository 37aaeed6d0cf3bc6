"""The layouts of matrices in shared memory that descriptors of wgmma state (ISA 9.7.15.5.1).

The smallest part is a chunk of 16 bytes. It holds neighbours along k (K-major, the only layout of types that do not
have 16 bits), or along the rows of `a` or columns of `b` (MN-major). Eight chunks make a core matrix. Without a swizzle
these eight are consecutive. With a swizzle of 32, 64 or 128 bytes, a group has eight rows of that many bytes, and the
row bits of the address are xored into its chunk bits.

The descriptor's two offsets are distances between core matrices or groups. Their meaning depends on the layout:

    K-major, no swizzle    leading: chunks along k         stride: groups of eight rows
    K-major, swizzle       leading: not used               stride: groups of eight rows
    MN-major, no swizzle   leading: groups of eight k      stride: chunks along the rows
    MN-major, swizzle      leading: rows of 32..128 bytes  stride: groups of eight k
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxdiff.emulator.numeric.vectorise import Array

SWIZZLES = {0: 16, 1: 128, 2: 64, 3: 32}
"""For each swizzle mode (the two highest bits), the bytes of a row; 16: no swizzle."""
_FIELD = (1 << 14) - 1
_USED = _FIELD | _FIELD << 16 | _FIELD << 32 | 7 << 49 | 3 << 62


@dataclass(frozen=True)
class Descriptor:
    """A matrix's address in shared memory, its two offsets, and its swizzle; all in bytes."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @property
    def code(self) -> int:
        """The descriptor's 64 bits."""
        mode = next(m for m, size in SWIZZLES.items() if size == self.swizzle)
        return self.start >> 4 & _FIELD | (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | mode << 62


def decoded(code: int) -> Descriptor | str:
    """The descriptor that 64 bits encode, or an error message for bits that the emulator does not support."""
    if code & ~_USED:
        return f"bits that no field of it has are set (0x{code & ~_USED:x})"
    if code >> 49 & 7:
        return f"its base offset is {code >> 49 & 7}; the emulator runs those of 0 alone, which aligned matrices have"
    parts = [(code >> at & _FIELD) << 4 for at in (0, 16, 32)]
    return Descriptor(parts[0], parts[1], parts[2], SWIZZLES[code >> 62])


@cache
def _along(across: bool, swizzle: int, rows: int, depth: int) -> tuple[Array, Array, Array]:
    """For each chunk: the bytes within the swizzle's rows, and the multiples of the leading and of the stride offset.

    across: MN-major. rows: the number of rows of a, or columns of b. depth: bytes of a row along k; if across, k
    itself. Shape of the results: rows x chunks along k; if across, k x chunks along the rows.
    """
    if across:
        k, chunk = np.meshgrid(np.arange(depth), np.arange(rows // 8), indexing="ij")
        if swizzle == 16:
            return k % 8 * 16, k // 8, chunk
        each = swizzle // 16
        return k % 8 * swizzle + chunk % each * 16, chunk // each, k // 8
    row, chunk = np.meshgrid(np.arange(rows), np.arange(depth // 16), indexing="ij")
    if swizzle == 16:
        return row % 8 * 16, chunk, row // 8
    return row % 8 * swizzle + chunk * 16, 0 * row, row // 8


def addresses(found: Descriptor, across: bool, rows: int, depth: int) -> Array:
    """The address in shared memory of every chunk; see `_along`."""
    own, leading, stride = _along(across, found.swizzle, rows, depth)
    address = found.start + own + leading * found.leading + stride * found.stride
    # Three bits above the chunk bits: the number (0 to 7) of the 128-byte row that holds the address.
    swizzled: Array = address ^ (address >> 7 & found.swizzle // 16 - 1) << 4
    return swizzled
