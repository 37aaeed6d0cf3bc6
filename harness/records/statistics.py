"""Statistics of times: the interval of a median, and the verdict on two sets of samples that every comparison uses.

Times are not normally distributed (they have a floor, a tail, and the clock's steps), so intervals are bootstrap
intervals of the median. The median of a bootstrap sample is an order statistic, whose rank is that of as many uniform
random numbers. It is drawn directly from their Beta distribution, which is exact and needs no resampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 4000
# If the whole interval of a ratio lies within this of 1, two variants are called the same, whatever the noise.
SAME = 0.01
# With more noise than this, no two variants are called the same: the noise could hide a difference that matters.
TOO_NOISY = 0.05
# Differences of up to this many seconds between two readings are rounding errors, not the clock's step.
_ROUNDING = 2e-9
_NANOSECOND = 1e-9

Verdict = Literal["faster", "slower", "same", "too noisy to say"]


@dataclass(frozen=True)
class Median:
    """A median with its bootstrap interval, seconds."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """The interval's width relative to the median."""
        return (self.high - self.low) / self.value if self.value else 0.0


@dataclass(frozen=True)
class Beside:
    """Two timings compared: the ratio of the medians with its 95% interval, above 1 if the second takes longer."""

    ratio: float
    low: float
    high: float
    verdict: Verdict


def median(samples: Sequence[float]) -> Median:
    """The median of samples in seconds. Raises ValueError if there are none.

    The interval includes the uncertainty of a coarse clock (`readings`).
    """
    if not len(samples):
        raise ValueError("there are no samples to take a median of")
    import numpy as np

    values, half = readings(samples)
    low, high = np.quantile(medians(values, np.random.default_rng(0)), _tails())
    middle = float(np.median(values))
    return Median(middle, min(float(low), middle - half), max(float(high), middle + half))


def readings(samples: Sequence[float]) -> tuple[NDArray[np.float64], float]:
    """The samples, with equal readings spread evenly over the clock's step, and the uncertainty of their median in
    seconds.

    This is the usual median of grouped data. If times vary by more than a step, it resolves a fraction of the step: on
    an H200, whose clock has steps of 32 ns, such medians of 1.4 us repeat within 1% from run to run, and kernels with
    the same code agree within 0.3%. If times vary by less, the median may be off by half a step.
    """
    import numpy as np

    values, size = np.sort(np.asarray(samples, dtype=np.float64)), step(samples)
    quarter, three = np.quantile(values, [0.25, 0.75])
    if three - quarter < size:
        return values, size / 2
    _, first, count = np.unique(np.round(values / _NANOSECOND), return_index=True, return_counts=True)
    rank = np.arange(len(values)) - np.repeat(first, count)
    return values + size * ((rank + 0.5) / np.repeat(count, count) - 0.5), 0.0


def step(samples: Sequence[float]) -> float:
    """The smallest step between two readings of the clock, in seconds; 0 if all are equal."""
    import numpy as np

    gaps = np.diff(np.unique(np.asarray(samples, dtype=np.float64)))
    real = gaps[gaps > _ROUNDING]
    return float(real.min()) if len(real) else 0.0


def beside(base: Sequence[float], other: Sequence[float], noise: float) -> Beside:
    """The comparison of `other` with `base`. noise: the relative difference below which they are the same."""
    ratio, low, high = _ratio(base, other)
    return Beside(ratio, low, high, verdict(low, high, noise))


def _ratio(base: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of the medians with its bootstrap interval, widened by the uncertainty of the clocks."""
    import numpy as np

    rng = np.random.default_rng(0)
    (a, half_a), (b, half_b) = readings(base), readings(other)
    ratio = float(np.median(b)) / float(np.median(a))
    open_ = ratio * (half_a / float(np.median(a)) + half_b / float(np.median(b)))
    low, high = np.quantile(medians(b, rng) / medians(a, rng), _tails())
    return ratio, float(low) - open_, float(high) + open_


def verdict(low: float, high: float, noise: float) -> Verdict:
    """The verdict on a ratio's interval: a difference only if the whole interval lies beyond the noise."""
    if low > 1 + noise:
        return "slower"
    if high < 1 - noise:
        return "faster"
    band = max(noise, SAME)
    within = low >= 1 - band and high <= 1 + band
    return "same" if within and noise <= TOO_NOISY else "too noisy to say"


def noise_of(one: Sequence[float], twin: Sequence[float]) -> float:
    """The noise of an A/A run: the smallest relative difference that can be told from it. one, twin: times of the same
    kernel.

    It is the distance from 1 of the farther end of their ratio's interval.
    """
    _, low, high = _ratio(one, twin)
    return max(abs(low - 1), abs(high - 1))


def medians(
    samples: Sequence[float] | NDArray[np.float64], rng: np.random.Generator, count: int = RESAMPLES
) -> NDArray[np.float64]:
    """The medians of `count` bootstrap samples."""
    import numpy as np

    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    n = len(ordered)
    rank = (n + 1) // 2
    first = rng.beta(rank, n + 1 - rank, count)
    lower = ordered[_place(first, n)]
    if n % 2:
        return np.asarray(lower)
    # The next uniform number is the smallest of the n - rank numbers above the first.
    second = first + (1 - first) * rng.beta(1, n - rank, count)
    return np.asarray((lower + ordered[_place(second, n)]) / 2)


def _place(uniform: NDArray[np.float64], n: int) -> Any:
    import numpy as np

    return np.minimum((uniform * n).astype(np.int64), n - 1)


def _tails() -> tuple[float, float]:
    return (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
