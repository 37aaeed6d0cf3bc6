"""a / b: approximate with a small and with the full range, rounded in every mode, with and without flush."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, either, magnitude, plain, ulp
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32


@triton.jit
def rounded(a, b):
    """tl.div_rn, whatever fast-math options say."""
    return tl.div_rn(a, b)


@triton.jit
def fast(a, b):
    """A slash: div.full.f32."""
    return a / b


# The ISA: 2 ulp for |b| in [2^-126, 2^126]; for larger b, div.approx gives 0, or NaN where a is infinite.
RANGE = magnitude("b", 2.0**-126, 2.0**126)
APPROXIMATE = ulp(2, on=RANGE, overflow=True, underflow=True, source="PTX ISA, div: .approx.f32, .full.f32")


def directed(rounding, ftz=False):
    """The quotient in a rounding mode."""

    def quotient(a, b, *, ftz=ftz):
        return arithmetic.div(a, b, rounding=rounding, ftz=ftz)

    return quotient


def on_the_other_side(a, b, *, ftz=False):
    """The quotient; with .ftz, a quotient within 2 ulp of the smallest normal number moves to the other side of it.

    An error of 2 ulp may do that: a tiny result becomes the smallest normal number, and a normal result zero.
    """
    plain = arithmetic.div(a, b)
    if not ftz:
        return plain
    sign, size = plain & 0x80000000, plain & 0x7FFFFFFF
    up = (size >= F32.min_normal - 2) & (size < F32.min_normal)
    down = (size >= F32.min_normal) & (size <= F32.min_normal + 2)
    other = torch.where(up, sign | F32.min_normal, arithmetic.div(a, b, ftz=ftz))
    return torch.where(down, sign, other)


FLUSHED = {"match": APPROXIMATE, "ftz": "required", "reference": either(directed("rn"), on_the_other_side)}

case = Case(
    inputs={"a": F32, "b": F32},
    outputs={"c": F32},
    reference=directed("rn"),
    pytorch=torch.div,
    variants={
        "div.approx": asm("div.approx.f32 $0, $1, $2;", packs=(1,), match=APPROXIMATE),
        "div.approx.ftz": asm("div.approx.ftz.f32 $0, $1, $2;", packs=(1,), **FLUSHED),
        "div.full": asm("div.full.f32 $0, $1, $2;", packs=(1,), match=APPROXIMATE),
        "div.full.ftz": asm("div.full.ftz.f32 $0, $1, $2;", packs=(1,), **FLUSHED),
        "div.rn.ftz": asm("div.rn.ftz.f32 $0, $1, $2;", packs=(1,), ftz="required"),
        **{f"div.{r}": asm(f"div.{r}.f32 $0, $1, $2;", packs=(1,), reference=directed(r)) for r in ("rz", "rm", "rp")},
        "triton": plain(fast, match=APPROXIMATE),
        "triton-div_rn": plain(rounded),
    },
    family="fast math",
    source="PTX ISA, div; IEEE 754 5.4.1",
)
