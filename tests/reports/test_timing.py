"""Comparisons of speed."""

import dataclasses
import random

import pytest

from harness.records import Key, Timing
from reports.timing import compare, measured
from tests.reports import synthetic


def timing(level, spread=0.002, noise=0.01, seed=1, samples=51, variant="a"):
    rng = random.Random(seed)
    values = sorted(level * (1 + rng.gauss(0, spread)) for _ in range(samples))
    middle = len(values) // 2
    return Timing(
        Key("c", variant, "sm_90a", "gpu", shape="1024"), 1024, 8192, tuple(values), values[middle], values[middle - 5],
        values[middle + 5], 1e-6, noise,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("factor", "spread", "verdict"),
    [
        (1.0, 0.002, "same"),
        (1.005, 0.002, "same"),
        (1.05, 0.002, "slower"),
        (0.9, 0.002, "faster"),
        (1.02, 0.2, "too noisy to say"),
    ],
)
def test_verdicts(factor, spread, verdict):
    found = compare(timing(1e-5, spread), timing(1e-5 * factor, spread, seed=2))
    assert found.verdict == verdict
    assert found.low <= found.ratio <= found.high


def test_without_samples_the_intervals_decide():
    a, b = (dataclasses.replace(timing(level), samples=()) for level in (1e-5, 2e-5))
    assert compare(a, b).verdict == "slower"


def test_every_variant_stands_beside_the_first_of_its_size():
    rows = measured(synthetic.catalogue(1, per_cell=2))["rcp"]
    assert len(rows) == len(synthetic.SIZES) * len(synthetic.VARIANTS)
    assert [r.against is None for r in rows] == [True, False, False, False] * len(synthetic.SIZES)
    assert rows[0].of_copy == pytest.approx(1 / 1.02, rel=0.01)
    assert rows[3].against.verdict == "slower"
