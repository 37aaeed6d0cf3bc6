"""Attention, a whole kernel: softmax(q k^T) v in blocks of 32 keys, exact in every bit; 2^x in asm or Triton.

All bits are defined: 2^x is a polynomial, sums are products with ones, quotients are correctly rounded.
"""

from ptxdiff import Case, Differs, kernel
from ptxdiff.references.formats import F16, F32
from ptxdiff.references.tensor_core import AMPERE, HOPPER

from ._device.attention import attend
from ._device.exp2_polynomial import text
from ._host.attention import BLOCK, SCALE, attended
from ._host.products import EIGHT, FUSED, NONE, SIXTEEN, cores, fused
from .exp2_polynomial import horner

WHY = "its tensor cores add 16 bytes of a row at a time with 24 fraction bits, others 32 bytes with 25"


def variant(asm):
    """With this asm for the exponential, or with Triton's code."""
    meta = {"SCALE": SCALE, "TEXT": asm, "BLOCK": BLOCK}
    eight = Differs(WHY, attended(cores(AMPERE, F16), horner(5)))
    none = Differs(FUSED, attended(fused(F16), horner(5)))
    differs = dict.fromkeys(EIGHT, eight) | dict.fromkeys(NONE, none)
    return kernel(attend, grid=("ceil(M/BLOCK)",), meta=meta, differs=differs)


case = Case(
    inputs={"q": F16["M", "D"], "k": F16["N", "D"], "v": F16["N", "D"]},
    outputs={"o": F32["M", "D"]},
    reference=attended(cores(HOPPER, F16), horner(5)),
    sizes=[{"M": 32, "N": 64, "D": 32}, {"M": 40, "N": 32, "D": 32}],
    variants={"asm": variant(text(5)), "triton": variant("")},
    targets=NONE | EIGHT | SIXTEEN,
    family="matrix products",
    source="Dao et al., FlashAttention, 2022; MMA-Sim, arXiv 2511.10909; Taylor's series of e^(f ln 2)",
)
