"""Speed: what was timed, how it compares with the copy floor and with the other variants, and whether that is noise.

A comparison of two variants resamples both sides (a bootstrap of the ratio of medians) and calls them different only
where the whole 95% interval lies beyond the A/A noise of the session.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from harness.records import RunRecords, Timing

RESAMPLES = 1000


@dataclass(frozen=True)
class Comparison:
    """A variant beside the case's first one at the same size: ratio of median times with its 95% interval.

    verdict: "faster", "slower", "same" or "too noisy to say".
    """

    ratio: float
    low: float
    high: float
    verdict: str


@dataclass(frozen=True)
class Measured:
    """One row of the table of speed."""

    timing: Timing
    bandwidth: float
    """Bytes a second."""
    of_copy: float
    """Time of the copy over time of the variant: 1 is the floor."""
    against: Comparison | None
    """Beside the first variant of the case; None for that one itself."""


def measured(records: RunRecords) -> dict[str, list[Measured]]:
    """The timings of a run by case, by target and size, each variant beside the first of its case."""
    groups: dict[tuple[str, str, int, str], list[Timing]] = defaultdict(list)
    for t in records.timings:
        groups[(t.key.case, t.key.target, t.elements, t.key.shape)].append(t)
    found: dict[str, list[Measured]] = defaultdict(list)
    for (case, *_), members in sorted(groups.items()):
        first = members[0]
        for t in members:
            found[case].append(
                Measured(
                    t,
                    t.bytes / t.median if t.median else 0.0,
                    t.copy / t.median if t.median else 0.0,
                    None if t is first else compare(first, t),
                )
            )
    return dict(found)


def compare(base: Timing, other: Timing) -> Comparison:
    """`other` beside `base`."""
    ratio = other.median / base.median
    noise = max(base.noise, other.noise)
    if min(len(base.samples), len(other.samples)) < 2:
        low, high = other.low / base.high, other.high / base.low
    else:
        rng = np.random.default_rng(0)
        a, b = (
            np.median(rng.choice(np.asarray(t.samples), (RESAMPLES, len(t.samples))), axis=1) for t in (base, other)
        )
        low, high = (float(q) for q in np.quantile(b / a, [0.025, 0.975]))
    return Comparison(ratio, low, high, _verdict(low, high, noise))


def _verdict(low: float, high: float, noise: float) -> str:
    if low > 1 + noise:
        return "slower"
    if high < 1 - noise:
        return "faster"
    # Wholly within the noise is the same; an interval that reaches beyond it could be either.
    return "same" if low >= 1 - max(noise, 0.01) and high <= 1 + max(noise, 0.01) else "too noisy to say"
