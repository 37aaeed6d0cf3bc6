"""Blocks with effects: never merged, dropped, hoisted or run twice; a replicated layout runs them once per replica."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.references.formats import I32, U32

COUNT = tl.constexpr("atom.global.add.u32 $0, [$1], 1;")
REGISTERS = {"%globaltimer": 64, "%clock64": 64, "%smid": 32, "%laneid": 32}


@triton.jit
def once(place, BEFORE: tl.constexpr):
    """One impure block for each element: BEFORE, then an increment of the word at `place`."""
    return tl.inline_asm_elementwise(BEFORE, "=r,l", [place.to(tl.int64)], dtype=tl.uint32, is_pure=False, pack=1)


@triton.jit
def counted(x, counts, n: tl.constexpr, few: tl.constexpr, ways: tl.constexpr, BLOCK: tl.constexpr):
    """Four places at which a compiler could run a block more or less often than written."""
    i = tl.arange(0, n)
    tl.store(counts + tl.arange(0, ways), tl.zeros((ways,), tl.uint32))
    tl.debug_barrier()
    same = i * 0
    one = once(counts + same, BLOCK)  # twice the same, with the same operand
    other = once(counts + same, BLOCK)
    once(counts + 1 + same, BLOCK)  # its result is not used
    total = one + other
    for _ in range(tl.load(x) * 0 + 5):  # nothing in the loop changes its operand
        total += once(counts + 2 + same, BLOCK)
    once(counts + 3 + tl.arange(0, few) * 0, BLOCK)  # fewer elements than threads: each has several replicas


def expected(x):
    """Each of 128 threads holds one element of n = 128; 32 elements are held four times each."""
    threads = 128
    return torch.tensor([2 * threads, threads, 5 * threads, threads], device=x.device)


def variant(before: str = ""):
    """The counter, and a read of a special register whose value is not used."""
    return kernel(counted, grid=(1,), meta={"BLOCK": f"{{ {before} {COUNT.value} }}"})


case = Case(
    inputs={"x": I32["n"]},
    outputs={"counts": U32["ways"]},
    reference=expected,
    sizes=[{"n": 128, "few": 32, "ways": 4}],
    variants={
        "counter": variant(),
        **{name[1:]: variant(f".reg .b{bits} t; mov.b{bits} t, {name};") for name, bits in REGISTERS.items()},
    },
    family="effects",
    source="Triton, inline_asm_elementwise: is_pure; PTX ISA, atom and special registers",
)
