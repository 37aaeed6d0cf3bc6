"""Inline asm on constants and scalars, broadcast to its other operands, where the compiler may fold them; and
Triton."""

import torch

from ptxdiff import Case, asm, plain
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F16, F32

from ._device.broadcast_operands import constant_operands, full_operands, half_in_triton, in_triton, packed_constant

THREE_HALVES, QUARTER = 0x3FC00000, 0x3E800000


def line(x):
    """1.5 x + 0.25, rounded once."""
    return arithmetic.fma(x, torch.full_like(x, THREE_HALVES), torch.full_like(x, QUARTER))


def plus_three_halves(x):
    """The float16 sum."""
    return arithmetic.add(x, torch.full_like(x, 0x3E00), fmt=F16)


shared = {"source": "Triton, tl.inline_asm_elementwise: arguments broadcast", "family": "compiler hazards"}

case = Case(
    **shared,
    inputs={"x": F32},
    outputs={"y": F32},
    reference=line,
    variants={
        "immediates": asm("fma.rn.f32 $0, $1, 0f3FC00000, 0f3E800000;"),
        "scalars": plain(constant_operands),
        "full": plain(full_operands),
        "triton": plain(in_triton),
    },
)
packed = Case(
    **shared,
    inputs={"x": F16},
    outputs={"y": F16},
    reference=plus_three_halves,
    variants={"f16x2": plain(packed_constant), "triton": plain(half_in_triton)},
)
