"""Statistics of times: the interval of a median, and the one verdict on two sets of samples that every comparison uses.

Times have no normal distribution (a floor, a tail, the clock's steps), so intervals are bootstrap intervals of the
median. A bootstrap sample's median is an order statistic of the sample, whose rank is that of as many uniform random
numbers: it is drawn directly from their Beta distribution, exactly, without resampling.
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
# Two variants whose whole interval lies within this of each other are called the same, whatever the noise.
SAME = 0.01
# With more noise than this, differences that matter would be called the same: nothing is.
TOO_NOISY = 0.05
# Differences in a clock's readings up to this many seconds are rounding, not its step.
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
    """One timing beside another: the ratio of the medians with its 95% interval, above 1 where it takes longer."""

    ratio: float
    low: float
    high: float
    verdict: Verdict


def median(samples: Sequence[float]) -> Median:
    """The median of samples in seconds. Raises ValueError where there is none.

    The interval is never narrower than what a coarse clock leaves open (`readings`).
    """
    if not len(samples):
        raise ValueError("no samples, and so no median")
    import numpy as np

    values, half = readings(samples)
    low, high = np.quantile(medians(values, np.random.default_rng(0)), _tails())
    middle = float(np.median(values))
    return Median(middle, min(float(low), middle - half), max(float(high), middle + half))


def readings(samples: Sequence[float]) -> tuple[NDArray[np.float64], float]:
    """The samples with those of one reading of the clock spread over its step, and by how much a median may be off.

    The usual median of grouped data. Where times vary by more than a step, it resolves a fraction of that: on an H200,
    whose clock has steps of 32 ns, medians of 1.4 us so found repeat within 1% from run to run, and kernels of the
    same code agree within 0.3%. Where they vary by less, a median may be off by half a step.
    """
    import numpy as np

    values, size = np.sort(np.asarray(samples, dtype=np.float64)), step(samples)
    quarter, three = np.quantile(values, [0.25, 0.75])
    if three - quarter < size:
        return values, size / 2
    _, first, count = np.unique(np.round(values / _NANOSECOND), return_index=True, return_counts=True)
    place = np.arange(len(values)) - np.repeat(first, count)
    return values + size * ((place + 0.5) / np.repeat(count, count) - 0.5), 0.0


def step(samples: Sequence[float]) -> float:
    """The smallest step between two readings of the clock, in seconds; 0 where all are equal."""
    import numpy as np

    gaps = np.diff(np.unique(np.asarray(samples, dtype=np.float64)))
    real = gaps[gaps > _ROUNDING]
    return float(real.min()) if len(real) else 0.0


def beside(base: Sequence[float], other: Sequence[float], noise: float) -> Beside:
    """The samples of `other` beside those of `base`; noise: the relative difference below which they are the same."""
    ratio, low, high = _ratio(base, other)
    return Beside(ratio, low, high, verdict(low, high, noise))


def _ratio(base: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of the medians with its bootstrap interval, wider by what the clocks leave open."""
    import numpy as np

    rng = np.random.default_rng(0)
    (a, half_a), (b, half_b) = readings(base), readings(other)
    ratio = float(np.median(b)) / float(np.median(a))
    open_ = ratio * (half_a / float(np.median(a)) + half_b / float(np.median(b)))
    low, high = np.quantile(medians(b, rng) / medians(a, rng), _tails())
    return ratio, float(low) - open_, float(high) + open_


def verdict(low: float, high: float, noise: float) -> Verdict:
    """What the interval of a ratio says: a difference only where the whole interval lies beyond the noise."""
    if low > 1 + noise:
        return "slower"
    if high < 1 - noise:
        return "faster"
    band = max(noise, SAME)
    within = low >= 1 - band and high <= 1 + band
    return "same" if within and noise <= TOO_NOISY else "too noisy to say"


def noise_of(one: Sequence[float], twin: Sequence[float]) -> float:
    """The smallest difference that may be called one, from an A/A run: two sets of samples of the same kernel.

    The end of their ratio's interval that lies farther from 1.
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
    # The next of the uniform numbers is the smallest of the n - rank that lie above the first.
    second = first + (1 - first) * rng.beta(1, n - rank, count)
    return np.asarray((lower + ordered[_place(second, n)]) / 2)


def _place(uniform: NDArray[np.float64], n: int) -> Any:
    import numpy as np

    return np.minimum((uniform * n).astype(np.int64), n - 1)


def _tails() -> tuple[float, float]:
    return (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
