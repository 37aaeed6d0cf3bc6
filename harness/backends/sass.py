"""The sass backend runs a kernel's machine code on the CPU and compares it with the PTX.

The kernel is compiled and assembled as for a GPU of the target. Its bits count only if every form of machine
instruction that ran is taught for the target (`ptxdiff.conformance.taught`), and if the PTX emulator gives the same
bits, with or without contraction, or with exactly the products fused that ptxas fused (`fused_products`). Of inline asm
it is enough that the emulator gives these bits for the asm alone, without the kernel around it. Otherwise
the job is not run, and the words say what is unsettled: nobody is accused on the word of one run. If nothing that PTX
leaves open explains the difference (`first_difference`), the outputs are "suspected": then
`ptxdiff.running.ptxas_fault` looks for the proof that ptxas is at fault.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxdiff.backends.assembler import AssemblerBackend, artifacts, assembled, machine, notes
from ptxdiff.backends.compiled import (
    CompiledKernel,
    EmulatedTensor,
    PlacedKernel,
    loaded_kernel,
    outputs_when_fused,
    placed,
    run_compiled,
)
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.backends.first_difference import doubt_of_forms, doubt_of_ptx, first_difference, nan_on_the_way, standing
from ptxdiff.backends.kept import KeptOutcomes
from ptxdiff.backends.snippet import error_line
from ptxdiff.conformance.taught import unsettled
from ptxdiff.emulator import KERNEL_SECONDS, Fusable, PtxError, TimeLimit, fusable, scratch
from ptxdiff.emulator.kernel.trace import Launched, ThreadTrace, storing_thread
from ptxdiff.emulator.kernel.trace import followed as ptx_followed
from ptxdiff.jobs import Job, Outcome
from ptxdiff.model.compilers import compiler_of
from ptxdiff.model.identity.definition import Experiment
from ptxdiff.model.match import read_only
from ptxdiff.model.variants import AsmVariant
from ptxdiff.sass.cubin import MachineCode, digest_of, disassembled, machine_code
from ptxdiff.sass.machine import PreparedSteps
from ptxdiff.sass.run import Ran, run_machine_code
from ptxdiff.sass.scoreboards import early_uses
from ptxdiff.sass.text import ScheduleDependence, Unsupported
from ptxdiff.sass.trace import TracedInstruction, followed
from ptxdiff.triton.assemble import disassemble_ahead, making_ahead
from ptxdiff.triton.build import Built
from ptxdiff.triton.launch import Launch, entry_parameters, launch_of, launched_experiment
from ptxdiff.triton.targets import tool
from ptxdiff.triton.unread import unread

if TYPE_CHECKING:
    from ptxdiff.emulator import Fuse


TIMING = "machine code ran on the CPU, which never shows faults of timing"
"""A note of every result."""
SHARED = "the asm alone, as PTX: machine code shows only the registers that were chosen for this kernel"
"""A note of results with outputs in registers of inputs."""
SCHEDULE = "the bits depend on the schedule"
EARLY = "machine code uses a result too early"
TRACED = 4
"""Elements that are traced at most in search of one without a NaN on its way."""
NOT_TRACED = "the thread was not traced"
NOT_ACCUSED = "ptxas is not accused"
NO_OTHER = "no other level and no other ptxas is known to give the bits of the PTX"


class SassBackend:
    """See `ptxdiff.jobs.Backend`.

    limit: seconds for each run of machine code, and of PTX. brief: whether quick items have the smaller plan
    (`ptxdiff.running.plan.brief`). kept: where the emulator's results are kept, if they are shared with it; the bits of
    one experiment are then computed once.
    """

    name = "sass"
    every_setup = True

    def __init__(self, limit: float = KERNEL_SECONDS, *, brief: bool = False, kept: KeptOutcomes | None = None) -> None:
        self.limit, self.brief = limit, brief
        self._once = (KeptOutcomes() if kept is None else kept).once
        self._assembler = AssemblerBackend("never")
        self._alone = EmulatorBackend(limit, kept=kept)
        self._runs = _KeptRuns()

    def unavailable(self, target: str) -> str | None:
        """The reason why machine code for `target` cannot be made or read here; None if it can."""
        reason = self._assembler.unavailable(target)
        if reason is None and not tool("nvdisasm").exists():
            return "nvdisasm, which Triton carries, is missing"
        return reason or unread(target) or None

    def prepare(self, job: Job) -> None:
        """See `ptxdiff.jobs.CompilingBackend`."""
        if job.setup.context != "shared":
            self._assembler.prepare(job)

    def disassemble_ahead(self, jobs: Sequence[Job]) -> None:
        """See `ptxdiff.jobs.DisassemblingBackend`."""
        jobs = [job for job in jobs if job.setup.context != "shared"]
        if len(jobs) < 2:
            return
        with making_ahead(str(jobs[0].path)):
            for job in jobs:
                self.prepare(job)
            cubins = []
            for job in jobs:
                with contextlib.suppress(Exception):  # the job's own run reports the error
                    made = assembled(job)
                    cubins += [] if isinstance(made, Outcome) else [made[1].assembly.cubin]
            disassemble_ahead(cubins, str(tool("nvdisasm")))

    def run(self, job: Job) -> Outcome:
        """Run one job's machine code; in the context "shared" its asm alone, as PTX."""
        if job.setup.context == "shared":
            # LLVM chooses the registers, and machine code shows that one choice. Another kernel may get another.
            outcome = self._alone.run(job)
            return replace(outcome, notes=(*outcome.notes, SHARED))
        made = assembled(job)
        if isinstance(made, Outcome):
            return made
        launch, built = made
        outcome = self._ran(job, launch, built)
        identity = launched_experiment(f"sass {machine(built)}", job, launch, built.compilation).digest
        return replace(
            outcome, artifacts=artifacts(built), identity=identity if outcome.outputs or outcome.suspected else ""
        )

    def run_built(self, job: Job, built: Any) -> Outcome:
        """Run a kernel that was built elsewhere. See `ptxdiff.jobs.MachineCodeBackend`.

        Its machine code's bits are not compared with the PTX: the caller does.
        """
        given = self._given(launch_of(job), job, built)
        if isinstance(given, Outcome):
            return given
        doubt = doubt_of_forms(given.ran, job.target)
        return Outcome("not run", f"unsettled: {doubt}") if doubt else given.outcome(job, built)

    def _ran(self, job: Job, launch: Launch, built: Built) -> Outcome:
        given, expected = None, self._by_asm_alone(job)
        if expected is not None:
            given = self._given(launch, job, built)
            if isinstance(given, Outcome) or given.findings or _apart(given.outputs, expected.outputs):
                expected = None  # the PTX that ptxas got has to say what is right
        if expected is None:
            expected = run_compiled(job, CompiledKernel(launch, built.compilation), self._once, self.limit)
        if expected.status != "ran" or expected.findings:
            reason = expected.words or expected.findings[0]
            return Outcome("not run", f"the PTX has no bits to compare machine code with: {reason}")
        given = given or self._given(launch, job, built)
        if isinstance(given, Outcome):
            return given
        left = unsettled(given.ran.forms, job.target)
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        untaught = f"{left[0]}{more} is not taught for {job.target}" if left else ""
        readings = [bits for bits in (expected.outputs, expected.alternative) if bits]
        apart = min((_apart(given.outputs, bits) for bits in readings), key=len)
        fused: Mapping[str, str] = {}
        if expected.alternative and not given.findings:
            fused, known = self._fused(job, launch, built, given.outputs, expected)
            apart = "" if known else apart
        if apart or given.findings:
            doubt = self._doubt(job, built, given, expected)
            parted = self.parted(job, launch, built, given.outputs, expected.outputs)[0] if apart else ""
            reason = "; ".join(
                filter(None, (apart or given.findings[0], parted, f"{NOT_ACCUSED}: {doubt or NO_OTHER}"))
            )
            notes_ = (standing(given.ran, job.target), TIMING)
            suspected = {} if doubt or untaught else given.outputs
            return _doubtful("; ".join(filter(None, (untaught, reason))), suspected=suspected, notes=notes_)
        if untaught:
            return Outcome("not run", f"unsettled: {untaught}")
        return replace(given.outcome(job, built), approximate=expected.approximate, fused=fused)

    def _by_asm_alone(self, job: Job) -> Outcome | None:
        """What a job's asm gives by itself, without the kernel around it, which takes most of the time of a run.

        None if the job is not one plain run of asm, or more than one result is right, or none is known.
        """
        setup = job.setup
        if not isinstance(job.variant, AsmVariant) or compiler_of(job.case, job.variant):
            return None
        if setup.context != "straight" or setup.padding is not None:
            return None
        outcome = self._alone.asm_alone(job)
        if outcome.status != "ran" or not outcome.outputs or outcome.findings:
            return None
        return None if outcome.contraction_open and setup.fusion else outcome

    def _fused(
        self, job: Job, launch: Launch, built: Built, outputs: Mapping[str, Any], expected: Outcome
    ) -> tuple[Mapping[str, str], bool]:
        """The products that ptxas fused, in words by PTX line, and whether the PTX then has the machine code's bits."""
        kernel = CompiledKernel(launch, built.compilation)
        pairs = fusable(loaded_kernel(job, built.compilation).program)
        every = tuple(sorted({p.addition: p.pair for p in reversed(pairs)}.values()))

        def has_bits(fuse: Fuse) -> bool:
            meant = expected.outputs if fuse == every else expected.alternative if not fuse else None
            return not _apart(outputs, meant or outputs_when_fused(job, kernel, fuse, self.limit))

        try:
            threads = [
                FollowedThread(
                    ptx_followed(_launched(placed(job, kernel, fuse=True)), thread),
                    ptx_followed(_launched(placed(job, kernel, fuse=False)), thread),
                    self._followed(launch, job, built, thread)[0],
                )
                for thread in self._deciding_threads(job, kernel, expected)
            ]
            found = fused_products(pairs, threads, has_bits)
        except PtxError:
            return {}, False
        return ({}, False) if found is None else (in_words(found, threads), True)

    def _deciding_threads(self, job: Job, kernel: CompiledKernel, expected: Outcome) -> list[int]:
        """Threads whose results depend on whether products are fused, `TRACED` at most."""
        threads: list[int] = []
        for name, unit in islice(_differing(expected.outputs, expected.alternative), TRACED):
            ptx = placed(job, kernel, fuse=False)
            tensor = ptx.tensors[name]
            stored = storing_thread(_launched(ptx), tensor.buffer, tensor.place(unit), tensor.layout.unit)
            if stored is not None and stored.thread not in threads:
                threads.append(stored.thread)
        return threads

    def _doubt(self, job: Job, built: Built, given: _Given, expected: Outcome) -> str:
        """Why nothing is proved by other bits than those of the PTX; "" if a right level of ptxas would prove it."""
        if given.findings:
            return "a finding is not a difference of bits"
        if expected.orders:
            return "the bits of the PTX depend on the order of blocks"
        if doubt := doubt_of_forms(given.ran, job.target):
            return doubt
        kernel = loaded_kernel(job, built.compilation)
        return doubt_of_ptx(kernel, job.setup.fusion)

    def parted(
        self, job: Job, launch: Launch, built: Built, outputs: Mapping[str, Any], meant: Mapping[str, Any]
    ) -> tuple[str, str]:
        """Where a kernel's wrong bits first part from those of its PTX, and a NaN of the PTX on the way, in words.

        outputs: of the machine code. meant: of the PTX. Of the first units that differ, one without a NaN is taken.
        What could not be traced counts as a NaN on the way.
        """
        difference, nan = "", NOT_TRACED
        try:
            for name, unit in islice(_differing(outputs, meant), TRACED):
                ptx = placed(job, CompiledKernel(launch, built.compilation), fuse=False)
                tensor = ptx.tensors[name]
                kernel = _launched(ptx)
                stored = storing_thread(kernel, tensor.buffer, tensor.place(unit), tensor.layout.unit)
                if stored is None:
                    continue
                trace = ptx_followed(kernel, stored.thread)
                nan = nan_on_the_way(trace)
                if not difference or not nan:
                    difference = self._parting(launch, job, built, (name, unit), stored.thread, trace, meant)
                if not nan:
                    break
        except PtxError as error:
            return "", f"{NOT_TRACED}: {error_line(error)}"
        return difference, nan

    def traces(self, job: Job, thread: int) -> tuple[ThreadTrace, list[TracedInstruction]] | Outcome:
        """A thread of a job in PTX and in machine code. thread: its number in the grid. Raises PtxError."""
        made = assembled(job)
        if isinstance(made, Outcome):
            return made
        launch, built = made
        ptx = placed(job, CompiledKernel(launch, built.compilation), fuse=False)
        trace = ptx_followed(_launched(ptx), thread)
        return trace, self._followed(launch, job, built, thread)[0]

    def of_cubin(self, job: Job, cubin: bytes) -> CubinRun | Outcome:
        """What a cubin with a job's kernel gives on its inputs. Its forms need not be taught: nothing is accused."""
        made = assembled(job)
        if isinstance(made, Outcome):
            return made
        launch, built = made
        built = replace(built, assembly=replace(built.assembly, cubin=cubin))
        given = self._given(launch, job, built)
        if isinstance(given, Outcome):
            return given
        return CubinRun(given.outputs, lambda thread: self._followed(launch, job, built, thread))

    def _followed(
        self, launch: Launch, job: Job, built: Built, thread: int
    ) -> tuple[list[TracedInstruction], dict[str, EmulatedTensor]]:
        code, values, block, tensors = self._code(launch, job, built)
        shared = built.compilation.shared
        return followed(code, values, launch.grid, block, thread, shared_bytes=shared, limit=self.limit), tensors

    def _parting(
        self, launch: Launch, job: Job, built: Built, where: tuple[str, int], thread: int, trace: ThreadTrace,
        meant: Mapping[str, Any],
    ) -> str:  # fmt: skip
        steps, tensors = self._followed(launch, job, built, thread)
        name, unit = where
        buffer, offset = tensors[name].buffer, tensors[name].place(unit)
        first = offset // 4 * 4
        size = tensors[name].layout.unit
        expected = int(np.asarray(meant[name]).reshape(-1).view(f"u{size}")[unit])
        return first_difference(trace, steps, buffer.address + first, expected)

    def _given(self, launch: Launch, job: Job, built: Built) -> _Given | Outcome:
        """What the machine code gives, or the reason why it gives nothing.

        Variants of a case are often the same machine code, which then runs once on the same inputs.
        """
        try:
            read = _read(built.assembly.cubin, built.compilation.entry)
        except PtxError:  # reported below
            return self._run_now(launch, job, built)
        # The PTX does not decide what its machine code does. Scratch memory is no argument, but the kernel reads it.
        text = f"{read.digest} {read.early} {built.compilation.scratch}"
        run, steps = launched_experiment("machine code", job, launch, built.compilation, text), read.steps()
        return self._runs.get(run) or self._runs.kept(run, steps, self._run_now(launch, job, built))

    def _run_now(self, launch: Launch, job: Job, built: Built) -> _Given | Outcome:
        try:
            code, values, block, tensors = self._code(launch, job, built)
            shared = built.compilation.shared
            steps = _read(built.assembly.cubin, built.compilation.entry).steps().by_address
            ran = run_machine_code(code, values, launch.grid, block, shared_bytes=shared, limit=self.limit, steps=steps)
        except Unsupported as refusal:
            return Outcome("not run", f"machine code: {refusal.message}")
        except ScheduleDependence as fault:
            return _doubtful(f"{SCHEDULE}: {error_line(fault)}")
        except TimeLimit as error:
            return Outcome("not run", f"unsettled: {error_line(error)}; the PTX runs without a fault")
        except PtxError as error:
            return _doubtful(f"{error_line(error)}; the PTX runs without a fault")
        if early := _read(built.assembly.cubin, built.compilation.entry).early:
            return _doubtful(f"{EARLY}: {early[0]}")
        outputs = {t.name: tensors[t.name].read() for t in launch.outputs}
        findings = [f for t in launch.outputs for f in tensors[t.name].findings()]
        findings += [f for t in tensors.values() if not t.written for f in t.changes()]
        return _Given(ran, outputs, tuple(findings), math.prod(launch.grid) * math.prod(block))

    def _code(
        self, launch: Launch, job: Job, built: Built
    ) -> tuple[MachineCode, list[Any], tuple[int, ...], dict[str, EmulatedTensor]]:
        """The machine code, its parameters on fresh memory, the block, and the tensors. Raises Unsupported."""
        tensors = {
            t.name: EmulatedTensor(
                t, job.setup.alignment_of(t.name), job.inputs.get(t.name), written=t in launch.outputs
            )
            for t in launch.tensors
        }
        values = entry_parameters(launch, built.compilation, {n: t.buffer for n, t in tensors.items()})
        given = built.compilation.spec.given
        block = given.block if given else (32 * built.compilation.num_warps, 1, 1)
        code = _read(built.assembly.cubin, built.compilation.entry).code
        return code, [*values, *scratch(built.compilation.scratch, math.prod(launch.grid))], tuple(block), tensors


@dataclass(frozen=True)
class CubinRun:
    """A run of a cubin. follow: gives the trace of a thread, and the tensors in whose memory it ran."""

    outputs: Mapping[str, Any]
    follow: Callable[[int], tuple[list[TracedInstruction], dict[str, EmulatedTensor]]]


@dataclass(frozen=True)
class _Given:
    """What machine code gave. lanes: threads that ran."""

    ran: Ran
    outputs: Mapping[str, Any]
    findings: tuple[str, ...]
    lanes: int

    @property
    def size(self) -> int:
        """The bytes of its outputs."""
        return sum(np.asarray(bits).nbytes for bits in self.outputs.values())

    def outcome(self, job: Job, built: Built) -> Outcome:
        """As the outcome of a job."""
        return Outcome(
            "ran",
            outputs=self.outputs,
            findings=self.findings,
            evidence="model",
            notes=(
                *notes(built),
                f"{machine(built)}: {len(self.ran.forms)} forms of machine instructions ran, all taught; what moves "
                f"data or orders threads has only the PTX's bits for it; {self.lanes} threads",
                TIMING,
            ),
            weakest=standing(self.ran, job.target),
        )


class _KeptRuns:
    """The latest runs of machine code that gave bits, by experiment: see `launched_experiment`."""

    def __init__(self) -> None:
        self._runs: OrderedDict[Experiment, tuple[PreparedSteps, _Given]] = OrderedDict()
        self._bytes = 0

    def get(self, run: Experiment) -> _Given | None:
        """The kept run of an experiment; None also if the table of instructions has other rows since."""
        steps, given = self._runs.get(run, (None, None))
        return given if steps is not None and steps.is_current() else None

    def kept(self, run: Experiment, steps: PreparedSteps, given: _Given | Outcome) -> _Given | Outcome:
        """What a run gave. Its arrays are read only, because later callers share them."""
        if isinstance(given, Outcome):
            return given
        given = replace(given, outputs={n: read_only(bits) for n, bits in given.outputs.items()})
        self._forget(run)
        self._runs[run] = steps, given
        self._bytes += given.size
        while len(self._runs) > _MOST_RUNS or self._bytes > _MOST_BYTES:
            self._forget(next(iter(self._runs)))
        return given

    def _forget(self, run: Experiment) -> None:
        _, given = self._runs.pop(run, (None, None))
        self._bytes -= 0 if given is None else given.size


_MOST_RUNS, _MOST_BYTES = 256, 64 << 20  # the runs of a case's variants at quick effort on a few targets


@dataclass
class _ReadKernel:
    """A kernel of a cubin. early: its uses of results before their scoreboard is waited for, in words. digest: of all
    that decides what it does."""

    code: MachineCode
    early: tuple[str, ...]
    digest: str
    _steps: PreparedSteps | None = None

    def steps(self) -> PreparedSteps:
        """Its steps, made once."""
        if self._steps is None or not self._steps.is_current():
            self._steps = PreparedSteps.of(self.code)
        return self._steps


@lru_cache(64)
def _read(cubin: bytes, entry: str) -> _ReadKernel:
    code = machine_code(cubin, disassembled(cubin, tool("nvdisasm")), entry)
    return _ReadKernel(code, tuple(use.words for use in early_uses(code.function)), digest_of(code))


def _doubtful(reason: str, **more: Any) -> Outcome:
    return Outcome("not run", f"unsettled: {reason}", doubtful=True, **more)


def _launched(ptx: PlacedKernel) -> Launched:
    (x, y, z), (u, v, w) = (*ptx.grid, 1, 1)[:3], (*ptx.block, 1, 1)[:3]
    return Launched(ptx.loaded, ptx.parameters, (x, y, z), (u, v, w), ptx.shared)


def _differing(outputs: Mapping[str, Any], meant: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The units that differ, by output and number."""
    for name, bits in outputs.items():
        unit = f"u{np.asarray(bits).itemsize}"
        one, other = (np.ascontiguousarray(x).reshape(-1).view(unit) for x in (bits, meant[name]))
        yield from ((name, int(at)) for at in np.flatnonzero(one != other))


def _apart(outputs: Mapping[str, Any], expected: Any) -> str:
    """Where machine code and PTX differ first, with both words; "" if nowhere."""
    for name, bits in outputs.items():
        unit = f"u{bits.itemsize}"
        got, wanted = np.asarray(bits).view(unit).reshape(-1), np.asarray(expected[name]).view(unit).reshape(-1)
        wrong = np.flatnonzero(got != wanted)
        if len(wrong):
            at, digits = int(wrong[0]), 2 * bits.itemsize
            return (
                f"machine code gives 0x{int(got[at]):0{digits}x} and the PTX 0x{int(wanted[at]):0{digits}x} "
                f"in element {at} of {name} ({len(wrong)} elements differ)"
            )
    return ""


# ---- Which products ptxas fused into a sum, found in its machine code ------------------------------------------------
#
# PTX leaves that open. Threads whose result depends on it are followed in the PTX, with all products fused and with
# none, and in the machine code. An addition is fused where an instruction that multiplies and adds gives the fused
# value, and apart where another gives the other value. A trace can mislead, so nothing is said unless the PTX, run with
# exactly these products fused, has the machine code's bits in every element.


_FUSING = ("FFMA", "DFMA", "HFMA2", "FHFMA", "UFFMA")
"""Opcodes, without a number of elements after them, that multiply and add with one rounding."""


@dataclass(frozen=True)
class FollowedThread:
    """One thread: of the PTX with all products fused and with none, and of the machine code."""

    fused: ThreadTrace
    apart: ThreadTrace
    machine: Sequence[TracedInstruction]


def fused_in(pairs: Sequence[Fusable], threads: Sequence[FollowedThread]) -> tuple[list[Fusable], list[Fusable]]:
    """The additions that the machine code fuses, and those of which the threads do not tell.

    Of two products of one addition, only the first is looked for: the emulator fuses that one.
    """
    first = {pair.addition: pair for pair in reversed(pairs)}
    chosen, open_ = [], []
    for offset, pair in sorted(first.items()):
        votes = {vote for thread in threads for vote in _votes(offset, thread)}
        if votes == {True}:
            chosen.append(pair)
        elif votes != {False}:
            open_.append(pair)
    return chosen, open_


def _votes(addition: int, thread: FollowedThread) -> set[bool]:
    """Whether a thread's machine code has the value of an addition from a fusing instruction, or from another."""
    fused, apart = _results(thread.fused, addition), _results(thread.apart, addition)
    votes = set()
    for step in thread.machine:
        value = _written(step)
        if value is None:
            continue
        fusing = step.instruction.opcode.startswith(_FUSING)
        if fusing and value in fused - apart:
            votes.add(True)
        elif not fusing and value in apart - fused:
            votes.add(False)
    return votes


def _results(trace: ThreadTrace, addition: int) -> set[int]:
    return {
        w.value
        for s in trace.steps
        if s.executed and s.step.node.offset == addition and s.step.bound.name.split(".")[0] != "mov"
        for w in s.writes
        if w.value is not None
    }


def _written(step: TracedInstruction) -> int | None:
    values = [v for (kind, _), v in step.writes.items() if kind in ("R", "UR")]
    if not values:
        return None
    return values[0] if len(values) == 1 else values[1] << 32 | values[0]


def fused_products(
    pairs: Sequence[Fusable], threads: Sequence[FollowedThread], has_bits: Callable[[Fuse], bool]
) -> tuple[Fusable, ...] | None:
    """The additions that ptxas fused; None if that is not known. has_bits: whether PTX so fused has the same bits."""
    chosen, left = fused_in(pairs, threads)
    for more in [[], left][: 1 + bool(left)]:
        if has_bits(tuple(sorted(p.pair for p in (*chosen, *more)))):
            return tuple(sorted((*chosen, *more), key=lambda p: p.addition))
    return None


def in_words(found: Sequence[Fusable], threads: Sequence[FollowedThread]) -> Mapping[str, str]:
    """By the PTX line of fused additions: texts and lines of each product and addition."""
    places: dict[int, tuple[int, str]] = {}
    for thread in threads:
        for step in thread.apart.steps:
            places.setdefault(step.step.node.offset, (step.line, step.text))
    by_line: dict[str, list[str]] = {}
    for pair in found:
        if pair.product in places and pair.addition in places:
            (at, product), (line, addition) = places[pair.product], places[pair.addition]
            by_line.setdefault(str(line), []).append(f"{product} of line {at} into {addition} of line {line}")
    return {line: "; ".join(several) for line, several in by_line.items()}
