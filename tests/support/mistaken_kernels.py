"""Kernels with mistakes that a run on a GPU may never show, for `test_mistaken_kernels.py`."""

import triton
import triton.language as tl


@triton.jit
def wrong_mask(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    tl.store(y + o, a, mask=o <= n)  # HERE


@triton.jit
def unwritten_tail(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    a = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [a], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y + o, a, mask=o < n)


@triton.jit
def mixed_neighbours(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    asm: tl.constexpr = "{ .reg .b16 a, b; mov.b32 {a, b}, $1; add.s16 a, a, b; mov.b32 $0, {a, b}; }"
    s = tl.inline_asm_elementwise(asm, "=r,r", [a], dtype=tl.int16, is_pure=True, pack=2)
    tl.store(y + o, s, mask=o < n)  # HERE


@triton.jit
def too_many_registers(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    r = tl.inline_asm_elementwise("add.s32 $0, $1, $2;", "=r,r", [a], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y + o, r, mask=o < n)


@triton.jit
def undeclared_register(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    asm: tl.constexpr = "{ .reg .b32 t; add.s32 $0, $1, t; }"
    r = tl.inline_asm_elementwise(asm, "=r,r", [a], dtype=tl.int32, is_pure=True, pack=1)  # HERE
    tl.store(y + o, r, mask=o < n)


@triton.jit
def unwritten_shared(x, y, B: tl.constexpr):
    """Asm that reads shared memory that was never written."""
    o = tl.arange(0, B)
    asm: tl.constexpr = """{
        .shared .align 4 .b32 cell[128]; .reg .b32 at, me;
        mov.u32 me, %tid.x; shl.b32 me, me, 2; mov.u32 at, cell; add.u32 at, at, me;
        ld.shared.b32 $0, [at]; add.s32 $0, $0, $1;
    }"""
    r = tl.inline_asm_elementwise(asm, "=&r,r", [tl.load(x + o)], dtype=tl.int32, is_pure=False, pack=1)  # HERE
    tl.store(y + o, r)


@triton.jit
def no_barrier(x, y, B: tl.constexpr):
    """Asm that hands a value to the next thread but one warp, with nothing in between."""
    o = tl.arange(0, B)
    asm: tl.constexpr = """{
        .shared .align 4 .b32 cell[128]; .reg .b32 at, me;
        mov.u32 me, %tid.x; shl.b32 me, me, 2; mov.u32 at, cell; add.u32 me, at, me; xor.b32 at, me, 128;
        st.shared.b32 [me], $1; ld.shared.b32 $0, [at];
    }"""
    r = tl.inline_asm_elementwise(asm, "=&r,r", [tl.load(x + o)], dtype=tl.int32, is_pure=False, pack=1)  # HERE
    tl.store(y + o, r)


@triton.jit
def undefined_branch(x, y, n, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    asm: tl.constexpr = "{ .reg .b32 t; .reg .pred p; setp.eq.s32 p, t, 0; @p bra L; mov.b32 $0, $1; L: }"
    r = tl.inline_asm_elementwise(asm, "=r,r", [a], dtype=tl.int32, is_pure=True, pack=1)  # HERE
    tl.store(y + o, r, mask=o < n)


@triton.jit
def undefined_address(x, y, n, B: tl.constexpr):
    o = tl.arange(0, B)
    i = tl.load(x + o, mask=o < n)
    asm: tl.constexpr = "{ .reg .b32 t; and.b32 t, t, 3; add.s32 $0, $1, t; }"
    i = tl.inline_asm_elementwise(asm, "=r,r", [i], dtype=tl.int32, is_pure=True, pack=1)  # HERE
    tl.store(y + i, o, mask=o < n)


@triton.jit
def undefined_in_asm(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + o)
    asm: tl.constexpr = """{ .reg .pred p;
        setp.ne.u32 p, $1, 5;
        @p add.u32 $0, $1, 1; }"""
    b = tl.inline_asm_elementwise(asm, "=r,r", [a], dtype=tl.int32, is_pure=True, pack=1)  # HERE
    tl.store(y + o, b * 2)


@triton.jit
def shifted_in_place(x, n, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + (o ^ 64))
    tl.store(x + o, a + 1)  # HERE


@triton.jit
def shifted_behind_a_barrier(x, n, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + (o ^ 64))
    tl.debug_barrier()
    tl.store(x + o, a + 1)


@triton.jit
def halo_in_place(x, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o + 1, mask=o + 1 < n, other=0)
    b = tl.load(x + o)
    tl.debug_barrier()
    tl.store(x + o, a + b)  # HERE


@triton.jit
def rows_that_overlap(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(y + tl.program_id(0) * (B // 2) + o, tl.load(x + o) + tl.program_id(0))  # HERE


@triton.jit
def written_twice(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + o)
    tl.store(y + o, a)
    tl.store(y + (o ^ 64), a + 1)  # HERE


@triton.jit
def read_after_write(x, y, s, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(s + o, tl.load(x + o))
    tl.store(y + o, tl.load(s + (o ^ 64)))  # HERE


@triton.jit
def updated_in_place(x, p, n, B: tl.constexpr):
    """No mistake: each thread, or the first of those that hold the same element, changes what it alone reads."""
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + o, tl.load(x + o, mask=o < n) + tl.load(x + o, mask=o < n, volatile=False), mask=o < n)
    q = p + tl.program_id(0)
    tl.store(q, tl.load(q) + 1)


@triton.jit
def changed_input(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    tl.store(y + o, a, mask=o < n)
    tl.store(x + o, a ^ 1, mask=o < n)
