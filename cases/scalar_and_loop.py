"""A polynomial by Horner's rule in a kernel: asm in a loop that carries the result and takes a scalar argument."""

import numpy as np
import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32, Scalar


@triton.jit
def horner(x, c, y, N, STEPS: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """y = (..(c x + c) x + ..) x + c: STEPS products, in asm or in Triton."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < N, other=0.0)
    total = tl.full((BLOCK,), 0.0, tl.float32) + c
    for _ in range(STEPS):
        if HOW == "fma":
            total = tl.inline_asm_elementwise(
                "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [total, value, c], dtype=tl.float32, is_pure=True, pack=1
            )
        elif HOW == "two":  # the output is written before the last input is read: it needs the early clobber
            total = tl.inline_asm_elementwise(
                "mov.b32 $0, $6; mov.b32 $1, $7; fma.rn.f32 $0, $2, $4, $0; fma.rn.f32 $1, $3, $5, $1;",
                "=&f,=&f,f,f,f,f,f,f", [total, value, c], dtype=tl.float32, is_pure=True, pack=2,
            )  # fmt: skip
        else:
            total = tl.fma(total, value, tl.full((BLOCK,), c, tl.float32))
    tl.store(y + i, total, mask=i < N)


STEPS = 5


def steps(x, c):
    """Repeated products, each fused with its sum; c is one value for all elements."""
    one = c.expand_as(x)
    # The kernel makes c a tensor by adding it to 0, which turns -0 into +0.
    total = arithmetic.add(one * 0, one)
    for _ in range(STEPS):
        total = arithmetic.fma(total, x, one)
    return total


def numbers(sizes, rng):
    """Numbers near one, so that no power of them overflows, with a few NaN and infinities; a coefficient."""
    x = rng.normal(size=sizes["N"]).astype(np.float32)
    x[rng.random(sizes["N"]) < 0.05] = rng.choice(np.float32([np.nan, np.inf, -0.0, 1e-42, 3e38]))
    return {"x": x.view(np.uint32), "c": rng.normal(size=()).astype(np.float32).view(np.uint32)}


def variant(how):
    """One way to write the step.

    Two elements in a register need two per thread; with one, the second would be padding.
    """
    block = 256 if how == "two" else 128
    return kernel(horner, grid=lambda v: (-(-v["N"] // v["BLOCK"]),), meta={"STEPS": STEPS, "BLOCK": block, "HOW": how})


case = Case(
    inputs={"x": F32["N"], "c": Scalar(F32)},
    outputs={"y": F32["N"]},
    reference=steps,
    generate=numbers,
    sizes=[{"N": 1}, {"N": 130}, {"N": 512}],
    variants={how: variant(how) for how in ("fma", "two", "triton")},
    source="PTX ISA, fma",
    family="compiler hazards",
)
