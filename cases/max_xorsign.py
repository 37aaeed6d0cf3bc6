"""Maximum and minimum of magnitudes with the signs multiplied: .xorsign.abs, abs with logic, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32

AMPERE = since("sm_86")


@triton.jit
def in_triton(a, b):
    """The larger magnitude, with the exclusive or of the sign bits; a number wins over NaN."""
    sign = (a.to(tl.uint32, bitcast=True) ^ b.to(tl.uint32, bitcast=True)) & 0x80000000
    size = tl.maximum(tl.abs(a), tl.abs(b)).to(tl.uint32, bitcast=True)
    return (size | sign).to(tl.float32, bitcast=True)


@triton.jit
def smallest_in_triton(a, b):
    """The smaller magnitude likewise; NaN stays."""
    sign = (a.to(tl.uint32, bitcast=True) ^ b.to(tl.uint32, bitcast=True)) & 0x80000000
    size = tl.minimum(tl.abs(a), tl.abs(b), propagate_nan=tl.PropagateNan.ALL).to(tl.uint32, bitcast=True)
    return (size | sign).to(tl.float32, bitcast=True)


LOGIC = (
    "{{ .reg .b32 a, b; abs.f32 a, $1; abs.f32 b, $2; {0}.f32 a, a, b; xor.b32 b, $1, $2; "
    "lop3.b32 $0, a, b, 0x80000000, 0xF8; }}"
)
shared = {"inputs": {"a": F32, "b": F32}, "outputs": {"y": F32}, "family": "packed arithmetic"}

largest = Case(
    **shared,
    reference=partial(arithmetic.maximum, xorsign_abs=True),
    variants={
        "max.xorsign.abs": asm("max.xorsign.abs.f32 $0, $1, $2;", packs=(1,), targets=AMPERE),
        "lop3": asm(LOGIC.format("max")),
        "triton": plain(in_triton),
    },
    source="PTX ISA, max: .xorsign.abs",
)

smallest_nan = Case(
    **shared,
    reference=partial(arithmetic.minimum, xorsign_abs=True, nan=True),
    variants={
        "min.NaN.xorsign.abs": asm("min.NaN.xorsign.abs.f32 $0, $1, $2;", packs=(1,), targets=AMPERE),
        "lop3": asm(LOGIC.format("min.NaN"), targets=since("sm_80")),
        "triton": plain(smallest_in_triton),
    },
    source="PTX ISA, min: .NaN.xorsign.abs",
)
