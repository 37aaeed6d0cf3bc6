"""NVFP4 quantisation, a whole kernel: blocks of 16 bfloat16 become e2m1 codes, two in a byte, and an e4m3 scale."""

import torch

from ptxdiff import ALL, Case, kernel, only, since
from ptxdiff.references import arithmetic, conversion
from ptxdiff.references.formats import BF16, E2M1X2, E4M3, F32, encode

from ._device.nvfp4_quantize import quantize
from ._host.inputs import activations

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
