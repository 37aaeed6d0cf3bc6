"""Matrix products of e4m3 and e5m2 by tensor cores, in tiles of 64 rows, which Hopper multiplies by wgmma.

Hopper's `mma` has no 8-bit floats. `wgmma` keeps fewer bits of a sum than the tensor cores of other generations, which
judge the results on the other targets. Before sm_89 Triton multiplies float16.
"""

import ml_dtypes
import triton.language as tl

from ptxdiff import ALL, Case, Differs, kernel, since
from ptxdiff.references.formats import E4M3, E5M2, F32, Format
from ptxdiff.references.tensor_core import ADA, BLACKWELL, HOPPER_WGMMA

from ._device.matmul import product
from ._host.products import FUSED, HALVES, SOURCE, TO, by, fused, halves, in_steps, tiles, values


def elsewhere(fmt):
    """What targets without wgmma give. Hopper keeps 13 fraction bits of each 32 terms and of their sum."""
    found = dict.fromkeys(since("sm_100a"), Differs("keeps 25 fraction bits, not 13", by(BLACKWELL, fmt)))
    found |= {
        "sm_89": Differs("adds 16 terms at a time, not 32", by(ADA, fmt)),
        "sm_75": Differs(FUSED, in_steps(fused(fmt))),
    }
    return found | dict.fromkeys(("sm_80", "sm_86", "sm_87", "sm_88"), Differs(HALVES, in_steps(halves(fmt))))


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
                differs={t: other for t, other in elsewhere(fmt).items() if t in targets},
            ),
        },
        targets=targets,
        family="matrix products",
        source=SOURCE,
    )


e4m3 = case_of(E4M3, ml_dtypes.float8_e4m3fn, tl.float8e4nv, since("sm_89"))
e5m2 = case_of(E5M2, ml_dtypes.float8_e5m2, tl.float8e5, ALL)
