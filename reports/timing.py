"""Speed: the timings, their ratios to the copy floor and to the first variant, and whether a difference is noise.

The statistics are those of the records (`Timing.beside`), so that reports and comparisons of runs agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ptxdiff.records import Beside, InRegisters, RunRecords, Timing
from ptxdiff.records.in_registers import UNITS, pays_lines


@dataclass(frozen=True)
class Measured:
    """One row of the table of speed."""

    timing: Timing
    bandwidth: float
    """Bytes read plus bytes written, per second."""
    rate: float
    """Elements per second."""
    of_copy: float
    """Time of the copy over time of the variant: 1 is the floor."""
    against: Beside | None
    """The comparison with the first variant of the case; None for the first itself."""


def measured(records: RunRecords) -> dict[str, list[Measured]]:
    """The timings of a run by case, by target and size, each variant beside the first that its case file names."""
    groups: dict[tuple[str, str, int, str, str, str], list[Timing]] = defaultdict(list)
    for t in records.timings:  # times by two assemblers, or by two nodes of a merged run, are not compared
        groups[(t.key.case, t.key.target, t.elements, t.key.shape, t.node, t.key.assembler)].append(t)
    places = {(name, v): n for name, info in records.cases.items() for n, v in enumerate(info.variants)}
    by_case: dict[str, list[Measured]] = defaultdict(list)
    for (case, *_), members in sorted(groups.items()):
        members.sort(key=lambda t: places.get((t.key.case, t.key.variant), len(places)))
        first = members[0]
        by_case[case] += [_row(t, None if t is first else t.beside(first)) for t in members]
    return dict(by_case)


@dataclass(frozen=True)
class Looped:
    """One row of a table of speed in registers; `against` as in `Measured`."""

    timing: InRegisters
    against: Beside | None


@dataclass(frozen=True)
class RegisterTable:
    """The variants of a case in one mode on one target. unit: of the values."""

    target: str
    mode: str
    unit: str
    rows: tuple[Looped, ...]


@dataclass(frozen=True)
class RegisterSpeed:
    """The speed of a case's variants in registers.

    lines: the arithmetic intensity above which the faster variant pays, by target. untimed: variants without a figure.
    """

    tables: tuple[RegisterTable, ...] = ()
    lines: tuple[tuple[str, tuple[str, ...]], ...] = ()
    untimed: tuple[InRegisters, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tables or self.untimed)


def looped(records: RunRecords) -> dict[str, RegisterSpeed]:
    """The timings in registers of a run by case, each variant beside the first that its case file names."""
    places = {(name, v): n for name, info in records.cases.items() for n, v in enumerate(info.variants)}
    cases: dict[str, dict[str, list[InRegisters]]] = defaultdict(lambda: defaultdict(list))
    for t in sorted(records.in_registers, key=lambda t: places.get((t.key.case, t.key.variant), len(places))):
        where = f"{t.key.target} on {t.node}" if t.node else t.key.target  # times of two nodes are not compared
        cases[t.key.case][where].append(t)
    by_case = {}
    for case, targets in sorted(cases.items()):
        good = {target: [t for t in members if not t.words] for target, members in sorted(targets.items())}
        tables = tuple(
            RegisterTable(target, mode, unit, tuple(_looped([t for t in members if t.mode == mode])))
            for target, members in good.items()
            for mode, unit in UNITS.items()
            if any(t.mode == mode for t in members)
        )
        lines = tuple((target, tuple(pays_lines(members))) for target, members in good.items() if members)
        untimed = tuple(t for members in targets.values() for t in members if t.words)
        by_case[case] = RegisterSpeed(tables, lines, untimed)
    return by_case


def _looped(members: list[InRegisters]) -> Iterator[Looped]:
    for t in members:
        yield Looped(t, None if t is members[0] else t.beside(members[0]))


def _row(t: Timing, against: Beside | None) -> Measured:
    a_second = 1 / t.median if t.median else 0.0
    return Measured(t, t.bytes * a_second, t.elements * a_second, t.copy * a_second, against)
