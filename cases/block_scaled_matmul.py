"""Products of block-scaled matrices, MXFP8 and NVFP4, in a kernel's tiles.

tl.dot_scaled uses one instruction for 32 or 64 elements along k, with the bits of its published model, and on targets
without it a product of bfloat16. The other variant multiplies dequantised numbers in bfloat16 or float16. Both have the
bits of the target's tensor cores. On the generated inputs they differ by at most `BOUND`, which a test checks.
"""

import triton
import triton.language as tl

from ptxdiff import Case, kernel, since
from ptxdiff.references.formats import E4M3, F32, U8, UE8M0

from ._host.block_scaled_matmul import MXFP8_PLAIN, MXFP8_SCALED, NVFP4_PLAIN, NVFP4_SCALED, mxfp8, nvfp4, values


@triton.jit
def scaled(
    a, x, b, y, d, M, N, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr, KIND: tl.constexpr,
    BLOCK: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """One tile of d = (a x) (b y); b is N x K. EACH: elements per byte. Sizes are multiples of the tile's."""
    m, n = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for start in range(0, K, STEP):
        k, g = start // EACH + tl.arange(0, STEP // EACH), start // BLOCK + tl.arange(0, STEP // BLOCK)
        left = tl.load(a + m[:, None] * (K // EACH) + k[None, :])
        right = tl.load(b + n[None, :] * (K // EACH) + k[:, None])
        of_left = tl.load(x + m[:, None] * (K // BLOCK) + g[None, :])
        of_right = tl.load(y + n[:, None] * (K // BLOCK) + g[None, :])
        if BLOCK == 16:
            of_left, of_right = of_left.to(tl.float8e4nv, bitcast=True), of_right.to(tl.float8e4nv, bitcast=True)
        total = tl.dot_scaled(left, of_left, KIND, right, of_right, KIND, total)
    tl.store(d + m[:, None] * N + n[None, :], total)


@triton.jit
def dequantised(
    a, x, b, y, d, M, N, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr, KIND: tl.constexpr,
    BLOCK: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """The same; element times scale is exact in the type that tl.dot multiplies, bfloat16 or float16."""
    m, n = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for start in range(0, K, STEP):
        k = start + tl.arange(0, STEP)
        left = number(tl.load(a + m[:, None] * (K // EACH) + k[None, :] // EACH), k[None, :], EACH)
        right = number(tl.load(b + n[None, :] * (K // EACH) + k[:, None] // EACH), k[:, None], EACH)
        left *= scale(tl.load(x + m[:, None] * (K // BLOCK) + k[None, :] // BLOCK), BLOCK)
        right *= scale(tl.load(y + n[None, :] * (K // BLOCK) + k[:, None] // BLOCK), BLOCK)
        TYPE: tl.constexpr = tl.bfloat16 if EACH == 1 else tl.float16
        total = tl.dot(left.to(TYPE), right.to(TYPE), total)
    tl.store(d + m[:, None] * N + n[None, :], total)


@triton.jit
def number(code, k, EACH: tl.constexpr):
    """float32 of an e4m3 code, or of one of two e2m1 codes in a byte, which k selects."""
    if EACH == 1:
        return code.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    four = (code >> (k % 2 * 4).to(tl.uint8)) & 15
    field, low = (four >> 1 & 3).to(tl.float32), (four & 1).to(tl.float32)
    size = tl.where(field == 0, low * 0.5, (1 + low * 0.5) * tl.where(field == 3, 4.0, field))
    return tl.where(four > 7, -size, size)


@triton.jit
def scale(code, BLOCK: tl.constexpr):
    """float32 of a scale: e4m3, or ue8m0, whose lowest code is a subnormal number, and whose highest is NaN."""
    if BLOCK == 16:
        return code.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    wide = code.to(tl.uint32)
    bits = tl.where(wide == 0, 0x400000, tl.where(wide == 255, 0x7FC00000, wide << 23))
    return bits.to(tl.uint32).to(tl.float32, bitcast=True)


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
