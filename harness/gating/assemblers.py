"""Decisions on assemblers: whether a run's results come from accepted ones, and from those of the baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ptxdiff.backends import BACKENDS
from ptxdiff.gating.decision import ACCEPTED, CORRECTNESS, RUN, Objection
from ptxdiff.records import RunRecords, names_assembler
from ptxdiff.records.compare import Comparison

BASELINE = "baseline"
"""The name that stands for the assemblers of the baseline."""
HELD = "accepted_assemblers"
"""The entry in the environment of a baseline of digests that lists the assemblers, because its results do not."""

_WITH_PTXAS = tuple(name for name, kind in BACKENDS.items() if kind.chosen_ptxas)


def assembled(
    run: RunRecords, baseline: RunRecords, comparison: Comparison, names: Sequence[str]
) -> Iterator[Objection]:
    """The decisions on assemblers. names: of accepted ones; empty for all. Raises ValueError for an illegal name."""
    for change in comparison.of("assembler"):
        text = f"{change.detail} of backend {change.key.backend} by {change.after}, in the baseline by {change.before}"
        yield Objection(ACCEPTED, RUN, f"{text}: equal bits come from two assemblers")
    if not names:
        return
    accepted = [n for n in names if n != BASELINE] + (known(baseline) if BASELINE in names else [])
    if BASELINE in names and not known(baseline):
        yield Objection(CORRECTNESS, RUN, "the baseline does not name its assembler: make it again, or give versions")
    for name in accepted:
        names_assembler(name, "")  # raises ValueError for an illegal name, whatever the run has
    made = Counter(r.ptxas for r in run.results if r.key.backend in _WITH_PTXAS and r.verdict != "not run")
    for label, count in sorted(made.items()):
        if not any(names_assembler(name, label) for name in accepted):
            by = f"by {label}" if label else "by an assembler that they do not name"
            yield Objection(CORRECTNESS, RUN, f"{count} results {by}; accepted are {', '.join(accepted) or 'none'}")
    for name in accepted:
        if not any(names_assembler(name, label) for label in made):
            yield Objection(ACCEPTED, RUN, f"assembler {name} is accepted, but has no result in this run")


def known(records: RunRecords) -> list[str]:
    """The labels of the assemblers that made some records."""
    held = records.run.environment.get(HELD, ())
    return sorted({r.ptxas for r in records.results if r.ptxas}.union(map(str, held)))
