"""The cause of a failure, as far as its record shows it, so that one mistake is shown once and not for each target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ptxdiff.records.types import Offender, Result

# What differs between targets and setups in words about one mistake: names of targets, registers of generated PTX, line
# numbers, addresses and offsets, folders of temporary files, and counts.
_VARYING = (
    (re.compile(r"\bsm_\d+[af]?\b"), "TARGET"),
    (re.compile(r"%[a-z]+\d+\b"), "REGISTER"),
    (re.compile(r"\b(line|lines|offset|address) (0x)?[0-9a-f]+\b"), r"\1 N"),
    (re.compile(r"/tmp/\S+"), "FILE"),
    (re.compile(r"\b\d+\b(?= (of|threads?|bytes?|codes?|elements?)\b)"), "N"),
    (re.compile(r"(?<=\S):\d+\b"), ":N"),
)


def plain(words: str) -> str:
    """Words without what differs between targets and setups."""
    for pattern, replacement in _VARYING:
        words = pattern.sub(replacement, words)
    return words


def cause_words(diagnosis: str, findings: Sequence[str]) -> str:
    """The cause and the repair: "missing early clobber: make the constraint of $0 '=&f'"; "" without a diagnosis.

    A finding that has a repair ends with it, behind a semicolon.
    """
    repair = findings[0].rpartition("; ")[2] if diagnosis and findings and "; " in findings[0] else ""
    return f"{diagnosis}: {repair}" if repair else diagnosis


_CAUSE_IN_HEADLINE = re.compile(r"\]: (.+); \d+ of \d+ codes differ")


def cause_in_words(result: Result) -> str:
    """The cause and the repair of a failing result, as its first line has them; "" if they are not known."""
    found = _CAUSE_IN_HEADLINE.search(result.words.partition("\n")[0])
    return cause_words(result.diagnosis, result.findings) or (found[1] if found else "")


def cause_of(result: Result) -> tuple[str, ...]:
    """What all results of one mistake in a variant have in common: equal for results that may have one cause.

    A diagnosis and a finding are a cause. Wrong bits without one are compared by `contradict`, because each setup has
    other inputs and so other classes of difference.
    """
    if result.diagnosis or result.findings:
        return result.verdict, result.diagnosis, *(plain(finding) for finding in result.findings[:1])
    if result.different:
        return result.verdict, "wrong bits"
    return result.verdict, plain(result.words.partition("]: ")[2] or result.words)


def contradict(one: Result, other: Result) -> bool:
    """Whether the two give different wrong bits for the same inputs; then they are not the same mistake."""
    known = {_inputs(offender): offender.got.bits for offender in one.offenders}
    return any(known.get(_inputs(o), o.got.bits) != o.got.bits for o in other.offenders)


def _inputs(offender: Offender) -> tuple[object, ...]:
    return offender.output, *((name, bits.bits) for name, bits in sorted(offender.inputs.items()))


@dataclass
class FailureBlock:
    """Failures of one variant with one cause. first: the one that is shown. others: the same on other targets."""

    first: Result
    others: list[Result] = field(default_factory=list)

    @property
    def elsewhere(self) -> str:
        """Where else it fails: "the same on 2 more targets: sm_80, sm_90a (emulator)"; "" if nowhere.

        Wrong bits without an input in common with the first are only said to be wrong, because nothing compares them.
        """
        same = [r for r in self.others if _comparable(self.first, r)]
        other = [r for r in self.others if not _comparable(self.first, r)]
        parts = [_places("the same", same)] if same else []
        return "; ".join([*parts, _places("wrong bits for other inputs", other)] if other else parts)


def _comparable(one: Result, other: Result) -> bool:
    """Whether two results of a block are known to be alike: by a diagnosis, a finding, words, or an input of both."""
    if one.diagnosis or one.findings or not one.different:
        return True
    known = {_inputs(offender) for offender in one.offenders}
    return any(_inputs(offender) in known for offender in other.offenders)


def _places(words: str, results: Sequence[Result]) -> str:
    by_backend: dict[str, list[str]] = {}
    for result in results:
        targets = by_backend.setdefault(result.key.backend, [])
        targets += [result.key.target] * (result.key.target not in targets)
    places = "; ".join(f"{', '.join(targets)} ({backend})" for backend, targets in by_backend.items())
    count = sum(map(len, by_backend.values()))
    return f"{words} on {count} more target{'s' * (count > 1)}: {places}"


def blocks(failures: Iterable[Result]) -> list[FailureBlock]:
    """Failures, one of each item, gathered by variant and cause, in the order of the first of each."""
    found: dict[tuple[object, ...], list[FailureBlock]] = {}
    order: list[FailureBlock] = []
    for result in failures:
        alike = found.setdefault((result.key.case, result.key.variant, *cause_of(result)), [])
        home = next((b for b in alike if not any(contradict(m, result) for m in (b.first, *b.others))), None)
        if home is None:
            home = FailureBlock(result)
            alike.append(home)
            order.append(home)
        else:
            home.others.append(result)
    return order


def shown_first(results: Sequence[Result]) -> Result:
    """Of an item's failing results the one that says most: positional wrong bits, else a diagnosis, else a cause in its
    first line, else the first.

    Exhaustive inputs in order cannot show a swap of elements, and only some setups, or enough inputs, show the cause.
    """
    telling = (
        [r for r in results if "positional" in r.classes]
        or [r for r in results if r.diagnosis]
        or [r for r in results if cause_in_words(r)]
    )
    return (telling or [*results])[0]
