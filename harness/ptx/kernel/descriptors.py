"""Matrices in shared memory as a descriptor of wgmma lays them out (ISA 9.7.15.5.1).

Chunks of 16 bytes are the smallest part: neighbours along k (K-major, the only layout of types without 16 bits), or
along the rows of `a`, the columns of `b` (MN-major). Eight chunks make a core matrix. Without a swizzle these eight lie
one behind the other. With one of 32, 64 or 128 bytes, rows of so many bytes lie eight to a group, and bits of the
address that count rows are added, without carry, to those that count chunks.

Distances between core matrices, or groups, are the descriptor's two offsets; which one is which depends on the layout:

    K-major, no swizzle    leading: chunks along k         stride: groups of eight rows
    K-major, swizzle       leading: not used               stride: groups of eight rows
    MN-major, no swizzle   leading: groups of eight k      stride: chunks along the rows
    MN-major, swizzle      leading: rows of 32..128 bytes  stride: groups of eight k
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from harness.ptx.numeric.vectorise import Array

SWIZZLES = {0: 16, 1: 128, 2: 64, 3: 32}
"""The bytes of a row by the swizzle mode in the two highest bits; 16: none."""
_FIELD = (1 << 14) - 1
_USED = _FIELD | _FIELD << 16 | _FIELD << 32 | 7 << 49 | 3 << 62


@dataclass(frozen=True)
class Descriptor:
    """Where a matrix begins (an address in shared memory), its two offsets, all in bytes, and the swizzle's bytes."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @property
    def code(self) -> int:
        """The 64 bits."""
        mode = next(m for m, size in SWIZZLES.items() if size == self.swizzle)
        return self.start >> 4 & _FIELD | (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | mode << 62


def decoded(code: int) -> Descriptor | str:
    """What 64 bits say; words where they say nothing that can be followed."""
    if code & ~_USED:
        return f"bits that no field of it has are set (0x{code & ~_USED:x})"
    if code >> 49 & 7:
        return f"its base offset is {code >> 49 & 7}; the emulator runs those of 0 alone, which aligned matrices have"
    parts = [(code >> at & _FIELD) << 4 for at in (0, 16, 32)]
    return Descriptor(parts[0], parts[1], parts[2], SWIZZLES[code >> 62])


@cache
def _along(across: bool, swizzle: int, rows: int, depth: int) -> tuple[Array, Array, Array]:
    """Of each chunk: bytes that the swizzle's rows give, times the leading, and times the stride offset.

    across: MN-major. rows: those of a, columns of b. depth: bytes of a row along k, or, where across, k itself. The
    chunks come as rows x chunks along k; where across as k x chunks along the rows.
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
    # Counted in chunks, three bits up: which of eight rows of 128 bytes the address lies in.
    swizzled: Array = address ^ (address >> 7 & found.swizzle // 16 - 1) << 4
    return swizzled
