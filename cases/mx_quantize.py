"""MXFP8 and MXFP6 quantisation, whole kernels: blocks of 32 become bytes and a ue8m0 scale, by four rules."""

import numpy as np
import triton
import triton.language as tl

from ptxdiff import Case, kernel, since
from ptxdiff.references import block_scaling, conversion
from ptxdiff.references.formats import BF16, E2M3, E3M2, E4M3, E5M2, F16, F32, UE8M0, Format, fraction

from ._device.blocks import inverse_power, largest_magnitude, mx_scale, to_bytes
from ._host.formats import fields


@triton.jit
def quantize(
    x, q, s, M, N,
    RULE: tl.constexpr, EMAX: tl.constexpr, RATIO: tl.constexpr, ASM: tl.constexpr, EXPONENT: tl.constexpr,
    MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One tile of ROWS x COLUMNS. The scale is a power of two, so the product with its inverse is exact."""
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(x + i * N + j, mask=(i < M) & (j < N), other=0.0).to(tl.float32)
    blocks = tl.reshape(values, (ROWS, COLUMNS // 32, 32))
    scale = mx_scale(largest_magnitude(blocks), RULE, EMAX, MANTISSA, RATIO)
    scaled = tl.reshape(blocks * inverse_power(scale)[:, :, None], (ROWS, COLUMNS))
    tl.store(q + i * N + j, to_bytes(scaled, ASM, EXPONENT, MANTISSA, LARGEST, NAN), mask=(i < M) & (j < N))
    k = tl.program_id(1) * (COLUMNS // 32) + tl.arange(0, COLUMNS // 32)[None, :]
    tl.store(s + i * (N // 32) + k, scale.to(tl.uint8), mask=(i < M) & (k < N // 32))


def case_of(source: Format, fmt: Format, first: str):
    """`first`: the first target with the conversion from float32."""
    largest = np.float32(float(fraction(fmt, fmt.max_finite)))
    meta = {"EMAX": block_scaling.largest_exponent(fmt), **fields(fmt), "ROWS": 4, "COLUMNS": 64}
    asm = f"{{ .reg .b16 t; cvt.rn.satfinite.{fmt.name}x2.f32 t, $2, $1; cvt.u32.u16 $0, t; }}"

    def reference(rule):
        def quantized(x):
            single = conversion.convert(x, source=source, target=F32)
            return block_scaling.mx_quantize(single, target=fmt, rule=rule)

        return quantized

    def variant(rule, text="", **policies):
        ratio = {"rceil": float(np.float32(1) / largest), "rceil-div": float(largest)}.get(rule, 0.0)
        return kernel(
            quantize,
            grid=lambda v: (-(-v["M"] // v["ROWS"]), -(-v["N"] // v["COLUMNS"])),
            meta={**meta, "RULE": rule, "RATIO": ratio, "ASM": text},
            reference=reference(rule),
            **policies,
        )

    rules = ("floor", "rceil", "rceil-div", "even") if source is BF16 else ("floor", "rceil")
    return Case(
        inputs={"x": source["M", "N"]},
        outputs={"q": fmt["M", "N"], "s": UE8M0["M", "N/32"]},
        reference=reference("floor"),
        sizes=[{"M": 1, "N": 32}, {"M": 9, "N": 96}, {"M": 16, "N": 192}],
        variants={
            "floor-cvt": variant("floor", asm, targets=since(first)),
            **{f"{rule}-integers": variant(rule) for rule in rules},
        },
        family="block scaling",
        source="OCP Microscaling Formats 1.0, 6.3; torchao, ScaleCalculationMode; cuBLAS, 1D block scaling",
    )


mxfp8_bf16, mxfp8_f32 = case_of(BF16, E4M3, "sm_89"), case_of(F32, E4M3, "sm_89")
mxfp8_e5m2_f16 = case_of(F16, E5M2, "sm_89")
mxfp6_e2m3_bf16, mxfp6_e3m2_f32 = case_of(BF16, E2M3, "sm_100a"), case_of(F32, E3M2, "sm_100a")
