"""The clamped product and the documented maximum, each compared with plain Python on values."""

import math
from fractions import Fraction

import pytest
import torch

from ptxdiff.references import fma_clamp, formats
from ptxdiff.references.formats import F16, F32, I32, encode
from ptxdiff.references.integer_max import convert_and_max
from tests.support.references.plain_definitions import edges, pairs, patterns, round_fraction, same


def plainly(a: int, b: int, fused: bool) -> tuple[int, int]:
    """min(max(a * b + 1, 0), 6) and its square with fractions; NaN clamps to 0."""
    x, y = formats.value(F16, a), formats.value(F16, b)
    if math.isnan(x * y):
        return 0, 0
    if math.isinf(x * y):
        return (encode(F16, 6.0), encode(F16, 36.0)) if x * y > 0 else (0, 0)
    product = Fraction(x) * Fraction(y)
    if not fused:
        rounded = formats.value(F16, round_fraction(F16, product, "rn", negative=x * y < 0))
        if math.isinf(rounded):
            return (encode(F16, 6.0), encode(F16, 36.0)) if rounded > 0 else (0, 0)
        product = Fraction(rounded)
    total = formats.value(F16, round_fraction(F16, product + 1, "rn"))
    clamped = min(max(total, 0.0), 6.0)
    square = round_fraction(F16, Fraction(clamped) ** 2, "rn")
    return encode(F16, clamped), square


@pytest.mark.parametrize("fused", [True, False])
def test_against_fractions(fused: bool) -> None:
    a, b = pairs(edges(F16))
    a, b = torch.cat([a, patterns(F16, 3000, 1)]), torch.cat([b, patterns(F16, 3000, 2)])
    expected = torch.tensor([plainly(x, y, fused) for x, y in zip(a.tolist(), b.tolist(), strict=True)]).T
    for wanted, got in zip(expected, (fma_clamp.fused if fused else fma_clamp.two_roundings)(a, b), strict=True):
        same(wanted, got, a, b)


def test_the_rules_in_which_variants_differ() -> None:
    nan, one = torch.tensor([0x7E00]), torch.tensor([0x3C00])
    six, thirty_six = encode(F16, 6.0), encode(F16, 36.0)
    assert [x.item() for x in fma_clamp.fma_clamp(nan, one)] == [0, 0]
    assert [x.item() for x in fma_clamp.fma_clamp(nan, one, order="min first")] == [six, thirty_six]
    assert [x.item() for x in fma_clamp.fma_clamp(nan, one, nan=True)] == [0x7FFF, 0x7FFF]
    a, b = patterns(F16, 50_000, 3), patterns(F16, 50_000, 4)
    assert (fma_clamp.fused(a, b)[0] != fma_clamp.two_roundings(a, b)[0]).any()


def test_documented_maximum() -> None:
    values = torch.arange(256).repeat_interleave(6)
    others = torch.tensor([0x80000000, 0x7FC00000, 0x437F0000, 0x42FF0000, 0x00000001, 0xFF800000]).repeat(256)
    integers, maxima = convert_and_max(values, others)
    assert formats.to_float64(I32, integers).tolist() == values.tolist()
    for a, b, d in zip(values.tolist(), others.tolist(), maxima.tolist(), strict=True):
        other = formats.value(F32, b)
        expected = float(a) if math.isnan(other) else max(float(a), other)
        assert formats.value(F32, d) == expected
        assert formats.sign(F32, d) == 0
    assert convert_and_max(values, others, nan=True)[1][1].item() == 0x7FFFFFFF
