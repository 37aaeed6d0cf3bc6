"""Matrix products of e4m3 and e5m2 by tensor cores, in tiles of 64 rows, which Hopper multiplies by wgmma.

Hopper's `mma` has no 8-bit floats. `wgmma` keeps fewer bits of a sum than the tensor cores of other generations.
"""

import ml_dtypes
import triton.language as tl

from harness import ALL, Case, kernel, since
from references.formats import E4M3, E5M2, F32, Format
from references.tensor_core import HOPPER_WGMMA

from ._device.matmul import product
from ._host.products import SOURCE, TO, by, tiles, values

COARSE = "wgmma keeps 13 fraction bits of each 32 terms and of their sum; others add 16 terms so, or keep 25 bits"


def case_of(fmt: Format, dtype, type_: tl.dtype, targets):
    """One format: `dtype` is numpy's name of it, `type_` Triton's."""
    return Case(
        inputs={"a": fmt["M", "K"], "b": fmt["K", "N"]},
        outputs={"d": F32["M", "N"]},
        reference=by(HOPPER_WGMMA, fmt),
        generate=values(dtype),
        sizes=[{"M": 70, "N": 64, "K": 80}],
        variants={
            "tiles-of-64": kernel(
                product,
                grid=tiles,
                meta=TO | {"TILE": 64, "OF": type_},
                differs={t: COARSE for t in targets if t != "sm_90a"},
            ),
        },
        targets=targets,
        family="matrix products",
        source=SOURCE,
    )


e4m3 = case_of(E4M3, ml_dtypes.float8_e4m3fn, tl.float8e4nv, since("sm_89"))
e5m2 = case_of(E5M2, ml_dtypes.float8_e5m2, tl.float8e5, ALL)  # before sm_89 Triton multiplies float16
