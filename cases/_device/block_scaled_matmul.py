"""Products of block-scaled matrices in Triton: by tl.dot_scaled, and dequantised before tl.dot."""

import triton
import triton.language as tl


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
