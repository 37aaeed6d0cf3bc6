"""Targets and variants that give different bits for the same inputs: facts beside the verdicts, from records alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.records import Disagreement, Key, Result


@dataclass(frozen=True)
class Split:
    """Results of the same inputs that fall into groups of equal bits.

    what: the variant, or the two variants. groups: who agrees, the largest group first. setups: in how many setups.
    failing: those of them that fail. first: an input where bits differ, if the run kept one.
    """

    case: str
    what: str
    groups: tuple[tuple[str, ...], ...]
    setups: int
    failing: tuple[str, ...]
    first: Disagreement | None

    @property
    def inputs(self) -> str:
        """The inputs of the first difference, in hexadecimal."""
        return ", ".join(f"{n}={b.bits}" for n, b in self.first.first.inputs.items()) if self.first else ""

    def __str__(self) -> str:
        words = " | ".join(", ".join(group) for group in self.groups)
        text = f"{self.case}: {self.what} gives different bits: {words} ({self.setups} setups)"
        if self.first is not None:
            first = self.first.first
            text += f"; first at {self.inputs}: {first.expected.bits} and {first.got.bits}"
        return text + (f"; failing: {', '.join(self.failing)}" if self.failing else "; allowed, all pass")


def splits(results: Iterable[Result]) -> list[Split]:
    """All splits of a run, by case."""
    ran = [r for r in results if r.outputs_digest]
    return sorted([*_targets(ran), *_variants(ran)], key=lambda s: (s.case, s.what))


def _label(key: Key) -> str:
    return f"{key.target} {key.backend}"


def _targets(results: Sequence[Result]) -> list[Split]:
    """A variant's targets and backends: partitions by the digests of their outputs, equal ones counted together."""
    setups: dict[tuple[Key, str], list[Result]] = defaultdict(list)
    for r in results:
        if r.inputs_digest:
            setups[replace(r.key, target="", backend=""), r.inputs_digest].append(r)
    found: dict[tuple[str, str, tuple[tuple[str, ...], ...]], list[Result]] = defaultdict(list)
    for (key, _), members in setups.items():
        groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for r in members:
            groups[tuple((b.first, b.count, b.digest) for b in r.outputs_digest)].append(_label(r.key))
        if len(groups) > 1:
            ordered = sorted((tuple(sorted(g)) for g in groups.values()), key=lambda g: (-len(g), g))
            found[key.case, key.variant, tuple(ordered)] += members
    return [
        _split(case, variant, groups, members, _seen(members, variant))
        for (case, variant, groups), members in found.items()
    ]


def _seen(members: Iterable[Result], variant: str) -> list[Disagreement]:
    return [d for r in members for d in r.disagreements if d.other.variant == variant]


def _variants(results: Sequence[Result]) -> list[Split]:
    """Variants that promise the same, where the run saw their bits differ on one target."""
    by_key = {r.key: r for r in results}
    found: dict[tuple[str, str, str], list[tuple[Result, Disagreement]]] = defaultdict(list)
    for r in results:
        for d in r.disagreements:
            if d.other.variant != r.key.variant:
                found[r.key.case, d.other.variant, r.key.variant].append((r, d))
    splits = []
    for (case, one, other), pairs in found.items():
        places = tuple(sorted({_label(r.key) for r, _ in pairs}))
        members = [r for r, _ in pairs]
        split = _split(case, f"{one} beside {other}", (places,), members, [d for _, d in pairs])
        others = [by_key[d.other] for _, d in pairs if d.other in by_key]
        splits.append(replace(split, failing=_failing([*members, *others])))
    return splits


def _split(
    case: str, what: str, groups: tuple[tuple[str, ...], ...], members: Sequence[Result], seen: Sequence[Disagreement]
) -> Split:
    setups = len({(replace(r.key, target="", backend=""), r.inputs_digest) for r in members})
    return Split(case, what, groups, setups, _failing(members), seen[0] if seen else None)


def _failing(members: Iterable[Result]) -> tuple[str, ...]:
    """Who fails, as the case expects it or not."""
    words = {
        f"{r.key.variant} {_label(r.key)}" + " (expected)" * r.expected_failure for r in members if r.verdict == "fail"
    }
    return tuple(sorted(words))
