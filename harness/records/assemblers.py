"""Tallies of results by assembler, and the names of assemblers as users write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ptxdiff.records.types import PTXAS, Result

_NAME = re.compile(
    r"(?:ptxas )?(?P<version>\d+(?:\.\d+)*)(?: -O(?P<level>[0-3]))?(?P<options>(?: -[^\s()]+)+)?"
    r"(?: \((?P<digest>[0-9a-f]{12})\))?"
)


@dataclass(frozen=True)
class AssemblerTally:
    """Results by one ptxas at one level.

    passed, failed: counts of verdicts; errors count as failed, failures that their case declares as neither. faults:
    those caused by ptxas itself, declared or not.
    """

    label: str
    passed: int
    failed: int
    faults: int

    def __str__(self) -> str:
        faults = f"{self.faults:,} fault{'s' * (self.faults != 1)} of ptxas"
        return f"{self.label}: {self.passed:,} passed, {self.failed:,} failed, {faults}"


def by_assembler(results: Iterable[Result]) -> list[AssemblerTally]:
    """A tally for each assembler and level that results name, sorted by name."""
    groups: dict[str, list[Result]] = {}
    for r in results:
        if r.ptxas:
            groups.setdefault(r.ptxas, []).append(r)
    return [_tally(label, members) for label, members in sorted(groups.items())]


def _tally(label: str, members: list[Result]) -> AssemblerTally:
    ours = [r for r in members if not r.expected_failure]
    passed = sum(r.verdict == "pass" for r in ours)
    failed = sum(r.verdict in ("fail", "error") for r in ours)
    return AssemblerTally(label, passed, failed, sum(r.diagnosis == PTXAS for r in members))


def names_assembler(name: str, label: str) -> bool:
    """Whether a name means an assembler: `13.4`, `13.4.59 -O3`, or a label as in records.

    A name without a level means all levels; without a digest, all programs of that version; without options, calls with
    any options, because older labels had none. Raises ValueError for a word of another form.
    """
    meant, known = _NAME.fullmatch(name), _NAME.fullmatch(label)
    if meant is None:
        raise ValueError(
            f"{name!r} names no assembler; write its version, with a level or without: 13.4, '13.4.59 -O3'"
        )
    if known is None:
        return False
    same = f"{known['version']}.".startswith(f"{meant['version']}.")
    return same and all(meant[part] in (None, known[part]) for part in ("level", "options", "digest"))
