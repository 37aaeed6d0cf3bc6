"""Triton functions that the tests of the compiler processes compile."""

import triton
import triton.language as tl


@triton.jit
def reciprocal(x):
    return 1.0 / x


@triton.jit
def both(x):
    return x, -x


@triton.jit
def to_half(x):
    return x.to(tl.float16)


@triton.jit
def powers(x, N: tl.constexpr, scale: tl.constexpr = 2.0):
    for _ in tl.static_range(N):
        x = x * scale
    return x


@triton.jit
def statements(x, FIRST: tl.constexpr):
    """Each kind of statement that Triton's code generator treats by itself."""
    tl.static_assert(x.dtype == tl.float32)
    y, z = x, -x
    if FIRST:
        y += 1.0
    else:
        y *= z
    for i in range(3):
        y -= i
    n = 0
    while n < 2:
        n += 1
        if n == 1:
            y = y + z
    w: tl.constexpr = 2.0
    return y if FIRST else tl.where(y > 0, y / w, [y, z][1])


@triton.jit
def multiply_add(x, y):
    return x * y + 1.0


@triton.jit
def negated(x):
    return -x


@triton.jit
def squared_plus_one(x):
    return x * x + 1.0


@triton.jit
def unknown_name(x):
    return x + nowhere  # noqa: F821


@triton.jit
def scale_rows(x_ptr, y_ptr, M, N: tl.int64, stride, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < N
    tl.store(y_ptr + row * stride + offsets, tl.load(x_ptr + row * stride + offsets, mask=mask) * factor, mask=mask)
