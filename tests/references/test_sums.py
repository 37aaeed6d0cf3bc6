"""Compensated sums, compared with exact rationals and with the same steps in numpy's float32."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from references import sums
from references.formats import BF16, F16, Format, fraction

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
