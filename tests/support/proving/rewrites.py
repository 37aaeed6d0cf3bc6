"""Operations on two words, with right rewrites, and wrong variants that differ on fewer than one in 2^32 inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ptxdiff import Case, asm
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32, U32

ONES = 0xFFFFFFFF


def _signed(x: Any) -> Any:
    return (x ^ 0x80000000) - 0x80000000


@dataclass(frozen=True)
class Operation:
    """A reference and right texts for it; `$0` is the result, `$1` and `$2` are the words."""

    reference: Any
    texts: tuple[str, ...]
    fmt: Any = U32


OPERATIONS = {
    "add": Operation(
        lambda a, b: (a + b) & ONES,
        (
            "sub.u32 t, 0, $2; sub.u32 $0, $1, t;",
            "xor.b32 t, $1, $2; and.b32 u, $1, $2; shl.b32 u, u, 1; add.u32 $0, t, u;",
            "not.b32 t, $1; sub.u32 t, t, $2; not.b32 $0, t;",
            "mad.lo.u32 $0, $2, 1, $1;",
        ),
    ),
    "sub": Operation(
        lambda a, b: (a - b) & ONES,
        (
            "not.b32 t, $1; add.u32 t, t, $2; not.b32 $0, t;",
            "neg.s32 t, $2; add.u32 $0, $1, t;",
            "not.b32 t, $2; add.u32 t, t, 1; add.u32 $0, t, $1;",
        ),
    ),
    "and": Operation(
        lambda a, b: a & b,
        (
            "not.b32 t, $1; not.b32 u, $2; or.b32 t, t, u; not.b32 $0, t;",
            "lop3.b32 $0, $1, $2, 0, 0xC0;",
            "not.b32 t, $2; and.b32 t, $1, t; sub.u32 $0, $1, t;",
        ),
    ),
    "or": Operation(
        lambda a, b: a | b,
        (
            "and.b32 t, $1, $2; add.u32 u, $1, $2; sub.u32 $0, u, t;",
            "xor.b32 t, $1, $2; and.b32 u, $1, $2; add.u32 $0, t, u;",
            "lop3.b32 $0, $1, $2, 0, 0xFC;",
        ),
    ),
    "xor": Operation(
        lambda a, b: a ^ b,
        (
            "or.b32 t, $1, $2; and.b32 u, $1, $2; sub.u32 $0, t, u;",
            "add.u32 t, $1, $2; and.b32 u, $1, $2; shl.b32 u, u, 1; sub.u32 $0, t, u;",
            "lop3.b32 $0, $1, $2, 0, 0x3C;",
        ),
    ),
    "min.u32": Operation(
        torch.minimum,
        (
            "min.u32 $0, $1, $2;",
            "setp.lt.u32 p, $1, $2; selp.b32 $0, $1, $2, p;",
            "max.u32 t, $1, $2; xor.b32 u, $1, $2; xor.b32 $0, t, u;",
            "not.b32 t, $1; not.b32 u, $2; max.u32 t, t, u; not.b32 $0, t;",
        ),
    ),
    "max.s32": Operation(
        lambda a, b: torch.maximum(_signed(a), _signed(b)) & ONES,
        (
            "max.s32 $0, $1, $2;",
            "mov.b32 t, $2; setp.gt.s32 p, $1, $2; @p mov.b32 t, $1; mov.b32 $0, t;",
            "xor.b32 t, $1, 0x80000000; xor.b32 u, $2, 0x80000000; max.u32 t, t, u; xor.b32 $0, t, 0x80000000;",
        ),
    ),
    "average": Operation(
        lambda a, b: (a + b) >> 1,
        (
            "and.b32 t, $1, $2; xor.b32 u, $1, $2; shr.u32 u, u, 1; add.u32 $0, t, u;",
            "or.b32 t, $1, $2; xor.b32 u, $1, $2; and.b32 v, u, 1; shr.u32 u, u, 1; sub.u32 t, t, u; sub.u32 $0, t, v;",
            "cvt.u64.u32 w, $1; cvt.u64.u32 x, $2; add.u64 w, w, x; shr.u64 w, w, 1; cvt.u32.u64 $0, w;",
        ),
    ),
    "difference": Operation(
        lambda a, b: (a - b).abs(),
        (
            "max.u32 t, $1, $2; min.u32 u, $1, $2; sub.u32 $0, t, u;",
            "sad.u32 $0, $1, $2, 0;",
            "setp.ge.u32 p, $1, $2; sub.u32 t, $1, $2; @!p neg.s32 t, t; mov.b32 $0, t;",
        ),
    ),
    "rotate": Operation(
        lambda a, b: ((a << (b & 31)) | (a >> (32 - (b & 31)))) & ONES,
        (
            "shf.l.wrap.b32 $0, $1, $1, $2;",
            "and.b32 t, $2, 31; shl.b32 u, $1, t; sub.u32 t, 32, t; shr.u32 v, $1, t; or.b32 $0, u, v;",
        ),
    ),
    "product": Operation(
        lambda a, b: (a * b) & ONES,
        (
            "mul.lo.u32 $0, $2, $1;",
            "mul.wide.u32 w, $1, $2; cvt.u32.u64 $0, w;",
            "not.b32 t, $1; add.u32 t, t, 1; mul.lo.u32 t, t, $2; neg.s32 $0, t;",
        ),
    ),
    "add.f32": Operation(
        arithmetic.add,
        (
            "add.rn.f32 $0, $2, $1;",
            "fma.rn.f32 $0, $1, 0f3F800000, $2;",
            "xor.b32 t, $2, 0x80000000; sub.rn.f32 $0, $1, t;",
        ),
        F32,
    ),
    "mul.f32": Operation(
        arithmetic.mul,
        (
            "mul.rn.f32 $0, $2, $1;",
            "fma.rn.f32 $0, $1, $2, 0f80000000;",
            "xor.b32 t, $1, 0x80000000; xor.b32 u, $2, 0x80000000; mul.rn.f32 $0, t, u;",
        ),
        F32,
    ),
}
"""In `fma.rn.f32 a, b, -0` an exact zero product keeps its sign."""

DECLARED = ".reg .b32 t, u, v, r; .reg .b64 w, x; .reg .pred p, q;"

# Conditions that hold for at most 2^31 of the 2^64 pairs of words, found by no quick run.
RARE = {
    "two constants": "setp.eq.u32 p, $1, 0x2545F491; setp.eq.and.u32 p, $2, 0x9E3779B9, p;",
    "a word and its square": "mul.lo.u32 v, $1, $1; xor.b32 v, v, 0x5BD1E995; setp.eq.u32 p, v, $2; "
    "setp.eq.and.u32 p, $1, 0x1B873593, p;",
    "a whole of both": "mov.b64 w, {$1, $2}; setp.eq.u64 p, w, 0x165667B19E3779F9;",
    "a sum and a difference": "add.u32 v, $1, $2; setp.eq.u32 p, v, 0x7FEDCBA9; sub.u32 v, $1, $2; "
    "setp.eq.and.u32 p, v, 0x01234567, p;",
    "a rotation": "shf.l.wrap.b32 v, $1, $1, 13; xor.b32 v, v, $2; setp.eq.u32 p, v, 0xCC9E2D51; "
    "and.b32 v, $1, 0xFF; setp.eq.and.u32 p, v, 0x5A, p;",
}


def block(text: str) -> str:
    """A text in braces, with its registers."""
    return f"{{ {DECLARED} {text} }}"


def corrupted(text: str, condition: str) -> str:
    """A text whose last bit is inverted where a rare condition holds."""
    inner = text.replace("$0", "r")
    return block(f"{inner} {condition} @p xor.b32 r, r, 1; mov.b32 $0, r;")


def case_of(operation: Operation, texts: dict[str, str]) -> Case:
    """A case with these texts as variants."""
    return Case(
        inputs={"a": operation.fmt, "b": operation.fmt},
        outputs={"y": operation.fmt},
        reference=operation.reference,
        variants={name: asm(text, "=&r,r,r", pack=1) for name, text in texts.items()},
        nan="any",
    )


RIGHT = [(name, k) for name, one in OPERATIONS.items() for k in range(len(one.texts))]
# Every condition with every operation's first text, as far as forty go.
WRONG = [(name, rare) for name in OPERATIONS for rare in RARE if OPERATIONS[name].fmt is U32][:40]
