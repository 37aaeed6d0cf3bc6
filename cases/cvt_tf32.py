"""float32 to tf32 in three roundings: the instruction, and additions and masks on the bits."""

from functools import partial

import torch
import triton
import triton.language as tl

from ptxdiff import ALL, Case, Domain, Meets, asm, exact, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import F32, TF32


@triton.jit
def in_integers(x, NEAREST: tl.constexpr, AWAY: tl.constexpr):
    """NEAREST adds half of the last place, minus one where a tie must round down to even."""
    bits = x.to(tl.uint32, bitcast=True)
    added = bits
    if AWAY:
        added = bits + 0x1000
    elif NEAREST:
        added = bits + 0xFFF + ((bits >> 13) & 1)
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFFE000, added & 0xFFFFE000).to(tl.uint32)


@triton.jit
def truncated(x):
    """How a tensor core reads an unrounded operand: it ignores the lower 13 bits."""
    return x.to(tl.uint32, bitcast=True) & 0xFFFFE000


AMPERE, HOPPER = since("sm_80"), since("sm_90")


def to(rounding, **modifiers):
    """tf32 keeps 10 bits of the fraction, float32's exponent and subnormals."""
    return lambda x: conversion.convert(x, source=F32, target=TF32, rounding=rounding, **modifiers)


def half_added(x, satfinite=False):
    """cvt.rna as ptxas assembles it: half of the last place is added and lower bits are truncated, also for NaN.

    A NaN with a payload in only the lower 13 bits becomes infinity; .satfinite decrements it like infinity.
    """
    special = (x & 0x7FFFFFFF) >= 0x7F800000
    y = torch.where(special, x, x + 0x1000) & 0xFFFFE000
    beyond = satfinite & ((y & 0x7FFFFFFF) >= 0x7F800000)
    return torch.where(beyond, y - 0x2000, y)


def nearest_away(satfinite=False):
    """Policies of cvt.rna: for numbers it meets the case's reference; with .satfinite only without overflow."""
    return {"reference": partial(half_added, satfinite=satfinite), "meets": Meets(NUMBERS, exact()), "nan": "any"}


NUMBERS = Domain("|x| <= 3e38", lambda values: abs(values["x"]) <= 3e38)
nearest_even = {"reference": to("rn"), "targets": HOPPER, "refused": ALL - HOPPER}
not_negative, toward_zero = ({**nearest_even, "reference": r} for r in (to("rn", relu=True), to("rz")))

case = Case(
    inputs={"x": F32},
    outputs={"y": TF32},
    reference=to("rna"),
    variants={
        "cvt.rna": asm("cvt.rna.tf32.f32 $0, $1;", **nearest_away(), targets=AMPERE, refused=ALL - AMPERE),
        "cvt.rna.satfinite": asm(
            "cvt.rna.satfinite.tf32.f32 $0, $1;", packs=(1,), **nearest_away(True), targets=AMPERE
        ),
        "cvt.rn": asm("cvt.rn.tf32.f32 $0, $1;", packs=(1,), **nearest_even),
        "cvt.rn.relu": asm("cvt.rn.relu.tf32.f32 $0, $1;", packs=(1,), **not_negative),
        "cvt.rz": asm("cvt.rz.tf32.f32 $0, $1;", packs=(1,), **toward_zero),
        "mask": plain(truncated, reference=lambda x: x & 0xFFFFE000, note="a NaN may become infinity"),
        "integers-rna": plain(in_integers, constants={"NEAREST": True, "AWAY": True}),
        "integers-rn": plain(in_integers, constants={"NEAREST": True, "AWAY": False}, reference=to("rn")),
        "integers-rz": plain(in_integers, constants={"NEAREST": False, "AWAY": False}, reference=to("rz")),
    },
    family="conversions",
    source="PTX ISA, cvt: .tf32; alternate floating-point data formats",
)
