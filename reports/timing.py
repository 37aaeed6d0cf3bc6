"""Speed: what was timed, how it compares with the copy floor and with the other variants, and whether that is noise.

The statistics are the records' own (`Timing.beside`): what compares two runs says the same of the same samples.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from harness.records import Beside, RunRecords, Timing


@dataclass(frozen=True)
class Measured:
    """One row of the table of speed."""

    timing: Timing
    bandwidth: float
    """Bytes read plus bytes written, a second."""
    rate: float
    """Elements a second."""
    of_copy: float
    """Time of the copy over time of the variant: 1 is the floor."""
    against: Beside | None
    """Beside the first variant of the case; None for that one itself."""


def measured(records: RunRecords) -> dict[str, list[Measured]]:
    """The timings of a run by case, by target and size, each variant beside the first that its case file names."""
    groups: dict[tuple[str, str, int, str, str], list[Timing]] = defaultdict(list)
    for t in records.timings:  # those of two nodes, in a merged run, say nothing about each other
        groups[(t.key.case, t.key.target, t.elements, t.key.shape, t.node)].append(t)
    places = {(name, v): n for name, info in records.cases.items() for n, v in enumerate(info.variants)}
    found: dict[str, list[Measured]] = defaultdict(list)
    for (case, *_), members in sorted(groups.items()):
        members.sort(key=lambda t: places.get((t.key.case, t.key.variant), len(places)))
        first = members[0]
        found[case] += [_row(t, None if t is first else t.beside(first)) for t in members]
    return dict(found)


def _row(t: Timing, against: Beside | None) -> Measured:
    a_second = 1 / t.median if t.median else 0.0
    return Measured(t, t.bytes * a_second, t.elements * a_second, t.copy * a_second, against)
