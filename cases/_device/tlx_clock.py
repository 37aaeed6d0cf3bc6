"""Readings of the clock around a load, in plain Triton: a block of asm that is not pure."""

import triton
import triton.language as tl


@triton.jit
def clock(after):
    """%clock64, for each element; the operand orders it after the computation of `after`."""
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l,r", [after], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def by_asm(x, y, n: tl.constexpr):
    """x + 1, between two readings whose difference is not used."""
    i = tl.arange(0, n)
    before = clock(i)
    value = tl.load(x + i)
    elapsed = clock(value) - before
    tl.store(y + i, value + 1 + (elapsed * 0).to(tl.int32))
