"""TLX's stoch_round of fbtriton 3.7.4, of float32 to four formats: its packed results are reversed or undefined."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, ExpectedFailure, either, kernel, module_of_build, only, since
from ptxdiff.references import stochastic
from ptxdiff.references.formats import BF16, E4M3, E5M2, F16, F32, U32, Format

from ._device.narrow import stochastically_narrowed
from ._host.expected import neighbour
from ._host.formats import fields


@triton.jit
def in_integers(
    x, rbits, y, n: tl.constexpr, BITS: tl.constexpr, PLACES: tl.constexpr, EXPONENT: tl.constexpr,
    MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr,
):  # fmt: skip
    """Plain Triton, for any GPU: each element with the low bits of its own random word."""
    i = tl.arange(0, n)
    random = tl.load(rbits + i) & ((1 << PLACES) - 1)
    code = stochastically_narrowed(tl.load(x + i), random, PLACES, EXPONENT, MANTISSA, LARGEST, NAN)
    tl.store((y + i).to(tl.pointer_type(tl.uint16 if BITS == 16 else tl.uint8), bitcast=True), code)


REVERSED = ExpectedFailure(
    "results reversed within registers",
    reason="stoch_round hands elements to cvt.rs in their own order, and the ISA puts the first source on top",
)


UNDEFINED = ExpectedFailure(
    "undefined bits stored",
    reason="of two elements a thread, stoch_round to 8 bits stores what cvt.rs.x4 made of two registers nobody wrote",
)


tlx = module_of_build("triton.language.extra.tlx")
RS = only("sm_100a", "sm_103a")


@triton.jit
def by_tlx(x, rbits, y, n: tl.constexpr, KIND: tl.constexpr):
    """One warp."""
    i = tl.arange(0, n)
    if KIND == "bf16":
        tl.store(y + i, tlx.stoch_round(tl.load(x + i), tl.bfloat16, tl.load(rbits + i)))
    elif KIND == "f16":
        tl.store(y + i, tlx.stoch_round(tl.load(x + i), tl.float16, tl.load(rbits + i)))
    elif KIND == "e4m3":
        rounded = tlx.stoch_round(tl.load(x + i), tl.float8e4nv, tl.load(rbits + i))
        tl.store(y + i, rounded.to(tl.uint8, bitcast=True))
    else:
        rounded = tlx.stoch_round(tl.load(x + i), tl.float8e5, tl.load(rbits + i))
        tl.store(y + i, rounded.to(tl.uint8, bitcast=True))


def case_of(target: Format, kind: str, n: int, fault: ExpectedFailure):
    """n: elements of one warp."""
    meta = {"BITS": target.code_bits, "PLACES": stochastic.random_bits(target), **fields(target)}
    return Case(
        inputs={"x": F32["n"], "rbits": U32["n"]},
        outputs={"y": target["n"]},
        reference=either(neighbour(target, 0), neighbour(target, 1)),
        sizes=[{"n": n}],
        variants={
            "tlx": kernel(
                by_tlx, grid=(1,), num_warps=1, meta={"KIND": kind}, compiler="tlx", targets=RS, refused=ALL - RS,
                expected_failure=fault,
            ),
            "integers": kernel(in_integers, grid=(1,), num_warps=1, meta=meta, targets=since("sm_80")),
        },
        family="stochastic rounding",
        source="PTX ISA, cvt: .rs with rbits, and the packing of its results",
    )  # fmt: skip


bf16, f16 = case_of(BF16, "bf16", 64, REVERSED), case_of(F16, "f16", 64, REVERSED)
e4m3, e5m2 = case_of(E4M3, "e4m3", 128, REVERSED), case_of(E5M2, "e5m2", 128, REVERSED)
e4m3_pairs, e5m2_pairs = case_of(E4M3, "e4m3", 64, UNDEFINED), case_of(E5M2, "e5m2", 64, UNDEFINED)
