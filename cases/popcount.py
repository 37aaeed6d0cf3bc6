"""The number of set bits: popc, sums within the word, and Triton."""

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references import bits
from ptxdiff.references.formats import U32


@triton.jit
def in_triton(x):
    """Sums of neighbouring fields; a multiplication sums the bytes in the highest one."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    return (((x + (x >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24


SUMS = """{
    .reg .b32 t;
    shr.u32 t, $1, 1;      and.b32 t, t, 0x55555555;  sub.u32 $0, $1, t;
    shr.u32 t, $0, 2;      and.b32 t, t, 0x33333333;  and.b32 $0, $0, 0x33333333;  add.u32 $0, $0, t;
    shr.u32 t, $0, 4;      add.u32 $0, $0, t;         and.b32 $0, $0, 0x0F0F0F0F;
    mul.lo.u32 $0, $0, 0x01010101;  shr.u32 $0, $0, 24;
}"""

case = Case(
    inputs={"x": U32},
    outputs={"y": U32},
    reference=bits.popc,
    variants={
        "popc": asm("popc.b32 $0, $1;", packs=(1,)),
        "sums": asm(SUMS),
        "triton": plain(in_triton),
    },
    source="PTX ISA, popc",
    family="bits and integers",
)
