"""Attention, a whole kernel: softmax(q k^T) v in blocks of 32 keys, exact in every bit; 2^x in asm or Triton.

All bits are defined: 2^x is a polynomial, sums are products with ones, quotients are correctly rounded.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from ptxdiff import Case, Differs, kernel
from ptxdiff.references import arithmetic, conversion
from ptxdiff.references.formats import F16, F32, encode
from ptxdiff.references.tensor_core import AMPERE, HOPPER

from ._host.products import EIGHT, FUSED, NONE, SIXTEEN, cores, fused
from .exp2_polynomial import horner, in_triton, text


@triton.jit
def power(x, TEXT: tl.constexpr):
    """2^x by a polynomial: with the asm TEXT, or in plain Triton if TEXT is empty."""
    if TEXT != "":
        return tl.inline_asm_elementwise(TEXT, "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    return in_triton(x)


@triton.jit
def attend(q, k, v, o, M, N, D: tl.constexpr, SCALE: tl.constexpr, TEXT: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK queries per program. A row's sum is a product with ones, because a reduction has no defined order."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    d = tl.arange(0, D)
    queries = tl.load(q + i * D + d[None, :], mask=i < M, other=0.0)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    sums = tl.zeros((BLOCK, 16), tl.float32)
    total = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, N, BLOCK):
        j = start + tl.arange(0, BLOCK)
        scores = tl.dot(queries, tl.load(k + j[None, :] * D + d[:, None]))
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights = power((scores - larger[:, None]) * SCALE, TEXT).to(tl.float16)
        shrink = power((largest - larger) * SCALE, TEXT)[:, None]
        sums = tl.dot(weights, tl.full((BLOCK, 16), 1.0, tl.float16), sums * shrink)
        total = tl.dot(weights, tl.load(v + j[:, None] * D + d[None, :]), total * shrink)
        largest = larger
    weight = tl.broadcast_to(tl.max(sums, 1)[:, None], (BLOCK, D))
    tl.store(o + i * D + d[None, :], tl.div_rn(total, weight), mask=i < M)


BLOCK, SCALE = 32, float(np.float32(np.log2(np.e) / np.sqrt(32)))


def attended(multiply, power):
    """The kernel's steps on codes; a block of weights is first rounded to float16. multiply: a b + c, with a and b in
    float16; power: 2^x."""

    def scaled(x):
        return power(arithmetic.mul(x, torch.full_like(x, encode(F32, SCALE))))

    def reference(q, k, v):
        rows = q.shape[0]
        largest = torch.full((rows,), encode(F32, float("-inf")), device=q.device)
        sums, total = (torch.zeros(rows, n, dtype=torch.int64, device=q.device) for n in (16, v.shape[1]))
        ones = torch.full((BLOCK, 16), encode(F16, 1.0), device=q.device)
        for keys, rest in zip(k.split(BLOCK), v.split(BLOCK), strict=True):
            scores = multiply(q, keys.T, torch.zeros(rows, BLOCK, dtype=torch.int64, device=q.device))
            larger = largest
            for column in scores.unbind(1):
                larger = arithmetic.maximum(larger, column)
            weights = scaled(arithmetic.sub(scores, larger[:, None].expand_as(scores)))
            weights = conversion.convert(weights, source=F32, target=F16)
            shrink = scaled(arithmetic.sub(largest, larger))[:, None]
            sums = multiply(weights, ones, arithmetic.mul(sums, shrink.expand_as(sums)))
            total = multiply(weights, rest, arithmetic.mul(total, shrink.expand_as(total)))
            largest = larger
        return arithmetic.div(total, sums[:, :1].expand_as(total))

    return reference


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
