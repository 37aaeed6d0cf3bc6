"""Comparisons of integers, signed and unsigned, of 16, 32 and 64 bits: setp in every spelling, set, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import comparison
from ptxdiff.references.formats import I32, U32

NAMES = ("lt", "le", "gt", "ge", "eq", "ne")


@triton.jit
def in_triton(a, b):
    """Bit k for comparison k of NAMES, in the order of the operands' type."""
    ordered = tl.where(a < b, 1, 0) | tl.where(a <= b, 2, 0) | tl.where(a > b, 4, 0) | tl.where(a >= b, 8, 0)
    return (ordered | tl.where(a == b, 16, 0) | tl.where(a != b, 32, 0)).to(tl.uint32)


def chain(opcodes, a="$1", b="$2", before=""):
    """One setp and one guarded or for each opcode, on 32-bit operands unless `before` brings others."""
    steps = "\n    ".join(f"{op} p, {a}, {b}; @p or.b32 $0, $0, {1 << k};" for k, op in enumerate(opcodes))
    return f"{{\n    .reg .pred p;\n    {before}\n    mov.b32 $0, 0;\n    {steps}\n}}"


def setp(type):
    """The names that every type has."""
    return [f"setp.{op}.{type}" for op in NAMES]


LOWER = ("lo", "ls", "hi", "hs", "eq", "ne")  # other spellings of unsigned comparisons
BIASED = ".reg .b32 x, y; xor.b32 x, $1, 0x80000000; xor.b32 y, $2, 0x80000000;"


def integers(fmt, variants):
    """The case of one format."""
    return Case(
        inputs={"a": fmt, "b": fmt},
        outputs={"y": U32},
        reference=partial(comparison.compare_all, operators=NAMES, fmt=fmt),
        variants={**variants, "triton": plain(in_triton)},
        source="PTX ISA, comparison operators on integers",
        family="predicates",
    )


s32 = integers(I32, {"setp": asm(chain(setp("s32")))})
u32 = integers(
    U32,
    {
        "setp": asm(chain(setp("u32"))),
        "setp.lo": asm(chain([f"setp.{op}.u32" for op in LOWER])),
        "biased-to-signed": asm(chain(setp("s32"), "x", "y", BIASED)),
    },
)
