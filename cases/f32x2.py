"""Two float32 per instruction on Blackwell: fma, add, mul of f32x2, with and without flush; one by one, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32

PACKED = since("sm_100a")


@triton.jit
def fma_in_triton(a, b, c):
    """Rounded once."""
    return tl.fma(a, b, c)


@triton.jit
def add_in_triton(a, b):
    """The sum."""
    return a + b


@triton.jit
def mul_in_triton(a, b):
    """The product."""
    return a * b


def both(operation, names, reference, in_triton, **policies):
    """The case of one operation."""
    operands = ", ".join(f"${k}" for k in range(len(names) + 1))
    return Case(
        inputs=dict.fromkeys(names, F32),
        outputs={"y": F32},
        reference=partial(reference, fmt=F32),
        variants={
            "f32x2": asm(f"{operation}.rn.f32x2 {operands};", packs=(2, 4), targets=PACKED, refused=ALL - PACKED),
            "f32x2.ftz": asm(
                f"{operation}.rn.ftz.f32x2 {operands};",
                packs=(2,),
                ftz="required",
                targets=PACKED,
                refused=ALL - PACKED,
            ),
            "f32": asm(f"{operation}.rn.f32 {operands};", packs=(1,)),
            "triton": plain(in_triton),
        },
        source=f"PTX ISA, {operation}: .f32x2",
        family="packed arithmetic",
        **policies,
    )


fma = both("fma", ("a", "b", "c"), arithmetic.fma, fma_in_triton, carry={"y": "c"})
add = both("add", ("a", "b"), arithmetic.add, add_in_triton, carry={"y": "a"})
mul = both("mul", ("a", "b"), arithmetic.mul, mul_in_triton)
