"""NVFP4 values, a byte each, times a block's e4m3 scale, to e4m3: one instruction, through float16, and Triton."""

import triton

from ptxdiff import Case, asm, only, plain
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import E2M1, E4M3

from ._device.nvfp4_dequantize import OVER_F16, in_triton

FP4 = only("sm_100a", "sm_101a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a")
PTX_9_4 = tuple(int(n) for n in triton.__version__.split(".")[:2]) >= (3, 9)  # Triton 3.9 contains a ptxas that has it


def scaled(q, s):
    """The product, rounded once to nearest even; overflow gives 448 with its sign; NaN is 0x7f."""
    return arithmetic.product(q, s, left=E2M1, right=E4M3, fmt=E4M3, satfinite=True)


one_instruction = {
    "mul.e4m3x4": asm(
        "mul.rn.satfinite.e4m3x4.e2m1p4x4.e4m3x4 $0, $1, $2;",
        targets=only("sm_100a", "sm_103a"),
        refused=FP4 - only("sm_100a", "sm_103a"),
    ),
}

case = Case(
    inputs={"q": E2M1, "s": E4M3},
    outputs={"y": E4M3},
    reference=scaled,
    variants={
        # A product has at most six bits and is exact in float16. The bits above a code are undefined.
        "over-f16": asm(
            OVER_F16,
            constraints="=r,r,r",
            pack=4,
        ),
        "triton": plain(in_triton),
        **(one_instruction if PTX_9_4 else {}),
    },
    targets=FP4,
    family="block scaling",
    source="PTX ISA 9.4, alternate floating-point mul; OCP Microscaling Formats 1.0, 5.3.3",
)
