"""The bits of a word in reverse order: brev, exchanges of neighbouring fields, bytes by prmt, and Triton."""

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references import bits
from ptxdiff.references.formats import U32


@triton.jit
def in_triton(x):
    """Exchange neighbouring bits, pairs, nibbles, bytes and halves."""
    x = ((x & 0x55555555) << 1) | ((x >> 1) & 0x55555555)
    x = ((x & 0x33333333) << 2) | ((x >> 2) & 0x33333333)
    x = ((x & 0x0F0F0F0F) << 4) | ((x >> 4) & 0x0F0F0F0F)
    x = ((x & 0x00FF00FF) << 8) | ((x >> 8) & 0x00FF00FF)
    return (x << 16) | (x >> 16)


# Table 0xD8 is b where c is set, else a: the mask chooses between bits moved up and bits moved down.
EXCHANGE = "\n".join(
    f"shl.b32 up, $0, {step}; shr.u32 down, $0, {step}; lop3.b32 $0, down, up, {mask:#010x}, 0xD8;"
    for step, mask in ((1, 0xAAAAAAAA), (2, 0xCCCCCCCC), (4, 0xF0F0F0F0))
)

case = Case(
    inputs={"x": U32},
    outputs={"y": U32},
    reference=bits.brev,
    variants={
        "brev": asm("brev.b32 $0, $1;"),
        "lop3-prmt": asm(f"{{ .reg .b32 up, down; mov.b32 $0, $1;\n{EXCHANGE}\nprmt.b32 $0, $0, 0, 0x0123; }}"),
        "triton": plain(in_triton),
    },
    source="PTX ISA, brev",
    family="bits and integers",
)
