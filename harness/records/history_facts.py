"""What a history needs of a run: the facts on its items, and the summary of them at the end of the run's file.

A history of thirty runs asks each of them for little: the state, the evidence, the worst error and the resources of
every item, and a digest of its bits. When a compressed run ends, its `Writer` reads the file once more and appends
these facts, so that a later reader takes them instead of all lines. What is appended names the digest of the file's
other bytes, and of the code that made the facts. A reader believes it only if both are right; otherwise it reads the
lines, and refuses an edited one as ever. Verdicts of a gate, of a comparison, and of the newest run of a report are
always read from the lines, and so are bits where a digest changed: they would make a file half as large again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from ptxdiff.records.compare import distance
from ptxdiff.records.key import Key
from ptxdiff.records.texts import LEVEL, appended, without_appendix
from ptxdiff.records.types import EVIDENCE, End, Record, RecordError, Result, Run, Timing

Item = tuple[str, str, str, str]
RANK = {
    name: rank
    for rank, name in enumerate(
        ("error", "fail", "expected", "pass", "assembled", "unsupported", "not run", "absent")
    )
}  # fmt: skip
"""The states of results and items, the worst first. `absent` is the state of what has no result."""
STRENGTH: dict[str, int] = {name: rank for rank, name in enumerate(EVIDENCE)}


def state_of(result: Result) -> str:
    """The state of one result. A verdict unknown to this version counts as an error, never as a pass."""
    if result.expected_failure:
        return "expected"
    if result.verdict == "pass":
        return "assembled" if result.key.backend == "assembler" else "pass"
    return result.verdict if result.verdict in RANK else "error"


@dataclass
class ItemFacts:
    """The facts on an item of one run."""

    state: str = "absent"
    evidence: str = "none"
    """The weakest of its passes."""
    ulp: int | None = None
    registers: int = 0
    spills: int = 0
    instructions: int = 0


BitsOf = tuple[Key, str, tuple[int, ...], tuple[str, ...]]
"""The bits of a result: its key, the digest of its inputs, and first input and digest of each block of outputs."""


@dataclass
class RunFacts:
    """All that a history needs of one run, without the results themselves.

    digests: of each item's bits. load: the bits of every item, of which a history asks only where a digest changed.
    """

    run_id: str
    started: str
    arguments: tuple[str, ...]
    environment: Mapping[str, Any]
    ended: bool
    counts: Counter[str]
    items: dict[Item, ItemFacts]
    digests: Mapping[Item, str]
    timings: list[tuple[tuple[str, str, str, str], float, float]]
    load: Callable[[], Mapping[Item, Sequence[BitsOf]]]


@dataclass
class _Gathered:
    """What the results of an item add up to."""

    facts: ItemFacts = field(default_factory=ItemFacts)
    passed: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)
    bits: list[BitsOf] = field(default_factory=list)

    def add(self, r: Result, state: str) -> None:
        facts = self.facts
        if RANK[state] < RANK[facts.state]:
            facts.state = state
        if r.verdict == "pass":
            self.passed.add(r.evidence)
        self.labels.update(r.ulps)
        if r.resources:
            spills = r.resources.get("spill_stores", 0) + r.resources.get("spill_loads", 0)
            facts.registers = max(facts.registers, r.resources.get("registers", 0))
            facts.spills = max(facts.spills, spills)
        if r.instructions:
            facts.instructions = max(facts.instructions, sum(r.instructions.values()))
        if r.outputs_digest:
            firsts, digests = (tuple(map(attrgetter(name), r.outputs_digest)) for name in ("first", "digest"))
            self.bits.append((r.key, r.inputs_digest, firsts, digests))

    def finished(self) -> ItemFacts:
        self.facts.evidence = min(self.passed, key=lambda e: STRENGTH.get(e, 0), default="none")
        self.facts.ulp = max(map(distance, self.labels), default=None)
        return self.facts


def night_facts(records: Iterable[Record]) -> RunFacts:
    """The facts of one run, from its records in any order; they need not be in memory at the same time.

    The first is the run's head. Raises RecordError without one.
    """
    gathered: dict[Item, _Gathered] = defaultdict(_Gathered)
    counts: Counter[str] = Counter()
    timings, ended = list[Timing](), False
    head: Run | None = None
    for record in records:
        if isinstance(record, Run):
            head = record
        elif head is None:
            break
        elif isinstance(record, Result):
            state = state_of(record)
            counts[state] += 1
            gathered[record.key.item].add(record, state)
        elif isinstance(record, Timing):
            timings.append(record)
        elif isinstance(record, End):
            ended = True
    if head is None:
        raise RecordError("the first line is no run record")
    timings.sort(key=lambda t: (t.key.case, t.key.target))
    items = dict(sorted(gathered.items()))
    bits = {item: found.bits for item, found in items.items() if found.bits}
    return RunFacts(
        head.run_id,
        head.started,
        head.arguments,
        head.environment,
        ended,
        counts,
        {item: found.finished() for item, found in items.items()},
        _Digests(bits),
        [(_timing_key(t), t.median, t.noise) for t in timings],
        lambda: bits,
    )


class _Digests(Mapping[Item, str]):
    """Digests of bits by item, each made when it is asked for: a page on one run compares none."""

    def __init__(self, bits: Mapping[Item, Sequence[BitsOf]]) -> None:
        self._bits, self._made = bits, dict[Item, str]()

    def __getitem__(self, item: Item) -> str:
        if item not in self._made:
            self._made[item] = _digest(self._bits[item])
        return self._made[item]

    def __iter__(self) -> Iterator[Item]:
        return iter(self._bits)

    def __len__(self) -> int:
        return len(self._bits)


def _digest(bits: Sequence[BitsOf]) -> str:
    return hashlib.sha256(repr(bits).encode()).hexdigest()[:32]


def _timing_key(t: Timing) -> tuple[str, str, str, str]:
    host = t.node.partition("/")[0]  # times of different nodes are separate series
    by = t.key.assembler and f" by {t.key.assembler}"  # so are times of different chosen assemblers
    return (t.key.case, t.key.variant, t.key.target, f"time {t.key.shape}{by}" + f" on {host}" * bool(host))


# The facts as bytes, and as the appendix of a file --------------------------------------------------------------------


def facts_stored(night: RunFacts) -> bytes:
    """The facts of a run as bytes, without the bits behind the digests."""
    fields = {f.name: getattr(night, f.name) for f in dataclasses.fields(night) if f.name not in ("items", "load")}
    items = [[item, dataclasses.astuple(fact)] for item, fact in night.items.items()]
    return _packed({**fields, "items": items, "digests": list(night.digests.items())})


def facts_read(data: bytes, load: Callable[[], Mapping[Item, Sequence[BitsOf]]]) -> RunFacts:
    """The facts that `facts_stored` made bytes of. load: finds the bits."""
    found = _unpacked(data)
    lists = {
        "arguments": tuple(found["arguments"]),
        "counts": Counter(found["counts"]),
        "items": {tuple(item): ItemFacts(*facts) for item, facts in found["items"]},
        "digests": {tuple(item): digest for item, digest in found["digests"]},
        "timings": [(tuple(key), median, noise) for key, median, noise in found["timings"]],
    }
    return RunFacts(**{**found, **lists}, load=load)


def bits_stored(night: RunFacts) -> bytes:
    """The bits of a run as bytes."""
    return _packed([[_key_values(key), *rest] for found in night.load().values() for key, *rest in found])


def bits_read(data: bytes) -> dict[Item, list[BitsOf]]:
    """The bits that `bits_stored` made bytes of."""
    found: dict[Item, list[BitsOf]] = defaultdict(list)
    for values, inputs, firsts, digests in _unpacked(data):
        key = Key(*values)
        found[key.item].append((key, inputs, tuple(firsts), tuple(digests)))
    return found


_key_values = attrgetter(*(f.name for f in dataclasses.fields(Key)))


def _packed(value: Any) -> bytes:
    from backports import zstd

    return zstd.compress(json.dumps(value, separators=(",", ":")).encode(), LEVEL)


def _unpacked(data: bytes) -> Any:
    from backports import zstd

    return json.loads(zstd.decompress(data))


@functools.cache
def code() -> bytes:
    """A digest of all code that makes the facts of a run from its file: facts of other code are not believed."""
    texts = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return hashlib.sha256(b"".join(hashlib.sha256(text).digest() for text in texts)).digest()


_BOUND = 2 * hashlib.sha256().digest_size


def summarise(path: Path, records: Iterable[Record]) -> bytes:
    """The appendix of a compressed file that has none yet: the facts of its `records`, bound to its bytes and our code.

    Raises OSError.
    """
    facts = facts_stored(night_facts(records))
    with path.open("rb") as file:
        lines = hashlib.file_digest(file, "sha256").digest()
    return appended(lines + code() + facts)


def summary(path: Path) -> bytes | None:
    """The facts at the end of a run's file, for `facts_read`.

    None if there are none, or if they are not of the file's lines and our code. Raises OSError if it cannot be read.
    """
    lines, found = without_appendix(path.read_bytes())
    if found is None or found[:_BOUND] != hashlib.sha256(lines).digest() + code():
        return None
    return bytes(found[_BOUND:])
