"""A matrix product in tiles."""

import triton
import triton.language as tl


@triton.jit
def product(a, b, d, M, N, K, TILE: tl.constexpr, STEP: tl.constexpr, TO: tl.constexpr, OF: tl.constexpr = None):
    """One tile of d = a b; sizes need not be multiples of the tile's. OF: the type of a's and b's bytes."""
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), dtype=TO)
    for start in range(0, K, STEP):
        k = start + tl.arange(0, STEP)
        left = tl.load(a + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0)
        right = tl.load(b + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0)
        if OF is not None:
            left, right = left.to(OF, bitcast=True), right.to(OF, bitcast=True)
        total = tl.dot(left, right, total, out_dtype=TO)
    tl.store(d + m * N + n, total, mask=(m < M) & (n < N))
