"""A byte, a half word and a float32 in one block, outputs of two widths: the registers of each pack, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import arithmetic, conversion, integers
from ptxdiff.references.formats import F32, U8, U16


@triton.jit
def mixed_in_triton(a, b, c):
    """A byte, a word and a float."""
    return a.to(tl.uint16) + b, a.to(tl.float32) + c


def mixed(a, b, c):
    """(a + b as uint16, wrapping; a + c as float32)."""
    wide = conversion.convert(a, source=U8, target=F32)
    return integers.add(a, b, fmt=U16), arithmetic.add(wide, c)


# Pack 2: two bytes in one register, two halves in one, two floats in two; the outputs have the same order.
case = Case(
    inputs={"a": U8, "b": U16, "c": F32},
    outputs={"sum": U16, "y": F32},
    reference=mixed,
    variants={
        "pack1": asm(
            "{ .reg .b32 t; and.b32 t, $2, 0xFF; add.u32 $0, t, $3; cvt.rn.f32.u32 t, t; add.rn.f32 $1, t, $4; }",
            constraints="=&r,=&r,r,r,r",
            pack=1,
        ),
        "pack2": asm(
            """{
                .reg .b16 low, high, x, y;
                .reg .b32 a, b;
                bfe.u32 a, $3, 0, 8;  bfe.u32 b, $3, 8, 8;
                mov.b32 {low, high}, $4;
                cvt.u16.u32 x, a;  cvt.u16.u32 y, b;
                add.u16 low, low, x;  add.u16 high, high, y;
                mov.b32 $0, {low, high};
                cvt.rn.f32.u32 a, a;  add.rn.f32 $1, a, $5;
                cvt.rn.f32.u32 b, b;  add.rn.f32 $2, b, $6;
            }""",
            constraints="=&r,=&r,=&r,r,r,r,r",
            pack=2,
        ),
        "triton": plain(mixed_in_triton),
    },
    source="Triton, tl.inline_asm_elementwise: pack",
    family="compiler hazards",
)
