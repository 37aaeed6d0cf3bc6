"""Compensated sums and products of matrices, compared with exact rationals and with the same steps in float32."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from ptxdiff.references import sums
from ptxdiff.references.formats import BF16, F16, Format, fraction

RNG = np.random.default_rng(3)


def numbers(count: int, spread: int = 40) -> np.ndarray:
    """float32 of many magnitudes, with pairs that cancel."""
    x = RNG.normal(size=count) * np.exp2(RNG.integers(-spread, spread, count))
    return x.astype(np.float32)


def codes(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.view(np.uint32).astype(np.int64))


def floats(made: torch.Tensor) -> np.ndarray:
    return made.numpy().astype(np.uint32).view(np.float32)


def exact(values: np.ndarray) -> list[Fraction]:
    return [Fraction(float(v)) for v in values]


@pytest.mark.parametrize("spread", [2, 40])
def test_a_sum_and_its_error_are_exact(spread):
    a, b = numbers(3000, spread), numbers(3000, spread)
    s, e = sums.two_sum(codes(a), codes(b))
    assert (floats(s) == a + b).all()
    assert [x + y for x, y in zip(exact(floats(s)), exact(floats(e)), strict=True)] == [
        x + y for x, y in zip(exact(a), exact(b), strict=True)
    ]
    larger, smaller = np.where(np.abs(a) >= np.abs(b), a, b), np.where(np.abs(a) >= np.abs(b), b, a)
    fast = sums.fast_two_sum(codes(larger), codes(smaller))
    assert [t.tolist() for t in fast] == [s.tolist(), e.tolist()]


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", [pytest.param(41, id="few"), pytest.param(7, id="many", marks=pytest.mark.slow)])
@pytest.mark.parametrize("fmt", [F16, BF16], ids=str)
def test_sums_of_every_half_with_some(fmt: Format, step: int):
    """Codes of a 16-bit format whose sums are finite. The sign of a zero error has no meaning."""
    every = torch.arange(1 << 16)
    for other in (0x0001, 0x3C01, 0x9234, 0x0400):
        b = torch.full_like(every, other)
        s, e = sums.two_sum(every, b, fmt=fmt)
        finite = torch.tensor([c & 0x7FFF < fmt.infinity_code and d & 0x7FFF < fmt.infinity_code
                               for c, d in zip(every.tolist(), s.tolist(), strict=True)])  # fmt: skip
        for x, total, lost in zip(*(x[finite].tolist()[::step] for x in (every, s, e)), strict=True):
            assert fraction(fmt, total) + fraction(fmt, lost) == fraction(fmt, x) + fraction(fmt, other)


def test_a_product_and_its_error_are_exact():
    a, b = numbers(3000), numbers(3000)
    p, e = sums.two_product(codes(a), codes(b))
    assert (floats(p) == a * b).all()
    total = [x + y for x, y in zip(exact(floats(p)), exact(floats(e)), strict=True)]
    assert total == [x * y for x, y in zip(exact(a), exact(b), strict=True)]


def test_running_sums_in_numpy():
    """Each step in float32, in which numpy rounds every operation once; the error of a product is from float64."""
    x = [numbers(500, 10) for _ in range(12)]
    y = [numbers(500, 10) for _ in range(12)]
    s = c = np.zeros(500, np.float32)
    t = d = np.zeros(500, np.float32)
    kahan = dot = (codes(s), codes(c))
    for p, q in zip(x, y, strict=True):
        kahan = sums.kahan(*kahan, codes(p))
        step = p - c
        total = s + step
        s, c = total, (total - s) - step
        dot = sums.dot2(*dot, codes(p), codes(q))
        product = p * q
        low = (p.astype(np.float64) * q - product).astype(np.float32)
        total = t + product
        virtual = total - t
        lost = (t - (total - virtual)) + (product - virtual)
        t, d = total, d + (lost + low)
    assert [floats(v).tolist() for v in kahan] == [s.tolist(), c.tolist()]
    assert [floats(v).tolist() for v in dot] == [t.tolist(), d.tolist()]


@pytest.mark.slow
def test_the_compensated_dot_product_is_nearly_exact():
    """A sum that cancels almost completely: plain float32 has no correct digit, dot2 nearly all."""
    a = numbers(200, 20)
    a = np.concatenate([a, a, np.float32([3.0])])
    b = np.concatenate([numbers(200, 20)] * 2 + [np.float32([0.5])])
    b[200:400] *= -1
    state = (torch.zeros(1, dtype=torch.int64),) * 2
    for p, q in zip(a, b, strict=True):
        state = sums.dot2(*state, codes(np.array([p])), codes(np.array([q])))
    found = float(floats(state[0])[0]) + float(floats(state[1])[0])
    assert abs(found - 1.5) < 1e-3 * float(np.abs(a * b).max()) * 2**-24 + 1.5 * 2**-22


def test_a_product_of_matrices_in_fused_multiply_adds():
    """Each step as an exact rational that numpy rounds once: by way of float64 only where that is exact."""
    a, b, c = (numbers(n, 6).reshape(shape) for n, shape in ((15, (3, 5)), (20, (5, 4)), (12, (3, 4))))
    found = floats(sums.fused_product(codes(a), codes(b), codes(c)))
    total = [[Fraction(float(v)) for v in row] for row in c]
    for i in range(3):
        for j in range(4):
            for k in range(5):
                total[i][j] = rounded(total[i][j] + Fraction(float(a[i, k])) * Fraction(float(b[k, j])))
    assert [[Fraction(float(v)) for v in row] for row in found] == total
    assert (floats(sums.fused_product(codes(a).flip(1), codes(b).flip(0), codes(c))) != found).any()  # order matters


def rounded(x: Fraction) -> Fraction:
    """To the nearest normal float32, ties to even."""
    if not x:
        return x
    exponent = math.frexp(float(x))[1]  # or one too many, if float64 rounds x up to a power of two
    last = Fraction(2) ** (exponent - 24 - (abs(x) < Fraction(2) ** (exponent - 1)))
    return round(x / last) * last


def test_a_product_in_fused_multiply_adds_keeps_special_values():
    minus_zero, infinity, nan = 1 << 31, 0x7F800000, 0x7FC00000
    a = torch.tensor([[0, 0], [0x3F800000, infinity], [infinity, 0]])
    b = torch.tensor([[0x3F800000], [0x3F800000]])
    c = torch.tensor([[minus_zero], [0], [0xFF800000]])
    found = sums.fused_product(a, b, c).flatten().tolist()
    assert found[:2] == [0, infinity]
    assert found[2] & 0x7FFFFFFF >= nan
