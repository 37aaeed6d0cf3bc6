"""A fused multiply-add three ways: inline asm, plain Triton, and the PTX that nvcc made from a CUDA C++ kernel."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, ptx
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32


@triton.jit
def fused(x, y, z):
    """x y + z, rounded once."""
    return tl.fma(x, y, z)


BLOCK = 256

case = Case(
    inputs={"x": F32, "y": F32, "z": F32},
    outputs={"d": F32},
    reference=arithmetic.fma,
    family="whole kernels",
    variants={
        "asm": asm("fma.rn.f32 $0, $1, $2, $3;"),
        "triton": plain(fused),
        "cuda": ptx(
            "cuda_fma.ptx",
            grid=lambda sizes: -(-sizes["n"] // BLOCK),
            block=BLOCK,
            parameters=["x", "y", "z", "d", "n"],
        ),
    },
    source="IEEE 754-2019, 5.4.1 fusedMultiplyAdd",
)
