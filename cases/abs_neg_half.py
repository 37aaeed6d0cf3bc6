"""abs and neg of two halves a register, against logic on the sign bit, and Triton."""

from functools import partial

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import BF16, F16


@triton.jit
def signs_in_triton(x):
    """Triton's abs, and a product: Triton 3.6 computes -x of 16-bit floats as 0 - x, which gives +0 for 0."""
    return tl.abs(x), x * -1


def signs(x, *, fmt):
    """(abs, neg); the bits of a NaN are undefined."""
    return arithmetic.absolute(x, fmt=fmt), arithmetic.negate(x, fmt=fmt)


def of(fmt, suffix, targets):
    """abs and neg of a 16-bit format, two in a register."""
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
