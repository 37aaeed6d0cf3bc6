"""Merges the runs of several machines: every result once; if two runs disagree, both results."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ptxdiff.records.files import in_order
from ptxdiff.records.key import Key
from ptxdiff.records.types import Conflict, End, Result, Run, RunRecords

MACHINES = "machines"
"""The entry of a merged run's environment that holds the environments of the runs, in order."""


def merged(runs: Sequence[RunRecords]) -> RunRecords:
    """Several runs as one. Raises ValueError for none.

    Of results with the same key that agree, one is kept, with the devices of all; if assemblers differ, as in two
    Tritons, one for each. If results disagree (another verdict, other bits, or another form of the variant), both are
    kept, and `conflicts` names them. A result `not run` is dropped if another machine has run it.
    """
    if not runs:
        raise ValueError("there is no run to merge")
    if len(runs) == 1:
        return runs[0]
    texts = ChainMap(*[r.texts for r in runs])  # equal hashes, equal texts
    found = RunRecords(_head([r.run for r in runs]), texts=texts, path=runs[0].path)
    for run in runs:
        found.cases |= {name: case for name, case in run.cases.items() if name not in found.cases}
        found.timings += run.timings
        found.in_registers += run.in_registers
        found.disagreements += (d for d in run.disagreements if d not in found.disagreements)
        found.mutations += (m for m in run.mutations if m not in found.mutations)
        found.proofs += (p for p in run.proofs if p not in found.proofs)
    _merge_results(runs, found)
    ends = [r.end for r in runs if r.end is not None]
    if len(ends) == len(runs):
        verdicts = Counter(r.outcome for r in found.results)
        found.end = End(max(e.finished for e in ends), max(e.seconds for e in ends), verdicts)
    return in_order(found)


def _head(runs: Sequence[Run]) -> Run:
    efforts = dict.fromkeys(r.effort for r in runs)
    return replace(
        runs[0],
        run_id="+".join(dict.fromkeys(r.run_id for r in runs)),
        started=min(r.started for r in runs),
        effort=" and ".join(efforts),
        environment={MACHINES: [machine for r in runs for machine in machines(r.environment)]},
    )


def machines(environment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The environments of the machines of a run: its own, or those of a merged run."""
    return list(environment.get(MACHINES, [environment]))


def _merge_results(runs: Sequence[RunRecords], into: RunRecords) -> None:
    ran = {r.key.item for run in runs for r in run.results if r.verdict != "not run"}
    by_key: dict[Key, list[Result]] = {}
    for number, run in enumerate(runs, 1):
        for result in run.results:
            if result.verdict == "not run" and result.key.item in ran:
                continue
            _add(by_key.setdefault(result.key, []), result, result.device or f"run {number}")
    for key, results in by_key.items():
        if len(results) > 1 and _disagreement(results):
            into.conflicts.append(Conflict(key, _disagreement(results)))
        into.results += results
    into.conflicts.sort(key=lambda c: c.key.item)


def _add(known: list[Result], result: Result, where: str) -> None:
    """Add a result to those of the same key, unless an equal one is there."""
    for k, other in enumerate(known):
        if not _disagreement([other, result]) and other.ptxas == result.ptxas:
            devices = dict.fromkeys(filter(None, (*other.device.split(", "), *result.device.split(", "))))
            known[k] = replace(other, device=", ".join(devices))
            return
    if known:
        words = _disagreement([known[0], result]) or f"by {result.ptxas or 'no known assembler'}"
        result = replace(result, notes=(*result.notes, f"on {where}; {words}"))
    known.append(result)


def _disagreement(results: Sequence[Result]) -> str:
    """What differs between results of one key; "" if they agree."""
    if len(_values(r.fingerprint.items() for r in results if r.fingerprint)) > 1:
        return "the variant, its reference or its policies differ between the runs"
    verdicts = list(dict.fromkeys(r.outcome for r in results))
    if len(verdicts) > 1:
        return f"{' here, '.join(verdicts)} there"
    for block in zip(*(r.outputs_digest for r in results if r.outputs_digest), strict=False):
        if len({(b.first, b.count, b.digest) for b in block}) > 1:
            last = block[0].first + block[0].count - 1
            return f"the output bits differ, first among inputs {block[0].first} to {last}"
    return ""


def _values(items: Iterable[Iterable[tuple[str, str]]]) -> set[tuple[tuple[str, str], ...]]:
    return {tuple(sorted(i)) for i in items}
