"""NVFP4 quantisation, a whole kernel: blocks of 16 bfloat16 become e2m1 codes, two in a byte, and an e4m3 scale."""

import torch
import triton
import triton.language as tl

from ptxdiff import ALL, Case, kernel, only, since
from ptxdiff.references import arithmetic, conversion
from ptxdiff.references.formats import BF16, E2M1X2, E4M3, F32, encode

from ._device.blocks import e2m1_pairs
from ._host.inputs import activations


@triton.jit
def quantize(x, q, s, M, N, GLOBAL: tl.constexpr, HARDWARE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One tile of ROWS x COLUMNS. Divisions are correctly rounded, so that every byte has one correct value."""
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(x + i * N + j, mask=(i < M) & (j < N), other=0.0).to(tl.float32)
    blocks = tl.reshape(values, (ROWS, COLUMNS // 16, 16))
    decode = tl.div_rn(tl.max(tl.abs(blocks), 2), tl.full((ROWS, COLUMNS // 16), 6.0, tl.float32)) * GLOBAL
    scale = tl.minimum(decode, 448.0).to(tl.float8e4nv)
    wide = scale.to(tl.float32)
    encode = tl.where(wide == 0.0, 0.0, tl.div_rn(tl.full((ROWS, COLUMNS // 16), GLOBAL, tl.float32), wide))
    low, high = tl.split(tl.reshape(blocks * encode[:, :, None], (ROWS, COLUMNS // 2, 2)))
    jq = tl.program_id(1) * (COLUMNS // 2) + tl.arange(0, COLUMNS // 2)[None, :]
    tl.store(q + i * (N // 2) + jq, e2m1_pairs(low, high, HARDWARE), mask=(i < M) & (jq < N // 2))
    js = tl.program_id(1) * (COLUMNS // 16) + tl.arange(0, COLUMNS // 16)[None, :]
    tl.store(s + i * (N // 16) + js, scale.to(tl.uint8, bitcast=True), mask=(i < M) & (js < N // 16))


GLOBAL = 24.0  # the encode scale of the whole tensor: 6 * 448 over its largest magnitude, here 112

FP4 = only("sm_100a", "sm_101a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a")


def reference(x):
    """The same recipe on codes. max and min without .NaN prefer a number, so a block's scale ignores NaN."""
    m, n = x.shape
    blocks = (x << 16).reshape(m, n // 16, 16)
    amax = arithmetic.absolute(blocks[..., 0])
    for k in range(1, 16):
        amax = arithmetic.maximum(amax, arithmetic.absolute(blocks[..., k]))

    def constant(value):
        return torch.full_like(amax, encode(F32, value))

    decode = arithmetic.mul(arithmetic.div(amax, constant(6.0)), constant(GLOBAL))
    limited = arithmetic.minimum(decode, constant(448.0))
    scale = conversion.convert(limited, source=F32, target=E4M3, satfinite=True)
    wide = conversion.convert(scale, source=E4M3, target=F32)
    inverse = torch.where((wide & 0x7FFFFFFF) == 0, 0, arithmetic.div(constant(GLOBAL), wide))
    scaled = arithmetic.mul(blocks, inverse[..., None].expand_as(blocks))
    return conversion.to_e2m1(scaled).reshape(m, n), scale


def tiles(values):
    """A program for each tile."""
    return (-(-values["M"] // values["ROWS"]), -(-values["N"] // values["COLUMNS"]))


TILE = {"GLOBAL": GLOBAL, "ROWS": 8, "COLUMNS": 64}

case = Case(
    inputs={"x": BF16["M", "N"]},
    outputs={"q": E2M1X2["M", "N/2"], "s": E4M3["M", "N/16"]},
    reference=reference,
    generate=activations,
    sizes=[{"M": 1, "N": 16}, {"M": 7, "N": 48}, {"M": 33, "N": 512}],
    variants={
        "cvt": kernel(quantize, grid=tiles, meta={**TILE, "HARDWARE": True}, targets=FP4, refused=ALL - FP4),
        "integers": kernel(quantize, grid=tiles, meta={**TILE, "HARDWARE": False}, targets=since("sm_89")),
    },
    family="block scaling",
    source="NVFP4: e2m1 values, an e4m3 scale a block of 16, one float32 scale a tensor; PTX ISA, cvt",
)
