"""Products with a sparse matrix in the processor's vectors: the stored elements at their columns, and zeros between.

The definition (`sparse_mma.multiplied`) makes a tile of each row, with the rows of b that it meets. Here one dense
product of all rows has the same bits, in blocks of twice as many columns as a block has terms, because

- a zero between the stored elements adds nothing to a sum, and its exponent raises no largest exponent;
- the exponent of zero terms, with which a model replaces that of a product of zero, is lower than that of every c but
  zero, and for a c of zero it counts anyway. So it does not matter which products are zero. (Of a float32 c and a
  float16 d the exponent is higher; these are left to the definition.)

A NaN or an infinity is left to the definition as well.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxdiff.emulator.numeric import tensorcore_vectors as vectors
from ptxdiff.emulator.numeric.tensorcore import FLOATS, Model
from ptxdiff.emulator.numeric.tensorcore_vectors import LANES
from ptxdiff.emulator.numeric.vectorise import Array

Types = tuple[str, str, str, str]


def dense(a: Array, where: Array, k: int) -> Array:
    """Matrices of k columns with the stored elements at their columns, tiles x rows x k, and zeros between."""
    found = np.zeros((*a.shape[:2], k), a.dtype)
    np.put_along_axis(found, where, a, axis=2)
    return found


def multiplied(a: Array, b: Array, c: Array, where: Array, types: Types, model: Model) -> Array | None:
    """d of stored elements a (t x m x k/2) at columns `where`, b (t x k x n) and c (t x m x n), codes as uint32.

    None: the definition has to compute it. Each block of the stored elements has a block of columns twice as wide, as
    in all formats of floats. types: those of d, a, b and c.
    """
    stored, terms, spread = a.shape[2], model.terms, c.shape[2] < LANES
    whole, following = replace(model, terms=2 * terms), (*types[:3], types[0])
    zero = model.zero16 if types[0] == "f16" else model.zero32
    if b.shape[1] != 2 * stored or 1 - max(FLOATS[kind].bias for kind in types[::3]) < zero:
        return None
    if not vectors._right(types, whole, spread) or (stored > terms and not vectors._right(following, whole, spread)):
        return None
    d: Array | None = c
    for start in range(0, stored, terms):
        some, width = slice(start, start + terms), min(terms, stored - start)
        left = dense(a[:, :, some], where[:, :, some] - 2 * start, 2 * width)
        right = b[:, 2 * start : 2 * (start + width)]
        assert d is not None
        d = _block(left, right, d, types if start == 0 else following, whole)
        if d is None:
            return None
    return d


def _block(a: Array, b: Array, c: Array, types: Types, model: Model) -> Array | None:
    """One block, as `tensorcore_vectors._block`."""
    (tiles, m, _), n, terms, spread = a.shape, c.shape[2], model.terms, c.shape[2] < LANES
    of_a, of_b, wide = FLOATS[types[1]], FLOATS[types[2]], vectors.wide_range(types)
    if spread:
        groups, columns = -(-tiles // LANES), n
        laid = [vectors._by_tile(x, shape) for x, shape in ((a, (m, terms)), (b, (terms, n)), (c, (m, n)))]
    else:
        groups, columns = tiles, -(-n // LANES)
        padded = columns * LANES
        laid = [vectors._filled(x, shape) for x, shape in ((a, (m, terms)), (b, (terms, padded)), (c, (m, padded)))]
    values_a, powers_a, special_a = vectors._prepared(laid[0], of_a, wide)
    values_b, powers_b, special_b = vectors._prepared(laid[1], of_b, wide)
    if special_a.any() or special_b.any():
        return None
    least_a = np.zeros((groups, m, LANES) if spread else (groups, m), np.int32)  # as if no element were zero
    least_b = np.zeros((groups, columns, LANES), np.int32)
    d, special = np.empty_like(laid[2]), np.zeros(groups, np.int32)
    zero = model.zero16 if types[0] == "f16" else model.zero32
    multiply = vectors._multiplication(
        model.fraction, terms, model.kept, zero, FLOATS[types[3]], FLOATS[types[0]], wide, spread
    )
    arrays = (d, special, laid[2], values_a, powers_a, least_a, values_b, powers_b, least_b, np.array([m, columns]))
    multiply(*map(id, arrays), groups)
    if special.any():
        return None
    if spread:
        return np.ascontiguousarray(d.transpose(0, 3, 1, 2).reshape(-1, m, n)[:tiles])
    return np.ascontiguousarray(d[:, :, :n])
