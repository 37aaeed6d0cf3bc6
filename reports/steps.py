"""Step changes in a series of nightly measurements: where the level changed, by how much, and whether that is noise.

Binary segmentation of the logarithms: the split that separates two levels best is accepted if their distance exceeds
`THRESHOLD` standard errors and the smallest relative difference that counts. Then each side is searched. The noise is
estimated from the differences of neighbouring nights, of which a step affects only one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The best of 29 splits is chosen in each of thousands of series. With 8 standard errors, a history without changes
# shows none (tests/reports/test_steps.py measures it).
THRESHOLD = 8.0
# The newest night alone is as likely an outlier as a step, so its threshold is higher.
THRESHOLD_ALONE = 15.0
# An outlier lies more standard deviations than this beyond both its neighbours; it is moved to that distance.
OUTLIER = 2.0
# The least number of nights that define a level.
LEAST_BEFORE = 4
# No real timer repeats better than this. It keeps every change in a constant series from being significant.
LEAST_NOISE = 0.001


@dataclass(frozen=True)
class Step:
    """The level changed at `index` (the first measurement of the new level) from `before` to `after`."""

    index: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """after / before."""
        return self.after / self.before


def steps(values: Sequence[float], smallest: float = 0.0) -> list[Step]:
    """The steps of a series of positive values, oldest first.

    smallest: relative difference below which two levels are called the same. Levels are medians.
    """
    series = np.asarray(values, dtype=np.float64)
    if len(series) <= LEAST_BEFORE or not (series > 0).all():
        return []
    logs = np.log(series)
    noise = max(_noise(logs), LEAST_NOISE)
    bounds = _splits(_without_outliers(logs, noise), 0, noise, math.log1p(smallest))
    edges = [0, *bounds, len(series)]
    levels = [float(np.median(series[a:b])) for a, b in zip(edges, edges[1:], strict=False)]  # noqa: RUF007
    return [Step(i, levels[n], levels[n + 1]) for n, i in enumerate(bounds)]


def _noise(logs: NDArray[np.float64]) -> float:
    """Standard deviation of one measurement, from the median of neighbouring differences."""
    return float(np.median(np.abs(np.diff(logs)))) * 1.4826 / math.sqrt(2)


def _without_outliers(logs: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """The series with every night but the first and the newest limited to what its neighbours allow."""
    low = np.minimum(logs[:-2], logs[2:]) - OUTLIER * noise
    high = np.maximum(logs[:-2], logs[2:]) + OUTLIER * noise
    return np.concatenate([logs[:1], np.clip(logs[1:-1], low, high), logs[-1:]])


def _splits(logs: NDArray[np.float64], offset: int, noise: float, smallest: float) -> list[int]:
    n = len(logs)
    if n <= LEAST_BEFORE:
        return []
    sizes = np.arange(1, n)
    sums = np.cumsum(logs)
    before = sums[:-1] / sizes
    after = (sums[-1] - sums[:-1]) / (n - sizes)
    scores = np.abs(after - before) * np.sqrt(sizes * (n - sizes) / n) / noise
    scores[: LEAST_BEFORE - 1] = 0.0
    at = int(np.argmax(scores)) + 1
    left, right = logs[:at], logs[at:]
    if len(right) == 1 and scores[-1] < THRESHOLD_ALONE:
        return _splits(left, offset, noise, smallest)
    if scores[at - 1] < THRESHOLD or abs(float(np.median(right) - np.median(left))) <= smallest:
        return []
    return [
        *_splits(left, offset, noise, smallest),
        offset + at,
        *_splits(right, offset + at, noise, smallest),
    ]
