"""Exact rounding against fractions, for every format and mode."""

import itertools
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
import torch

from ptxdiff.references import formats, rounding
from ptxdiff.references.formats import E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, F64, TF32, UE8M0, Format
from ptxdiff.references.rounding import MAX64, ROUNDINGS
from tests.support.references.plain_definitions import round_fraction, same
from tests.support.sampling import only, sizes

NARROW = [E2M1, E2M3, E3M2, E4M3, E5M2]


@cache
def ties_and_neighbours(fmt: Format) -> list[float]:
    """Every value and midpoint of a narrow format, also beyond the overflow threshold, and the float64 neighbours of
    each."""
    values = [formats.value(fmt, code) for code in formats.finite_codes(fmt) if code <= fmt.max_finite]
    values = [value for value in values if value >= 0]
    values += [2 * values[-1] - values[-2], 4 * values[-1]]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(values)]  # exact: a bit more than the format has
    near = torch.tensor(values + middles, dtype=torch.float64)
    around = [near, torch.nextafter(near, near + 1), torch.nextafter(near, near * 0 - 1)]
    both = torch.cat([*around, *(-x for x in around)])
    return both.tolist()


def formats_and_steps() -> list[Any]:
    """Formats, each with the step to the next number: at least 300 numbers quickly, ten times as many in slow tests."""
    found = []
    for fmt in (*NARROW, F16):
        many = len(ties_and_neighbours(fmt))
        few, more = (1, 1) if many < 500 else (many // 300, max(many // 3000, 1))
        found.append(pytest.param(fmt, few, id=fmt.name))
        if more < few:
            found.append(pytest.param(fmt, more, id=f"{fmt.name}, more", marks=pytest.mark.slow))
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ROUNDINGS)
@pytest.mark.parametrize("satfinite", [False, True])
@pytest.mark.parametrize(("fmt", "step"), formats_and_steps())
def test_float64_on_all_ties(fmt: Format, step: int, mode: rounding.Rounding, satfinite: bool) -> None:
    if fmt.nan == "none" and not satfinite:
        with pytest.raises(ValueError, match="must saturate"):
            rounding.round_float64(fmt, torch.zeros(1, dtype=torch.float64), rounding=mode)
        return
    inputs = ties_and_neighbours(fmt)
    if step > 1:
        inputs = inputs[::step] + inputs[-50:]
    got = rounding.round_float64(fmt, torch.tensor(inputs, dtype=torch.float64), rounding=mode, satfinite=satfinite)
    expected = [round_fraction(fmt, Fraction(x), mode, satfinite, negative=str(x).startswith("-")) for x in inputs]
    same(torch.tensor(expected), got, torch.tensor(inputs, dtype=torch.float64).view(torch.int64))


@pytest.mark.sample(3)
@pytest.mark.parametrize("count", sizes(105, 1050))
@pytest.mark.parametrize("mode", ROUNDINGS)
@pytest.mark.parametrize("fmt", [F32, F64, TF32, F16, UE8M0], ids=str)
def test_sticky_significands(fmt: Format, mode: rounding.Rounding, count: int) -> None:
    """Significands of 55 to 61 bits, exact and with a sticky bit, from deep underflow to overflow."""
    generator = torch.Generator().manual_seed(3)
    significand = torch.randint(1 << 55, 1 << 61, (count,), generator=generator)
    significand[::7] = 1 << 60
    tie = significand[::3] >> (60 - fmt.precision) | 1  # at most one bit more than the format has; the last bit is set
    significand[::3] = tie << (60 - fmt.precision)
    span = fmt.bias + fmt.precision + 8
    exponent = torch.randint(-span - 61, span - 55, (count,), generator=generator)
    sticky = torch.randint(0, 2, (count,), generator=generator)
    sticky[::3] = 0
    negative = torch.randint(0, 2, (count,), generator=generator) == 1
    if not fmt.has_sign:
        negative[:] = False
    got = rounding.round_exact(fmt, negative, significand, exponent, sticky, rounding=mode)
    expected = []
    for minus, n, e, s in zip(*(x.tolist() for x in (negative, significand, exponent, sticky)), strict=True):
        exact = (Fraction(n) + Fraction(s, 3)) * Fraction(2) ** e * (-1 if minus else 1)
        code = round_fraction(fmt, exact, mode) if fmt.has_zero else round_power_of_two(exact, mode)
        expected.append(code - (1 << 64) if code > MAX64 else code)
    same(torch.tensor(expected), got, significand, exponent, sticky)


def round_power_of_two(exact: Fraction, mode: str) -> int:
    """ue8m0 by its values: numbers below the smallest become the smallest, numbers beyond the largest become NaN."""
    for code in range(254):
        low, high = formats.fraction(UE8M0, code), formats.fraction(UE8M0, code + 1)
        if exact < low:
            return 0
        if exact < high:
            up = {"rz": False, "rm": False, "rp": exact > low}.get(mode, exact - low >= (high - low) / 2)
            if mode == "rn" and exact - low == (high - low) / 2:
                up = True  # with one bit of precision, the even significand belongs to the next power of two
            return code + up
    largest = formats.fraction(UE8M0, 254)
    if mode in ("rz", "rm"):
        return 254
    beyond = exact > largest if mode == "rp" else exact >= largest * 3 / 2
    return 255 if beyond else 254


def test_specials() -> None:
    inf, nan = float("inf"), float("nan")
    special = torch.tensor([inf, -inf, nan, -nan, 0.0, -0.0], dtype=torch.float64)
    assert rounding.round_float64(F32, special).tolist() == [
        0x7F800000, 0xFF800000, 0x7FFFFFFF, 0x7FFFFFFF, 0, 0x80000000,
    ]  # fmt: skip
    for mode in ROUNDINGS:
        assert rounding.round_float64(F16, special[:2], rounding=mode).tolist() == [0x7C00, 0xFC00]
    assert rounding.round_float64(E4M3, special, satfinite=True).tolist() == [0x7E, 0xFE, 0x7F, 0x7F, 0, 0x80]
    assert rounding.round_float64(E4M3, special).tolist() == [0x7F, 0xFF, 0x7F, 0x7F, 0, 0x80]
    assert rounding.round_float64(E2M1, special, satfinite=True).tolist() == [7, 15, 7, 7, 0, 8]


def test_64_bit_helpers() -> None:
    values = [0, 1, 2, 3, 5, 1 << 31, 1 << 32, (1 << 32) - 1, 1 << 62, MAX64]
    assert rounding.bit_length(torch.tensor(values)).tolist() == [value.bit_length() for value in values]
    patterns = torch.tensor([*values, -1, -2, rounding.MIN64])
    unsigned = [value % (1 << 64) for value in patterns.tolist()]
    for shift in (0, 1, 31, 63):
        shifted = [(value >> shift) % (1 << 64) for value in unsigned]
        for count in (shift, torch.full_like(patterns, shift)):
            assert [x % (1 << 64) for x in rounding.shift_right(patterns, count).tolist()] == shifted
    less = rounding.unsigned_less(patterns[:, None], patterns[None, :])
    assert less.tolist() == [[a < b for b in unsigned] for a in unsigned]


def test_odd_sum_keeps_the_side() -> None:
    """2^60 + 1 is above 2^60, 2^60 - 1 is below: rounding the odd neighbour up or down shows it."""
    big, one = torch.tensor([2.0**60], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    up, down = rounding.odd_sum(big, one), rounding.odd_sum(big, -one)
    assert up > big
    assert down < big
    assert rounding.round_float64(F32, up, rounding="rp").item() == formats.encode(F32, 2.0**60) + 1
    assert rounding.round_float64(F32, down, rounding="rz").item() == formats.encode(F32, 2.0**60) - 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("fmt", only([F16, formats.BF16, E4M3, E2M1], [F16, E2M1]), ids=lambda f: f.name)
def test_float32_values_round_as_float64_ones(fmt: formats.Format) -> None:
    """All exponents and every pattern of the upper significand bits: ties and their neighbours."""
    upper = torch.arange(1 << 20) << 12
    codes = torch.cat([upper, upper + 1, upper + 0xFFF])
    narrow, wide = formats.to_float32(F32, codes), formats.to_float64(F32, codes)
    expected = rounding.round_float64(fmt, wide, satfinite=True)
    assert torch.equal(rounding.round_float64(fmt, narrow, satfinite=True), expected)


def test_modifiers() -> None:
    codes = torch.tensor([0x80000000, 0xBF800000, 0x3F000000, 0x40000000, 0x7FC00000, 0xFFC00000, 0x7F800000, 1])
    assert rounding.relu(F32, codes).tolist() == [
        0, 0, 0x3F000000, 0x40000000, 0x7FFFFFFF, 0x7FFFFFFF, 0x7F800000, 1,
    ]  # fmt: skip
    assert rounding.saturate(F32, codes).tolist() == [0, 0, 0x3F000000, 0x3F800000, 0, 0, 0x3F800000, 1]
    assert rounding.flush_subnormals(F32, torch.tensor([1, 0x807FFFFF, 0x800000])).tolist() == [0, 0x80000000, 0x800000]


def test_no_data_dependent_control_flow() -> None:
    """Everything traces into one graph, as sweeps on a GPU need it."""
    traced = torch.compile(
        lambda x: rounding.round_float64(F16, formats.to_float64(F32, x)), backend="eager", fullgraph=True
    )
    codes = torch.tensor([0x3F800000, 0x477FF000, 0x7FC00000, 0x80000001])
    assert traced(codes).tolist() == [0x3C00, 0x7C00, 0x7FFF, 0x8000]


@pytest.mark.parametrize("wrong", ["rna", "rz", "rp"])
def test_a_wrong_mode_is_detected(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparisons above detect a rounding that breaks ties otherwise, or does not round to nearest."""
    right = rounding._round_up
    monkeypatch.setattr(rounding, "_round_up", lambda *arguments: right(*arguments[:-1], wrong))
    monkeypatch.setattr(rounding, "_to_nearest_even", lambda fmt, _, codes: rounding._by_shifting(fmt, codes, wrong))
    with pytest.raises(AssertionError, match="differ"):
        test_float64_on_all_ties(E4M3, 1, "rn", True)
    with pytest.raises(AssertionError, match="differ"):
        test_sticky_significands(F32, "rn", 105)
