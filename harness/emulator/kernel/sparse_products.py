"""Products with a sparse matrix, computed in the processor's vectors where these have the bits of the definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.extras import installed

Definition = Callable[[Arithmetic, Array, Array, Array, Array], Array]


def computed(how: Arithmetic, a: Array, b: Array, c: Array, where: Array, definition: Definition) -> Array:
    """What `sparse_mma.multiplied`, the definition, gives: d (t x m x n) from stored elements a (t x m x k/2) at
    columns `where` of the full matrix, b (t x k x n), and c (as d)."""
    if not installed("llvmlite"):
        return definition(how, a, b, c, where)
    from ptxdiff.emulator.numeric import sparse_vectors  # which loads LLVM

    if how.way == "integers":  # exact sums, to which zeros add nothing
        return how(sparse_vectors.dense(a, where, b.shape[1]), b, c)
    if how.way == "blocks" and how.model is not None:
        codes = [np.ascontiguousarray(x).astype(np.uint32, copy=False) for x in (a, b, c)]
        found = sparse_vectors.multiplied(codes[0], codes[1], codes[2], where, how.types, how.model)
        if found is not None:
            return found
    return definition(how, a, b, c, where)
