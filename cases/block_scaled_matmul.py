"""Products of block-scaled matrices, MXFP8 and NVFP4, by the fifth generation of tensor cores, in a kernel's tiles.

By tl.dot_scaled: one instruction for 32 or 64 elements along k, with the bits of its published model. Beside it the
product of dequantised numbers, whose factors are exact, and which adds in another order: a bound.
"""

import numpy as np
import torch

from harness import Case, absolute, kernel, only
from references import scaled_matrices
from references.formats import E2M1, E4M3, F32, U8, UE8M0
from references.scaled_matrices import FOUR, MX8

from ._device.block_scaled_matmul import dequantised, scaled

SIZES = [{"M": 128, "N": 128, "K": 128, "KA": 128, "KX": 4}]
FIFTH = only("sm_100a", "sm_103a")
WHY = "128 products, |sums| below 2^11: {} sums cut to 25 fraction bits, each rounded to 24, and {} by tl.dot"


def tiles(values):
    """A program for each tile of d."""
    return (values["M"] // values["TILE"], values["N"] // values["TILE"])


def mxfp8(a, x, b, y):
    """e4m3 in blocks of 32."""
    zero = torch.zeros(a.shape[0], b.shape[0], dtype=torch.int64)
    return scaled_matrices.dot(a, b.T, x, y, zero, a_format=E4M3, b_format=E4M3, kind=MX8)


def nvfp4(a, x, b, y):
    """e2m1, two in a byte, in blocks of 16 with scales of e4m3."""
    a, b = (torch.stack([v & 15, v >> 4], -1).flatten(1) for v in (a, b))
    zero = torch.zeros(a.shape[0], b.shape[0], dtype=torch.int64)
    known = {"a_format": E2M1, "b_format": E2M1, "scale_format": E4M3, "block": 16}
    return scaled_matrices.dot(a, b.T, x, y, zero, **known, kind=FOUR)


def values(largest, scales):
    """Codes of elements up to `largest` with either sign, some rows of zeros, and scales of some binades."""

    def generate(sizes, rng):
        found = {}
        for name, rows in (("a", sizes["M"]), ("b", sizes["N"])):
            if largest == 0xFF:  # all pairs of e2m1
                found[name] = rng.integers(0, 256, (rows, sizes["KA"])).astype(np.uint8)
            else:
                codes = rng.integers(0, largest + 1, (rows, sizes["KA"])) | rng.integers(0, 2, (rows, sizes["KA"])) << 7
                found[name] = (codes * (rng.random((rows, 1)) < 0.9)).astype(np.uint8)
        for name, rows in (("x", sizes["M"]), ("y", sizes["N"])):
            found[name] = rng.integers(*scales, (rows, sizes["KX"])).astype(np.uint8)
        return found

    return generate


META = {"TILE": 128, "STEP": 128, "KIND": "e4m3", "BLOCK": 32, "EACH": 1}
mxfp8_matmul = Case(
    inputs={"a": E4M3["M", "KA"], "x": UE8M0["M", "KX"], "b": E4M3["N", "KA"], "y": UE8M0["N", "KX"]},
    outputs={"d": F32["M", "N"]},
    reference=mxfp8,
    generate=values(0x40, (126, 129)),  # to 2, and scales of 1/2 to 2: products to 16
    sizes=SIZES,
    variants={
        "dot_scaled": kernel(scaled, grid=tiles, meta=META),
        "dequantised": kernel(dequantised, grid=tiles, meta=META, match=absolute(2.0**-3, source=WHY.format(4, 8))),
    },
    targets=FIFTH,
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
        "dot_scaled": kernel(scaled, grid=tiles, meta=META_FOUR),
        "dequantised": kernel(
            dequantised, grid=tiles, meta=META_FOUR, match=absolute(2.0**-3, source=WHY.format(2, 8))
        ),
    },
    targets=FIFTH,
    family="matrix products",
    source="MMA-Sim, arXiv 2511.10909; PTX ISA, tcgen05.mma; NVIDIA, NVFP4",
)
