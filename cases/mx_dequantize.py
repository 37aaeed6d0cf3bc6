"""MXFP8, MXFP6 and MXFP4 to bfloat16 and float32: a whole kernel, and one instruction for an element and its scale."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, kernel, plain, since
from ptxdiff.references import arithmetic, block_scaling
from ptxdiff.references.formats import BF16, E2M1, E2M1X2, E2M3, E3M2, E4M3, E5M2, F32, UE8M0, Format

from ._device.blocks import power
from ._device.narrow import widened


@triton.jit
def dequantize(
    q, s, y, M, N, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, SPECIAL: tl.constexpr, COLUMNS: tl.constexpr
):
    """A row of COLUMNS elements per program; of two codes in a byte, the first is the low nibble."""
    i = tl.program_id(0)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if EXPONENT + MANTISSA == 3:
        codes = (tl.load(q + i * (N // 2) + j // 2, mask=j < N, other=0) >> ((j % 2) * 4).to(tl.uint8)) & 15
    else:
        codes = tl.load(q + i * N + j, mask=j < N, other=0)
    scale = power(tl.load(s + i * (N // 32) + j // 32, mask=j < N, other=0))
    product = widened(codes, EXPONENT, MANTISSA, SPECIAL) * scale
    tl.store(y + i * N + j, product.to(y.dtype.element_ty), mask=j < N)


@triton.jit
def scaled_element(q, s, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, SPECIAL: tl.constexpr):
    """The exact product in float32; its conversion is exact except for overflow."""
    return (widened(q, EXPONENT, MANTISSA, SPECIAL) * power(s)).to(tl.bfloat16)


NEW_PTXAS = tuple(int(n) for n in triton.__version__.split(".")[:2]) >= (3, 9)  # CUDA 12.9 has no scaled conversion
SPECIAL = {E4M3: 0x7F, E5M2: 0x7C, E2M3: 0x20, E3M2: 0x20, E2M1: 8}  # the first magnitude that is not a number
SOURCE = "OCP Microscaling Formats 1.0, 6.1; PTX ISA, cvt: .scaled::n2::ue8m0"


def fields(fmt: Format):
    """The constants of a format for the Triton functions."""
    return {"EXPONENT": fmt.exponent_bits, "MANTISSA": fmt.mantissa_bits, "SPECIAL": SPECIAL[fmt]}


def whole(fmt: Format, target: Format):
    """A tensor with its scales."""
    pairs = fmt is E2M1
    return Case(
        inputs={"q": E2M1X2["M", "N/2"] if pairs else fmt["M", "N"], "s": UE8M0["M", "N/32"]},
        outputs={"y": target["M", "N"]},
        reference=lambda q, s: block_scaling.mx_dequantize(q, s, source=fmt, target=target),
        sizes=[{"M": 1, "N": 32}, {"M": 9, "N": 96}, {"M": 12, "N": 288}],
        variants={
            "kernel": kernel(
                dequantize, grid=lambda v: (v["M"], -(-v["N"] // v["COLUMNS"])), meta={**fields(fmt), "COLUMNS": 128}
            )
        },
        family="block scaling",
        source=SOURCE,
    )


def element(fmt: Format):
    """A code with its scale to bfloat16; both operands of the instruction are pairs."""
    text = f"cvt.rn.scaled::n2::ue8m0.bf16x2.{fmt.name}x2 $0, $1, $2;"
    one = asm(text, targets=since("sm_100a"), refused=ALL - since("sm_100a"))
    return Case(
        inputs={"q": fmt, "s": UE8M0},
        outputs={"y": BF16},
        reference=lambda q, s: arithmetic.product(q, s, left=fmt, right=UE8M0, fmt=BF16),
        variants={
            **({"cvt.scaled": one} if NEW_PTXAS else {}),
            "triton": plain(scaled_element, constants=fields(fmt)),
        },
        family="block scaling",
        source=SOURCE,
    )


mxfp8, mxfp8_e5m2 = whole(E4M3, BF16), whole(E5M2, F32)
mxfp6, mxfp4 = whole(E2M3, F32), whole(E2M1, BF16)
elements = {fmt.name: element(fmt) for fmt in (E4M3, E5M2, E2M3, E3M2)}
