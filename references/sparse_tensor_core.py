"""Products of a sparse matrix and a dense one, `d = a b + c` on codes, and how PTX stores a sparse matrix (mma.sp).

Half of a's elements are kept: two of every four neighbours in a row; for TF32 one of every two; for 4-bit integers two
of the four pairs in every eight. Kept elements are stored consecutively, and four bits of metadata for each chunk say
which they are: two 2-bit numbers, the low bits for the first; for TF32 0b0100 (first) and 0b1110 (second).

A block of a tensor core (see `ptxdiff.references.tensor_core`) has L kept elements. This is an assumption: the
published models describe only dense products.

Sources: PTX ISA 9, "Sparse matrix storage" and "Matrix fragments for multiply-accumulate operation with sparse matrix
A" (figures of the metadata); CUTLASS, `reorder_meta`, for which word of a group of four threads holds which rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ptxdiff.references.lazily import torch

if TYPE_CHECKING:
    from torch import Tensor


CHUNK = {32: 2, 16: 4, 8: 4, 4: 8}
"""Columns of a chunk, by the bits of an element."""

# Figures of the metadata: for each shape's k and bits of an element, the words of a group of four threads. A word is a
# list of (row half, first column, first bit): chunks from that column on, four bits each, up to the next entry's bit.
_HALVES: dict[tuple[int, int], list[list[tuple[int, int, int]]]] = {
    (16, 16): [[(0, 0, 0), (1, 0, 16)]],
    (16, 32): [[(0, 0, 0), (1, 0, 16)], [(0, 16, 0), (1, 16, 16)]],
    (32, 8): [[(0, 0, 0), (1, 0, 16)]],
    (32, 16): [[(0, 0, 0), (1, 0, 16)], [(0, 8, 0), (1, 8, 16)]],
    (8, 32): [[(0, 0, 0)], [(1, 0, 0)]],
    (8, 64): [[(0, 0, 0)], [(1, 0, 0)], [(0, 32, 0)], [(1, 32, 0)]],
    (4, 64): [[(0, 0, 0)], [(1, 0, 0)]],
    (4, 128): [[(0, 0, 0)], [(1, 0, 0)], [(0, 64, 0)], [(1, 64, 0)]],
}
"""By bits of an element and k: the metadata words of neighbouring threads, from the selector's thread on."""


def selectors(bits: int, k: int) -> int:
    """How many values the sparsity selector can have."""
    return 4 // len(_HALVES[bits, k])


def indices(kept: Tensor, bits: int) -> Tensor:
    """Four bits for each chunk, m x chunks, from a mask m x k of kept elements.

    Raises ValueError for an invalid mask.
    """
    size = CHUNK[bits]
    chunks = kept.reshape(kept.shape[0], -1, size)
    if bits == 4:
        pairs = chunks.reshape(*chunks.shape[:2], 4, 2)
        if (pairs[..., 0] != pairs[..., 1]).any():
            raise ValueError("integers of 4 bits are kept in pairs")
        chunks = pairs[..., 0]
    count = 1 if bits == 32 else 2
    if (chunks.sum(-1) != count).any():
        raise ValueError(f"{count} of every {chunks.shape[-1]} are kept, no more and no fewer")
    place = chunks.to(torch.int64).sort(dim=-1, descending=True, stable=True).indices[..., :count]
    if bits == 32:
        return torch.where(place[..., 0] == 0, 0b0100, 0b1110)
    return place[..., 0] | place[..., 1] << 2


def metadata(codes: Tensor, bits: int, k: int, selector: int) -> Tensor:
    """The metadata operand of each of 32 threads, from four bits for each chunk (see `indices`); others have zero."""
    words = _HALVES[bits, k]
    found = torch.zeros(32, dtype=torch.int64)
    for group in range(8):
        for number, parts in enumerate(words):
            word = 0
            for at, (half, column, bit) in enumerate(parts):
                end = parts[at + 1][2] if at + 1 < len(parts) else 32
                first = column // CHUNK[bits]
                for step in range((end - bit) // 4):
                    word |= int(codes[group + 8 * half, first + step]) << (bit + 4 * step)
            found[4 * group + selector * len(words) + number] = word
    return found


def stored(a: Tensor, kept: Tensor) -> Tensor:
    """The kept elements of m x k codes, m x k/2."""
    return a[kept].reshape(a.shape[0], -1)


def dot(a: Tensor, kept: Tensor, b: Tensor, c: Tensor, product: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """`a b + c` without a's elements outside `kept`: m x k, k x n and m x n codes.

    product: the dense product of 1 x k/2, k/2 x n and 1 x n codes (see `ptxdiff.references.tensor_core`).
    """
    rows = [product(a[i : i + 1, kept[i]], b[kept[i]], c[i : i + 1]) for i in range(a.shape[0])]
    return torch.cat(rows)
