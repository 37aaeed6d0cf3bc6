"""Matrix products by tensor cores, whole kernels: floats of 8 to 32 bits, with each generation's own bits, and int8.

A product's last bits depend on how a generation adds. So there are two variants, the same kernel: one held to the
tensor cores from Hopper on, one to those of Ampere and Ada. Each says that the others' bits differ. Tiles are 32 x 32:
small enough for `mma` on Hopper and Blackwell too, where larger ones become other instructions. Integers are exact,
and the same everywhere.
"""

import ml_dtypes
import numpy as np
import torch
import triton
import triton.language as tl

from harness import Case, kernel, only, since
from references import tensor_core
from references.formats import BF16, E4M3, F16, F32, I8, I32, TF32
from references.tensor_core import AMPERE, HOPPER, HOPPER_WGMMA


@triton.jit
def product(a, b, d, M, N, K, TILE: tl.constexpr, STEP: tl.constexpr, TO: tl.constexpr, OF: tl.constexpr = None):
    """One tile of d = a b; sizes need not be multiples of the tile's. OF: the type of a's and b's bytes."""
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), dtype=TO)
    for start in range(0, K, STEP):
        k = start + tl.arange(0, STEP)
        left = tl.load(a + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0)
        right = tl.load(b + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0)
        if OF is not None:
            left, right = left.to(OF, bitcast=True), right.to(OF, bitcast=True)
        total = tl.dot(left, right, total, out_dtype=TO)
    tl.store(d + m * N + n, total, mask=(m < M) & (n < N))


def tiles(values):
    """A program for each tile of d."""
    return (-(-values["M"] // values["TILE"]), -(-values["N"] // values["TILE"]))


def padded(x, rows, columns):
    """Zeros up to whole steps: what the kernel reads beyond its inputs, and what zero terms count for."""
    return torch.nn.functional.pad(x, (0, columns - x.shape[1], 0, rows - x.shape[0]))


STEP = 32


def by(generation, fmt):
    """The product of a generation, from zero, in steps of STEP."""

    def reference(a, b):
        k = -(-a.shape[1] // STEP) * STEP
        a, b = padded(a, a.shape[0], k), padded(b, k, b.shape[1])
        zero = torch.zeros(a.shape[0], b.shape[1], dtype=torch.int64, device=a.device)
        return tensor_core.dot(a, b, zero, a_format=fmt, b_format=fmt, generation=generation)

    return reference


def values(dtype):
    """Numbers over some binades, some zero, and rows that cancel but for their last terms."""

    def generate(sizes, rng):
        found = {}
        for name, shape in (("a", (sizes["M"], sizes["K"])), ("b", (sizes["K"], sizes["N"]))):
            x = rng.normal(size=shape) * np.exp2(rng.integers(-6, 6, size=shape)) * (rng.random(shape) < 0.9)
            found[name] = x
        half = sizes["K"] // 2
        found["a"][::3, half : 2 * half] = -found["a"][::3, :half]
        found["b"][half : 2 * half] = found["b"][:half] * (1 + np.exp2(rng.integers(-12, -6, size=(half, 1))))
        return {n: x.astype(dtype).view(f"u{np.dtype(dtype).itemsize}") for n, x in found.items()}

    return generate


EIGHT = only("sm_80", "sm_86", "sm_87", "sm_88", "sm_89")
SIXTEEN = only("sm_90a", "sm_100a", "sm_101a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a")
NONE = {"sm_75": "Triton makes fused multiply-adds of it"}
WHY = "its tensor cores add 16 bytes of a row at a time with 24 fraction bits, others 32 bytes with 25"
SIZES = [{"M": 17, "N": 40, "K": 80}]
SOURCE = "MMA-Sim, arXiv 2511.10909; PTX ISA, mma"
TO = {"TILE": 32, "STEP": STEP, "TO": tl.float32}


def floats(fmt, dtype, stored=None):
    """A case for a format, with a variant for each generation. `stored`: the format in memory, where it is another."""
    held = stored or fmt
    return Case(
        inputs={"a": held["M", "K"], "b": held["K", "N"]},
        outputs={"d": F32["M", "N"]},
        reference=by(HOPPER, fmt),
        generate=values(dtype),
        sizes=SIZES,
        variants={
            "32-bytes": kernel(product, grid=tiles, meta=TO, differs=NONE | dict.fromkeys(EIGHT, WHY)),
            "16-bytes": kernel(
                product, grid=tiles, meta=TO, reference=by(AMPERE, fmt), differs=NONE | dict.fromkeys(SIXTEEN, WHY)
            ),
        },
        targets=only(*NONE) | EIGHT | SIXTEEN,
        family="matrix products",
        source=SOURCE,
    )


float16 = floats(F16, np.float16)
bfloat16 = floats(BF16, ml_dtypes.bfloat16)
tf32 = floats(TF32, np.float32, stored=F32)  # the hardware ignores the low 13 bits


def integer_product(a, b):
    """Exact sums of products, wrapped to 32 bits."""
    zero = torch.zeros(a.shape[0], b.shape[1], dtype=torch.int64, device=a.device)
    return tensor_core.dot_integer(a, b, zero, a_format=I8, b_format=I8, to=I32)


int8 = Case(
    inputs={"a": I8["M", "K"], "b": I8["K", "N"]},
    outputs={"d": I32["M", "N"]},
    reference=integer_product,
    sizes=SIZES,
    variants={"tiles-of-32": kernel(product, grid=tiles, meta={"TILE": 32, "STEP": STEP, "TO": tl.int32})},
    targets=EIGHT | SIXTEEN,
    source=SOURCE,
)


WITH_E4M3 = since("sm_89")
COARSE = "wgmma keeps 13 fraction bits of each 32 terms and of their sum; others add 16 terms so, or keep 25 bits"
e4m3 = Case(
    inputs={"a": E4M3["M", "K"], "b": E4M3["K", "N"]},
    outputs={"d": F32["M", "N"]},
    reference=by(HOPPER_WGMMA, E4M3),
    generate=values(ml_dtypes.float8_e4m3fn),
    sizes=[{"M": 70, "N": 64, "K": 80}],
    variants={
        # Tiles of 64 rows, so that Hopper multiplies by wgmma: its mma has no floats of 8 bits.
        "tiles-of-64": kernel(
            product,
            grid=tiles,
            meta=TO | {"TILE": 64, "OF": tl.float8e4nv},
            differs={t: COARSE for t in WITH_E4M3 if t != "sm_90a"},
        ),
    },
    targets=WITH_E4M3,
    source=SOURCE,
)
