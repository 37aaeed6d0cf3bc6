"""Stochastic rounding compared with fractions: a number rounds up exactly if discarded part plus random part reaches
one."""

from fractions import Fraction

import pytest
import torch

from ptxdiff.references import formats, stochastic
from ptxdiff.references.conversion import convert as nearest
from ptxdiff.references.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, Format
from tests.support.references.plain_definitions import patterns, round_fraction, same, split

TARGETS = [F16, BF16, E4M3, E5M2, E2M3, E3M2, E2M1]


def inputs(target: Format, count: int) -> torch.Tensor:
    """float32 patterns in and around the target's range."""
    generator = torch.Generator().manual_seed(1)
    low, high = max(1, 127 - target.bias - target.mantissa_bits - 3), min(254, 127 + target.bias + 3)
    exponent = torch.randint(low, high + 1, (count,), generator=generator)
    bits = torch.randint(0, 1 << 23, (count,), generator=generator)
    bits[::4] &= 0x7F0000
    return torch.cat(
        [bits | exponent << 23 | torch.randint(0, 2, (count,), generator=generator) << 31, patterns(F32, 300, 2)]
    )


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_against_fractions(target: Format) -> None:
    x = inputs(target, 1500)
    x = x[formats.is_finite(F32, x)]
    n = stochastic.random_bits(target)
    random = torch.randint(0, 1 << n, x.shape, generator=torch.Generator().manual_seed(3))
    got = stochastic.convert(x, random, target=target, satfinite=True)
    largest = formats.fraction(target, target.max_finite)
    expected = []
    for code, r in zip(x.tolist(), random.tolist(), strict=True):
        size = abs(formats.fraction(F32, code))
        if size >= largest:
            magnitude = target.max_finite
        else:
            low, rest, parts = split(target, size)
            discarded = (rest << n) // parts  # as many bits as the random part has
            magnitude = low + (discarded + r >= 1 << n)
        expected.append(min(magnitude, target.max_finite) | formats.sign(F32, code) << target.sign_shift)
    same(torch.tensor(expected), got, x, random)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_extremes_of_the_random_bits(target: Format) -> None:
    """Zero random bits truncate; half of their range rounds to nearest with ties away; exact values never change."""
    x = inputs(target, 2000)
    x = x[formats.is_finite(F32, x)]
    n = stochastic.random_bits(target)
    truncated = stochastic.convert(x, torch.zeros_like(x), target=target, satfinite=True)
    same(nearest(x, source=F32, target=target, rounding="rz", satfinite=True), truncated, x)
    halves = stochastic.convert(x, torch.full_like(x, 1 << n - 1), target=target, satfinite=True)
    same(nearest(x, source=F32, target=target, rounding="rna", satfinite=True), halves, x)
    codes = torch.tensor(list(formats.finite_codes(target))[:: 1 if target.code_bits < 16 else 97])
    wide = nearest(codes, source=target, target=F32)
    everything = stochastic.convert(wide, torch.full_like(wide, (1 << n) - 1), target=target, satfinite=True)
    same(codes, everything, wide)


def test_specials_and_relu() -> None:
    x = torch.tensor([0x7F800000, 0xFF800000, 0xFFC00000, 0xBF800000, 0x80000000, 0x7F7FFFFF])
    zero = torch.zeros_like(x)
    assert stochastic.convert(x, zero, target=F16).tolist() == [0x7C00, 0xFC00, 0x7FFF, 0xBC00, 0x8000, 0x7C00]
    assert stochastic.convert(x, zero, target=E4M3, satfinite=True).tolist() == [0x7E, 0xFE, 0x7F, 0xB8, 0x80, 0x7E]
    relu = stochastic.convert(x, zero, target=E2M1, satfinite=True, relu=True)
    assert relu.tolist() == [0x7, 0, 0x7, 0, 0, 0x7]
    with pytest.raises(ValueError, match="pass satfinite=True"):
        stochastic.convert(x, zero, target=E4M3)


def test_shares_of_the_random_operand() -> None:
    rbits = torch.tensor([0xABCD1234])
    assert stochastic.share(rbits, target=F16).tolist() == [[0x1234, 0x0BCD]]
    assert stochastic.share(rbits, target=BF16).tolist() == [[0x1234, 0xABCD]]
    # For two elements that share bits, the upper one reads them in reverse: 0x1234 is 0001001000110100.
    assert stochastic.share(rbits, target=E4M3).tolist() == [[0x1234, 0x2C48, 0xABCD, 0xB3D5]]
    assert stochastic.share(rbits, target=E2M1).tolist() == [[0xCD34, 0x2CB3, 0xAB12, 0x48D5]]


@pytest.mark.parametrize("target", [t for t in TARGETS if t is not BF16], ids=str)
def test_the_smallest_values_never_round_up(target: Format) -> None:
    """Below 2^-n of the smallest subnormal, n random bits never carry; from there on they carry if all are ones.

    bfloat16 has no such input: the smallest float32 is 2^-16 of its smallest subnormal.
    """
    n = stochastic.random_bits(target)
    smallest = Fraction(2) ** (target.min_exponent - target.mantissa_bits - n)
    code = formats.encode(F32, smallest)
    x = torch.tensor([1, 2, 0x7FFFFF, 0x800000, code - 1])[:, None].expand(-1, 1 << n)
    every = torch.arange(1 << n).expand_as(x)
    assert not stochastic.convert(x, every, target=target, satfinite=True).any()
    ones = torch.tensor([(1 << n) - 1])
    assert stochastic.convert(torch.tensor([code]), ones, target=target, satfinite=True).item() == target.min_positive


def test_the_mean_is_the_value() -> None:
    """Averaged over all random bits, the results give the operand: this is the purpose of the rounding."""
    x = torch.full((1 << 16,), formats.encode(F32, 1.171875))
    got = stochastic.convert(x, torch.arange(1 << 16), target=E4M3, satfinite=True)
    assert formats.to_float64(E4M3, got).mean().item() == 1.171875
    assert {round_fraction(E4M3, Fraction(1.171875), mode) for mode in ("rz", "rp")} == set(got.tolist())


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_no_bias(target: Format) -> None:
    """Over all random bits the mean is the operand, cut to as many discarded bits as there are random ones."""
    n = stochastic.random_bits(target)
    every = torch.arange(1 << n)
    for exact in (
        Fraction(11, 8) + Fraction(5, 1 << n),
        Fraction(-3, 2) - Fraction(77, 1 << n),
        target_subnormal(target),
    ):
        x = torch.full((1 << n,), formats.encode(F32, exact))
        values = formats.to_float64(target, stochastic.convert(x, every, target=target, satfinite=True))
        places = Fraction(2) ** (ulp_exponent(target, abs(exact)) - n)
        kept = abs(exact) // places * places * (1 if exact > 0 else -1)
        assert Fraction(values.mean().item()) == kept


def target_subnormal(target: Format) -> Fraction:
    """A number a third of the way from one subnormal number to the next, truncated to n bits of that distance."""
    places = 1 << stochastic.random_bits(target)
    return Fraction(2) ** (target.min_exponent - target.mantissa_bits) * (1 + Fraction(places // 3, places))


def ulp_exponent(target: Format, size: Fraction) -> int:
    """The exponent of the last place of numbers of the given size."""
    leading = size.numerator.bit_length() - size.denominator.bit_length()
    leading -= size < Fraction(2) ** leading
    return max(leading, target.min_exponent) - target.mantissa_bits
