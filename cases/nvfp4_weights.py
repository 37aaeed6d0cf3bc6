"""NVFP4 to bfloat16 and float16, a whole kernel: two codes in a byte, e4m3 scales in 128 x 4 tiles, one scale per
tensor."""

import numpy as np
import triton
import triton.language as tl

from ptxdiff import ALL, Case, kernel, since
from ptxdiff.references import block_scaling
from ptxdiff.references.formats import BF16, E2M1X2, E4M3, F16, Format

from ._device.blocks import tiled_offset
from ._device.narrow import widened


@triton.jit
def nibbles_to_float(byte, HARDWARE: tl.constexpr):
    """The numbers of the low and of the high nibble."""
    if HARDWARE:
        convert: tl.constexpr = """
            {
                .reg .b8 pair;
                .reg .b16 low, high;
                .reg .b32 halves;
                cvt.u8.u32 pair, $2;
                cvt.rn.f16x2.e2m1x2 halves, pair;
                mov.b32 {low, high}, halves;
                cvt.f32.f16 $0, low;
                cvt.f32.f16 $1, high;
            }
        """
        word = byte.to(tl.uint32)
        return tl.inline_asm_elementwise(
            convert, "=&f,=f,r", [word], dtype=(tl.float32, tl.float32), is_pure=True, pack=1
        )
    return widened(byte & 15, 2, 1, 8), widened(byte >> 4, 2, 1, 8)


@triton.jit
def dequantize(q, s, y, M, N, DECODE: tl.constexpr, HARDWARE: tl.constexpr, COLUMNS: tl.constexpr):
    """A row of COLUMNS bytes per program. The product of element and block scale is exact."""
    i = tl.program_id(0)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = j < N // 2
    low, high = nibbles_to_float(tl.load(q + i * (N // 2) + j, mask=inside, other=0), HARDWARE)
    codes = tl.load(s + tiled_offset(i, j // 8, tl.cdiv(N, 64)), mask=inside, other=0)
    scale = widened(codes, 4, 3, 0x7F)
    tl.store(y + i * N + 2 * j, (low * scale * DECODE).to(y.dtype.element_ty), mask=inside)
    tl.store(y + i * N + 2 * j + 1, (high * scale * DECODE).to(y.dtype.element_ty), mask=inside)


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
