"""Baselines: records accepted earlier, stored as reviewed files in git.

A baseline is a folder with one records file for each case. So that changes are readable in a diff, its lines are
sorted, and it omits texts, messages and everything else that does not concern acceptance. For the same reason each
line's checksum covers that line only; the last line's checksum covers the whole file.

A baseline lists accepted failures with their words, and counts them in its last line.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ptxdiff.records import (
    End,
    InRegisters,
    Proof,
    Record,
    RecordError,
    Result,
    Run,
    RunRecords,
    Seal,
    Timing,
    lines,
    read,
    text_hash,
)

# The longest file name in bytes; a hash replaces the rest of a longer one. File systems accept 255 bytes.
LONGEST_NAME = 180


AROUND = "around"
"""The one part of the dependencies of a result in a baseline."""

_NOT_AROUND = ("kernels in it", "installed plugins")


def around(result: Result) -> dict[str, str]:
    """One digest of what a result depends on besides the definition, as a baseline stores it; empty if it is not known.

    Without kernels in the case file, which the definition covers, and without the versions of installed plugins, which
    are other ones on other machines. Of files that the code opened the contents count, not their places.
    """
    if not result.dependencies or AROUND in result.dependencies:
        return dict(result.dependencies)
    parts = {name: part for name, part in result.dependencies.items() if name not in _NOT_AROUND}
    return {AROUND: text_hash(repr((sorted(parts.items()), sorted(result.opened.values()))))[:_DIGITS]}


_DIGITS = 8


class BaselineError(ValueError):
    """A baseline is missing or cannot be read. The message says where, and how to make one."""


def accepted(run: RunRecords) -> RunRecords:
    """The part of a run that a baseline stores: keys, verdicts, evidence, judged shares, digests, errors, resources,
    definitions and what stands around them, speed, and what is proved.
    """
    results = [
        Result(
            r.key,
            r.verdict,
            expected_failure=r.expected_failure,
            evidence=r.evidence,
            total=r.total,
            unchecked=r.unchecked,
            judged=r.judged,
            seed=r.seed,
            words="" if r.outcome == "pass" else r.words,
            diagnosis=r.diagnosis,
            ulps=_extremes(r),
            inputs_digest=r.inputs_digest,
            outputs_digest=r.outputs_digest,
            resources=r.resources,
            instructions={"all": sum(r.instructions.values())} if r.instructions else {},
            fingerprint=r.fingerprint,
            body=r.body,
            ptxas=r.ptxas,
            dependencies=around(r),
        )
        for r in run.results
    ]
    timings = [replace(t, samples=(), clocks={}) for t in run.timings]
    loops = [replace(t, samples=()) for t in run.in_registers]
    proofs = [replace(p, tried=()) for p in run.proofs if p.verdict == "proved"]
    return replace(run, texts={}, results=results, timings=timings, in_registers=loops, proofs=proofs, path=None)


def _extremes(r: Result) -> dict[str, int]:
    """The largest error of the histogram. Its counts are omitted, because each added input changes them."""
    from ptxdiff.records.compare import worst_ulp

    worst = worst_ulp(r)
    return {} if worst is None else {str(worst): 1}


def write(run: RunRecords, folder: Path, *, keep: RunRecords | None = None) -> list[Path]:
    """Write a run as the baseline in `folder`. Returns the files written, in order.

    keep: an existing baseline, whose results stay if the run has none of the same key (such as those of other machines'
    targets and backends). Files of cases that are in neither are removed.
    """
    asked = {proof_subject(p) for p in run.proofs}
    run = accepted(run)
    if keep is not None:
        run.proofs += [p for p in keep.proofs if proof_subject(p) not in asked]
        # An accepted result stays if this machine could not run it again.
        kept = {r.key for r in keep.results}
        run.results = [r for r in run.results if r.verdict != "not run" or r.key not in kept]
        keys = {r.key for r in run.results}
        run.results += [r for r in keep.results if r.key not in keys]
        timed = {t.key for t in run.timings}
        run.timings += [t for t in keep.timings if t.key not in timed]
        looped = {t.key for t in run.in_registers}
        run.in_registers += [t for t in keep.in_registers if t.key not in looped]
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[Result]] = defaultdict(list)
    timings: dict[str, list[Timing | InRegisters]] = defaultdict(list)
    proofs: dict[str, list[Proof]] = defaultdict(list)
    for p in run.proofs:
        proofs[p.case].append(p)
    for r in run.results:
        results[r.key.case].append(r)
    for t in run.timings:
        timings[t.key.case].append(t)
    for loop in run.in_registers:
        timings[loop.key.case].append(loop)
    written = []
    for case in sorted(results.keys() | timings.keys() | proofs.keys()):
        path = folder / f"{file_name(case)}.jsonl"
        path.write_bytes(_lines(run.run, results[case], timings[case], proofs[case]))
        written.append(path)
    return listed(folder, written)


LIST = "files.txt"
"""The file that lists the others of a baseline, one a line, so that a deleted one is missed."""


def listed(folder: Path, written: list[Path]) -> list[Path]:
    """Make these the files of a baseline: remove others, and write the list. Returns them."""
    for stale in set(folder.glob("*.jsonl")) - set(written):
        stale.unlink()
    names = folder / LIST
    names.write_text("".join(f"{name}\n" for name in sorted(path.name for path in written)), encoding="utf-8")
    return written


def refuse_deleted(folder: Path) -> None:
    """Raise BaselineError if a baseline lacks a file that its list has, or has one that is not in it.

    Without it the gate would take a case for a new one, with which nothing is compared.
    """
    if not (names := folder / LIST).exists():
        return  # an older baseline; the gate remarks on it
    known, there = set(names.read_text(encoding="utf-8").split("\n")) - {""}, {p.name for p in folder.glob("*.jsonl")}
    if gone := sorted(known - there):
        raise BaselineError(
            f"{folder / gone[0]} is missing, which {names} lists; restore it from git, or remove its line too if its "
            "results are no longer accepted"
        )
    if strange := sorted(there - known):
        raise BaselineError(f"{folder / strange[0]} is not in {names}; remove the file, or add its line")


def file_name(case: str) -> str:
    """The name of a case's file, without suffix. Characters that file systems may refuse are replaced by `~code~`."""
    name = re.sub(r"[^A-Za-z0-9_.-]", lambda m: f"~{ord(m[0]):x}~", case)
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}~{text_hash(case)}"


def proof_subject(proof: Proof) -> tuple[str, str, str, str]:
    """What a proof is about: a run has one of each."""
    return proof.case, proof.variant, proof.target, proof.against


def _lines(run: Run, results: list[Result], timings: list[Timing | InRegisters], proofs: list[Proof]) -> bytes:
    records: list[Record] = [
        replace(run, arguments=(), planned=(), chained=False),
        *sorted(results, key=lambda r: r.key),
        *sorted(timings, key=lambda t: (isinstance(t, InRegisters), t.key)),
        *sorted(proofs, key=proof_subject),
        End("", 0.0, dict(sorted(Counter(r.outcome for r in results).items()))),
    ]
    return lines(records, Seal(chained=False))


def refuse_strangers(path: Path, names: Iterable[str]) -> None:
    """Raise BaselineError if a file holds what belongs into a file of another name: of two results of a key, the gate
    would compare with either.

    names: what the file holds, before `file_name`.
    """
    for name in sorted(names):
        if (right := file_name(name)) != path.stem:
            raise BaselineError(f"{path}: results of {name} belong into {right}.jsonl; remove them from this file")


_REPAIR = "restore the file from git, or make the whole baseline again with --accept --replace"


def load(folder: Path) -> RunRecords:
    """Read a baseline. Raises BaselineError if there is none, or a file of it is faulty."""
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    if not files:
        raise BaselineError(
            f"{folder}: no baseline here (a folder with one .jsonl file for each case); "
            f"make one from a run that you have reviewed: ptxdiff gate RUN --baseline {folder} --accept"
        )
    found: RunRecords | None = None
    for path in files:
        try:
            part = read(path)
        except RecordError as e:
            raise BaselineError(f"{e}; {_REPAIR}") from e
        if part.end is None:  # other lines may be lost, too, and the gate would not notice missing results
            raise BaselineError(f"{path}: the end is missing; {_REPAIR}")
        cases = {r.key.case for r in part.results} | {t.key.case for t in part.timings} | {p.case for p in part.proofs}
        refuse_strangers(path, cases | {t.key.case for t in part.in_registers})
        if found is None or part.run.started > found.run.started:
            kept = found or RunRecords(part.run)
            found = replace(
                part, results=kept.results, timings=kept.timings, in_registers=kept.in_registers, proofs=kept.proofs,
                path=folder,
            )  # fmt: skip
        found.proofs += part.proofs
        found.results += part.results
        found.timings += part.timings
        found.in_registers += part.in_registers
    assert found is not None
    refuse_deleted(folder)
    return found
