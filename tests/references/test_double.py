"""float64 arithmetic against the host (nearest even) and fractions (every mode)."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch

from ptxdiff.references import double, formats
from ptxdiff.references.formats import F64
from ptxdiff.references.rounding import ROUNDINGS, Rounding, nan_code
from tests.support.references.plain_definitions import edges, pairs, patterns, round_fraction, same

HOST: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
}  # fmt: skip


def signed(codes: list[int]) -> list[int]:
    return [code - (1 << 64) if code >= 1 << 63 else code for code in codes]


def inputs(count: int, random: int, seed: int, step: int = 1) -> list[torch.Tensor]:
    """Combinations of edges, then random patterns, and pairs of similar magnitude, whose sums cancel."""
    columns = pairs(signed(edges(F64)[::step]), count)
    randoms = [patterns(F64, random, seed + place) for place in range(count)]
    close = [randoms[0][: random // 2] + delta for delta in (0, *range(1, count))]
    close[-1] = close[-1] ^ (-1 << 63)
    return [torch.cat(parts) for parts in zip(columns, randoms, close, strict=True)]


@pytest.mark.parametrize("name", HOST)
def test_against_host(name: str) -> None:
    operands = inputs(1 if name == "sqrt" else 2, 80_000, 1)
    with np.errstate(all="ignore"):
        host = HOST[name](*(operand.numpy().view(np.float64) for operand in operands))
    expected = torch.from_numpy(host.view(np.int64))
    expected = torch.where(formats.is_nan(F64, expected), nan_code(F64), expected)
    same(expected, getattr(double, name)(*operands), *operands)


def exactly(name: str, rounding: str, operands: list[int]) -> int | None:
    """The rounded result from fractions; None for special operands."""
    if any(not formats.is_finite(F64, code) for code in operands):
        return None
    values = [formats.fraction(F64, code) for code in operands]
    signs = [formats.sign(F64, code) for code in operands]
    if name == "div":
        if values[1] == 0:
            return None
        return round_fraction(F64, values[0] / values[1], rounding, negative=signs[0] != signs[1])
    if name == "mul":
        return round_fraction(F64, values[0] * values[1], rounding, negative=signs[0] != signs[1])
    left, right = (signs[0] ^ signs[1], signs[2]) if name == "fma" else (signs[0], signs[1])
    exact = values[0] * values[1] + values[2] if name == "fma" else values[0] + values[1]
    return round_fraction(F64, exact, rounding, negative=bool(left) if left == right else rounding == "rm")


@pytest.mark.sample(3)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", ["add", "mul", "div", "fma"])
def test_every_mode_against_fractions(name: str, rounding: Rounding) -> None:
    operands = inputs(3 if name == "fma" else 2, 400, 5, step=4 if name == "fma" else 2)
    got = getattr(double, name)(*operands, rounding=rounding).tolist()
    for *codes, result in zip(*(operand.tolist() for operand in operands), got, strict=True):
        expected = exactly(name, rounding, [code % (1 << 64) for code in codes])
        if expected is not None:
            assert result % (1 << 64) == expected, [hex(code % (1 << 64)) for code in codes]


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_fma_beside_ties_and_with_cancellation(rounding: Rounding) -> None:
    """Products whose low half decides: c cancels the rounded product, or adds half an ulp to it."""
    u = Fraction(1, 1 << 52)
    factors = [1 - u, 1 + u, Fraction(1), 1 + 2 * u, Fraction(3, 2) + u]
    rows, expected = [], []
    for left, right in itertools.product(factors, repeat=2):
        product = left * right
        near = formats.fraction(F64, round_fraction(F64, product, "rn"))
        for scale in (0, -52, -53, -54, -105, -106, -120, -1022, -1070):
            for addend in (-near, near * Fraction(2) ** 53, -near * Fraction(2) ** -53, Fraction(2) ** 54, -(near + u)):
                scaled = addend * Fraction(2) ** scale
                try:
                    codes = [formats.encode(F64, x) for x in (left * Fraction(2) ** scale, right, scaled)]
                except ValueError:
                    continue  # less than the least subnormal
                exact = product * Fraction(2) ** scale + scaled
                rows.append(signed(codes))
                expected += [round_fraction(F64, exact, rounding, negative=exact == 0 and rounding == "rm")]
    assert len(rows) > 500
    operands = torch.tensor(rows).T.contiguous()
    same(torch.tensor(signed(expected)), double.fma(*operands, rounding=rounding), *operands)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_square_roots_in_every_mode(rounding: Rounding) -> None:
    codes = torch.cat([patterns(F64, 1500, 9), torch.tensor([1, 2, 3, 4, F64.max_finite, F64.min_normal])])
    codes = codes[(codes > 0) & formats.is_finite(F64, codes)]
    for code, root in zip(codes.tolist(), double.sqrt(codes, rounding=rounding).tolist(), strict=True):
        value = formats.fraction(F64, code)
        # Python's integer root with 200 bits more than the operand has; the remainder then decides.
        scale = 1 << 1400
        floor, lost = divmod(value.numerator << 2800, value.denominator)
        root_of_floor = math.isqrt(floor)
        inexact = lost != 0 or root_of_floor**2 != floor
        expected = round_fraction(F64, Fraction(2 * root_of_floor + inexact, 2 * scale), rounding)
        assert root == expected, hex(code)


def test_specials() -> None:
    inf, minus_inf, one, zero, minus_zero, nan = 0x7FF << 52, -1 << 52, 0x3FF << 52, 0, -1 << 63, nan_code(F64)

    def run(function: Callable[..., torch.Tensor], *codes: int, rounding: str = "rn") -> int:
        return int(function(*(torch.tensor([code]) for code in codes), rounding=rounding).item())

    assert run(double.fma, inf, zero, one) == nan
    assert run(double.fma, inf, one, minus_inf) == nan
    assert run(double.fma, one, minus_inf, one) == minus_inf
    assert run(double.fma, one, one, inf) == inf
    assert run(double.add, one, -4616189618054758400, rounding="rm") == minus_zero
    assert run(double.mul, minus_zero, one) == minus_zero
    assert run(double.mul, zero, inf) == nan
    assert run(double.div, one, minus_zero) == minus_inf
    assert run(double.div, zero, zero) == nan
    assert run(double.div, inf, inf) == nan
    assert run(double.reciprocal, minus_inf) == minus_zero
    assert run(double.sqrt, minus_zero) == minus_zero
    assert run(double.sqrt, -4616189618054758400) == nan
    assert run(double.sqrt, inf) == inf


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("fma", 3), pytest.param("div", 2, marks=pytest.mark.slow), ("sqrt", 1)])
def test_traces_into_one_graph(name: str, count: int) -> None:
    """Slow: the quotient, a second to trace. Its steps are none that other functions do not have."""
    function = getattr(double, name)
    operands = inputs(3, 20, 11, step=6)
    traced = torch.compile(function, backend="eager", fullgraph=True)
    assert torch.equal(traced(*operands[:count]), function(*operands[:count]))
