"""Compares two runs, key by key. Two revisions, two Triton versions, two drivers, two GPUs or two architectures are
compared in the same way, from records alone.

Each kind of change is reported apart: verdicts, output bits (also if both sides pass), the worst error, evidence,
registers, spills, instruction counts, speed, the definition of a variant, and results of one side only. Bits are
compared on equal inputs only; if the inputs differ, that is reported instead.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ptxdiff.records.in_registers import UNITS, InRegisters, lost
from ptxdiff.records.key import Key
from ptxdiff.records.statistics import Beside
from ptxdiff.records.types import EVIDENCE, EXPECTED, Block, Result, RunRecords, Timing

KINDS = {
    "vanished": "only in the first run",
    "new": "only in the second run",
    "verdict": "verdict",
    "ulp": "worst error",
    "bits": "output bits",
    "evidence": "evidence",
    "ptx": "compiled PTX",
    "speed": "speed",
    "loop": "instructions of a loop timed in registers, fewer than before",
    "spills": "spilled bytes",
    "registers": "registers",
    "instructions": "instructions",
    "definition": "definition",
    "inputs": "other inputs, so bits cannot be compared",
    "assembler": "assembled by another ptxas",
}
# Between two runs, memory addresses and the chip's temperature differ, which neither run's A/A figure contains.
BETWEEN_RUNS = 0.01


class CompareError(ValueError):
    """Two runs that cannot be compared as asked. The message says what they have."""


@dataclass(frozen=True)
class Change:
    """One difference between two runs.

    kind: one of `KINDS`. key: the result's; for `definition`, and for groups of `vanished` and `new`, with `*` for the
    parts that do not matter. worse: True, False, or None if the change is neither. detail: more, in one line.
    """

    kind: str
    key: Key
    before: str = ""
    after: str = ""
    worse: bool | None = None
    detail: str = ""

    @property
    def mark(self) -> str:
        """The symbol of its direction: worse, better, or neither."""
        return {True: "▲", False: "▽", None: "◆"}[self.worse]

    def __str__(self) -> str:
        change = f": {self.before} → {self.after}" if self.before or self.after else ""
        return f"{self.mark} {KINDS[self.kind]}{change}  {self.key}" + (f"  {self.detail}" if self.detail else "")


def grouped(changes: Iterable[Change]) -> Iterator[str]:
    """Lines for changes: those of one kind in one variant are one line, with the first of them."""
    groups: dict[tuple[object, ...], list[Change]] = defaultdict(list)
    for c in changes:
        groups[c.kind, c.worse, c.key.case, c.key.variant].append(c)
    for members in groups.values():
        first = members[0]
        if len(members) == 1:
            yield str(first)
            continue
        steps = list(dict.fromkeys(f"{c.before} → {c.after}" for c in members if c.before or c.after))
        change = f": {steps[0]}" if steps else ""
        change += f" and {len(steps) - 1} other changes" if len(steps) > 1 else ""
        where = [", ".join(dict.fromkeys(getattr(c.key, part) for c in members)) for part in ("target", "backend")]
        subject = f"{first.key.case}::{first.key.variant}, {len(members)} results on {where[0]} ({where[1]})"
        detail = f"  {first.detail}" if first.detail else ""
        yield f"{first.mark} {KINDS[first.kind]}{change}  {subject}; first: {first.key}{detail}"


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    matched: results that both runs have. equal: those of them without any difference. ran: those that were run in one
    of the two at least.
    """

    differences: tuple[Change, ...]
    matched: int
    equal: int
    environment: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ran: int = 0

    def of(self, *kinds: str) -> list[Change]:
        """The differences of these kinds."""
        return [d for d in self.differences if d.kind in kinds]

    @property
    def quiet(self) -> bool:
        """Whether at least one result was compared, and nothing differs."""
        return self.ran > 0 and not self.differences


def compare(before: RunRecords, after: RunRecords, *, targets: tuple[str, str] | None = None) -> Comparison:
    """The changes from `before` to `after`.

    targets: compare the first of them in `before` with the second in `after` (which may be the same run) instead of
    each target with itself. A quick run has other setups for each target, so a setup of one side alone is then no
    change, as long as both have the item. Raises CompareError if a run has no result on its target.
    """
    if targets is not None:
        before, after = _on(before, targets[0], targets), _on(after, targets[1], targets)
    old, new = ({r.key: r for r in run.results} for run in (before, after))
    both = {k.item for k in old} & {k.item for k in new} if targets is not None and targets[0] != targets[1] else set()
    found = [
        *_presence("vanished", {k for k in old.keys() - new.keys() if k.item not in both}, new.keys()),
        *_presence("new", {k for k in new.keys() - old.keys() if k.item not in both}, old.keys()),
        *_definitions(list(old.values()), list(new.values())),
    ]
    matched = [k for k in old if k in new]
    equal = 0
    for key in matched:
        differences = list(_differences(old[key], new[key]))
        equal += not differences
        found += differences
    found += _assemblers((old[key], new[key]) for key in matched)
    found += _speed(before.timings, after.timings)
    found += _in_registers(before.in_registers, after.in_registers)
    order = list(KINDS)
    found.sort(key=lambda d: (order.index(d.kind), d.worse is not True, d.key))
    ran = sum(not (old[key].verdict == new[key].verdict == "not run") for key in matched)
    return Comparison(tuple(found), len(matched), equal, _environment(before, after), ran)


def _on(run: RunRecords, target: str, pair: tuple[str, str]) -> RunRecords:
    """The part of a run on one target, renamed to a target that both sides share."""
    name = " → ".join(dict.fromkeys(pair))
    results = [replace(r, key=replace(r.key, target=name)) for r in run.results if r.key.target == target]
    if not results:
        has = ", ".join(sorted({r.key.target for r in run.results})) or "nothing"
        raise CompareError(f"{run.path or run.run.run_id}: no result on {target}; it has {has}")
    timings = [replace(t, key=replace(t.key, target=name)) for t in run.timings if t.key.target == target]
    loops = [replace(t, key=replace(t.key, target=name)) for t in run.in_registers if t.key.target == target]
    return replace(run, results=results, timings=timings, in_registers=loops)


def _differences(a: Result, b: Result) -> Iterator[Change]:
    key = b.key
    if (a.verdict, a.expected_failure) != (b.verdict, b.expected_failure):
        yield Change("verdict", key, a.outcome, b.outcome, _worse_verdict(a, b), b.words)
    elif a.evidence != b.evidence:
        yield Change("evidence", key, a.evidence, b.evidence, strength(b.evidence) < strength(a.evidence))
    if a.outputs_digest and b.outputs_digest:
        if a.inputs_digest != b.inputs_digest:
            yield Change("inputs", key, a.inputs_digest, b.inputs_digest)
        elif blocks := _changed(a.outputs_digest, b.outputs_digest):
            yield Change("bits", key, detail=_blocks(blocks, len(b.outputs_digest)))
    if a.body and b.body and a.body != b.body:
        yield Change("ptx", key, a.body[:8], b.body[:8])
    was, now = worst_ulp(a), worst_ulp(b)
    if was is not None and now is not None and was != now and a.inputs_digest == b.inputs_digest:
        yield Change("ulp", key, f"{was} ulp", f"{now} ulp", now > was)
    for kind, count in RESOURCES.items():
        before, after = count(a), count(b)
        if before is not None and after is not None and before != after:
            yield Change(kind, key, str(before), str(after), after > before)


def _worse_verdict(a: Result, b: Result) -> bool:
    return b.outcome not in ("pass", EXPECTED) or (a.outcome == "pass" and b.outcome != "pass")


def _assemblers(matched: Iterable[tuple[Result, Result]]) -> Iterator[Change]:
    """Keys for which Triton's own assembler differs: the keys are equal, but the machine code need not be."""
    groups: Counter[tuple[str, str, str]] = Counter()
    for a, b in matched:
        if a.ptxas and b.ptxas and a.ptxas != b.ptxas:
            groups[b.key.backend, a.ptxas, b.ptxas] += 1
    for (backend, before, after), count in sorted(groups.items()):
        yield Change("assembler", Key("*", "*", "*", backend), before, after, detail=f"{count} results")


def _changed(before: Sequence[Block], after: Sequence[Block]) -> list[Block]:
    """The blocks that differ, or that only one side has, in order: equal inputs gave other outputs there."""
    sides = [{b.first: b for b in blocks} for blocks in (before, after)]
    firsts = sorted({*sides[0], *sides[1]})
    return [sides[1].get(f) or sides[0][f] for f in firsts if sides[0].get(f) != sides[1].get(f)]


def _blocks(blocks: Sequence[Block], total: int) -> str:
    first = blocks[0]
    where = f"inputs {first.first:,} to {first.first + first.count - 1:,}"
    return f"{len(blocks)} of {total} blocks, the first at {where}"


def strength(evidence: str) -> int:
    """The rank of an evidence; -1 for one that this version does not know."""
    return EVIDENCE.index(evidence) if evidence in EVIDENCE else -1


def worst_ulp(r: Result) -> int | None:
    """The greatest distance in a result's histogram, or the upper end of its last class; None without a histogram."""
    return max(map(distance, r.ulps), default=None)


@lru_cache(maxsize=4096)
def distance(label: str) -> int:
    """The greatest distance in a class of a ulp histogram: 2 for `-2`, 32 for `17..32`."""
    return max((int(n) for n in re.findall(r"\d+", label)), default=0)


def _spills(r: Result) -> int | None:
    return r.resources.get("spill_stores", 0) + r.resources.get("spill_loads", 0) if r.resources else None


def _registers(r: Result) -> int | None:
    return r.resources.get("registers") or None


def _instructions(r: Result) -> int | None:
    return sum(r.instructions.values()) or None


RESOURCES = {"spills": _spills, "registers": _registers, "instructions": _instructions}
"""The count that each kind of difference compares; None if it was not measured."""


def _presence(kind: str, keys: Iterable[Key], others: Iterable[Key]) -> Iterator[Change]:
    """Keys that only one side has. If all keys of a case, variant or the like are new, that is one change."""
    rest, kept = set(keys), set(others)
    worse = True if kind == "vanished" else None
    for level in _LEVELS:
        known = {_part(k, level) for k in kept}
        groups: dict[tuple[str, ...], list[Key]] = defaultdict(list)
        for k in rest:
            if _part(k, level) not in known:
                groups[_part(k, level)].append(k)
        for part, members in sorted(groups.items()):
            named = replace(Key("*", "*", "*", "*"), **dict(zip(level, part, strict=True)))  # type: ignore[arg-type]
            yield Change(kind, named, worse=worse, detail=f"{len(members)} results")
            rest -= set(members)
    for k in sorted(rest):
        yield Change(kind, k, worse=worse)


_LEVELS = (
    ("target",),
    ("case",),
    ("case", "variant"),
    ("backend",),
    ("backend", "assembler"),
    ("case", "variant", "target", "backend"),
)


def _part(key: Key, level: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(getattr(key, name) for name in level)


def definitions(results: Iterable[Result]) -> dict[tuple[str, str], Mapping[str, str]]:
    """The fingerprint of every variant: digests of its asm, constraints, reference and policies."""
    return {(r.key.case, r.key.variant): r.fingerprint for r in results if r.fingerprint}


def _definitions(old: Sequence[Result], new: Sequence[Result]) -> Iterator[Change]:
    """Variants with another definition on any target or backend that both runs have."""
    before, after = _by_item(old), _by_item(new)
    changed: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for item, now in after.items():
        was = before.get(item)
        if was is not None and was != now:
            changed[item[:2]].update(n for n in was.keys() | now.keys() if was.get(n) != now.get(n))
    both, compared = (definitions(old), definitions(new)), {item[:2] for item in after if item in before}
    for name, now in both[1].items():  # of variants that ran on other targets and backends, the only ones there are
        was = both[0].get(name)
        if was is not None and was != now and name not in compared:
            changed[name].update(n for n in was.keys() | now.keys() if was.get(n) != now.get(n))
    for (case, variant), parts in changed.items():
        yield Change("definition", Key(case, variant, "*", "*"), detail=f"changed: {', '.join(sorted(parts))}")


def _by_item(results: Iterable[Result]) -> dict[tuple[str, ...], Mapping[str, str]]:
    return {r.key.item: r.fingerprint for r in results if r.fingerprint}


def _speed(old: Iterable[Timing], new: Iterable[Timing]) -> Iterator[Change]:
    for a, b in timed_twice(old, new):
        if a.timer != b.timer:
            yield Change("speed", b.key, detail=f"timed by {a.timer}, then by {b.timer}: not compared")
            continue
        if difference := elsewhere(a, b):
            yield Change("speed", b.key, detail=f"{difference}: not compared")
            continue
        found = b.beside(a, least=BETWEEN_RUNS)
        if found.verdict in ("slower", "faster"):
            slower = found.verdict == "slower"
            by = f"; assembled by {a.ptxas}, then by {b.ptxas}" if a.ptxas and b.ptxas and a.ptxas != b.ptxas else ""
            yield Change("speed", b.key, f"{a.median:.4g} s", f"{b.median:.4g} s", slower, change_of(found) + by)


def elsewhere(a: Timing | InRegisters, b: Timing | InRegisters) -> str:
    """Why two timings of the same work come from different nodes of a cluster, in words; "" if they do not.

    Such timings are not compared: nodes differ in cooling, clocks and bus traffic.
    """
    hosts = [t.node.partition("/")[0] for t in (a, b)]
    same_gpu = bool(a.device) and a.device == b.device
    if hosts[0] != hosts[1] and not same_gpu:
        return "timed on " + ", then on ".join(f"node {host}" if host else "a machine without a name" for host in hosts)
    return ""


def timed_twice(old: Iterable[Timing], new: Iterable[Timing]) -> Iterator[tuple[Timing, Timing]]:
    """The timings that both runs have."""
    before = {t.key: t for t in old}
    return ((before[t.key], t) for t in new if t.key in before and before[t.key].median and t.median)


def _in_registers(old: Iterable[InRegisters], new: Iterable[InRegisters]) -> Iterator[Change]:
    before = {t.key: t for t in old if not t.words}
    for b in new:
        a = before.get(b.key)
        if a is None or b.words:
            continue
        unit = UNITS[b.mode]
        if fewer := lost(a, b):
            yield Change("loop", b.key, detail=", ".join(f"{n} {was:g} → {now:g}" for n, (was, now) in fewer.items()))
        if difference := elsewhere(a, b):
            yield Change("speed", b.key, detail=f"{difference}: not compared")
            continue
        found = b.beside(a, least=BETWEEN_RUNS)
        if a.results == b.results and found.verdict in ("slower", "faster"):
            slower = found.verdict == "slower"
            yield Change("speed", b.key, f"{a.value:.4g} {unit}", f"{b.value:.4g} {unit}", slower, change_of(found))


def change_of(found: Beside) -> str:
    """A change of speed with its interval: `+5.0% [+4.6, +5.3]`."""
    low, high = (100 * (ratio - 1) for ratio in (found.low, found.high))
    return f"{100 * (found.ratio - 1):+.1f}% [{low:+.1f}, {high:+.1f}]"


def _environment(before: RunRecords, after: RunRecords) -> dict[str, tuple[str, str]]:
    a, b = ({**run.run.environment, "effort": run.run.effort} for run in (before, after))
    names = [n for n in dict.fromkeys([*a, *b]) if a.get(n) != b.get(n)]
    return {n: (str(a.get(n, "unknown")), str(b.get(n, "unknown"))) for n in names}
