"""float16 times int4 minus 8: weights widened by lop3, or by Triton, before the tensor cores.

The widening is exact, so the bits are those of a float16 product, which depend on the generation.
"""

import numpy as np

from ptxdiff import Case, Differs, kernel
from ptxdiff.references import dequantise
from ptxdiff.references.formats import F16, F32, U16
from ptxdiff.references.tensor_core import AMPERE, HOPPER

from ._device.matmul_int4 import product
from ._host.products import EIGHT, FUSED, NONE, SIXTEEN, STEP, cores, fused, in_steps, tiles, values

WHY = "its tensor cores add 16 bytes of a row at a time with 24 fraction bits, others 32 bytes with 25"


def widened(multiply):
    """The product with the numbers that the nibbles stand for, the lowest first. multiply: a b + c in float16."""

    def reference(a, q):
        return in_steps(multiply)(a, dequantise.integers(q, bits=4, width=16, zero=8))

    return reference


def weights(sizes, rng):
    """Activations as for other products, and random weights."""
    activations = values(np.float16)(sizes, rng)["a"]
    return {"a": activations, "q": rng.integers(0, 1 << 16, size=(sizes["K"], sizes["N"] // 4), dtype=np.uint16)}


def variant(lop3: bool):
    """One way to widen the weights."""
    eight, none = Differs(WHY, widened(cores(AMPERE, F16))), Differs(FUSED, widened(fused(F16)))
    meta = {"TILE": 32, "STEP": STEP, "LOP3": lop3}
    return kernel(product, grid=tiles, meta=meta, differs=dict.fromkeys(EIGHT, eight) | dict.fromkeys(NONE, none))


case = Case(
    inputs={"a": F16["M", "K"], "q": U16["K", "N/4"]},
    outputs={"d": F32["M", "N"]},
    reference=widened(cores(HOPPER, F16)),
    generate=weights,
    sizes=[{"M": 17, "N": 40, "K": 80}],
    variants={"lop3": variant(True), "triton": variant(False)},
    targets=NONE | EIGHT | SIXTEEN,
    family="matrix products",
    source="Kim et al., Who says elephants can't run, 2022; MMA-Sim, arXiv 2511.10909; PTX ISA, lop3 and mma",
)
