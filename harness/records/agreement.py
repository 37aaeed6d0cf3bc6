"""Targets and variants that give different bits for the same inputs, found from digests. They change no verdict.

Two targets may both meet a bound and still give different bits, which matters to a user who moves code between them.
Compared are a variant's results on its targets and backends, and, on one target, the variants with the same reference
and match policy. If two exact variants differ, one of them fails as well.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from ptxdiff.records.key import Key
from ptxdiff.records.types import EVIDENCE, PTXAS, Disagreement, Result


def _without(*left_out: str) -> Callable[[Key], tuple[object, ...]]:
    return attrgetter(*(f.name for f in fields(Key) if f.name not in left_out))


Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Split:
    """Results of the same inputs that fall into groups of equal bits.

    what: the variant, or the two variants. groups: the labels with equal bits, the largest group first. setups: the
    number of setups that split so. failing: the labels that fail. pair: two results that differ; independent of the
    order of results. first: their first difference, if the run looked for it.
    """

    case: str
    what: str
    groups: Groups
    setups: int
    failing: tuple[str, ...]
    pair: tuple[Key, Key]
    first: Disagreement | None = None

    @property
    def inputs(self) -> str:
        """The inputs of the first difference, in hexadecimal."""
        return ", ".join(f"{n}={b.bits}" for n, b in self.first.first.inputs.items()) if self.first else ""

    def __str__(self) -> str:
        groups_text = " | ".join(", ".join(group) for group in self.groups)
        text = f"{self.case}: {self.what} gives different bits: {groups_text} ({self.setups} setups)"
        if self.first is not None:
            first = self.first.first
            where = self.inputs or f"code {first.index} of {first.output}"
            text += f"; first at {where}: {first.expected.bits} and {first.got.bits}"
        return text + (f"; failing: {', '.join(self.failing)}" if self.failing else "; allowed, all pass")


def splits(results: Iterable[Result], seen: Iterable[Disagreement] = ()) -> list[Split]:
    """All splits of a run, by case. seen: the disagreements that the run found for their pairs."""
    ran = sorted((r for r in results if r.outputs_digest), key=lambda r: _whole(r.key))
    return explained(sorted([*_targets(ran), *_variants(ran)], key=lambda s: (s.case, s.what, s.pair)), seen)


def explained(found: Iterable[Split], seen: Iterable[Disagreement]) -> list[Split]:
    """The splits, each with the disagreement that the run found for its pair."""
    known = {(d.one, d.other): d for d in seen}
    return [replace(s, first=known.get(s.pair)) for s in found]


def _targets(results: Sequence[Result]) -> Iterator[Split]:
    """Splits of a variant's targets and backends; equal partitions by output digests are one split."""
    found: dict[tuple[str, str, Groups], list[list[Result]]] = defaultdict(list)
    for members in _alike(results, lambda r: _of_a_variant(r.key)):
        partition = _partition(members)
        if len(partition) > 1:
            groups = [[_label(r.key) for r in group] for group in partition]
            ordered = tuple(sorted((tuple(sorted(g)) for g in groups), key=lambda g: (-len(g), g)))
            found[members[0].key.case, members[0].key.variant, ordered].append(members)
    for (case, variant, names), setups in found.items():
        every = [r for members in setups for r in members]
        yield Split(case, variant, names, len(setups), _failing(every), _pair(_partition(setups[0])))


def _variants(results: Sequence[Result]) -> Iterator[Split]:
    """Splits of variants with equal promises on one target: each beside the first variant with other bits."""
    found: dict[tuple[str, str, str], list[tuple[Result, Result]]] = defaultdict(list)
    for members in _alike(results, _promise):
        first, *others = _partition(members)
        for result in (r for group in others for r in group):
            one = next((r for r in first if r.key.variant != result.key.variant), None)
            if one is not None:
                found[one.key.case, one.key.variant, result.key.variant].append((one, result))
    for (case, one_name, other_name), pairs in found.items():
        places = tuple(sorted({_label(other.key) for _, other in pairs}))
        every = [r for pair in pairs for r in pair]
        keys = (pairs[0][0].key, pairs[0][1].key)
        yield Split(case, f"{one_name} beside {other_name}", (places,), len(pairs), _failing(every), keys)


def _promise(r: Result) -> object:
    """What two variants must share to be compared: the inputs, the place, the reference and the policy."""
    made_of = (r.fingerprint.get("reference", ""), r.fingerprint.get("policy", ""))
    return _of_a_place(r.key), made_of


# The parts of a key that results must share to be compared; a copy of the key with other parts takes ten times as long.
_of_a_variant = _without("target", "backend", "assembler")
_of_a_place = _without("variant", "pack", "num_warps", "fusion", "compiler")
_whole = _without()  # in the order of keys; their own comparison makes two such tuples each time


def _alike(results: Sequence[Result], of: Callable[[Result], object]) -> Iterator[list[Result]]:
    found: dict[object, list[Result]] = defaultdict(list)
    for r in results:
        found[of(r), r.inputs_digest].append(r)
    return iter(found.values())


def _partition(members: Sequence[Result]) -> list[list[Result]]:
    """Members grouped by their output bits; groups are in the order of their first members."""
    if len(members) == 1:
        return [[*members]]
    groups: dict[object, list[Result]] = defaultdict(list)
    for r in members:
        groups[tuple((b.first, b.count, b.digest) for b in r.outputs_digest)].append(r)
    return list(groups.values())


def _pair(groups: Sequence[Sequence[Result]]) -> tuple[Key, Key]:
    return groups[0][0].key, groups[1][0].key


def _label(key: Key) -> str:
    by = f" by {key.assembler.partition(' (')[0]}" if key.assembler else ""
    return f"{key.target} {key.backend}{by}"


def _failing(members: Iterable[Result]) -> tuple[str, ...]:
    """The labels of the members that fail, expected failures included."""
    labels = {
        f"{r.key.variant} {_label(r.key)}" + " (expected)" * r.expected_failure for r in members if r.verdict == "fail"
    }
    return tuple(sorted(labels))


# The evidence of passes, in words ----------------------------------------------------------------------------------

ASSEMBLED = "assembled"
_WORDS = {"none": "without evidence"}
_ORDER = (*reversed(EVIDENCE[1:]), ASSEMBLED, "none")


def evidence_of_passes(results: Iterable[Result]) -> Counter[str]:
    """The number of passes by evidence; those of the assembler are counted apart. Expected failures are not passes."""
    return Counter(_evidence(r) for r in results if r.verdict == "pass" and not r.expected_failure)


def _evidence(result: Result) -> str:
    return ASSEMBLED if result.key.backend == "assembler" else result.evidence


def beside(counts: Mapping[str, int]) -> str:
    """The counts in parentheses, to follow the number of passes: ` (3 hardware, 2 model)`; "" for none."""
    counts_text = [
        f"{counts[name]:,} {'without evidence' if name == 'none' else name}" for name in _ORDER if counts.get(name)
    ]
    return f" ({', '.join(counts_text)})" if counts_text else ""


def passes(results: Iterable[Result]) -> str:
    """`12 passes (4 hardware, 3 confirmed, 5 model)`."""
    counts = evidence_of_passes(results)
    total = counts.total()
    return f"{total:,} pass{'es' * (total != 1)}{beside(counts)}"


# Tallies of results by assembler, and the names of assemblers as users write them ----------------------------------

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
