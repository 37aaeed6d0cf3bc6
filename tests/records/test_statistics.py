"""Statistics of times: intervals contain the median as often as stated, and planted differences get their verdicts."""

import dataclasses

import numpy as np
import pytest

from ptxdiff.records import Key, Timing
from ptxdiff.records import statistics as speed


def drawn(rng, kind, count):
    """Samples of distributions with median 1."""
    if kind == "normal":
        return 1 + 0.02 * rng.standard_normal(count)
    if kind == "tail":  # a least time and a tail above it, as times have
        return 0.98 + 0.02 * rng.exponential(size=count) / np.log(2)
    return 1 + 0.02 * rng.choice([-1, 1], count) * rng.random(count)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["normal", "tail", "two-sided"])
@pytest.mark.parametrize("count", [32, 80])
def test_the_interval_covers_the_median_as_often_as_it_says(kind, count):
    rng = np.random.default_rng(5)
    trials = 400
    intervals = [speed.median(drawn(rng, kind, count)) for _ in range(trials)]
    covered = sum(m.low <= 1 <= m.high for m in intervals)
    # 95% of 400, minus four standard errors of 4.4 each.
    assert covered > 362
    assert covered < trials


def test_with_too_much_noise_no_two_variants_are_called_the_same():
    assert speed.verdict(0.96, 1.04, 0.045) == "same"
    assert speed.verdict(0.96, 1.04, 0.12) == "too noisy to say"
    assert speed.verdict(0.96, 1.04, 0.02) == "too noisy to say"
    assert speed.verdict(1.2, 1.3, 0.12) == "slower"


@pytest.mark.parametrize("count", [31, 32, 201])
def test_medians_are_those_of_resampling(count):
    samples = np.random.default_rng(1).gamma(3, 1, count)
    rng = np.random.default_rng(2)
    direct = np.median(rng.choice(samples, (20_000, count)), axis=1)
    found = speed.medians(samples, rng, 20_000)
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        near = np.abs(np.quantile(found, [q - 0.01, q + 0.01]))
        assert near[0] <= np.quantile(direct, q) <= near[1]


def test_an_interval_is_no_narrower_than_the_clocks_step():
    found = speed.median([1.600e-6, 1.632e-6, *[1.600e-6] * 60])
    assert (found.value, found.low, found.high) == pytest.approx((1.6e-6, 1.584e-6, 1.616e-6))
    assert speed.step([1.6e-6, 1.601e-6, 1.632e-6]) == pytest.approx(31e-9)  # 1 ns is only rounding
    with pytest.raises(ValueError, match="no samples"):
        speed.median([])


def on_clock(level, count, rng):
    """Times around a level with 50 ns of spread, read on a clock of 32 ns with a random phase."""
    return np.round((level + 50e-9 * rng.standard_normal(count)) / 32e-9) * 32e-9


def test_medians_resolve_a_fraction_of_the_clocks_step():
    rng = np.random.default_rng(9)
    levels = 1.4e-6 + 32e-9 * rng.random(100)
    intervals = [speed.median(on_clock(level, 1000, rng)) for level in levels]
    assert all(m.width < 0.01 for m in intervals)  # less than half a step
    covered = sum(m.low <= level <= m.high for m, level in zip(intervals, levels, strict=True))
    assert covered >= 86  # 95 minus four standard errors


def test_differences_below_the_clocks_step_are_resolved_if_times_vary_by_more():
    rng = np.random.default_rng(10)
    one, twin, other = (on_clock(level, 1000, rng) for level in (1.4e-6, 1.4e-6, 1.42e-6))
    found = speed.beside(one, other, speed.noise_of(one, twin))
    assert found.verdict == "slower"
    assert found.ratio == pytest.approx(1.42 / 1.4, abs=0.004)
    assert speed.beside(one, twin, speed.noise_of(one, twin)).verdict == "same"


def test_readings_of_a_coarse_clock_differ_only_by_more_than_a_step():
    """All samples of each kernel have one reading, for which the bootstrap alone would report a difference of 2%."""
    found = speed.beside([1.408e-6] * 99 + [1.44e-6], [1.44e-6] * 99 + [1.408e-6], 0.0)
    assert found.ratio == pytest.approx(1.0227, abs=1e-4)
    assert found.low < 1 < found.high
    assert found.verdict == "too noisy to say"
    assert speed.beside([1.408e-6] * 99 + [1.44e-6], [1.6e-6] * 99 + [1.632e-6], 0.0).verdict == "slower"


@pytest.mark.slow
def test_a_kernel_beside_itself_is_called_the_same():
    """Of 300 sessions with noise of 1%, only a few report a difference, though there is none."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(300):
        a, twin, b = (1e-5 * (1 + 0.01 * rng.standard_normal(60)) for _ in range(3))
        found = speed.beside(a, b, speed.noise_of(a, twin))
        wrong += found.verdict in ("faster", "slower")
    assert wrong <= 3


@pytest.mark.parametrize(
    ("factor", "spread", "verdict"),
    [(1.05, 0.01, "slower"), (1 / 1.05, 0.01, "faster"), (1.0, 0.01, "same"), (1.05, 0.3, "too noisy to say")],
)
def test_a_planted_difference_is_named(factor, spread, verdict):
    rng = np.random.default_rng(11)
    a, twin, b = (1e-5 * (1 + spread * rng.standard_normal(120)) for _ in range(3))
    found = speed.beside(a, b * factor, speed.noise_of(a, twin))
    assert found.verdict == verdict
    assert found.low <= found.ratio <= found.high
    if spread < 0.1:
        assert found.low <= factor <= found.high


def test_a_difference_within_the_twins_noise_is_not_reported():
    """A drift that makes a kernel 3% slower than itself can hide that a variant is 2% slower."""
    rng = np.random.default_rng(3)
    a, twin, b = (level * (1 + 0.002 * rng.standard_normal(100)) for level in (1.0, 1.03, 1.02))
    noise = speed.noise_of(a, twin)
    assert noise == pytest.approx(0.03, abs=0.002)
    assert speed.beside(a, b, noise).verdict == "same"
    assert speed.beside(a, b, 0.0).verdict == "slower"  # the verdict without an A/A run


def timing(level, spread=0.002, noise=0.01, seed=1, samples=51, variant="a"):
    values = level * (1 + spread * np.random.default_rng(seed).standard_normal(samples))
    known = speed.median(values)
    key = Key("c", variant, "sm_90a", "gpu", shape="1024")
    return Timing(key, 1024, 8192, tuple(values), known.value, known.low, known.high, 1e-6, noise)


@pytest.mark.parametrize(
    ("factor", "least", "verdict"),
    [(1.0, 0.0, "same"), (1.005, 0.0, "same"), (1.05, 0.0, "slower"), (0.9, 0.0, "faster"), (1.04, 0.05, "same")],
)
def test_records_compare_themselves(factor, least, verdict):
    found = timing(1e-5 * factor, seed=2).beside(timing(1e-5), least=least)
    assert found.verdict == verdict


def test_without_samples_the_intervals_decide():
    a, b = (dataclasses.replace(timing(level), samples=()) for level in (1e-5, 2e-5))
    assert b.beside(a).verdict == "slower"
    assert a.beside(b).verdict == "faster"
