"""The results of TLX's shared memory kernels, in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def in_triton(x, y, n: tl.constexpr):
    """Without shared memory."""
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i) + 1)


@triton.jit
def by_address(x, y, M: tl.constexpr, N: tl.constexpr):
    """Stored to transposed addresses."""
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(y + j * M + i, tl.load(x + i * N + j))
