"""Kernels of published faults of ptxas, for `test_faults`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def two_packed_sums(out, D1: tl.constexpr, D2: tl.constexpr):
    """Two groups of registers whose sums LLVM packs into 16 bits."""
    place = tl.reshape(tl.arange(0, D1 * D2), (1, D1, D2))
    odd = tl.expand_dims(tl.expand_dims(tl.arange(0, D1) % 2 == 1, 0), 2)
    value = tl.where(odd, (place * 9 + 1) % 1000, place)
    tl.store(out + place, value, mask=place % 2 == 0)
