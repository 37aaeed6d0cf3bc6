"""Signs of floats: abs, neg and copysign of float32 and of two halves, against logic on the sign bit, and Triton."""

from functools import partial

import torch
import triton
import triton.language as tl

from harness import Case, asm, plain, since
from references import arithmetic
from references.formats import BF16, F16, F32


@triton.jit
def copied_in_triton(a, b):
    """The sign bit of a above the other bits of b."""
    sign = a.to(tl.uint32, bitcast=True) & 0x80000000
    return (sign | (b.to(tl.uint32, bitcast=True) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def signs_in_triton(x):
    """Triton's abs and minus."""
    return tl.abs(x), -x


def signs(x, *, fmt):
    """(abs, neg); the bits of a NaN are open."""
    return arithmetic.absolute(x, fmt=fmt), arithmetic.negate(x, fmt=fmt)


copysign = Case(
    inputs={"a": F32, "b": F32},
    outputs={"y": F32},
    reference=arithmetic.copysign,
    nan="payload",
    variants={
        "copysign": asm("copysign.f32 $0, $1, $2;"),  # PTX has the sign first; C has it last
        "lop3": asm("lop3.b32 $0, 0x80000000, $1, $2, 0xCA;"),
        "triton": plain(copied_in_triton),
    },
    source="PTX ISA, copysign",
    family="packed arithmetic",
)


def of(fmt, suffix, targets):
    """abs and neg of a 16-bit format, two a register."""
    return Case(
        inputs={"x": fmt},
        outputs={"size": fmt, "negative": fmt},
        reference=partial(signs, fmt=fmt),
        pytorch=lambda x: (torch.abs(x), torch.neg(x)),
        variants={
            "abs-neg": asm(
                f"abs.{suffix} $0, $2; neg.{suffix} $1, $2;", constraints="=&r,=r,r", pack=2, targets=targets
            ),
            "and-xor": asm("and.b32 $0, $2, 0x7FFF7FFF; xor.b32 $1, $2, 0x80008000;", constraints="=&r,=r,r", pack=2),
            "triton": plain(signs_in_triton),
        },
        source=f"PTX ISA, abs and neg: .{suffix}",
        family="packed arithmetic",
    )


f16 = of(F16, "f16x2", since("sm_75"))
bf16 = of(BF16, "bf16x2", since("sm_80"))
