"""Triton kernels whose blocks work together in clusters."""

import triton
import triton.language as tl


@triton.jit
def summed(x, y, N: tl.constexpr):
    """The sum of a row of N numbers for each cluster."""
    row = tl.program_id(0)
    tl.store(y + row, tl.sum(tl.load(x + row * N + tl.arange(0, N))))


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """One tile of a matrix product."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    found = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    tl.store(c + m[:, None] * N + n[None, :], found)
