"""Triton kernels whose inline asm accesses memory, and kernels whose programs wait for each other."""

import triton
import triton.language as tl


@triton.jit
def tripled(x, y, total, n, B: tl.constexpr):
    """y = 3 x, and the sum of x, by loads, stores and atomics in asm, under its own predicate."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = (i < n).to(tl.int32)
    v = tl.inline_asm_elementwise(
        """{
        .reg .pred p; .reg .b64 policy;
        createpolicy.fractional.L2::evict_first.b64 policy, 1.0;
        setp.ne.b32 p, $2, 0;
        mov.b32 $0, 0;
        @p ld.global.L1::no_allocate.L2::cache_hint.L2::128B.b32 $0, [$1], policy;
        }""",
        "=r,l,r", [(x + i).to(tl.int64), inside], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    tl.inline_asm_elementwise(
        """{
        .reg .pred p; .reg .b64 policy;
        createpolicy.fractional.L2::evict_last.b64 policy, 0.5;
        setp.ne.b32 p, $3, 0;
        prefetch.global.L2 [$1];
        @p st.global.L2::cache_hint.b32 [$1], $2, policy;
        mov.b32 $0, 0;
        }""",
        "=r,l,r,r", [(y + i).to(tl.int64), v * 3, inside], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    tl.inline_asm_elementwise(
        """{
        .reg .pred p; .reg .b32 old;
        setp.ne.b32 p, $3, 0;
        @p atom.relaxed.gpu.global.add.u32 old, [$1], $2;
        @p red.relaxed.gpu.global.add.u32 [$1+4], 1;
        mov.b32 $0, 0;
        }""",
        "=r,l,r,r", [(total + i * 0).to(tl.int64), v, inside], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def locked(x, y, lock, B: tl.constexpr):
    """Programs add to y in turn, under a lock of Triton's atomics."""
    i = tl.arange(0, B)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(y + i, tl.load(y + i) + tl.load(x + i))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def met(x, y, count, programs, B: tl.constexpr):
    """A barrier of the grid, in Triton's atomics, between a store and the load of what the next program stored."""
    i = tl.arange(0, B)
    b = tl.program_id(0)
    tl.store(x + b * B + i, b * B + i)
    tl.debug_barrier()
    tl.atomic_add(count, 1, sem="release")
    while tl.atomic_add(count, 0, sem="acquire") < programs:
        pass
    following = (b + 1) % programs
    tl.store(y + b * B + i, tl.load(x + following * B + i))


@triton.jit
def met_in_asm(x, y, count, programs, B: tl.constexpr):
    """As `met`, with the barrier in asm: red.release, and a loop on ld.acquire."""
    i = tl.arange(0, B)
    b = tl.program_id(0)
    tl.store(x + b * B + i, b * B + i)
    tl.debug_barrier()
    tl.inline_asm_elementwise(
        """{
        .reg .pred p, leader; .reg .b32 v, t;
        mov.u32 t, %tid.x;
        setp.eq.u32 leader, t, 0;
        @leader red.release.gpu.global.add.u32 [$1], 1;
        SPIN:
        ld.acquire.gpu.global.u32 v, [$1];
        setp.lt.u32 p, v, $2;
        @p bra SPIN;
        mov.b32 $0, 0;
        }""",
        "=r,l,r", [count.to(tl.int64), programs], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    tl.debug_barrier()
    following = (b + 1) % programs
    tl.store(y + b * B + i, tl.load(x + following * B + i))
