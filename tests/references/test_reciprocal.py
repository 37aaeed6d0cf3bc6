"""Reciprocals: rounded ones compared with the host and fractions, and bounds of the approximate product on their
domain."""

import numpy as np
import pytest
import torch

from ptxdiff.references import formats, reciprocal
from ptxdiff.references.formats import F32, distance, encode, fraction
from ptxdiff.references.rounding import ROUNDINGS, Rounding
from tests.support.references.plain_definitions import edges, pairs, patterns, round_fraction, same


def test_against_host_division() -> None:
    codes = torch.cat([torch.tensor(edges(F32)), patterns(F32, 400_000, 1)])
    with np.errstate(all="ignore"):
        host = np.float32(1) / formats.pack(F32, codes.numpy()).view(np.float32)
    expected = torch.from_numpy(formats.as_codes(host))
    expected = torch.where(formats.is_nan(F32, expected), F32.canonical_nan, expected)
    same(expected, reciprocal.correctly_rounded(codes), codes)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_every_mode_against_fractions(rounding: Rounding) -> None:
    codes = torch.cat([torch.tensor(edges(F32)), patterns(F32, 1500, 2)])
    codes = codes[formats.is_finite(F32, codes) & ~formats.is_zero(F32, codes)]
    expected = [round_fraction(F32, 1 / fraction(F32, code), rounding) for code in codes.tolist()]
    same(torch.tensor(expected), reciprocal.correctly_rounded(codes, rounding=rounding), codes)


def test_flushed_specials() -> None:
    """Subnormal inputs give infinities, operands beyond 2^126 give zeros, and signs are kept."""
    codes = torch.tensor([0, 0x80000000, 1, 0x807FFFFF, encode(F32, 2.0**126), encode(F32, -(2.0**127)), 0x7F800000])
    expected = [0x7F800000, 0xFF800000, 0x7F800000, 0xFF800000, 0x00800000, 0x80000000, 0]
    assert reciprocal.flushed(codes).tolist() == expected


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    a, b = pairs(edges(F32))
    return torch.cat([a, patterns(F32, 150_000, 3)]), torch.cat([b, patterns(F32, 150_000, 4)])


def test_product_bound_against_its_own_specification() -> None:
    """A reciprocal that is one step off changes the product by at most two steps, except near the stated edges."""
    a, b = operands()
    middle = reciprocal.times_reciprocal(a, b)
    edge = formats.magnitude(F32, b) == encode(F32, 2.0**126)
    for offset in (-1, 1):
        other = reciprocal.times_reciprocal(a, b, offset=offset)
        overflow = formats.is_infinity(F32, middle) != formats.is_infinity(F32, other)
        looked_at = ~edge & ~overflow
        assert (formats.is_nan(F32, middle) == formats.is_nan(F32, other)).all()
        assert distance(F32, middle, other)[looked_at & ~formats.is_nan(F32, middle)].max() == 2


def test_product_bound_against_the_quotient_on_its_domain() -> None:
    a, b = operands()
    inside = reciprocal.times_reciprocal_domain(a, b)
    assert 0.2 < inside.double().mean() < 0.9
    a, b = a[inside], b[inside]
    quotient = reciprocal.quotient(a, b)
    rounded = reciprocal.flushed(b)
    for offset in (-1, 0, 1):
        product = reciprocal.times_reciprocal(a, b, offset=offset)
        assert (formats.is_nan(F32, product) == formats.is_nan(F32, quotient)).all()
        number = ~formats.is_nan(F32, quotient)
        assert distance(F32, product, quotient)[number].max() <= 3
        # For a reciprocal within one ulp of the exact one, the bound is two steps.
        moved = formats.from_ordinal(F32, formats.ordinal(F32, rounded) + offset)
        exact = 1 / formats.to_float64(F32, b)
        ulp = (formats.to_float64(F32, rounded + 1) - formats.to_float64(F32, rounded)).abs()
        close = (formats.to_float64(F32, moved) - exact).abs() <= ulp
        assert distance(F32, product, quotient)[number & close].max() <= 2


def test_no_bound_outside_the_domain() -> None:
    """a / b is about 1, and the flushed product is 0, which is why the domain exists."""
    a, b = torch.tensor([encode(F32, 2.0**127)]), torch.tensor([encode(F32, 1.5 * 2.0**126)])
    assert not reciprocal.times_reciprocal_domain(a, b).item()
    assert reciprocal.times_reciprocal(a, b).item() == 0
    assert formats.value(F32, int(reciprocal.quotient(a, b).item())) > 1


def test_range_encloses_the_middle() -> None:
    a, b = operands()
    low, high = reciprocal.times_reciprocal_range(a, b)
    middle = reciprocal.times_reciprocal(a, b)
    number = ~formats.is_nan(F32, middle)
    places = [formats.ordinal(F32, codes)[number] for codes in (low, middle, high)]
    assert ((places[0] <= places[1]) & (places[1] <= places[2])).all()
