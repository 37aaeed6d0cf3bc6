"""Compiled kernels on the emulator: Triton's PTX for the target, on bounded buffers whose outputs start unwritten.

The PTX is the text that ptxas would get, with Triton's packing, padding, masks and layouts around the asm.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends.snippet import error_line, run_once
from ptxdiff.emulator import (
    GENERATION,
    KERNEL_SECONDS,
    ROUNDED,
    ExecutionError,
    NotElementwise,
    PtxError,
    Target,
    TimeLimit,
    UndefinedBits,
    UnsupportedOnTarget,
    of_generation,
    shared_memory,
)
from ptxdiff.emulator.text import retargeted
from ptxdiff.jobs import Artifacts, Evidence, Job, Outcome
from ptxdiff.model.derive import asm_form
from ptxdiff.model.identity.definition import Experiment, emulator
from ptxdiff.model.variants import AsmVariant
from ptxdiff.records import UNPROVED
from ptxdiff.triton.build import compiled
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.compile import submit
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.elementwise import TEMPLATE_FILE
from ptxdiff.triton.guarded import PATTERNS, Layout, input_overwritten, never_written
from ptxdiff.triton.launch import Launch, TensorLayout, entry_parameters, launch_of, launched_experiment
from ptxdiff.triton.ptx_text import AsmLine, asm_line
from ptxdiff.triton.spec import Compilation

if TYPE_CHECKING:
    from ptxdiff.emulator import BlockOrder, Fuse, Kernel


LAUNCHES = 8
"""How often a kernel is launched in turn at most."""
COUNTED = 32
"""Bits of a counter: it is tried after 2^k launches, for all k below."""
WORD = 4
"""Bytes of a counter."""

NEVER_REPEATED = UNPROVED + (
    f"the module's variables change with every launch and were never again as before in {LAUNCHES} launches: a later "
    "launch may give other bits"
)


L = TypeVar("L")
Relaunch = Callable[[bytes | None], tuple[L, bytes, bytes]]
"""Launches a kernel with variables as they are at its start, or, for None, as its module states them.

Returns what it gave, and the variables before and after it.
"""


def launched(launch: Relaunch[L], same: Callable[[L, L], bool]) -> tuple[L, bool, bool]:
    """What the first launch gave, whether any later one gives the same, and whether that is proved.

    same: whether two launches gave the same bits. Raises PtxError where a launch does.
    """
    first, before, after = launch(None)
    states = [before]
    while after not in states and len(states) < LAUNCHES:
        states.append(after)
        later, _, after = launch(after)
        if not same(first, later):
            return first, False, True
    if after in states:
        return first, True, True
    for state in _counted([*states, after]):
        if not same(first, launch(state)[0]):
            return first, False, True
    return first, True, False


def _counted(states: Sequence[bytes]) -> list[bytes]:
    """The variables after 2^k launches, where each word grows by the same number at every launch; else none."""
    whole = len(states[0]) - len(states[0]) % WORD
    state_words = np.array([np.frombuffer(s[:whole], np.uint32) for s in states])
    steps: NDArray[np.uint32] = np.diff(state_words, axis=0)
    if not len(state_words[0]) or (steps != steps[0]).any() or len({s[whole:] for s in states}) > 1:
        return []
    counts = [1 << k for k in range(COUNTED) if 1 << k > LAUNCHES] + [(1 << COUNTED) - 1]
    return [(state_words[0] + steps[0] * np.uint32(n)).astype(np.uint32).tobytes() + states[0][whole:] for n in counts]


@dataclass(frozen=True)
class CompiledKernel:
    """A job's kernel, compiled to PTX."""

    launch: Launch
    compilation: Compilation


def compile_job(job: Job) -> CompiledKernel | Outcome:
    """Compile a job's kernel to PTX for its target. Returns an outcome if the compiler refuses it."""
    try:
        launch = launch_of(job)
        compilation = compiled(launch.spec(job.target))
    except (ValueError, TypeError) as e:
        return Outcome("error", str(e))
    if isinstance(compilation, Refusal):
        if launch.elementwise is not None:
            compilation = launch.elementwise.explain(compilation)
        return Outcome(compilation.kind, compilation.words)
    return CompiledKernel(launch, compilation)


def begin_compiling(job: Job) -> None:
    """Let a worker compile a job's kernel in advance. `compile_job` collects the result and reports errors."""
    with contextlib.suppress(ValueError, TypeError, NoTriton):
        submit(launch_of(job).spec(job.target))


Once = Callable[[Experiment, Callable[[], Outcome]], Outcome]
"""A cache: returns the stored outcome of an experiment, or calls the function and stores its outcome."""


def run_compiled(
    job: Job,
    kernel: CompiledKernel,
    once: Once = lambda _, compute: compute(),
    limit: float = KERNEL_SECONDS,
) -> Outcome:
    """Run a compiled kernel on the job's inputs.

    If the setup allows fusion and ptxas may fuse multiplications and additions, the kernel runs fused and unfused. The
    fused outputs are the outcome's `outputs`; the unfused ones are its `alternative`, if they differ. Targets with the
    same code share a run through `once`; each target gets its own evidence.
    """
    from ptxdiff.emulator import form_of

    made = Artifacts(ptx=kernel.compilation.ptx, body=kernel.compilation.body_hash, asm=kernel.compilation.asm)
    try:
        loaded = loaded_kernel(
            job, kernel.compilation
        )  # checked for this target, even if `once` has the outcome already
    except PtxError as e:
        return replace(_fault(job, kernel, e), artifacts=made)
    identity = _experiment(job, kernel, loaded)
    outcome = once(_computed(identity, job, kernel, loaded), lambda: _run(job, kernel, loaded, limit))
    outcome = replace(outcome, artifacts=made, identity=outcome.identity and identity.digest)
    if not outcome.outputs:
        return outcome
    forms = tuple(dict.fromkeys(form_of(s) for s in loaded.program.steps))
    return with_evidence(outcome, forms, _approximate(loaded), job)


def loaded_kernel(job: Job, compilation: Compilation, fuse: Fuse = False) -> Kernel:
    """The kernel, parsed and checked for the job's target. A case's own PTX file may name another target."""
    from ptxdiff.emulator import load_kernel

    if compilation.spec.given is None:
        return load_kernel(compilation.ptx, fuse=fuse, approximate=job.approximate)
    return load_kernel(retargeted(compilation.ptx, job.target), compilation.entry, fuse, job.approximate)


def _experiment(job: Job, kernel: CompiledKernel, loaded: Kernel) -> Experiment:
    """The identity of a run. Its code is the bound program, with the shared memory limit of the target."""
    code = f"{loaded.bound} {shared_memory(Target.parse(loaded.target))}"
    return launched_experiment(emulator(job.approximate), job, kernel.launch, kernel.compilation, code)


def _computed(identity: Experiment, job: Job, kernel: CompiledKernel, loaded: Kernel) -> Experiment:
    """The experiment to compute: one without fusion, if the code has nothing to fuse.

    Each kernel runs with and without fusion. If both give the same code, this makes them share one run.
    """
    if not job.setup.fusion or _contracted(job, loaded):
        return identity
    return _experiment(replace(job, setup=replace(job.setup, fusion=False)), kernel, loaded)


def _contracted(job: Job, loaded: Kernel) -> bool:
    from ptxdiff.emulator import contraction_open

    return job.setup.fusion and contraction_open(loaded.program)


def _approximate(loaded: Kernel) -> tuple[str, ...]:
    return tuple(dict.fromkeys(s.bound.name for s in loaded.program.steps if s.bound.form.approximate))


def _run(job: Job, kernel: CompiledKernel, loaded: Kernel, limit: float) -> Outcome:
    contraction = _contracted(job, loaded)
    orders: dict[str, dict[str, Any]] = {}
    try:
        run = _launch(job, kernel, fuse=contraction, limit=limit)
        other = _launch(job, kernel, fuse=False, limit=limit) if contraction else run
        for order in _other_orders(kernel, loaded):
            again = _launch(job, kernel, fuse=contraction, limit=limit, order=order)
            run = replace(run, findings=run.findings or again.findings)
            if not again.same(run):
                orders[order.words] = again.outputs
    except PtxError as e:
        return _fault(job, kernel, e)
    differ = any(not np.array_equal(run.outputs[n], other.outputs[n]) for n in run.outputs)
    return Outcome(
        "ran",
        outputs=run.outputs,
        alternative=other.outputs if differ else {},
        orders=orders,
        findings=run.findings or other.findings,
        notes=run.notes,
        contraction_open=contraction,
        approximate=_approximate_outputs(kernel, loaded),
    )


def _other_orders(kernel: CompiledKernel, loaded: Kernel) -> Sequence[BlockOrder]:
    """The orders of blocks in which a kernel runs besides the usual one."""
    from ptxdiff.emulator import orders_of

    given = kernel.compilation.spec.given
    threads = math.prod(given.block) if given else 32 * kernel.compilation.num_warps
    return orders_of(loaded, kernel.launch.grid, threads)[1:]


def outputs_when_fused(job: Job, kernel: CompiledKernel, fuse: Fuse, limit: float = KERNEL_SECONDS) -> dict[str, Any]:
    """The outputs with these additions fused. Raises PtxError."""
    return _launch(job, kernel, fuse=fuse, limit=limit).outputs


def outputs_of_text(job: Job, kernel: CompiledKernel, ptx: str, limit: float) -> dict[str, Any]:
    """The outputs of a job with another PTX text of its kernel, unfused. Raises PtxError."""
    changed = replace(kernel, compilation=replace(kernel.compilation, ptx=ptx))
    return _launch(job, changed, fuse=False, limit=limit).outputs


def _approximate_outputs(kernel: CompiledKernel, loaded: Kernel) -> dict[str, tuple[str, ...]]:
    """For each output that may depend on approximate instructions, the names of these instructions."""
    from ptxdiff.emulator import approximate_tensors

    if not _approximate(loaded):
        return {}
    markers = {t.name: _Pointer(t.name) for t in kernel.launch.tensors}
    given = zip(loaded.parameters, entry_parameters(kernel.launch, kernel.compilation, markers), strict=False)
    pointers = {p.name: value.tensor for p, value in given if isinstance(value, _Pointer)}
    names_by_tensor = approximate_tensors(loaded.program, pointers, ordered=not loaded.synchronises)
    everything = _approximate(loaded)  # for a tensor that no parameter points to, the analysis has no answer
    return {t.name: names for t in kernel.launch.outputs if (names := names_by_tensor.get(t.name, everything))}


@dataclass(frozen=True)
class _Pointer:
    """A placeholder for the address of a tensor among a kernel's parameters."""

    tensor: str


def _fault(job: Job, kernel: CompiledKernel, error: PtxError) -> Outcome:
    """The outcome for an emulator error: a finding for a fault of the kernel, else the reason why it cannot run.

    A kernel over the time limit is an error, not a finding.
    """
    if isinstance(error, UnsupportedOnTarget):
        return Outcome("unsupported", error_line(error))
    if isinstance(error, NotElementwise):
        return Outcome("not run", error_line(error))
    message, element = error_line(error), 0
    if isinstance(error, UndefinedBits) and (in_asm := _undefined_in_asm(job)):
        message, element = in_asm
    elif (asm := asm_line(kernel.compilation.ptx, error.line)) and _in_users_asm(kernel.compilation, asm):
        message = f"{message} | line {asm.number} of the inline asm that {asm.call} calls"
    message = _INLINED.sub("", _OUR_TEMPLATE.sub("", message))
    if isinstance(error, ExecutionError) and not isinstance(error, TimeLimit):
        undefined = isinstance(error, UndefinedBits)
        return Outcome("ran", findings=(message,), evidence="specification", undefined=undefined, element=element)
    return Outcome("error", message)


def _in_users_asm(compilation: Compilation, line: AsmLine) -> bool:
    """Whether a line belongs to a user's inline asm. Triton writes loads and stores as inline asm, too."""
    opcode = next((w for w in line.text.split() if not w.startswith(("@", "{", "//"))), "")
    return bool(line.call) and not line.ours and any(opcode in call.text for call in compilation.asm)


# Source lines of the harness's own kernel template, removed from errors because they do not help a case's author.
_OUR_TEMPLATE = re.compile(rf" \(from {re.escape(TEMPLATE_FILE)}:\d+(?:, inlined at {re.escape(TEMPLATE_FILE)}:\d+)*\)")

_INLINED = re.compile(rf", inlined at {re.escape(TEMPLATE_FILE)}:\d+")


def _undefined_in_asm(job: Job) -> tuple[str, int] | None:
    """The error for undefined bits that the asm alone produces, with its line and inputs, and the element's number.

    None if the asm alone gives no undefined bits. The error of the compiled kernel names only the store of the result,
    a line of the harness's template.
    """
    if not isinstance(job.variant, AsmVariant):
        return None
    try:
        run_once(job, asm_form(job.case, job.variant, job.setup.pack), job.inputs, {})
    except UndefinedBits as error:
        message = f"asm {error_line(error)}"
        if error.element is None:
            return message, 0
        values = {n: np.asarray(u).reshape(-1)[error.element] for n, u in job.inputs.items()}
        bits = (f"{n} = 0x{u.view(f'u{u.itemsize}'):0{2 * u.itemsize}x}" for n, u in values.items())
        return f"{message} | at {', '.join(bits)}", error.element
    except PtxError:
        pass
    return None


@dataclass(frozen=True)
class _Bits:
    outputs: dict[str, NDArray[Any]]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def same(self, other: _Bits) -> bool:
        """Whether another launch gave the same bits."""
        return all(np.array_equal(bits, other.outputs[n]) for n, bits in self.outputs.items())


@dataclass(frozen=True)
class PlacedKernel:
    """A kernel with fresh memory: the arguments of `run_kernel`. tensors: by name. shared: bytes."""

    loaded: Kernel
    parameters: list[Any]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    tensors: dict[str, EmulatedTensor]


def placed(job: Job, kernel: CompiledKernel, *, fuse: Fuse) -> PlacedKernel:
    """A job's kernel with fresh memory. Raises PtxError for a kernel that the emulator refuses.

    fuse: whether multiplications and additions are fused where ptxas may fuse them.
    """
    from ptxdiff.emulator import scratch

    launch, compilation = kernel.launch, kernel.compilation
    given = compilation.spec.given
    tensors = {
        t.name: EmulatedTensor(t, job.setup.alignment_of(t.name), job.inputs.get(t.name), written=t in launch.outputs)
        for t in launch.tensors
    }
    parameters = [*entry_parameters(launch, compilation, {n: m.buffer for n, m in tensors.items()})]
    return PlacedKernel(
        loaded_kernel(job, compilation, fuse),
        parameters + scratch(compilation.scratch, math.prod(launch.grid)),
        launch.grid,
        given.block if given else (32 * compilation.num_warps,),
        compilation.shared,
        tensors,
    )


LATER_LAUNCH = "a later launch reads what an earlier launch left in the module's variables, and gives other bits"


def _launch(job: Job, kernel: CompiledKernel, *, fuse: Fuse, limit: float, order: BlockOrder | None = None) -> _Bits:
    """Run a kernel, and again while it changes its module's variables: on a device they keep their values.

    order: of the blocks; None for the usual one.
    """
    first, same, proved = launched(lambda given: _launch_once(job, kernel, fuse, limit, given, order), _Bits.same)
    if not same:
        return replace(first, findings=(*first.findings, LATER_LAUNCH))
    return first if proved else replace(first, notes=(*first.notes, NEVER_REPEATED))


def _launch_once(
    job: Job, kernel: CompiledKernel, fuse: Fuse, limit: float, variables: bytes | None, order: BlockOrder | None
) -> tuple[_Bits, bytes, bytes]:
    """The bits of one launch, and the module's variables before and after it.

    variables: the contents of the module's variables at the start; None for their initial values.
    """
    from ptxdiff.emulator import TOGETHER, run_kernel

    made = placed(job, kernel, fuse=fuse)
    loaded = made.loaded if variables is None else replace(made.loaded, variables=variables)
    executed = run_kernel(
        loaded,
        made.parameters,
        made.grid,
        num_threads=made.block if kernel.launch.given else made.block[0],
        shared_bytes=made.shared,
        limit=limit,
        order=order or TOGETHER,
    )
    outputs = [made.tensors[t.name] for t in kernel.launch.outputs]
    findings = [f for memory in outputs for f in memory.findings()]
    findings += [f for memory in made.tensors.values() if not memory.written for f in memory.changes()]
    bits = _Bits({m.tensor.name: m.read() for m in outputs}, tuple(findings), executed.notes)
    return bits, loaded.variables, executed.variables


class EmulatedTensor:
    """A tensor in emulated memory. Outputs start unwritten. The emulator refuses accesses outside.

    units: the contents of an input, or of a tensor updated in place; None for outputs. written: whether it is an
    output.
    """

    def __init__(self, tensor: TensorLayout, alignment: int, units: Any | None, *, written: bool) -> None:
        from ptxdiff.emulator import Buffer

        self.tensor = tensor
        self.written = written
        self.layout = Layout(tensor, alignment, guard=0)
        self.image = self.layout.image(PATTERNS[0], units)
        self.given = self.image.copy()
        inside = self.image[self.layout.span]
        if not inside.size:  # a pointer needs something to point at
            inside = np.full(self.layout.unit, PATTERNS[0], dtype=np.uint8)
        self.buffer = Buffer(inside, tensor.name, defined=units is not None, residue=self.layout.residue)

    def read(self) -> NDArray[Any]:
        """The units, contiguous."""
        return np.array(self.layout.units(self.image))

    def place(self, unit: int) -> int:
        """The offset of a storage unit, in bytes from the start of the buffer."""
        units = self.layout.units(self.image)
        index = np.unravel_index(unit, units.shape)
        return int(sum(i * s for i, s in zip(index, units.strides, strict=True)))

    def changes(self) -> list[str]:
        """A finding if the kernel changed bytes of this input: inputs are read only, as on a device."""
        changed = np.flatnonzero((self.image != self.given) & self.layout.forbidden(is_input=True))
        if not changed.size:
            return []
        return [input_overwritten(self.tensor.name, changed.size, int(changed[0]) - self.layout.span.start)]

    def findings(self) -> list[str]:
        """Findings for bytes of this output that were never written, and for bytes between its rows that were.

        A tensor updated in place has no findings: it has no gaps between rows, and unwritten bytes hold the input's
        bits.
        """
        unwritten = self.buffer.unwritten
        if unwritten is None or 0 in self.tensor.shape:
            return []
        between = self.layout.forbidden(is_input=False)[self.layout.span]
        findings = never_written(self.tensor.name, unwritten & ~between)
        if beyond := int((~unwritten & between).sum()):
            findings.append(f"{beyond} bytes between the rows of {self.tensor.name} were overwritten")
        return findings


# ---- The evidence of a pass on emulated bits -------------------------------------------------------------------------


def with_evidence(outcome: Outcome, forms: tuple[str, ...], approximate: tuple[str, ...], job: Job) -> Outcome:
    """The job's outcome with its evidence. If that is a model, a note names the model.

    forms: all instruction forms of the code. approximate: the approximate ones among them.
    """
    rounded = bool(approximate) and job.approximate == ROUNDED
    evidence = "model" if rounded else evidence_of(forms, approximate, job.target)
    if evidence != "model" or outcome.status != "ran":
        return replace(outcome, evidence=evidence)
    note = (
        "approximate instructions are rounded to nearest, which no GPU does"
        if rounded
        else f"approximate instructions have the bits of {GENERATION}'s unit, which were not confirmed for {job.target}"
    )
    return replace(outcome, evidence=evidence, notes=(*outcome.notes, note))


def evidence_of(forms: tuple[str, ...], approximate: tuple[str, ...], target: str) -> Evidence:
    """The evidence of a pass with these forms: "confirmed" if the conformance ledger confirms every form.

    Otherwise it is "specification". Approximate instructions have other bits on another generation, so with them it is
    "model" unless the ledger confirms them and the target is of the measured generation.
    """
    from ptxdiff.conformance.ledger import confirmed

    if approximate and not (of_generation(target) and confirmed(approximate)):
        return "model"
    return "confirmed" if confirmed(forms) else "specification"
