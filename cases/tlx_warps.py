"""TLX's warp_redux: the largest and smallest number of a warp, and a reduction of rows in plain Triton."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, kernel, module_of_build, only
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32

from ._device.tlx_warps import reduced

tlx = module_of_build("triton.language.extra.tlx")
REDUX = only("sm_100a", "sm_103a")
OPERATIONS = {"max": arithmetic.maximum, "min": arithmetic.minimum}


@triton.jit
def redux(x, y, n: tl.constexpr, OPERATION: tl.constexpr):
    """One element per thread, so that a warp has 32 consecutive elements."""
    i = tl.arange(0, n)
    tl.store(y + i, tlx.warp_redux(tl.load(x + i), OPERATION))


def of_warps(operation: str):
    """ISA, redux.sync: NaN only if all are NaN, and then the canonical one; +0 > -0; .abs is applied first."""

    def reference(x):
        rows = (x & 0x7FFFFFFF if operation.startswith("abs") else x).reshape(-1, 32)
        found = rows[:, 0]
        for k in range(1, 32):
            found = OPERATIONS[operation[-3:]](found, rows[:, k])
        return found.repeat_interleave(32)

    return reference


reductions = {
    operation: Case(
        inputs={"x": F32["n"]},
        outputs={"y": F32["n"]},
        reference=of_warps(operation),
        sizes=[{"n": 128}],
        variants={
            "tlx": kernel(
                redux, grid=(1,), meta={"OPERATION": operation}, compiler="tlx", targets=REDUX, refused=ALL - REDUX
            ),
            "triton": kernel(reduced, grid=(1,), meta={"OPERATION": operation}),
        },
        family="warps",
        source="PTX ISA, redux.sync",
    )
    for operation in ("max", "min", "abs_max", "abs_min")
}
