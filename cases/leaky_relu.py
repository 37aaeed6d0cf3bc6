"""x, or x / 100 if it is negative, float32: a guarded multiplication, selp, the maximum of both, and Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import arithmetic, comparison
from ptxdiff.references.formats import F32

HUNDREDTH = 0x3C23D70A  # 0.01, rounded to float32
SLOPE = f"0f{HUNDREDTH:08X}"


@triton.jit
def in_triton(x):
    """A selection between the number and the product."""
    return tl.where(x > 0, x, x * 0.01)


def leaky(x):
    """x if it is above zero; else the rounded product with 0.01, which keeps NaN and -0."""
    product = arithmetic.mul(x, torch.full_like(x, HUNDREDTH))
    return torch.where(comparison.compare(x, torch.zeros_like(x), "gt"), x, product)


def in_pytorch(x):
    """PyTorch's own."""
    return torch.nn.functional.leaky_relu(x, 0.01)


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=leaky,
    pytorch=in_pytorch,
    variants={
        "guarded": asm(
            f"{{ .reg .pred p; setp.gt.f32 p, $1, 0f00000000; mov.b32 $0, $1; @!p mul.rn.f32 $0, $0, {SLOPE}; }}"
        ),
        "setp-selp": asm(
            f"{{ .reg .pred p; setp.gt.f32 p, $1, 0f00000000; mul.rn.f32 $0, $1, {SLOPE}; selp.f32 $0, $1, $0, p; }}"
        ),
        "branch": asm(
            f"{{ .reg .pred p; mov.b32 $0, $1; setp.gt.f32 p, $1, 0f00000000; @p bra done; "
            f"mul.rn.f32 $0, $1, {SLOPE}; done: }}"
        ),
        "max": asm(f"mul.rn.f32 $0, $1, {SLOPE}; max.f32 $0, $0, $1;"),
        "triton": plain(in_triton),
    },
    source="PTX ISA, predicated execution",
    family="predicates",
)
