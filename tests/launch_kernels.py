"""Kernels that tests launch. They have a module of their own, because compile workers find kernels by file and name."""

import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * factor, mask=o < n)


@triton.jit
def too_far(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n + 3)


@triton.jit
def half_written(y, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y + o, o.to(tl.float32), mask=o < n // 2)


@triton.jit
def strided(x, y, rows, stride_x, stride_y, COLUMNS: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, COLUMNS)
    tl.store(y + r * stride_y + o, tl.load(x + r * stride_x + o))


@triton.jit
def pairs(p, q, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    a, b = p
    tl.store(q + o, tl.load(a + o, mask=o < n) + tl.load(b + o, mask=o < n), mask=o < n)


@triton.jit
def doubled_in_its_input(x, y, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n)
    asm: tl.constexpr = '// "twice"\nadd.f32 $1, $1, $1;\nmov.b32 $0, $1;'
    twice = tl.inline_asm_elementwise(asm, "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y + o, twice - v, mask=o < n)


@triton.jit
def doubled_in_asm(x, y, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n)
    r = tl.inline_asm_elementwise("add.rn.f32 $0, $1, $1;", "=r,r", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y + o, r, mask=o < n)


@triton.jit
def swapped_in_asm(x, y, n, B: tl.constexpr):
    """Exchanges the elements of a pack of two, which elements being Triton's choice."""
    o = tl.arange(0, B)
    v = tl.load(x + o, mask=o < n)
    asm: tl.constexpr = "{ .reg .b16 a, b; mov.b32 {a, b}, $1; mov.b32 $0, {b, a}; }"
    tl.store(y + o, tl.inline_asm_elementwise(asm, "=r,r", [v], dtype=tl.int16, is_pure=True, pack=2), mask=o < n)
