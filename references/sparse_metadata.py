"""Which thread holds which metadata of a sparse matrix, derived from the register layout of the matrix.

`ptxdiff.references.sparse_tensor_core` has this as a table read from figures. Here it follows from one rule: metadata
has the order of the stored elements. Four threads of a group hold a's registers. The indices are ordered by register,
then by thread, then by element from the low bits up; each has two bits, low bits first (four bits for tf32, two for
each pair of 4-bit integers). Each 32 bits are a word, and the words are in neighbouring threads of the group, from the
one that the sparsity selector names on.

Sources: PTX ISA 9, 9.7.14.6.2, the formulas `row = ...`, `firstcol = ...` of a's fragments, and 9.7.15.6.2, the table
of warps and rows; for the order of the indices, comments ("Representation of E") in a public CUDA emulation of
m16n8k64 with 8-bit floats by two m16n8k32 of float16, which list them element by element for both shapes. For wgmma the
same holds in each warp, for its 16 rows: the ISA shows the same figures there, and CUTLASS's strides (ELayout in
mma_traits_sm90_gmma_sparse.hpp) say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references.lazily import torch

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = {32: 2, 16: 4, 8: 4, 4: 8}
"""Columns of the dense matrix that four bits of metadata describe, by the bits of an element."""


def group_bits(bits: int, k: int) -> list[tuple[int, int]]:
    """Row (0 or 8, an offset to the group's number) and chunk for every four bits of a group, in order.

    A thread's register has 32 / bits stored elements, from twice as many columns. ISA: the next register holds the row
    8 below, the one after that the columns after those of all four threads.
    """
    columns = 2 * (32 // bits)
    registers = 16 * (k // 2) * bits // 1024
    found = []
    for register in range(registers):
        for thread in range(4):
            first = thread * columns + register // 2 * (4 * columns)
            for chunk in range(first // _CHUNK[bits], (first + columns) // _CHUNK[bits]):
                found.append((register % 2 * 8, chunk))
    return found


def words(codes: Tensor, bits: int, k: int, selector: int) -> Tensor:
    """The metadata of each of 32 threads, from four bits for each chunk: 16 x chunks; other threads have zero."""
    found = torch.zeros(32, dtype=torch.int64)
    order = group_bits(bits, k)
    each = len(order) // 8
    for group in range(8):
        for place, (lower, chunk) in enumerate(order):
            lane = 4 * group + selector * each + place // 8
            found[lane] |= int(codes[group + lower, chunk]) << (4 * (place % 8))
    return found


def of_warpgroup(codes: Tensor, bits: int, k: int, selector: int) -> Tensor:
    """The metadata of each of 128 threads for wgmma, from four bits for each chunk: 64 x chunks."""
    return torch.cat([words(codes[16 * warp : 16 * warp + 16], bits, k, selector) for warp in range(4)])
