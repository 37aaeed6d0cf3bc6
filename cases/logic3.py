"""Any logic of three words in one instruction: selection, majority and parity by lop3, by two-operand logic, Triton."""

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references import bits
from ptxdiff.references.formats import U32

# The table of f(a, b, c) is f(0xF0, 0xCC, 0xAA).
SELECTION = (0xF0 & 0xCC) | (~0xF0 & 0xAA & 0xFF)
MAJORITY = (0xF0 & 0xCC) | (0xF0 & 0xAA) | (0xCC & 0xAA)
PARITY = 0xF0 ^ 0xCC ^ 0xAA


@triton.jit
def in_triton(a, b, c):
    """The compiler makes lop3 of these itself."""
    return (a & b) | (~a & c), (a & b) | (a & c) | (b & c), a ^ b ^ c


def three(a, b, c):
    """b where a is set, else c; the majority of the three; the parity of the three."""
    return bits.lop3(a, b, c, SELECTION), bits.lop3(a, b, c, MAJORITY), bits.lop3(a, b, c, PARITY)


case = Case(
    inputs={"a": U32, "b": U32, "c": U32},
    outputs={"s": U32, "m": U32, "p": U32},
    reference=three,
    variants={
        "lop3": asm(
            f"lop3.b32 $0, $3, $4, $5, {SELECTION:#x}; lop3.b32 $1, $3, $4, $5, {MAJORITY:#x}; "
            f"lop3.b32 $2, $3, $4, $5, {PARITY:#x};"
        ),
        "and-or-xor": asm(
            """{
                .reg .b32 t;
                and.b32 $0, $3, $4;  not.b32 t, $3;      and.b32 t, t, $5;   or.b32 $0, $0, t;
                or.b32 $1, $3, $4;   and.b32 $1, $1, $5; and.b32 t, $3, $4;  or.b32 $1, $1, t;
                xor.b32 $2, $3, $4;  xor.b32 $2, $2, $5;
            }"""
        ),
        "triton": plain(in_triton),
    },
    source="PTX ISA, lop3",
    family="bits and integers",
)
