"""Leading zeros, trailing zeros and the highest bit: clz, bfind, popc of a filled word, brev, and Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import bits
from ptxdiff.references.formats import U32


@triton.jit
def leading_in_triton(x):
    """A binary search in five steps: if the upper part is zero, count its bits and shift the lower part up."""
    n = tl.where(x == 0, 1, 0).to(tl.uint32)
    for step in tl.static_range(5):
        empty = tl.where((x >> (32 - (16 >> step))) == 0, 16 >> step, 0).to(tl.uint32)
        n += empty
        x = x << empty
    return n


@triton.jit
def trailing_in_triton(x):
    """The position of the lowest one, the only bit set in x & -x."""
    return tl.where(x == 0, 32, 31 - leading_in_triton(x & (0 - x)))


def trailing(x):
    """The number of zeros below the lowest one; 32 for 0."""
    lowest = x & -x
    return torch.where(x == 0, 32, 31 - bits.clz(lowest))


FILLED = "\n".join(f"shr.u32 t, $0, {n}; or.b32 $0, $0, t;" for n in (1, 2, 4, 8, 16))

case = Case(
    inputs={"x": U32},
    outputs={"y": U32},
    reference=bits.clz,
    variants={
        "clz": asm("clz.b32 $0, $1;", packs=(1,)),
        "bfind": asm("bfind.u32 $0, $1; sub.u32 $0, 31, $0;"),  # bfind gives -1 for zero
        "bfind.shiftamt": asm("bfind.shiftamt.u32 $0, $1; min.u32 $0, $0, 32;"),
        "popc": asm(f"{{ .reg .b32 t; mov.b32 $0, $1;\n{FILLED}\nnot.b32 $0, $0; popc.b32 $0, $0; }}"),
        "triton": plain(leading_in_triton),
    },
    source="PTX ISA, clz and bfind",
    family="bits and integers",
)

trailing_zeros = Case(
    inputs={"x": U32},
    outputs={"y": U32},
    reference=trailing,
    variants={
        "brev-clz": asm("brev.b32 $0, $1; clz.b32 $0, $0;"),
        "popc": asm("{ .reg .b32 t; not.b32 t, $1; sub.u32 $0, $1, 1; and.b32 $0, $0, t; popc.b32 $0, $0; }"),
        "triton": plain(trailing_in_triton),
    },
    source="PTX ISA, brev, clz and popc",
    family="bits and integers",
)
