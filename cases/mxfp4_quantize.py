"""MXFP4 quantisation, a whole kernel: blocks of 32 become two codes in a byte and a ue8m0 scale, by three rules."""

import numpy as np
import triton
import triton.language as tl

from ptxdiff import ALL, Case, kernel, since
from ptxdiff.references import block_scaling, conversion
from ptxdiff.references.formats import BF16, E2M1, E2M1X2, F16, F32, UE8M0, Format

from ._device.blocks import e2m1_pairs, inverse_power, largest_magnitude, mx_scale


@triton.jit
def quantize(x, q, s, M, N, RULE: tl.constexpr, RATIO: tl.constexpr, HARDWARE: tl.constexpr, COLUMNS: tl.constexpr):
    """A row of COLUMNS elements per program."""
    i = tl.program_id(0)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    values = tl.load(x + i * N + j, mask=j < N, other=0.0).to(tl.float32)
    blocks = tl.reshape(values, (1, COLUMNS // 32, 32))
    scale = mx_scale(largest_magnitude(blocks), RULE, 2, 1, RATIO)
    pairs = tl.reshape(blocks * inverse_power(scale)[:, :, None], (COLUMNS // 2, 2))
    low, high = tl.split(pairs)
    jq = tl.program_id(1) * (COLUMNS // 2) + tl.arange(0, COLUMNS // 2)
    tl.store(q + i * (N // 2) + jq, e2m1_pairs(low, high, HARDWARE), mask=jq < N // 2)
    k = tl.program_id(1) * (COLUMNS // 32) + tl.arange(0, COLUMNS // 32)
    codes = tl.reshape(scale, (COLUMNS // 32,)).to(tl.uint8)
    tl.store(s + i * (N // 32) + k, codes, mask=k < N // 32)


def case_of(source: Format):
    """Variants for one source format; rceil uses the float32 reciprocal of 6, as torchao does."""

    def variant(rule, hardware=False, **policies):
        ratio = {"rceil": float(np.float32(1) / np.float32(6)), "rceil-div": 6.0}.get(rule, 0.0)

        def reference(x):
            single = conversion.convert(x, source=source, target=F32)
            return block_scaling.mx_quantize(single, target=E2M1, rule=rule)

        return kernel(
            quantize,
            grid=lambda v: (v["M"], -(-v["N"] // v["COLUMNS"])),
            meta={"RULE": rule, "RATIO": ratio, "HARDWARE": hardware, "COLUMNS": 128},
            reference=reference,
            **policies,
        )

    rules = ("floor", "even", "rceil", "rceil-div") if source is BF16 else ("floor",)
    floor = variant("floor")
    return Case(
        inputs={"x": source["M", "N"]},
        outputs={"q": E2M1X2["M", "N/2"], "s": UE8M0["M", "N/32"]},
        reference=floor.reference,
        sizes=[{"M": 1, "N": 32}, {"M": 9, "N": 96}, {"M": 12, "N": 288}],
        variants={
            "floor-cvt": variant("floor", True, targets=since("sm_100a"), refused=ALL - since("sm_100a")),
            **{f"{rule}-integers": variant(rule) for rule in rules},
        },
        family="block scaling",
        source="OCP Microscaling Formats 1.0, 6.3; torchao, ScaleCalculationMode; cuBLAS, 1D block scaling",
    )


bf16, f16, f32 = case_of(BF16), case_of(F16), case_of(F32)
