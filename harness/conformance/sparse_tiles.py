"""Tiles of products with a sparse matrix: valid metadata, and sums that cancel."""

from __future__ import annotations

import numpy as np

from ptxdiff.conformance import products
from ptxdiff.emulator.kernel.warp.sparse_mma import Storage
from ptxdiff.emulator.numeric.tensorcore import FLOATS
from ptxdiff.emulator.numeric.vectorise import Array

_RISING = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)


def metadata(rng: np.random.Generator, place: Storage, shape: tuple[int, ...]) -> Array:
    """Words of 32 bits in which every four bits are valid metadata."""
    legal = (0b0100, 0b1110) if place.single else _RISING
    chunks = rng.choice(np.array(legal, np.uint32), (*shape, 8))
    words: Array = (chunks << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32)
    return words


def cancel(
    rng: np.random.Generator, types: tuple[str, str, str, str], place: Storage, a: Array, b: Array, kind: Array
) -> None:
    """In tiles of the kind `cancelling`, make half of the chunks the negative of others, except for low bits of b.

    a: tiles x rows x stored elements, b: tiles x k x n. Rows of b from which one chunk chooses are made equal, so that
    sums cancel for all metadata.
    """
    some = np.flatnonzero(kind == products.KINDS.index("cancelling"))
    form = FLOATS.get(types[1])
    if form is None or types[1] != types[2] or not len(some):
        return
    count = b.shape[1] // place.columns
    left = a[some].reshape(len(some), a.shape[1], count, -1)
    right = b[some].reshape(len(some), count, place.columns, -1)
    right[:] = right[:, :, :1]
    order = rng.permutation(count)
    first, second = order[: count // 2], order[count // 2 : count // 2 * 2]
    left[:, :, second] = left[:, :, first] ^ left.dtype.type(1 << (form.exponent + form.fraction + form.ignored))
    flips = rng.integers(0, 2, (len(some), len(second), 1, b.shape[2])).astype(b.dtype) << b.dtype.type(form.ignored)
    right[:, second] = right[:, first] ^ flips
    a[some], b[some] = left.reshape(a[some].shape), right.reshape(b[some].shape)
