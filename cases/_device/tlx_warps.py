"""The results of TLX's warp functions, in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def reduced(x, y, n: tl.constexpr, OPERATION: tl.constexpr):
    """A reduction of rows in the order of bits: -0 is less than +0, and NaN is ignored if there is a number."""
    i = tl.arange(0, n)
    bits = tl.load(x + i).to(tl.int32, bitcast=True)
    bits = bits & 0x7FFFFFFF if OPERATION == "abs_max" or OPERATION == "abs_min" else bits
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    place = tl.reshape(tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits), (n // 32, 32))
    nan = tl.reshape(nan, (n // 32, 32))
    if OPERATION == "max" or OPERATION == "abs_max":
        found = tl.max(tl.where(nan, -0x80000000, place), 1)
    else:
        found = tl.min(tl.where(nan, 0x7FFFFFFF, place), 1)
    found = tl.where(tl.min(nan.to(tl.int32), 1) == 1, 0x7FFFFFFF, tl.where(found < 0, found ^ 0x7FFFFFFF, found))
    rows = tl.broadcast_to(found[:, None], (n // 32, 32))
    tl.store(y + i, tl.reshape(rows, (n,)).to(tl.float32, bitcast=True))


@triton.jit
def summed(x, y, n: tl.constexpr):
    """A bit for each lane, summed."""
    i = tl.arange(0, n)
    bits = (tl.load(x + i) > 0).to(tl.uint32) << (i % 32).to(tl.uint32)
    masks = tl.sum(tl.reshape(bits, (n // 32, 32)), 1)
    tl.store(y + i, tl.reshape(tl.broadcast_to(masks[:, None], (n // 32, 32)), (n,)))


@triton.jit
def by_range(x, y, n: tl.constexpr):
    """128 elements on 128 threads, in a cluster of one block."""
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i) + i)
    tl.store(y + n + i, tl.load(x + i))
    tl.store(y + 2 * n + i, tl.load(x + i) + 1)
