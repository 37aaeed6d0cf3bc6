"""Comparisons of float32, ordered and unordered, each a bit of the result: setp with selp, guarded or, set, Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import comparison
from ptxdiff.references.formats import F32, U32


@triton.jit
def in_triton(a, b):
    """Bit k for comparison k of PLAIN."""
    bits = (a < b).to(tl.uint32) | ((a <= b).to(tl.uint32) << 1) | ((a > b).to(tl.uint32) << 2)
    return bits | ((a >= b).to(tl.uint32) << 3) | ((a == b).to(tl.uint32) << 4) | ((a != b).to(tl.uint32) << 5)


@triton.jit
def negated_in_triton(a, b):
    """Bit k for the opposite of comparison k of PLAIN."""
    return in_triton(a, b) ^ 63


# The comparisons of Triton and Python: for NaN only != is true.
PLAIN = ("lt", "le", "gt", "ge", "eq", "neu")
# The opposite of each: for NaN all but == are true.
OPPOSITE = ("geu", "gtu", "leu", "ltu", "neu", "eq")


def each(operators, statements, type="f32"):
    """Asm that runs the statements once for each operator; `{bit}` is its bit, `p` and `t` are registers."""
    body = "\n    ".join(statements.format(op=op, type=type, bit=1 << k) for k, op in enumerate(operators))
    return f"{{\n    .reg .pred p;\n    .reg .b32 t;\n    mov.b32 $0, 0;\n    {body}\n}}"


SELECTED = "setp.{op}.{type} p, $1, $2; selp.b32 t, {bit}, 0, p; or.b32 $0, $0, t;"
GUARDED = "setp.{op}.{type} p, $1, $2; @p or.b32 $0, $0, {bit};"
SET = "set.{op}.u32.{type} t, $1, $2; and.b32 t, t, {bit}; or.b32 $0, $0, t;"  # all ones, or 0

shared = {"inputs": {"a": F32, "b": F32}, "outputs": {"y": U32}, "family": "predicates"}

case = Case(
    **shared,
    reference=partial(comparison.compare_all, operators=PLAIN),
    variants={
        "setp-selp": asm(each(PLAIN, SELECTED)),
        "guarded": asm(each(PLAIN, GUARDED)),
        "set": asm(each(PLAIN, SET)),
        "setp.ftz": asm(each(PLAIN, SELECTED, "ftz.f32"), ftz={"a": "required", "b": "required"}),
        "triton": plain(in_triton),
    },
    source="PTX ISA, comparison operators; IEEE 754-2019, 5.11",
)

negated = Case(
    **shared,
    reference=partial(comparison.compare_all, operators=OPPOSITE),
    variants={
        "setp-unordered": asm(each(OPPOSITE, GUARDED)),
        "not-setp": asm(each(PLAIN, GUARDED.replace("@p", "@!p"))),
        "triton": plain(negated_in_triton),
    },
    source="PTX ISA, comparison operators: the unordered ones hold of NaN",
)
