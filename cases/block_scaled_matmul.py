"""Products of block-scaled matrices, MXFP8 and NVFP4, in a kernel's tiles.

tl.dot_scaled uses one instruction for 32 or 64 elements along k, with the bits of its published model, and on targets
without it a product of bfloat16. The other variant multiplies dequantised numbers in bfloat16 or float16. Both have the
bits of the target's tensor cores. On the generated inputs they differ by at most `BOUND`, which a test checks.
"""

from ptxdiff import Case, kernel, since
from ptxdiff.references.formats import E4M3, F32, U8, UE8M0

from ._device.block_scaled_matmul import dequantised, scaled
from ._host.block_scaled_matmul import MXFP8_PLAIN, MXFP8_SCALED, NVFP4_PLAIN, NVFP4_SCALED, mxfp8, nvfp4, values

SIZES = [{"M": 128, "N": 32, "K": 128, "KA": 128, "KX": 4}]
BOUND = 2.0**-6
"""128 products of at most 16: sums stay below 2^11, so that a term loses at most 2^-15 when it is cut, and a sum 2^-13
when it is rounded; 4 sums of 33 terms here and 8 of 17 there: (4 (33 / 4 + 1) + 8 (17 / 4 + 1)) 2^-13."""


def tiles(values):
    """A program for each tile of d."""
    return (values["M"] // values["TM"], values["N"] // values["TN"])


META = {"TM": 128, "TN": 32, "STEP": 128, "KIND": "e4m3", "BLOCK": 32, "EACH": 1}
mxfp8_matmul = Case(
    inputs={"a": E4M3["M", "KA"], "x": UE8M0["M", "KX"], "b": E4M3["N", "KA"], "y": UE8M0["N", "KX"]},
    outputs={"d": F32["M", "N"]},
    reference=mxfp8,
    generate=values(0x40, (126, 129)),  # to 2, and scales of 1/2 to 2: products to 16
    sizes=SIZES,
    variants={
        "dot_scaled": kernel(scaled, grid=tiles, meta=META, **MXFP8_SCALED),
        "dequantised": kernel(dequantised, grid=tiles, meta=META, **MXFP8_PLAIN),
    },
    targets=since("sm_89"),
    family="matrix products",
    source="MMA-Sim, arXiv 2511.10909; PTX ISA, tcgen05.mma; OCP Microscaling Formats 1.0",
)

META_FOUR = META | {"KIND": "e2m1", "BLOCK": 16, "EACH": 2}
nvfp4_matmul = Case(
    inputs={"a": U8["M", "KA"], "x": E4M3["M", "KX"], "b": U8["N", "KA"], "y": E4M3["N", "KX"]},
    outputs={"d": F32["M", "N"]},
    reference=nvfp4,
    generate=values(0xFF, (0x20, 0x29)),  # scales of 1/8 to 9/32, products of 36 at most: to 3
    sizes=[SIZES[0] | {"KA": 64, "KX": 8}],
    variants={
        "dot_scaled": kernel(scaled, grid=tiles, meta=META_FOUR, **NVFP4_SCALED),
        "dequantised": kernel(dequantised, grid=tiles, meta=META_FOUR, **NVFP4_PLAIN),
    },
    targets=since("sm_89"),
    family="matrix products",
    source="MMA-Sim, arXiv 2511.10909; PTX ISA, tcgen05.mma; NVIDIA, NVFP4",
)
