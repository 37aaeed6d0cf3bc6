"""Matrix products by tensor cores, whole kernels: floats of 16 and 32 bits, with each generation's own bits.

A product's last bits depend on how a generation adds. So the kernel has two variants: one is judged by the tensor cores
from Hopper on, one by those of Ampere and Ada. Each declares that the others' bits differ, and both have the bits of
fused multiply-adds on Turing. Tiles are 32 x 32: small enough for `mma` also on Hopper and Blackwell, which use other
instructions for larger tiles.
"""

import ml_dtypes
import numpy as np

from ptxdiff import Case, Differs, kernel
from ptxdiff.references.formats import BF16, F16, F32, TF32
from ptxdiff.references.tensor_core import AMPERE, HOPPER

from ._device.matmul import product
from ._host.products import EIGHT, FUSED, NONE, SIXTEEN, SOURCE, TO, by, fused, in_steps, tiles, values

WHY = "its tensor cores add 16 bytes of a row at a time with 24 fraction bits, others 32 bytes with 25"


def floats(fmt, dtype, stored=None):
    """A case for a format, with a variant for each generation. `stored`: the format in memory, if it differs."""
    held = stored or fmt
    none = dict.fromkeys(NONE, Differs(FUSED, in_steps(fused(held))))
    return Case(
        inputs={"a": held["M", "K"], "b": held["K", "N"]},
        outputs={"d": F32["M", "N"]},
        reference=by(HOPPER, fmt),
        generate=values(dtype),
        sizes=[{"M": 17, "N": 40, "K": 80}],
        variants={
            "32-bytes": kernel(product, grid=tiles, meta=TO, differs=none | dict.fromkeys(EIGHT, WHY)),
            "16-bytes": kernel(
                product, grid=tiles, meta=TO, reference=by(AMPERE, fmt), differs=none | dict.fromkeys(SIXTEEN, WHY)
            ),
        },
        targets=NONE | EIGHT | SIXTEEN,
        family="matrix products",
        source=SOURCE,
    )


float16 = floats(F16, np.float16)
bfloat16 = floats(BF16, ml_dtypes.bfloat16)
tf32 = floats(TF32, np.float32, stored=F32)  # the hardware ignores the low 13 bits
