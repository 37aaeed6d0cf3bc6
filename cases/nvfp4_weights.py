"""NVFP4 to bfloat16 and float16, a whole kernel: two codes in a byte, e4m3 scales in 128 x 4 tiles, one scale per
tensor."""

import numpy as np

from ptxdiff import ALL, Case, kernel, since
from ptxdiff.references import block_scaling
from ptxdiff.references.formats import BF16, E2M1X2, E4M3, F16, Format

from ._device.nvfp4_weights import dequantize

DECODE = float(np.float32(1.0) / np.float32(1536.0))  # the nearest float32: rounding to it is part of the recipe


def case_of(target: Format):
    """The variants of one target; the conversion of two codes exists from Blackwell on."""

    def reference(q, s):
        scales = block_scaling.untiled_scales(s, rows=q.shape[0], columns=q.shape[1] // 16)
        return block_scaling.nvfp4_dequantize(q, scales, decode_scale=DECODE, target=target)

    def variant(hardware, **policies):
        meta = {"DECODE": DECODE, "HARDWARE": hardware, "COLUMNS": 64}
        return kernel(dequantize, grid=lambda v: (v["M"], -(-v["N"] // 128)), meta=meta, **policies)

    return Case(
        inputs={"q": E2M1X2["M", "N/2"], "s": E4M3["ceil(M/128)*ceil(N/64)*512"]},
        outputs={"y": target["M", "N"]},
        reference=reference,
        sizes=[{"M": 1, "N": 16}, {"M": 33, "N": 144}, {"M": 130, "N": 64}],
        variants={
            "cvt": variant(True, targets=since("sm_100a"), refused=ALL - since("sm_100a")),
            "integers": variant(False),
        },
        family="block scaling",
        source="NVFP4: e2m1 values, an e4m3 scale a block of 16, one float32 scale a tensor; cuBLAS, layouts",
    )


bf16, f16 = case_of(BF16), case_of(F16)
