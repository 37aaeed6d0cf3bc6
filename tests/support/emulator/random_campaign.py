"""Hundreds of thousands of random texts: each must give a result or one of the emulator's own errors.

    python -m tests.support.emulator.random_campaign --texts 500000 --seed 1 [--jobs 2] [--first 0] [--kinds
    module,typed]

`random_texts` makes them. A finding is an exception that is none of the emulator's own, an `InternalError`, or
more than 10 s of CPU time. Each text can be made again from its number: `--first NUMBER --texts 1` runs that one again.
The exit status is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from ptxdiff.emulator import PtxError
from ptxdiff.emulator.errors import InternalError
from tests.support.emulator.random_texts import KINDS, LIMIT, Text, made, modules

SLOW = LIMIT + 8.0
"""Seconds of CPU time above which a text is a finding: the limit of a program's run, and time to parse and check it."""
BATCH = 1000
"""Texts in one piece of work."""


@dataclass(frozen=True)
class Finding:
    """A fault of the emulator on one text; `place` is where it was raised."""

    kind: str
    place: tuple[str, str, int]
    words: str
    number: int
    text: str


class _Endless(BaseException):
    """Raised after far more time than any text may take."""


def outcome(text: Text, number: int) -> tuple[str, Finding | None]:
    """The outcome of a text in one word, and the finding if the outcome is a fault."""
    started = time.process_time()
    found = None
    try:
        text.doing()
        word = "answer"
    except InternalError as error:
        word, found = "InternalError", _finding("internal", error.__cause__ or error, number, text)
    except PtxError as error:
        word = type(error).__name__
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        word, found = "foreign", _finding("foreign", error, number, text)
    seconds = time.process_time() - started
    if found is None and seconds > SLOW:
        word = "slow"
        found = Finding("slow", (f"{seconds:.0f} s", "", number), word, number, f"{text.text!r} {text.how}")
    return word, found


def _finding(kind: str, error: BaseException, number: int, text: Text) -> Finding:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = (type(error).__name__, last.filename.rpartition("/")[2], last.lineno or 0)
    return Finding(kind, place, str(error)[:300], number, f"{text.text!r} {text.how}")


def batch(seed: int, numbers: range, kinds: Sequence[str]) -> tuple[Counter[str], list[Finding], float]:
    """Run the texts of some numbers: outcomes, findings, and the most seconds of CPU time that one took."""
    counts: Counter[str] = Counter()
    findings: list[Finding] = []
    longest = 0.0
    modules()
    with warnings.catch_warnings(action="ignore"):
        for number in numbers:
            text = made(seed, number, kinds)
            started = time.process_time()
            with _bounded():
                word, found = outcome(text, number)
            longest = max(longest, time.process_time() - started)
            counts[word] += 1
            if found is not None:
                findings.append(found)
    return counts, findings, longest


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Raise _Endless in the `with` block after far more CPU time than any text may take."""

    def give_up(*_: object) -> None:
        raise _Endless

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, 6 * SLOW)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def campaign(
    seed: int, texts: int, *, first: int = 0, jobs: int = 1, kinds: Sequence[str] = tuple(KINDS)
) -> Iterator[tuple[int, Counter[str], list[Finding], float]]:
    """Run texts in batches; yields after each the number of texts done, and the batch's outcomes, findings and longest
    time.
    """
    pieces = [range(n, min(n + BATCH, first + texts)) for n in range(first, first + texts, BATCH)]
    if jobs == 1:
        results: Iterator[Any] = (batch(seed, piece, kinds) for piece in pieces)
    else:
        pool = ProcessPoolExecutor(jobs)
        results = pool.map(batch, [seed] * len(pieces), pieces, [kinds] * len(pieces))
    done = 0
    for piece, (counts, findings, longest) in zip(pieces, results, strict=True):
        done += len(piece)
        yield done, counts, findings, longest


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign, print its findings as they come and a line for every 10,000 texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first text")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    options = parser.parse_args(arguments)
    started, total, longest = time.monotonic(), Counter[str](), 0.0
    seen: dict[tuple[str, tuple[str, str, int]], int] = {}
    kinds = tuple(options.kinds.split(","))
    for done, counts, findings, seconds in campaign(
        options.seed, options.texts, first=options.first, jobs=options.jobs, kinds=kinds
    ):
        total += counts
        longest = max(longest, seconds)
        for finding in findings:
            key = (finding.kind, finding.place)
            if key not in seen:
                print(f"{finding.kind} {finding.place} {finding.words}\n  text {finding.number}: {finding.text[:2000]}")
            seen[key] = seen.get(key, 0) + 1
        if done % 10_000 == 0 or done == options.texts:
            counted = ", ".join(f"{n:,} {word}" for word, n in total.most_common())
            passed = time.monotonic() - started
            print(f"{done:,} texts, {passed:.0f} s, longest {longest:.1f} s of CPU: {counted}", flush=True)
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
