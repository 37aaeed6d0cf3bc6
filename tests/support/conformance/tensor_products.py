"""Products of 8, 6 and 4-bit floats as tensor cores compute them, in float64, in which every step is exact.

A block of products is one sum. Each term is truncated to a number of fraction bits below the largest exponent of all
terms and the accumulator; the sum is rounded once. A product's exponent is the sum of its factors' exponents; a
subnormal has the exponent of the least normal number. A zero term has a fixed exponent. Truncated terms are integers
below 2^47 on a common scale, so that float64 adds them exactly in any order; all exponents are in range.

Sources: Xie, Wang, Yang, Yang, "MMA-Sim" (arXiv 2511.10909): T-FDPA, ST-FDPA and GST-FDPA with the parameters of RTX
Blackwell (F = 25, in groups of e2m1 35; a zero has exponent -133, for float16 -21, in groups -139). If a target has no
tensor core for such formats (sm_100), ptxas 13.4 writes float16 products: F2FP.UNPACK_B of each register's lower half,
HMMA with a zero accumulator, the upper halves, HMMA added to that, then FADD or HADD2 with c. A sparse block is assumed
to be one of stored elements: nothing about it is published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.conformance import arithmetic
from tests.support.conformance import definitions as d
from tests.support.conformance import float32 as f

FRACTION, GROUPED_FRACTION = 25, 35
"""Fraction bits of a truncated term."""
GROUP = 16
"""The number of e2m1 products that are summed before truncation."""


@dataclass(frozen=True)
class Sum:
    """The arithmetic of a block. `zero`: the exponent of a zero term."""

    fraction: int
    zero: int


PLAIN = {"f32": Sum(FRACTION, -133), "f16": Sum(FRACTION, -21)}
GROUPS = Sum(GROUPED_FRACTION, -139)


def parts(codes: Any, name: str, as_f16: bool = False) -> tuple[Any, Any]:
    """The float64 values of codes, and their exponents in a block's sum.

    name: a narrow format, "f32", "f16", or "ue4m3", whose highest bit is not read. `as_f16`: the codes are converted to
    float16, which has smaller normal numbers than e4m3.
    """
    if name == "ue4m3":
        return parts(codes & 0x7F, "e4m3")
    if name == "ue8m0":
        x = np.where(codes == 0xFF, np.nan, np.ldexp(1.0, codes - 127))
        return x, codes - 127
    if name in ("f32", "f16"):
        x, least = f.values(codes, name), -126 if name == "f32" else -14
    else:
        x, least = arithmetic.values(name)[codes], -14 if as_f16 else 1 - d.FORMATS[name].bias
    finite = np.where(np.isfinite(x), x, 1.0)
    return x, np.maximum(np.frexp(finite)[1] - 1, least)


def summed(terms: Any, exponents: Any, nothing: Any, how: Sum) -> Any:
    """The sum of truncated terms along the last axis. NaNs and infinities add as in IEEE 754.

    nothing: which terms count as zeros.
    """
    with np.errstate(invalid="ignore"):
        special = terms.sum(axis=-1)
    exponents = np.where(nothing, how.zero, exponents)
    last = exponents.max(axis=-1, keepdims=True) - how.fraction
    cut = np.trunc(np.ldexp(np.where(np.isfinite(terms), terms, 0.0), -last))
    total = np.ldexp(cut.sum(axis=-1), last[..., 0])
    return np.where(np.isfinite(special), total, special)


def rounded(x: Any, to: str) -> Any:
    """Patterns of a sum: float32 toward zero, float16 to nearest even. A sum beyond the range is infinite; -0 becomes
    +0."""
    x = x + 0.0
    if to == "f16":
        with np.errstate(over="ignore"):
            codes = x.astype(np.float16).view(np.uint16).astype(np.int64)
        return np.where(np.isnan(x), 0x7FFF, np.where(codes == 0x8000, 0, codes))
    with np.errstate(invalid="ignore"):
        large = np.abs(x) >= 2.0**128
    codes = f.patterns(np.where(large, np.copysign(np.inf, x), x), "rz")
    return np.where(codes == 1 << 31, 0, codes)


def block(a: Any, b: Any, c: Any, names: tuple[str, str], to: str, *, scales: Any = None, as_f16: bool = False) -> Any:
    """Codes of one block. a: ... x L, b: ... x L, c: ... codes; `to`: the format of c and of the result.

    scales: values and exponents to multiply each product with. `as_f16`: see `parts`.
    """
    (x, x_exponent), (y, y_exponent) = parts(a, names[0], as_f16), parts(b, names[1], as_f16)
    z, z_exponent = parts(c, to)
    with np.errstate(invalid="ignore"):
        terms, exponents = x * y, x_exponent + y_exponent
        if scales is not None:
            terms, exponents = terms * scales[0], exponents + scales[1]
    terms = np.concatenate([terms, z[..., None]], axis=-1)
    exponents = np.concatenate([exponents, z_exponent[..., None]], axis=-1)
    return rounded(summed(terms, exponents, terms == 0, PLAIN[to]), to)


def grouped(a: Any, b: Any, c: Any, scales: Any) -> Any:
    """Codes of one block of e2m1 with float32 results: sums of sixteen products, each sum with one scale: ... x
    K/16."""
    products = arithmetic.values("e2m1")[a] * arithmetic.values("e2m1")[b]
    groups = products.reshape(*products.shape[:-1], -1, GROUP)
    sums = groups.sum(axis=-1)
    z, z_exponent = parts(c, "f32")
    terms = np.concatenate([sums * scales[0], z[..., None]], axis=-1)
    exponents = np.concatenate([scales[1], z_exponent[..., None]], axis=-1)
    # A sum of zero by cancellation has its scales' exponent; a sum counts as zero only if all its products are zero.
    nothing = np.concatenate([(groups == 0).all(axis=-1) | (scales[0] == 0), (z == 0)[..., None]], axis=-1)
    return rounded(summed(terms, exponents, nothing, GROUPS), "f32")


def widened(a: Any, b: Any, c: Any, names: tuple[str, str], to: str) -> Any:
    """Codes from two float16 products: the first has the first two of every four elements along the last axis, the
    second the last two."""
    total = np.zeros(c.shape, np.int64)
    lower = np.arange(a.shape[-1]) % 4 < 2
    for some in (lower, ~lower):
        total = block(a[..., some], b[..., some], total, names, to, as_f16=True)
    x, y = f.values(total, to), f.values(c, to)
    if to == "f32":
        found, cancelled = f.added(x, y)
        return f.patterns(found, "rn", cancelled=cancelled)
    with np.errstate(invalid="ignore", over="ignore"):
        found = x + y
        codes = found.astype(np.float16).view(np.uint16).astype(np.int64)
    return np.where(np.isnan(found), 0x7FFF, codes)
