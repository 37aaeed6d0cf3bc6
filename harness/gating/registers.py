"""The gate's decisions on timings in registers that cannot be compared. With `--speed` they fail the gate.

A timing may be missing, belong to a loop that lost the variant's instructions, or be too noisy to show a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ptxdiff.records import ALONE, InRegisters, Key, RunRecords
from ptxdiff.records.compare import BETWEEN_RUNS, change_of, elsewhere
from ptxdiff.records.in_registers import lost, undecided

Found = Iterator[tuple[bool, str, str]]
"""Decisions: whether each fails a gate on speed, its subject, and its words."""


def in_registers(run: RunRecords, baseline: RunRecords, redefined: set[tuple[str, str]]) -> Found:
    """The decisions on timings in registers that cannot be compared. redefined: (case, variant) with a new definition.

    Slower and faster variants are not included: they are among the differences of the two runs.
    """
    accepted = {t.key: t for t in baseline.in_registers if t.key.variant != ALONE}
    timed = {t.key: t for t in run.in_registers if t.key.variant != ALONE}
    figures = [key for key, t in accepted.items() if not t.words]
    if figures and not any(not t.words for t in timed.values()):
        yield True, "run", f"nothing was timed in registers; the baseline has {len(figures)} such timings"
        return
    if timed and not accepted:
        yield False, "run", f"the baseline has no timings in registers; {len(timed)} here are not compared"
        return
    for key in sorted(accepted.keys() | timed.keys()):
        subject = f"{key.case}::{key.variant}"
        anew = (key.case, key.variant) in redefined
        for fails, words in _one(accepted.get(key), timed.get(key), _else_timed(key, timed), anew):
            yield fails, subject, f"in registers on {key.target}, {key.shape}: {words}"


def _else_timed(key: Key, timed: Mapping[Key, InRegisters]) -> InRegisters | None:
    """A timing of the same variant and mode with another loop: another pack, or constant instead of carried inputs."""
    same = [t for k, t in timed.items() if (*k.item, k.shape) == (*key.item, key.shape) and k != key]
    return same[0] if same else None


def _one(
    was: InRegisters | None, now: InRegisters | None, other: InRegisters | None, anew: bool
) -> Iterator[tuple[bool, str]]:
    """The decisions on one key: whether each fails a gate on speed, and its words.

    other: a timing of the run by another loop. anew: whether the variant has a new definition.
    """
    if was is None:
        if now is not None and not now.words:
            yield False, "new, so not compared"
    elif was.words:
        if now is None or now.words:
            yield False, f"not timed, as in the baseline: {was.words}"
    elif now is None:
        if other is None or other.words:
            yield True, f"timed in the baseline but not in the run{f': {other.words}' if other else ''}"
        else:
            yield not anew, "timed by another loop than in the baseline, so not compared"
    elif now.words:
        yield True, f"timed in the baseline but not in the run: {now.words}"
    elif was.results != now.results:
        yield not anew, f"{now.results} results per application, {was.results} in the baseline, so not compared"
    elif words := elsewhere(was, now):
        yield True, f"{words}, so not compared"
    else:
        yield from _compared(was, now, anew)


def _compared(was: InRegisters, now: InRegisters, anew: bool) -> Iterator[tuple[bool, str]]:
    if fewer := lost(was, now):
        counts = ", ".join(f"{name} {before:g} → {after:g}" for name, (before, after) in fewer.items())
        yield not anew, f"the loop has fewer instructions than the accepted one, {counts}: it may not time the variant"
    found = now.beside(was, least=BETWEEN_RUNS)
    if found.verdict == "too noisy to say":
        noise = max(now.noise, was.noise)
        open_ = undecided(found, noise)
        words = "; it may be slower: time it again" if open_ else ""
        yield open_, f"too noisy to say, A/A {100 * noise:.1f}%: {change_of(found)}{words}"
