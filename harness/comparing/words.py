"""The text of a comparison of two files."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ptxdiff.comparing.files import MOST_LINES, ComparedFile, FileComparison
from ptxdiff.comparing.lockstep import ShownDifference, ShownStep
from ptxdiff.emulator.text import TYPES
from ptxdiff.judging.message import EVIDENCE_WORDS

MOST_FINDINGS = 2
VERDICTS = {
    "refused": "not compared: {refused} cannot be run",
    "different": "different: {differing:,} of {codes:,} codes ({classes})",
    "faults": "not equal: the runs have faults, so equal bits prove nothing",
    "nothing compared": "nothing was compared: no run left an output",
    "nothing shown": "equal, but this shows nothing: {constant} has the same bits everywhere",
    "equal": "equal: all {codes:,} codes have the same bits in both files",
}


def headline(found: FileComparison) -> str:
    """The verdict in one line."""
    a, b = (f.name for f in found.files)
    words = VERDICTS[found.verdict].format(
        refused=" and ".join(f.name for f in found.files if f.refused),
        differing=found.differing,
        codes=found.codes,
        classes=", ".join(f"{k} {n}" for k, n in found.classes.items()),
        constant=", ".join(found.constant_outputs),
    )
    return f"{a} and {b} on {found.target}: {words}"


def message(found: FileComparison) -> str:
    """The whole comparison: the verdict, each file against the reference, the first difference, and its cause."""
    return "\n".join(_lines(found))


def _lines(found: FileComparison) -> Iterator[str]:
    yield headline(found)
    if found.runs:
        sets = list(dict.fromkeys(r.partition(" (")[0] for r in found.runs))
        yield f"  inputs    {', '.join(sets)}, in {len(found.runs)} runs of each file; equal bits on these are no proof"
        yield f"  evidence  {EVIDENCE_WORDS[found.evidence]}"
    if any(found.launches):
        launches = "; ".join(f"{f.name} in {words}" for f, words in zip(found.files, found.launches, strict=True))
        yield f"  launches  {launches}"
    if found.left_out:
        yield f"  left out  {', '.join(found.left_out)}: too many inputs to hold"
    for file in found.files:
        yield from (f"  {words}" for words in about(file))
    if found.first is not None and found.key is not None:
        yield f"  first     {first_words(found)}"
        names = [f.name for f in found.files]
        rows = [*found.first.inputs.items(), (names[0], found.first.expected), (names[1], found.first.got)]
        width = max(len(n) for n, _ in rows)
        yield from (f"    {n:<{width}}  {bits.bits}  {bits.value}" for n, bits in rows)
    if found.traces is not None:
        yield from difference_lines(found.traces)


def first_words(found: FileComparison) -> str:
    """One line that names the first code that differs, and its run."""
    assert found.first is not None
    assert found.key is not None
    reading = f"; read {found.reading}" if found.reading else ""
    return f"output {found.first.output}, code {found.first.index}, inputs {found.key.input_set}{reading}"


def about(file: ComparedFile) -> Iterator[str]:
    """Lines about one file: its refusal, its faults, the reference's verdict, and lines that no thread executed."""
    if file.refused:
        yield f"{file.name}: {file.refused}"
        return
    for finding in file.findings[:MOST_FINDINGS]:
        yield f"{file.name}: {finding}"
    if len(file.findings) > MOST_FINDINGS:
        yield f"{file.name}: and {len(file.findings) - MOST_FINDINGS} more faults on other inputs"
    if file.fault:
        yield f"{file.name}: not judged: {file.fault}"
    elif file.judged:
        verdict = (
            f"{file.wrong:,} of {file.judged:,} codes are wrong" if file.wrong else f"right, {file.judged:,} codes"
        )
        yield f"{file.name}: by the case's reference and policy: {verdict}"
    else:
        yield f"{file.name}: nothing was compared with the case's reference"
    if file.unexecuted:
        shown = ", ".join(str(n) for n in sorted(file.unexecuted)[:MOST_LINES])
        more = f" and {len(file.unexecuted) - MOST_LINES} more" if len(file.unexecuted) > MOST_LINES else ""
        yield f"{file.name}: never executed on these inputs, so not compared: line {shown}{more}"


def difference_lines(found: ShownDifference) -> Iterator[str]:
    """The first instructions that differ, and the basis of their alignment."""
    yield f"  traces    {found.words}"
    for step in found.steps:
        if step is not None:
            yield from _step_lines(step)
    if found.basis:
        yield f"  alignment {found.basis}"


def _step_lines(step: ShownStep) -> Iterator[str]:
    yield f"    {step.file}:{step.line}  {step.text}"
    yield f"      {step.thread}" + ("" if step.executed else "; not executed, because its guard is false")
    for word, registers in (("before", step.before), ("after", step.after)):
        if registers:
            yield f"      {word:<6} " + "  ".join(register_words(*r) for r in registers)


def register_words(name: str, kind: str, value: int | None) -> str:
    """`%f3 = 0x3f800000 (1.0)`."""
    if value is None:
        return f"{name} = undefined"
    digits = max(1, TYPES[kind].width // 4) if kind in TYPES else 8
    bits = f"{name} = {value:#0{digits + 2}x}"
    if kind in _FLOATS:
        width, code = _FLOATS[kind]
        return f"{bits} ({struct.unpack(code, value.to_bytes(width, 'little'))[0]!r})"
    return bits if kind == "pred" else f"{bits} ({value})"


_FLOATS = {"f16": (2, "<e"), "f32": (4, "<f"), "f64": (8, "<d")}
