"""NVFP4 quantisation as four libraries compute it, with scales in the 128 x 4 tiles that tensor cores read."""

import numpy as np
import triton
import triton.language as tl

from ptxdiff import ALL, Case, kernel, since
from ptxdiff.references import block_scaling, conversion
from ptxdiff.references.formats import BF16, E2M1X2, E4M3, F16, F32, Format

from ._device.blocks import e2m1_pairs, tiled_offset
from ._device.narrow import narrowed, widened


@triton.jit
def quantize(
    x, q, s, M, N, RULE: tl.constexpr, ENCODE: tl.constexpr, SIXTH: tl.constexpr, INVERSE: tl.constexpr,
    HARDWARE: tl.constexpr,
):  # fmt: skip
    """A tile of scales per program: 128 rows of 64 elements. Its padding is zero."""
    row = tl.program_id(0) * 128 + tl.arange(0, 128)[:, None]
    j = tl.program_id(1) * 64 + tl.arange(0, 64)[None, :]
    values = tl.load(x + row * N + j, mask=(row < M) & (j < N), other=0.0).to(tl.float32)
    blocks = tl.reshape(values, (128, 4, 16))
    amax = tl.max(tl.abs(blocks), 2)
    six = tl.full(amax.shape, 6.0, tl.float32)
    if RULE == "torchao":
        bits = tl.max(blocks.to(tl.uint32, bitcast=True) & 0x7FFFFFFF, 2)  # keeps NaN
        decode = tl.div_rn(tl.div_rn(bits.to(tl.float32, bitcast=True), six), tl.full(amax.shape, INVERSE, tl.float32))
        decode = tl.where(decode < 0.015625, 0.015625, decode)
    elif RULE == "divide":
        decode = tl.div_rn(amax, six) * ENCODE
    elif RULE == "transformer-engine":
        decode = tl.maximum(amax, 0.0) * (SIXTH * tl.full(amax.shape, ENCODE, tl.float32))
    else:
        decode = ENCODE * (amax * SIXTH)
    code = narrowed(decode, 4, 3, 0x7E, 0x7F)
    scale = widened(code, 4, 3, 0x7F)
    if RULE == "torchao":
        scaled = tl.div_rn(blocks, tl.broadcast_to((scale * INVERSE)[:, :, None], blocks.shape))
    else:
        if RULE == "divide":
            factor = tl.div_rn(tl.full(amax.shape, ENCODE, tl.float32), scale)
        else:
            factor = tl.div_rn(tl.full(amax.shape, 1.0, tl.float32), scale * INVERSE)
        factor = tl.where(scale == 0.0, 3.4028234663852886e38 if RULE == "transformer-engine" else 0.0, factor)
        scaled = blocks * factor[:, :, None]
    low, high = tl.split(tl.reshape(scaled, (128, 32, 2)))
    jq = tl.program_id(1) * 32 + tl.arange(0, 32)[None, :]
    tl.store(q + row * (N // 2) + jq, e2m1_pairs(low, high, HARDWARE), mask=(row < M) & (jq < N // 2))
    column = tl.program_id(1) * 4 + tl.arange(0, 4)[None, :]
    inside = (row < M) & (column < N // 16)
    tl.store(s + tiled_offset(row, column, tl.cdiv(N, 64)), tl.where(inside, code, 0).to(tl.uint8))


# The encode scale, 448 * 6 over the tensor's largest magnitude. With 1.5 elements land on ties of e2m1.
ENCODE = {BF16: 1.5, F16: 1.5, F32: float(np.float32(27.1))}
# Largest magnitudes whose scale lies within an ulp of a tie, so that the order of the roundings matters.
NEAR_TIES = (0x41069CCF, 0x40DBA188, 0x4170E2B8)


def variant(source: Format, rule, hardware=False, **policies):
    """One recipe, with its constants as float32 numbers."""
    sixth, inverse = (float(np.float32(1) / np.float32(d)) for d in (6.0, ENCODE[source]))

    def reference(x):
        single = conversion.convert(x, source=source, target=F32)
        codes, scales = block_scaling.nvfp4_quantize(single, encode_scale=ENCODE[source], rule=rule)
        return codes, block_scaling.tiled_scales(scales)

    return kernel(
        quantize,
        grid=lambda v: (-(-v["M"] // 128), -(-v["N"] // 64)),
        meta={"RULE": rule, "ENCODE": ENCODE[source], "SIXTH": sixth, "INVERSE": inverse, "HARDWARE": hardware},
        reference=reference,
        **policies,
    )


def near_ties(sizes, rng):
    """Ordinary blocks, and in every second one a largest magnitude near a tie."""
    x = rng.normal(size=(sizes["M"], sizes["N"])).astype(np.float32)
    blocks = x.reshape(-1, 16)
    blocks[::2, 5] = rng.choice(np.array(NEAR_TIES, np.uint32), size=len(blocks[::2])).view(np.float32)
    return {"x": x.view(np.uint32)}


def case_of(source: Format, *rules: str, **more):
    """Rules with integer conversions, and the first also with the hardware's."""
    first = variant(source, rules[0], True, targets=since("sm_100a"), refused=ALL - since("sm_100a"))
    return Case(
        inputs={"x": source["M", "N"]},
        outputs={"q": E2M1X2["M", "N/2"], "s": E4M3["ceil(M/128)*ceil(N/64)*512"]},
        reference=first.reference,
        sizes=[{"M": 1, "N": 16}, {"M": 40, "N": 80}, {"M": 130, "N": 64}],
        variants={f"{rules[0]}-cvt": first, **{f"{rule}-integers": variant(source, rule) for rule in rules}},
        family="block scaling",
        **more,
        source="torchao, nvfp4_tensor; TransformerEngine, core_nvfp4; FlashInfer, cvt_warp_fp16_to_fp4; cuBLAS",
    )


bf16 = case_of(BF16, "divide", "transformer-engine", "flashinfer", "torchao")
f16, f32 = case_of(F16, "flashinfer"), case_of(F32, "transformer-engine", "torchao", generate=near_ties)
