"""Whether ptxas is at fault for a failure, and the account of the fault for a reader who has never met one.

The same PTX is run by another level or program, and the emulator decides.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxdiff.backends.compiled import CompiledKernel, compile_job, placed, run_compiled
from ptxdiff.backends.sass import SassBackend
from ptxdiff.emulator import KERNEL_SECONDS, Buffer, BufferPointer
from ptxdiff.fuzz.pieces import FlowProgram, UnsupportedCode, pieces_of
from ptxdiff.fuzz.reduce import reduced_by_rounds, smaller, unrolled
from ptxdiff.jobs import Backend, Job, MachineCodeBackend, Outcome, same_bits
from ptxdiff.judging.judge import judge_same
from ptxdiff.model.compilers import LEVELS, TRITONS_LEVEL, PtxasChoice, compiler_of
from ptxdiff.model.match import DomainError
from ptxdiff.model.policies import policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import CaseError
from ptxdiff.records import PTXAS, Key, Offender, Result
from ptxdiff.running.assemblers import Chosen, tritons_own
from ptxdiff.running.contexts import run_loop
from ptxdiff.running.result import file_name
from ptxdiff.triton.assemble import Assembly, assemble, options_of
from ptxdiff.triton.build import Built, build
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.launch import launch_of
from ptxdiff.triton.ptxas import NoAssembler
from ptxdiff.triton.spec import Compilation
from ptxdiff.triton.tools import Tool

REDUCING = 30.0
"""Seconds after which the reduction ends, with the smallest PTX found so far."""
LEAST_LIMIT, LONGER = 1.0, 4.0
"""The emulator's limit on reduced PTX: least seconds, and a multiple of the time of the last PTX with the fault."""
HANGS_TRIED = 2
"""How many other levels are tried if one hangs: each may hang too, for as long as ptxas is given."""


@dataclass(frozen=True)
class PtxasBlame:
    """A fault of ptxas.

    kind: "wrong", "stopped" (the device), "crashed" or "hung". faulty, right: the assemblers; right is None if none was
    found. ptx: the text that shows the fault. smaller: whether the text was reduced from the variant's own. options: of
    ptxas, without level and files. first: the first code that differs, `expected` by the emulator and `got` by the
    faulty assembler. differ: how many codes differ. evidence: of the emulator's bits. target: assembled for.
    """

    kind: str
    faulty: PtxasChoice
    right: PtxasChoice | None
    ptx: str
    options: tuple[str, ...]
    target: str
    smaller: bool = False
    first: Offender | None = None
    differ: int = 0
    evidence: str = ""
    of_smaller: Offender | None = None
    """The first code that differs with the smaller text, on the same inputs."""
    launch: tuple[str, ...] = ()
    """The launch of the kernel, in words: blocks and threads, and what each parameter is."""
    interpreted: bool = False
    """Whether the machine code ran on the CPU, so that no GPU has confirmed its bits."""
    remarks: tuple[str, ...] = ()
    """Of machine code on the CPU: where values first part, and the weakest form that ran."""


class _PtxOnly:
    """An emulator that always runs a job's compiled kernel, so exactly the PTX that ptxas was given."""

    name = "emulator"

    def unavailable(self, target: str) -> str | None:
        return None

    def run(self, job: Job) -> Outcome:
        job = replace(job, setup=replace(job.setup, assembler=None, padding=None))
        kernel = compile_job(job)
        return kernel if isinstance(kernel, Outcome) else run_compiled(job, kernel)


Passes = Callable[[Job, Outcome], bool]
"""Whether the outcome of a straight run passes."""


def blamed(
    job: Job, outcome: Outcome, backend: object, others: Sequence[Chosen], passes: Passes, *, smallest: bool = True
) -> PtxasBlame | None:
    """The fault of ptxas that explains a job's wrong bits on a device, or missing ones; None if it is not proved.

    others: further assemblers of the run. smallest: whether to reduce the PTX that shows the fault.
    """
    launched = bool(outcome.outputs) or (outcome.status == "error" and bool(outcome.artifacts.ptx))
    if not isinstance(backend, MachineCodeBackend) or not launched or outcome.contraction_open:
        return None
    if not set(job.case.inputs) <= set(job.inputs):  # a sweep that did not end: its inputs stayed on the device
        return None
    if any("differ between two runs" in finding for finding in outcome.findings):
        return None
    try:
        meant = _meant(job, passes)
        own = job.setup.assembler or tritons_own(job.target, compiler_of(job.case, job.variant))
    except (NoTriton, NoAssembler, CaseError, ReferenceFault):
        return None
    if meant is None or (outcome.status == "ran" and same_bits(meant.outputs, outcome.outputs)):
        return None
    # Repeated as the others will be run: Triton's own launch may use other options.
    again = backend.run(with_assembler(job, own))
    interpreted = isinstance(backend, SassBackend)
    status = "not run" if interpreted else outcome.status
    if again.status != status or not same_bits(again.suspected if interpreted else again.outputs, outcome.outputs):
        return None
    for other in candidates(own, others, job):
        repeated = backend.run(with_assembler(job, other))
        if repeated.status == "ran" and not repeated.findings and same_bits(repeated.outputs, meant.outputs):
            remarks: tuple[str, ...] = ()
            if interpreted:
                parted = _parted(backend, with_assembler(job, own), outcome.outputs, meant.outputs)
                if not parted:
                    return None
                remarks = (parted, *outcome.notes)
            blame = _blame(job, outcome, meant, backend, (own, other), smallest)
            return blame and replace(blame, interpreted=interpreted, remarks=remarks)
    return None


def _parted(
    backend: object, job: Job, outputs: Mapping[str, Any], meant: Mapping[str, Any], built: Built | None = None
) -> str:
    """Where machine code's bits first part from those of its PTX; "" if a NaN, whose bits are open, may be why."""
    assert isinstance(backend, SassBackend)
    launch = launch_of(job)
    if built is None:
        made = launch.build(job.target)
        if not isinstance(made, Built):
            return ""
        built = made
    difference, nan = backend.parted(job, launch, built, outputs, meant)
    return "" if nan else difference


def _meant(job: Job, passes: Passes) -> Outcome | None:
    """The emulator's outcome on the compiled PTX, if it is certain and the case accepts it; else None."""
    emulator = _PtxOnly()
    if job.setup.context == "loop":
        _, outcome, judgement = run_loop(emulator, job, policies(job.case, job.variant).carry)
        accepted = judgement.passed
    else:
        outcome = emulator.run(job)
        accepted = outcome.status == "ran" and not outcome.findings and passes(job, outcome)
    sure = outcome.status == "ran" and not outcome.findings and outcome.evidence in ("specification", "confirmed")
    return outcome if sure and accepted and outcome.outputs and not outcome.contraction_open else None


def filled(job: Job) -> Job:
    """A job whose inputs have its shape: a sweep keeps one pack, which is repeated."""
    if not job.setup.shape or all(np.size(units) == math.prod(job.setup.shape) for units in job.inputs.values()):
        return job
    size = math.prod(job.setup.shape)
    return replace(job, inputs={n: np.resize(u, size).reshape(job.setup.shape) for n, u in job.inputs.items()})


def with_assembler(job: Job, assembler: PtxasChoice) -> Job:
    """The job with another assembler."""
    return replace(job, setup=replace(job.setup, assembler=assembler))


def candidates(own: PtxasChoice, others: Sequence[Chosen], job: Job) -> Iterator[PtxasChoice]:
    """The other levels of an assembler, the nearest first, then other programs."""
    for level in sorted(set(LEVELS) - {own.level}, key=lambda level: (abs(level - own.level), -level)):
        yield replace(own, level=level)
    seen = {own.digest}
    for other in (*others, None):
        try:
            tool = other or tritons_own(job.target, compiler_of(job.case, job.variant))
        except (NoTriton, NoAssembler):
            continue
        if tool.digest not in seen:
            seen.add(tool.digest)
            yield tool


def _blame(
    job: Job, outcome: Outcome, meant: Outcome, backend: MachineCodeBackend, pair: tuple[PtxasChoice, PtxasChoice],
    smallest: bool,
) -> PtxasBlame | None:  # fmt: skip
    compilation = _compilation(job)
    if compilation is None:
        return None
    launch = _launched(job, compilation)
    if outcome.status == "error":  # its outputs are undefined, and each step of a reduction would cost a process
        options = _options(compilation, pair[0])
        return PtxasBlame(
            "stopped", *pair, compilation.ptx, options, job.target, evidence=meant.evidence, launch=launch
        )
    judgement = judge_same(job.case, job.inputs, meant.outputs, outcome.outputs, job.setup.pack)
    fault = PtxasBlame(
        "wrong", *pair, compilation.ptx, _options(compilation, pair[0]), job.target,
        first=judgement.offenders[0] if judgement.offenders else None, differ=judgement.different,
        evidence=meant.evidence, launch=launch,
    )  # fmt: skip
    if not smallest:
        return fault
    showing = _Showing(job, compilation, backend, pair)
    fault = _smaller(fault, showing.shows)
    outputs = showing.outputs(fault.ptx) if fault.smaller else None
    if outputs is None or showing.open(fault.ptx, *outputs):
        return replace(fault, ptx=compilation.ptx, smaller=False)
    offenders = judge_same(job.case, job.inputs, *outputs, job.setup.pack).offenders
    return replace(fault, of_smaller=offenders[0] if offenders else None)


def _launched(job: Job, compilation: Compilation) -> tuple[str, ...]:
    """How a kernel is launched, for a reader who has only its PTX."""
    made = placed(job, CompiledKernel(launch_of(job), compilation), fuse=False)
    grid, block = ("x".join(map(str, s)) for s in (made.grid, made.block))
    shared = f", {made.shared} bytes of dynamic shared memory" if made.shared else ""
    given = [_parameter(p) for p in made.parameters]
    return (f"launch: {grid} blocks of {block} threads{shared}", f"parameters: {', '.join(given)}")


def _parameter(given: Any) -> str:
    if isinstance(given, Buffer | BufferPointer):
        buffer = given.buffer if isinstance(given, BufferPointer) else given
        return f"address of {buffer.name or 'memory'} ({buffer.size} bytes)"
    return str(given) if isinstance(given, int | float) else type(given).__name__


def ended_badly(job: Job, outcome: Outcome, others: Sequence[Chosen]) -> PtxasBlame | None:
    """The fault behind a crash or a hang of ptxas, with a level or program that assembles the same PTX, if any does."""
    try:
        own = job.setup.assembler or tritons_own(job.target, compiler_of(job.case, job.variant))
        compilation = _compilation(job)
        if compilation is None:
            return None
        tried = list(candidates(own, others, job))
        if outcome.ended == "hung":
            tried = sorted(tried, key=lambda a: a.level)[:HANGS_TRIED]
        spec = compilation.spec
        right = next((other for other in tried if isinstance(build(spec, other), Built)), None)
    except (NoTriton, NoAssembler, CaseError, ValueError, TypeError):
        return None
    fault = PtxasBlame(outcome.ended, own, right, compilation.ptx, _options(compilation, own), job.target)
    if outcome.ended == "hung":  # each step of a reduction would take as long
        return fault

    def crashes(text: str) -> bool:
        changed = replace(compilation, ptx=text)
        if right is not None and not isinstance(assemble(replace(changed, ptxas=Tool.of(right))), Assembly):
            return False
        made = assemble(replace(changed, ptxas=Tool.of(own)))
        return isinstance(made, Refusal) and made.ended == "crashed"

    return _smaller(fault, crashes)


def _compilation(job: Job) -> Compilation | None:
    compiled = compile_kernel(launch_of(job).spec(job.target))
    return None if isinstance(compiled, Refusal) else compiled


def _options(compilation: Compilation, by: PtxasChoice) -> tuple[str, ...]:
    options = options_of(replace(compilation, ptxas=Tool.of(by)))
    return tuple(w for w in options if w not in ("-v", "-lineinfo") and not w.startswith("-O"))


@dataclass
class _Showing:
    """A test whether other PTX shows the same fault as a job's kernel, on the same inputs.

    limit: seconds for the emulator. A reduction may remove the end of a loop, so that only the limit ends the run.
    """

    job: Job
    compilation: Compilation
    backend: MachineCodeBackend
    pair: tuple[PtxasChoice, PtxasChoice]
    limit: float = KERNEL_SECONDS

    def shows(self, text: str) -> bool:
        """Whether the text shows the fault. Call it with the whole kernel first: its time limits the rest."""
        begun = time.monotonic()
        shown = self.outputs(text) is not None
        self.limit = min(self.limit, max(LEAST_LIMIT, LONGER * (time.monotonic() - begun))) if shown else self.limit
        return shown

    def outputs(self, text: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """The emulator's outputs and those of the faulty assembler; None if the text does not show the fault."""
        changed = replace(self.compilation, ptx=text)
        plain = replace(self.job, setup=replace(self.job.setup, assembler=None, padding=None))
        meant = run_compiled(plain, CompiledKernel(launch_of(plain), changed), limit=self.limit)
        if meant.status != "ran" or meant.findings or meant.contraction_open or not meant.outputs:
            return None
        faulty, right = (self._given(changed, one) for one in self.pair)
        if faulty is None or right is None or not same_bits(right, meant.outputs):
            return None
        return None if same_bits(faulty, meant.outputs) else (meant.outputs, faulty)

    def open(self, text: str, meant: Mapping[str, Any], faulty: Mapping[str, Any]) -> bool:
        """Whether, of machine code on the CPU, a NaN may explain the wrong bits of the text."""
        if not isinstance(self.backend, SassBackend):
            return False
        changed = replace(self.compilation, ptx=text, ptxas=Tool.of(self.pair[0]))
        made = assemble(changed)
        job = with_assembler(self.job, self.pair[0])
        return not isinstance(made, Assembly) or not _parted(self.backend, job, faulty, meant, Built(changed, made))

    def _given(self, compilation: Compilation, one: PtxasChoice) -> Mapping[str, Any] | None:
        compilation = replace(compilation, ptxas=Tool.of(one))
        made = assemble(compilation)
        if not isinstance(made, Assembly):
            return None
        outcome = self.backend.run_built(with_assembler(self.job, one), Built(compilation, made))
        return outcome.outputs if outcome.status == "ran" else None


def _smaller(found: PtxasBlame, shows: Callable[[str], bool]) -> PtxasBlame:
    """The fault with the smallest PTX found that shows it; with the variant's own PTX if that cannot be parsed.

    Code that `pieces_of` does not parse, such as calls, is not reduced.
    """
    try:
        kernel = pieces_of(found.ptx)
    except UnsupportedCode:
        return found
    if not shows(kernel.text(kernel.program)):
        return found

    def each(programs: Sequence[FlowProgram]) -> list[bool]:
        return [shows(kernel.text(p)) for p in programs]

    small = reduced_by_rounds(
        kernel.program, each, smaller, unrolled, lambda p: p.size, seconds=REDUCING, at_once=1, onwards=True
    )
    return replace(found, ptx=kernel.text(small), smaller=True)


_EVIDENCE = {
    "confirmed": "by the emulator, with instructions that hardware has confirmed",
    "specification": "by the emulator, from the PTX ISA's text",
}
_WHAT = {
    "wrong": "makes machine code that gives other bits than this PTX means",
    "stopped": "makes machine code that stops the device, where this PTX does not stop it",
    "crashed": "crashes on this PTX, instead of assembling it or reporting an error",
    "hung": "does not end on this PTX",
}
_TITLES = {
    "wrong": "gives wrong results", "stopped": "makes code that stops the GPU", "crashed": "crashes", "hung": "hangs",
}  # fmt: skip
_FOR_TRITON = "Triton takes it from TRITON_PTXAS_PATH and TRITON_PTXAS_BLACKWELL_PATH, which one by target and release"
_LAUNCHED = ("wrong", "stopped")
WIDTH = 12


def in_brief(blame: PtxasBlame) -> str:
    """A few words, for one line: `ptxas 12.9.86 -O3 is at fault, ptxas 12.9.86 -O0 is right`."""
    ends = "is right" if blame.kind in _LAUNCHED else "assembles it"
    return f"{blame.faulty.name} is at fault" + (f", {blame.right.name} {ends}" if blame.right else "")


def message_lines(blame: PtxasBlame, attachment: str) -> list[str]:
    """The lines of a message. attachment: where the PTX is, or how to get it."""
    lines = [f"  diagnosis ptxas: the assembler is at fault, not this case: {blame.faulty.name} {_WHAT[blame.kind]}"]
    for name, text in _rows(blame, attachment):
        lines.append(f"    {name:<{WIDTH}}{text}".rstrip())
    return lines


def _rows(blame: PtxasBlame, attachment: str) -> list[tuple[str, str]]:
    rows = [
        ("what it is", "ptxas is NVIDIA's assembler: it turns PTX, which compilers write, into a GPU's machine code."),
        ("", "It optimises, and has mistakes as any compiler has. Nothing in the kernel's source is wrong."),
        ("at fault", f"{blame.faulty.label}, {blame.faulty.path}"),
    ]
    if blame.right is not None:
        does = "gives the emulator's bits for the same PTX, on all inputs"
        rows.append(("right", f"{blame.right.label}: {does if blame.kind in _LAUNCHED else 'assembles the same PTX'}"))
    rows += _values(blame)
    if blame.first is not None:
        rows.append(("", f"output {blame.first.output}, code {blame.first.index}; {blame.differ} codes differ in all"))
    rows += _known_by(blame)
    rows += [("work round" if n == 0 else "", text) for n, text in enumerate(work_round(blame))]
    rows.append(("report to", "NVIDIA: developer.nvidia.com/bugs (with an account there), a bug of CUDA's ptxas"))
    if blame.faulty.bundled:
        advice = (
            "Triton, which carries this ptxas: an issue at github.com/triton-lang/triton, so that others are warned"
        )
        rows.append(("", advice))
    rows += [("title", title(blame)), ("attach", attachment)]
    if blame.smaller:
        rows.append(("", "it is reduced to the part that shows the fault, and takes the kernel's own arguments"))
    rows.append(("say also", "your GPU and driver (nvidia-smi shows both), and where ptxas comes from"))
    rows.append(("by hand", command(blame, blame.faulty, "wrong")))
    if blame.right is not None:
        rows.append(("", command(blame, blame.right, "right")))
        shown = "; nvdisasm -c shows the machine code of each" if blame.kind in _LAUNCHED else ""
        rows.append(("", f"kernel.ptx is the attached file{shown}"))
    return rows


def _known_by(blame: PtxasBlame) -> list[tuple[str, str]]:
    """Why ptxas is to blame, for a reader who doubts it."""
    if blame.right is None or blame.kind not in _LAUNCHED:
        return []
    if blame.interpreted:
        return [
            (
                "known by",
                "machine code that ran on the CPU, instruction by instruction: no GPU has confirmed it. Each ",
            ),
            ("", "form of instruction that ran gave the bits of PTX elsewhere; the machine code of "),
            (
                "",
                f"{blame.right.name} gives the emulator's bits here, that of {blame.faulty.name} gives others in each",
            ),
            ("", "schedule. PTX leaves nothing open here: nothing to fuse, no approximate instruction, no NaN"),
            *(("", remark) for remark in blame.remarks),
        ]
    own = blame.faulty.name
    does = "stops the device" if blame.kind == "stopped" else "gives others, twice the same"
    return [
        ("known by", "three opinions on one PTX: ptxdiff's emulator runs it, as NVIDIA's PTX ISA defines each"),
        ("", f"instruction; the machine code of {blame.right.name} gives the same bits, and that of {own} {does}"),
    ]


def title(blame: PtxasBlame) -> str:
    """A headline for a report of the fault."""
    right = f", {blame.right.name} does not" if blame.right else ""
    return f"{blame.faulty.name} {_TITLES[blame.kind]} for {blame.target}{right}"


def _values(blame: PtxasBlame) -> list[tuple[str, str]]:
    """The first code that differs: its inputs, and the result of each assembler and of the emulator."""
    if blame.first is None:
        return []
    rows = [(f"input {n}", f"{b.bits}  {b.value}") for n, b in blame.first.inputs.items()]
    rows.append(("emulator", f"{blame.first.expected.bits}  {blame.first.expected.value}  {_evidence(blame)}"))
    rows.append((f"-O{blame.faulty.level}", f"{blame.first.got.bits}  {blame.first.got.value}  {_where(blame)}"))
    if blame.right is not None:
        same = f"-O{blame.right.level}" if blame.right.digest == blame.faulty.digest else "the other"
        rows.append((same, f"{blame.first.expected.bits}  {blame.first.expected.value}  {_where(blame)}"))
    return rows


def _where(blame: PtxasBlame) -> str:
    return "as machine code on the CPU" if blame.interpreted else "on the device"


def _evidence(blame: PtxasBlame) -> str:
    return _EVIDENCE.get(blame.evidence, "by the emulator")


def command(blame: PtxasBlame, by: PtxasChoice, name: str) -> str:
    """The command that assembles the PTX by hand."""
    return shlex.join([by.path, f"-O{by.level}", *blame.options, "kernel.ptx", "-o", f"{name}.cubin"])


def work_round(blame: PtxasBlame) -> list[str]:
    """What a user can do until ptxas is repaired; first the level or program that is known to be right."""
    lines = []
    right = blame.right
    if right is not None and right.digest == blame.faulty.digest:
        level = f"-O{right.level}"
        lines.append(
            f"assemble at {level}: ptx_options='{level}' among a Triton kernel's options, nvcc -Xptxas {level}"
        )
        lines.append(f"it may be slower then: ptxdiff speed NAME --opt={right.level} --opt=3 shows both times")
        if right.level == 0:
            lines.append("for all of Triton's kernels: DISABLE_PTXAS_OPT=1")
    elif right is not None:
        lines.append(f"assemble with {right.name}, {right.path}; {_FOR_TRITON}")
    if right is None or right.digest == blame.faulty.digest:
        lines.append(
            f"{'or ' * bool(lines)}another ptxas, a newer CUDA toolkit's say; try it here first with "
            f"--ptx-assembler=PATH --ptx-opt={TRITONS_LEVEL}"
        )
        lines.append(_FOR_TRITON)
    lines.append("or write the instructions in another way, and run this case again")
    return lines


def attached(folder: Path | None, key: Key, blame: PtxasBlame) -> str:
    """Write the PTX to a folder, and return where it is; without a folder, how to get it."""
    if folder is None:
        return "the PTX: run the command behind 'repeat' with --ptx-dump=DIR, which writes it to that folder"
    path = folder / file_name(key).replace(".npz", ".ptx")
    try:
        path.write_text(_commented(blame), encoding="utf-8")
    except OSError as e:
        return f"the PTX, which --ptx-dump could not write to {path}: {e.strerror}"
    return str(path)


def _commented(blame: PtxasBlame) -> str:
    """The PTX, with comments at its head that say what it shows."""
    lines: Sequence[str] = [title(blame), f"{blame.faulty.name} {_WHAT[blame.kind]}", in_brief(blame), *blame.launch]
    if blame.smaller:
        lines = [*lines, "reduced to the part that shows the fault; parameters and launch are the kernel's own"]
    rows = [f"{name}: {text}" for name, text in _values(replace(blame, first=blame.of_smaller or blame.first)) if name]
    by_hand = [command(blame, by, name) for by, name in ((blame.faulty, "wrong"), (blame.right, "right")) if by]
    return "".join(f"// {line}\n" for line in (*lines, *rows, *by_hand)) + blame.ptx


class PtxasTrial:
    """Examines the failures of one item for faults of ptxas.

    assemblers: those of the run. passes: whether an outcome passes. dump: a folder for the PTX that shows a fault.
    """

    def __init__(self, backend: Backend, assemblers: Sequence[Chosen], passes: Passes, dump: Path | None) -> None:
        self.backend, self.assemblers, self.passes, self.dump = backend, tuple(assemblers), passes, dump
        self._reduced = False  # whether the PTX of a fault has been reduced
        self._proved: tuple[Mapping[str, Any], PtxasBlame] | None = None

    def settled(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome of machine code on the CPU: with its wrong bits if they prove a fault of ptxas, else as it is.

        Bits that the case accepts accuse nobody, and loops are not examined.
        """
        if not outcome.suspected or job.setup.context != "straight":
            return outcome
        wrong = replace(outcome, status="ran", words="", outputs=outcome.suspected, suspected={}, evidence="model")
        try:
            if self.passes(job, wrong):
                return outcome
        except (ReferenceFault, DomainError):
            return outcome
        blame = self.blame(filled(job), wrong)
        if blame is None:
            return outcome
        self._proved = wrong.outputs, blame
        return wrong

    def explained(self, result: Result, job: Job, outcome: Outcome) -> tuple[Result, list[str]]:
        """A failure and the lines that explain it. If ptxas is at fault, the words of the result name the assembler."""
        if result.diagnosis or (self.backend.name == "sass" and not self._has_proved(outcome)):
            # Machine code on the CPU has a result only where the PTX gives the same bits, or where `settled` found a
            # proof: what other assemblers give is not asked again.
            return result, []
        job = filled(job)
        if not outcome.outputs:  # a sweep leaves its outputs on the device
            outcome = self.backend.run(job)
        blame = self.blame(job, outcome)
        if blame is None:
            return result, []
        result = replace(result, diagnosis=PTXAS, words=in_brief(blame))
        return result, message_lines(blame, attached(self.dump, result.key, blame))

    def blame(self, job: Job, outcome: Outcome) -> PtxasBlame | None:
        """The fault of ptxas behind a job's result on a GPU; None if it is not proved."""
        if job.setup.context == "shared" or self.backend.name not in ("gpu", "sass"):
            return None
        if self._proved is not None and self._has_proved(outcome):
            return self._proved[1]
        # A reduction takes up to half a minute, so only one failure of an item gets it; the others keep the variant's
        # PTX.
        blame = blamed(job, outcome, self.backend, self.assemblers, self.passes, smallest=not self._reduced)
        self._reduced = self._reduced or blame is not None
        return blame

    def _has_proved(self, outcome: Outcome) -> bool:
        """Whether `settled` found the proof for an outcome."""
        return self._proved is not None and self._proved[0] is outcome.outputs

    def with_blame(self, result: Result, blame: PtxasBlame | None, repeat: str) -> Result:
        """The result of a job that gave no bits, with ptxas blamed. blame: the fault, if it could be examined.

        repeat: the command that repeats the result.
        """
        result = replace(result, diagnosis=PTXAS)
        if blame is None:
            return result
        story = message_lines(blame, attached(self.dump, result.key, blame))
        line = f"  repeat    {repeat}"
        message = "\n".join([result.message.removesuffix(f"\n{line}"), *story, line])
        return replace(result, words=f"{result.words}; {in_brief(blame)}", message=message)
