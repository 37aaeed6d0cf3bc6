"""Sparse and block-scaled products, computed in the processor's vectors where these have the bits of the definition.

A sparse matrix with scales becomes a dense one: its stored elements at their columns, and zeros between. That has the
same bits:

- a zero adds nothing to a sum, and its exponent is that of a zero product, below the one of every c but zero, for which
  the definition takes the same;
- a scale belongs to a share of all columns, so the stored elements keep their scales;
- the 16 stored products that are summed before they are scaled stand in 32 columns, and no others do.

Vectors need LLVM, which `sparse_vectors` and `scaled_vectors` load; without it the definitions compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.numeric import scaledproducts
from ptxdiff.emulator.numeric.scaledproducts import ScaledModel
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.extras import installed

Types = tuple[str, str, str]
SparseDefinition = Callable[[Arithmetic, Array, Array, Array, Array], Array]
ScaledDefinition = Callable[[Array, Array, Array, list[Array], Types, ScaledModel], Array]
SparseScaledDefinition = Callable[[Array, Array, Array, list[Array], Types, ScaledModel, Array], Array]


def sparse(how: Arithmetic, a: Array, b: Array, c: Array, where: Array, definition: SparseDefinition) -> Array:
    """What `sparse_mma.multiplied`, the definition, gives: d (t x m x n) from stored elements a (t x m x k/2) at
    columns `where` of the full matrix, b (t x k x n), and c (as d)."""
    if not installed("llvmlite"):
        return definition(how, a, b, c, where)
    from ptxdiff.emulator.numeric import sparse_vectors

    if how.way == "integers":  # exact sums, to which zeros add nothing
        return how(sparse_vectors.dense(a, where, b.shape[1]), b, c)
    if how.way == "blocks" and how.model is not None:
        codes = [np.ascontiguousarray(x).astype(np.uint32, copy=False) for x in (a, b, c)]
        found = sparse_vectors.multiplied(codes[0], codes[1], codes[2], where, how.types, how.model)
        if found is not None:
            return found
    return definition(how, a, b, c, where)


def scaled(a: Array, b: Array, c: Array, factors: list[Array], types: Types, model: ScaledModel) -> Array:
    """What `scaledproducts.dot`, the definition, gives: d (m x n) from codes a (m x k), b (n x k), c (m x n).

    factors: scales of a (m x blocks) and of b (n x blocks). All are uint32 and C-contiguous.
    """
    found = _scaled_in_vectors(a, b, c, factors, types, model)
    return scaledproducts.dot(a, b, c, factors[0], factors[1], types, model) if found is None else found


def sparse_scaled(
    a: Array, b: Array, c: Array, factors: list[Array], types: Types, model: ScaledModel, where: Array,
    definition: SparseScaledDefinition,
) -> Array:  # fmt: skip
    """The same from stored elements a (m x k/2) at columns `where` (m x k/2), which differ in each row."""
    wide, whole = _whole(a, where, b.shape[-1], model)
    found = _scaled_in_vectors(wide, b, c, factors, types, whole)
    return definition(a, b, c, factors, types, model, where) if found is None else found


def scaled_tiles(
    a: Array, b: Array, c: Array, factors: list[Array], types: Types, model: ScaledModel, definition: ScaledDefinition
) -> Array:  # fmt: skip
    """What `scaled_mma.multiplied`, the definition, gives: d (t x m x n) from codes a (t x m x k), b (t x n x k), c (as
    d).

    factors: scales of a (t x m x blocks) and of b (t x n x blocks). All are uint32 and C-contiguous.
    """

    def defined(some: list[Array]) -> Array:
        return definition(some[0], some[1], some[2], some[3:], types, model)

    return _tiles((a, b, c, *factors), types, model, defined, a)


def sparse_scaled_tiles(
    a: Array, b: Array, c: Array, factors: list[Array], types: Types, model: ScaledModel, where: Array,
    definition: SparseScaledDefinition,
) -> Array:  # fmt: skip
    """The same from stored elements a (t x m x k/2) at columns `where` (as a), which differ in each row."""
    wide, whole = _whole(a, where, b.shape[-1], model)

    def defined(some: list[Array]) -> Array:
        return definition(some[5], some[1], some[2], some[3:5], types, model, some[6])

    return _tiles((wide, b, c, *factors, a, where), types, whole, defined, a)


def _whole(a: Array, where: Array, k: int, model: ScaledModel) -> tuple[Array, ScaledModel]:
    """Rows of k elements with those of a at columns `where` and zeros elsewhere, and the model of their products."""
    wide = np.zeros((*a.shape[:-1], k), np.uint32)
    np.put_along_axis(wide, where, a, axis=-1)
    return wide, model if model.group == 1 else replace(model, group=2 * model.group)


def _tiles(
    given: Sequence[Array], types: Types, model: ScaledModel, definition: Callable[[list[Array]], Array], stored: Array
) -> Array:  # fmt: skip
    """d of all tiles: of those without NaNs and infinities in vectors, and of the others by the definition.

    given: a, b, c and scales as `scaled_tiles` takes them, with zeros where a is not stored, and what else the
    definition takes. stored: the elements of a that are stored, t x m x (k or k/2).
    """
    if not installed("llvmlite"):
        return definition(list(given))
    from ptxdiff.emulator.numeric import scaled_vectors

    a, b, c, x, y = given[:5]
    apart = scaled_vectors.special_tiles(stored, b, c, x, y, types)
    if not apart.any():
        found = scaled_vectors.dot(a, b, c, x, y, types, model)
        return definition(list(given)) if found is None else found
    d = np.empty_like(c)
    d[apart] = definition([np.ascontiguousarray(v[apart]) for v in given])
    if not apart.all():
        rest = [np.ascontiguousarray(v[~apart]) for v in given]
        found = scaled_vectors.dot(rest[0], rest[1], rest[2], rest[3], rest[4], types, model)
        d[~apart] = definition(rest) if found is None else found
    return d


def _scaled_in_vectors(
    a: Array, b: Array, c: Array, factors: list[Array], types: Types, model: ScaledModel
) -> Array | None:  # fmt: skip
    if not installed("llvmlite"):
        return None
    from ptxdiff.emulator.numeric import scaled_vectors

    found = scaled_vectors.dot(a[None], b[None], c[None], factors[0][None], factors[1][None], types, model)
    return None if found is None else np.asarray(found[0])
