"""a where c >= 0, else b: slct, setp with selp, and Triton. -0 selects a, NaN selects b."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import comparison
from ptxdiff.references.formats import F32, I32


@triton.jit
def in_triton(a, b, c):
    """A comparison and a selection."""
    return tl.where(c >= 0, a, b)


def by_float(a, b, c, *, ftz=False):
    """The sign of a float32; `.ftz` takes a subnormal c as zero and changes neither a nor b."""
    return comparison.select_by_sign(a, b, c, fmt=F32, ftz=ftz is True)


def by_integer(a, b, c):
    """The sign of an int32."""
    return comparison.select_by_sign(a, b, c, fmt=I32)


GUARDED = "{{ .reg .pred p; setp.ge.{0} p, $3, {1}; mov.b32 $0, $2; @p mov.b32 $0, $1; }}"
SELECTED = "{{ .reg .pred p; setp.ge.{0} p, $3, {1}; selp.b32 $0, $1, $2, p; }}"

case = Case(
    inputs={"a": F32, "b": F32, "c": F32},
    outputs={"y": F32},
    reference=by_float,
    nan="payload",
    variants={
        "slct": asm("slct.b32.f32 $0, $1, $2, $3;", constraints="=r,r,r,r"),
        "slct.ftz": asm("slct.ftz.b32.f32 $0, $1, $2, $3;", constraints="=r,r,r,r", ftz={"c": "required"}),
        "setp-selp": asm(SELECTED.format("f32", "0f00000000"), constraints="=r,r,r,r"),
        "guarded": asm(GUARDED.format("f32", "0f00000000")),
        "triton": plain(in_triton),
    },
    source="PTX ISA, slct",
    family="predicates",
)

integer = Case(
    inputs={"a": I32, "b": I32, "c": I32},
    outputs={"y": I32},
    reference=by_integer,
    variants={
        "slct": asm("slct.s32.s32 $0, $1, $2, $3;", constraints="=r,r,r,r"),
        "setp-selp": asm(SELECTED.format("s32", "0"), constraints="=r,r,r,r"),
        "guarded": asm(GUARDED.format("s32", "0")),
        "triton": plain(in_triton),
    },
    source="PTX ISA, slct",
    family="predicates",
)
