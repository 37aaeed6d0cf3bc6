"""8 and 16-bit operands at every pack, sizes that fill a register in part, and mixed widths in one block."""

import triton
import triton.language as tl

from harness import Case, asm, plain
from references import arithmetic, conversion, integers
from references.formats import F32, U8, U16


@triton.jit
def mixed_in_triton(a, b, c):
    """A byte, a word and a float."""
    return a.to(tl.uint16) + b, a.to(tl.float32) + c


def complement(x):
    """All bits flipped."""
    return x ^ 0xFF


def complement16(x):
    """All bits flipped."""
    return x ^ 0xFFFF


@triton.jit
def complement_in_triton(x):
    """All bits flipped."""
    return ~x


def flipped(registers):
    """A register for every four bytes, or two halves; the last may be filled in part."""
    outputs = ",".join(["=&r"] * registers + ["r"] * registers)
    return "\n".join(f"not.b32 ${k}, ${k + registers};" for k in range(registers)), outputs


def mixed(a, b, c):
    """(a + b as uint16, wrapping; a + c as float32)."""
    wide = conversion.convert(a, source=U8, target=F32)
    return integers.add(a, b, fmt=U16), arithmetic.add(wide, c)


bytes_ = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=complement,
    variants={
        "not": asm({pack: flipped(-(-pack // 4)) for pack in (1, 2, 3, 4, 8, 16)}),
        "triton": plain(complement_in_triton),
    },
    source="Triton, tl.inline_asm_elementwise: pack",
    family="compiler hazards",
)

halves = Case(
    inputs={"x": U16},
    outputs={"y": U16},
    reference=complement16,
    variants={
        "not": asm({pack: flipped(-(-pack // 2)) for pack in (1, 2, 4, 8)}),
        "triton": plain(complement_in_triton),
    },
    source="Triton, tl.inline_asm_elementwise: pack",
    family="compiler hazards",
)

# Pack 2: two bytes in one register, two halves in one, two floats in two; in the same order for the outputs.
widths = Case(
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
