"""The special function unit on a device: its coefficients are fitted again, and quotients near limits are compared.

The definitions were fitted to Hopper GPUs: on another GPU a difference is a finding, not a mistake of the definition.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import emulate
from ptxdiff.conformance import fit, forms
from ptxdiff.processes.gpus import gpu_visible

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs an NVIDIA GPU: none is visible"),
]

FRACTIONS = np.arange(1 << 23, dtype=np.uint32)
ONE, INFINITY = np.uint32(0x3F800000), np.uint32(0x7F800000)


def run(device, form, *columns):
    (snippet,) = forms.snippets(form)
    assert device.compiled([snippet], False) == {}
    return device.run(snippet, list(columns))[0]


@pytest.mark.parametrize("name", sorted(fit.DESIGNS))
def test_fitted_coefficients_equal_those_of_the_emulator(device, name):
    """The emulator's coefficients give all results of all segments, and no others do."""
    table = fit.on_device(name, device)
    assert table.same_as(name)
    assert table.unique


@pytest.mark.parametrize("form", ["div.approx.ftz.f32", "div.full.ftz.f32"])
@pytest.mark.parametrize("exponent", [127, 128, 160, 200, 240, 250, 251, 252, 253, 254])
def test_quotients_next_to_the_least_normal_number(device, form, exponent):
    """For all divisors of an exponent and dividends near 2**-126 times them, both flush the same quotients."""
    divisors = FRACTIONS | np.uint32(exponent << 23)
    first = FRACTIONS | np.uint32(exponent - 126 << 23)
    nonzero = 0
    for step in range(-3, 4):
        dividends = (first.astype(np.int64) + step).astype(np.uint32)
        got = run(device, form, dividends, divisors)
        expected = emulate(f"{form} $0, $1, $2;", "=r,r,r", [dividends, divisors], np.uint32)
        wrong = np.flatnonzero(got != expected)
        assert len(wrong) == 0, [hex(x[wrong[0]]) for x in (dividends, divisors, got, expected)]
        nonzero += int((got != 0).sum())
    assert 0 < nonzero < 7 << 23 or (form == "div.approx.ftz.f32" and exponent > 252)


@pytest.mark.parametrize("form", ["div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 60, 125, 126])
def test_quotients_next_to_the_greatest_number(device, form, exponent):
    """For all divisors of an exponent and dividends near 2**128 times them, the same quotients overflow on both."""
    divisors = FRACTIONS | np.uint32(exponent << 23)
    if exponent == 0:
        divisors = divisors[1:]
        if ".ftz" in form:
            pytest.skip("a subnormal divisor counts as zero")
    first = (divisors.view(np.float32).astype(np.float64) * 2.0**128).astype(np.float32).view(np.uint32)
    over = 0
    for step in range(-5, 2):
        dividends = (first.astype(np.int64) + step).astype(np.uint32)
        got = run(device, form, dividends, divisors)
        expected = emulate(f"{form} $0, $1, $2;", "=r,r,r", [dividends, divisors], np.uint32)
        wrong = np.flatnonzero(got != expected)
        assert len(wrong) == 0, [hex(x[wrong[0]]) for x in (dividends, divisors, got, expected)]
        over += int((got == INFINITY).sum())
    assert 0 < over < 7 * len(divisors)


@pytest.mark.parametrize("form", ["div.approx.f32", "div.full.f32"])
@pytest.mark.parametrize("exponent", [128, 140, 150, 151, 160, 200, 251, 252, 253, 254])
def test_quotients_next_to_half_of_the_least_number(device, form, exponent):
    """For all divisors of an exponent and dividends near 2**-150 times them, the same quotients are zero on both."""
    divisors = FRACTIONS | np.uint32(exponent << 23)
    first = (divisors.view(np.float32).astype(np.float64) * 2.0**-150).astype(np.float32).view(np.uint32)
    nonzero = 0
    for step in range(-3, 4):
        dividends = np.maximum(first.astype(np.int64) + step, 1).astype(np.uint32)
        got = run(device, form, dividends, divisors)
        expected = emulate(f"{form} $0, $1, $2;", "=r,r,r", [dividends, divisors], np.uint32)
        wrong = np.flatnonzero(got != expected)
        assert len(wrong) == 0, [hex(x[wrong[0]]) for x in (dividends, divisors, got, expected)]
        nonzero += int((got != 0).sum())
    assert 0 < nonzero < 7 << 23 or (form == "div.approx.f32" and exponent > 252)
