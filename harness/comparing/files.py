"""Run two PTX files as variants of a case on its inputs, and compare them bit for bit with each other and with its
reference.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends.compiled import compile_job, placed
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.backends.first_difference import first_difference_of_two
from ptxdiff.backends.sass import CubinRun, SassBackend
from ptxdiff.comparing import lockstep
from ptxdiff.comparing.lockstep import ShownDifference, ShownStep
from ptxdiff.emulator import PtxError
from ptxdiff.emulator.kernel.trace import Launched, executed_steps
from ptxdiff.emulator.text import TYPES
from ptxdiff.jobs import Job, Outcome
from ptxdiff.judging.answers import references_digested_once
from ptxdiff.judging.judge import held_exactly, judge_same
from ptxdiff.judging.message import EVIDENCE_WORDS
from ptxdiff.model.arguments import format_of
from ptxdiff.model.constants import constants_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.match import DomainError
from ptxdiff.model.policies import policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import CaseError, ComparedPtx, PtxVariant, Variant
from ptxdiff.records import EVIDENCE, Evidence, Key, Offender
from ptxdiff.running.item import Item
from ptxdiff.running.run import jobs, judge_job
from ptxdiff.triton.spec import digested_once

MOST_LINES = 12
"""The most lines that are listed of instructions that were never executed."""


@dataclass
class ComparedFile:
    """One of the two files.

    refused: the reason why it cannot run; "" if it can. findings: faults of its runs. judged, wrong: the number of
    codes compared with the case's reference, and of those that fail its policy. fault: the reason why they could not
    be judged. unexecuted: instructions that no thread executed on any input, line to text; None before the first run.
    """

    name: str
    refused: str = ""
    findings: list[str] = field(default_factory=list)
    judged: int = 0
    wrong: int = 0
    fault: str = ""
    unexecuted: dict[int, str] | None = None


@dataclass
class FileComparison:
    """The result of comparing two files.

    evidence: the weakest evidence among the runs. runs: input sets and sizes on which both ran. left_out: those that
    are too large. codes, differing: the number of codes compared, and of those that differ, in all outputs together.
    classes: the number of differences by class. distinct: for each output, up to two different values that it has.
    first: the first code that differs (`expected` is the first file's, `got` the second's). key: of its run. reading:
    which reading differs, if ptxas may fuse multiplications and additions of a file. launches: the launch of each file
    in the first run, if they differ. traces: the first instructions that differ.
    """

    files: tuple[ComparedFile, ComparedFile]
    target: str
    evidence: Evidence = "hardware"
    runs: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    codes: int = 0
    differing: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    distinct: dict[str, set[bytes]] = field(default_factory=dict)
    first: Offender | None = None
    key: Key | None = None
    reading: str = ""
    launches: tuple[str, str] = ("", "")
    traces: ShownDifference | None = None

    @property
    def constant_outputs(self) -> list[str]:
        """Outputs that hold the same bits everywhere. They cannot distinguish two kernels."""
        return [name for name, bits in self.distinct.items() if len(bits) < 2]

    @property
    def verdict(self) -> str:
        """ "refused", "faults", "different", "nothing compared", "nothing shown" or "equal"."""
        if any(f.refused for f in self.files):
            return "refused"
        if self.differing:
            return "different"
        if any(f.findings for f in self.files):
            return "faults"
        if not self.codes:
            return "nothing compared"
        return "nothing shown" if self.constant_outputs else "equal"

    @property
    def passed(self) -> bool:
        """Whether the files give equal bits on outputs that vary, and both agree with the reference."""
        return self.verdict == "equal" and all(f.judged and not f.wrong and not f.fault for f in self.files)


@digested_once()
@references_digested_once()
def compare_files(
    loaded: LoadedCase, variants: Mapping[str, PtxVariant], target: str, effort: str = "quick"
) -> FileComparison:
    """Run two files on the inputs of a case's plan. variants: the files, by their shown names.

    Raises CaseError if the case and the variants do not fit together.
    """
    names = list(variants)
    case = replace(loaded.case, variants=_on_the_same_inputs(variants))
    items = [Item(replace(loaded, case=case), name, target, "emulator") for name in names]
    comparison = FileComparison((ComparedFile(names[0]), ComparedFile(names[1])), target)
    backend = EmulatorBackend()
    plans = [list(jobs(i, backend, effort)) for i in items]
    require_same_inputs(*plans)
    for (key, one), (_, other) in zip(*plans, strict=True):
        where = f"{key.input_set} ({key.shape or 'one'}{', alignment ' + str(key.alignment)}, fusion {key.fusion})"
        if one is None or other is None:
            comparison.left_out.append(where)
            continue
        pair = (one, other)
        outcomes = tuple(backend.run(job) for job in pair)
        for file, outcome in zip(comparison.files, outcomes, strict=True):
            if outcome.status != "ran":
                file.refused = outcome.words
        if any(f.refused for f in comparison.files):
            return comparison
        if not comparison.runs:
            comparison.launches = _launches(pair)
        comparison.runs.append(where)
        comparison.evidence = min(comparison.evidence, *(o.evidence for o in outcomes), key=EVIDENCE.index)
        for item, job, outcome, file in zip(items, pair, outcomes, comparison.files, strict=True):
            _note(file, outcome)
            _judge(item, backend, job, outcome, file)
        _compare(comparison, key, pair, (outcomes[0], outcomes[1]))
    return comparison


def _on_the_same_inputs(variants: Mapping[str, PtxVariant]) -> dict[str, Variant]:
    """The files as variants whose inputs are made from the numbers of all of them."""
    numbers = tuple(n for v in variants.values() for n in constants_of(v))
    return {
        name: ComparedPtx(
            **{f.name: getattr(v, f.name) for f in fields(v)}, numbers=numbers, together=(*variants.values(),)
        )
        for name, v in variants.items()
    }


Plan = list[tuple[Key, Job | None]]


def require_same_inputs(one: Plan, other: Plan) -> None:
    """Raise CaseError if the two plans do not have the same inputs."""
    mine, theirs = ([replace(key, variant="", num_warps=0) for key, _ in plan] for plan in (one, other))
    if mine != theirs:
        first = next(pair for pair in zip_longest(mine, theirs, fillvalue="none") if pair[0] != pair[1])
        raise CaseError(f"the two files would run on different inputs: {first[0]} and {first[1]}")


def _launches(pair: tuple[Job, Job]) -> tuple[str, str]:
    """Grid and block of the two launches in words; two empty strings if they are equal."""
    launches = []
    for job in pair:
        kernel = compile_job(job)
        if isinstance(kernel, Outcome):
            return ("", "")
        made = placed(job, kernel, fuse=False)
        grid, block = ("x".join(map(str, s)) for s in ((*made.grid, 1, 1)[:3], (*made.block, 1, 1)[:3]))
        launches.append(f"{grid} blocks of {block} threads")
    return ("", "") if launches[0] == launches[1] else (launches[0], launches[1])


def _note(file: ComparedFile, outcome: Outcome) -> None:
    file.findings += [f for f in outcome.findings if f not in file.findings]


def _judge(item: Item, backend: EmulatorBackend, job: Job, outcome: Outcome, file: ComparedFile) -> None:
    """Compare a file's outputs with the case's reference, and record which of its instructions ran."""
    _cover(file, job)
    if not outcome.outputs:
        return
    if held := held_exactly(policies(job.case, job.variant), outcome.approximate):
        file.fault = held[0]
        return
    try:
        judgement = judge_job(item, backend, job, outcome)
    except (ReferenceFault, DomainError) as error:
        file.fault = str(error)
        return
    file.judged += judgement.total
    file.wrong += judgement.different


def _cover(file: ComparedFile, job: Job) -> None:
    if file.unexecuted == {}:
        return
    kernel = compile_job(job)
    assert not isinstance(kernel, Outcome)
    made = placed(job, kernel, fuse=False)
    x, y, z = (*made.grid, 1, 1)[:3]
    u, v, w = (*made.block, 1, 1)[:3]
    steps = made.loaded.program.steps
    try:
        executed = executed_steps(Launched(made.loaded, made.parameters, (x, y, z), (u, v, w), made.shared))
    except PtxError:
        return
    source = made.loaded.program.source
    left = {
        source.position(s.node.offset)[0]: source.statement(s.node.offset)
        for n, s in enumerate(steps)
        if n not in executed
    }
    before = left if file.unexecuted is None else file.unexecuted
    file.unexecuted = {line: text for line, text in before.items() if line in left}


Outputs = Mapping[str, NDArray[np.generic]]


def _compare(found: FileComparison, key: Key, pair: tuple[Job, Job], outcomes: tuple[Outcome, Outcome]) -> None:
    """Compare the outputs of a pair. If ptxas may fuse multiplications and additions, also the unfused outputs."""
    a, b = outcomes
    case = pair[0].case
    if not (a.outputs and b.outputs):
        if found.traces is None and bool(a.outputs) != bool(b.outputs):
            _locate(found, pair, (_fused(a), _fused(b)), None)
        return
    for outcome in outcomes:
        for name, bits in outcome.outputs.items():
            _count(found.distinct.setdefault(name, set()), np.asarray(bits))
    readings = [(a.outputs, b.outputs, "", (_fused(a), _fused(b)))]
    if a.alternative or b.alternative:
        reading = "without fused multiply-adds, which ptxas may or may not use"
        readings.append((a.alternative or a.outputs, b.alternative or b.outputs, reading, (False, False)))
    for left, right, reading, fuse in readings:
        judgement = judge_same(case, pair[0].inputs, left, right)
        found.codes += judgement.total
        if not judgement.different and not all(_equal(left[n], right[n]) for n in left):
            raise AssertionError("the judge called different bits equal")
        if not judgement.different:
            continue
        found.differing += judgement.different
        for name, count in judgement.classes.items():
            found.classes[name] = found.classes.get(name, 0) + count
        if found.first is None:
            found.first, found.key, found.reading = judgement.offenders[0], key, reading
            _locate(found, pair, fuse, found.first)


def _fused(outcome: Outcome) -> bool:
    return outcome.contraction_open


def _equal(one: Any, other: Any) -> bool:
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


def _count(seen: set[bytes], bits: NDArray[np.generic]) -> None:
    """Add different values of an output to `seen`, until it has two."""
    flat = np.ascontiguousarray(bits).reshape(-1)
    units = flat.view(f"u{flat.itemsize}") if flat.size else flat
    for value in (units[:1], units[units != units[:1]][:1]):
        if len(value) and len(seen) < 2:
            seen.add(value.tobytes())


def _locate(found: FileComparison, pair: tuple[Job, Job], fuse: tuple[bool, bool], first: Offender | None) -> None:
    a, b = (lockstep.side(f.name, job, fused) for f, job, fused in zip(found.files, pair, fuse, strict=True))
    if a is None or b is None:
        return
    if first is None:
        found.traces = lockstep.locate_fault(a, b)
        return
    output = first.output.partition(" ")[0]
    unit = first.index // format_of(pair[0].case.outputs[output]).codes_per_unit
    found.traces = lockstep.locate(a, b, output, unit)


# The text of a comparison of two files -----------------------------------------------------------------------------

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
    verdict = VERDICTS[found.verdict].format(
        refused=" and ".join(f.name for f in found.files if f.refused),
        differing=found.differing,
        codes=found.codes,
        classes=", ".join(f"{k} {n}" for k, n in found.classes.items()),
        constant=", ".join(found.constant_outputs),
    )
    return f"{a} and {b} on {found.target}: {verdict}"


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
        launches = "; ".join(f"{f.name} in {text}" for f, text in zip(found.files, found.launches, strict=True))
        yield f"  launches  {launches}"
    if found.left_out:
        yield f"  left out  {', '.join(found.left_out)}: too many inputs to hold"
    for file in found.files:
        yield from (f"  {text}" for text in about(file))
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


# A comparison of two files as plain values -------------------------------------------------------------------------
#
# A comparison of two files as plain values, for `ptxdiff.reports.comparison`, which makes an HTML page of them.

CONTEXT = 4
"""The number of lines of a file that are shown before and after the first instruction that differs."""


def facts(found: FileComparison, texts: Mapping[str, str]) -> dict[str, Any]:
    """The contents of the page. texts: the files' texts, by their names in the comparison."""
    names = [f.name for f in found.files]
    first = None
    if found.first is not None:
        rows = [*found.first.inputs.items(), (names[0], found.first.expected), (names[1], found.first.got)]
        first = {"words": first_words(found), "rows": [(n, b.bits, b.value) for n, b in rows]}
    return {
        "headline": headline(found),
        "verdict": found.verdict,
        "passed": found.passed,
        "files": [
            {"name": f.name, "about": [w.removeprefix(f"{f.name}: ") for w in about(f)], "text": texts[f.name]}
            for f in found.files
        ],
        "runs": found.runs,
        "left_out": found.left_out,
        "first": first,
        "traces": _traces(found.traces, texts) if found.traces else None,
    }


def _traces(found: ShownDifference, texts: Mapping[str, str]) -> dict[str, Any]:
    steps = [_step(s, texts[s.file]) for s in found.steps if s is not None]
    return {"words": found.words, "basis": found.basis, "steps": steps}


def _step(step: ShownStep, text: str) -> dict[str, Any]:
    lines = text.split("\n")
    first = max(0, step.line - 1 - CONTEXT)
    return {
        "file": step.file,
        "line": step.line,
        "thread": step.thread,
        "executed": step.executed,
        "context": [(first + k + 1, line) for k, line in enumerate(lines[first : step.line + CONTEXT])],
        "before": [register_words(*r) for r in step.before],
        "after": [register_words(*r) for r in step.after],
    }


# ---- Two cubins of one kernel, on the CPU ----------------------------------------------------------------------------
#
# They may come from two releases of ptxas, or two levels. The variant of the case says how the kernel is launched.


@dataclass(frozen=True)
class CubinComparison:
    """The result. refused: why one does not run. runs: launches compared. words: the first difference; "" if none."""

    refused: str = ""
    runs: int = 0
    words: str = ""


def compare_cubins(
    loaded: LoadedCase, variant: str, target: str, cubins: tuple[bytes, bytes], effort: str = "quick"
) -> CubinComparison:
    """Run both on the straight launches of a variant's plan, up to the first difference."""
    backend, runs = SassBackend(), 0
    for _, job in jobs(Item(loaded, variant, target, "sass"), backend, effort):
        if job is None or job.setup.context != "straight":
            continue
        cubin_runs = []
        for number, cubin in zip(("first", "second"), cubins, strict=True):
            one = backend.of_cubin(replace(job, setup=replace(job.setup, padding=None)), cubin)
            if isinstance(one, Outcome):
                return CubinComparison(f"the {number} cubin: {one.words}", runs)
            cubin_runs.append(one)
        runs += 1
        if difference := _difference(job, cubin_runs):
            return CubinComparison("", runs, difference)
    return CubinComparison("" if runs else "the case has no launch to compare", runs)


def _difference(job: Job, found: Sequence[CubinRun]) -> str:
    """The first element that differs, with both words, and where values part; "" if none does."""
    one, two = (run.outputs for run in found)
    for name in one:
        unit = f"u{np.asarray(one[name]).itemsize}"
        a, b = (np.ascontiguousarray(x[name]).reshape(-1).view(unit) for x in (one, two))
        wrong = np.flatnonzero(a != b)
        if not len(wrong):
            continue
        at = int(wrong[0])
        digits = 2 * a.itemsize
        message = (
            f"{name}[{at}] is 0x{int(a[at]):0{digits}x} and 0x{int(b[at]):0{digits}x}; {len(wrong)} of {len(a)} differ "
            f"({job.setup.shape_text})"
        )
        return "; ".join(filter(None, (message, _parted(found, name, at))))
    return ""


def _parted(found: Sequence[CubinRun], name: str, unit: int) -> str:
    """Where values part in the thread that stores a unit, if it is one of those that the unit's number suggests."""
    for thread in dict.fromkeys(unit // k for k in (1, 2, 4, 8, 16)):
        try:
            (a, memory), (b, other) = (run.follow(thread) for run in found)
        except (PtxError, IndexError):
            return ""
        offset = memory[name].place(unit) // 4 * 4
        addresses = memory[name].buffer.address + offset, other[name].buffer.address + offset
        if difference := first_difference_of_two(a, b, addresses):
            return difference
    return ""
