"""8 and 16-bit operands at every pack, also if a pack fills its last register only partly; and Triton."""

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references.formats import U8, U16


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
    """A register for every four bytes, or two halves; the last may be partly filled."""
    outputs = ",".join(["=&r"] * registers + ["r"] * registers)
    return "\n".join(f"not.b32 ${k}, ${k + registers};" for k in range(registers)), outputs


bytes_ = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=complement,
    variants={
        "not": asm({pack: flipped(-(-pack // 4)) for pack in (1, 2, 4, 8, 16)}),
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
