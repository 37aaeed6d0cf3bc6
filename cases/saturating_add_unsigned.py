"""Saturating sums of unsigned 16-bit numbers: two in a word, by conversion, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import words
from ptxdiff.references.formats import U16


@triton.jit
def unsigned_in_triton(a, b):
    """A 32-bit sum, clamped."""
    return tl.minimum(a.to(tl.uint32) + b.to(tl.uint32), 65535).to(tl.uint16)


case = Case(
    inputs={"a": U16, "b": U16},
    outputs={"y": U16},
    reference=partial(words.add_clamped, fmt=U16),
    variants={
        # A half whose sum has a carry is filled with ones.
        "two-in-a-word": asm(
            """{
                .reg .b32 t, carry;
                and.b32 t, $1, 0x7FFF7FFF;
                and.b32 carry, $2, 0x7FFF7FFF;
                add.u32 t, t, carry;
                xor.b32 $0, $1, $2;
                and.b32 $0, $0, 0x80008000;
                lop3.b32 carry, $1, $2, t, 0xE8;
                and.b32 carry, carry, 0x80008000;
                xor.b32 $0, $0, t;
                shr.u32 t, carry, 15;
                mul.lo.u32 t, t, 0xFFFF;
                or.b32 $0, $0, t;
            }""",
            constraints="=&r,r,r",
            pack=2,
        ),
        "cvt.sat": asm(
            "{ .reg .b16 a, b; .reg .b32 x, y; mov.b32 {a, _}, $1; mov.b32 {b, _}, $2; cvt.u32.u16 x, a; "
            "cvt.u32.u16 y, b; add.u32 x, x, y; min.u32 $0, x, 65535; }"
        ),
        "triton": plain(unsigned_in_triton),
    },
    source="PTX ISA, min and lop3",
    family="bits and integers",
)
