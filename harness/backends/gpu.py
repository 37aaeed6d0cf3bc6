"""Run a kernel on the GPU of this process, launched as Triton launches it. `ptxdiff.backends.gpu_process` calls this.

A worker compiles every kernel first, so that a compiler's abort ends a worker and not this process. Then the kernel
runs twice on outputs that were filled with complementary patterns. A byte that holds its pattern after both runs was
never written. A changed pattern in the guard zones around tensors, or in the gaps between rows, reveals a stray write.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends import driver
from ptxdiff.backends.assembler import artifacts, machine, notes, refused
from ptxdiff.jobs import Job, Outcome
from ptxdiff.model.identity import digest, digest_with_code
from ptxdiff.model.targets import normal
from ptxdiff.model.variants import AsmVariant, KernelVariant, PlainVariant
from ptxdiff.processes.worker import resolve
from ptxdiff.references.formats import Format
from ptxdiff.triton.build import Built
from ptxdiff.triton.diagnostics import Refusal, one_line
from ptxdiff.triton.from_ptx import packed, parameter_count
from ptxdiff.triton.guarded import GUARD, PATTERNS, Layout, input_overwritten, never_written
from ptxdiff.triton.launch import Launch, TensorLayout, entry_parameters, launch_of, launched_experiment
from ptxdiff.triton.spec import Compilation, KernelSpec, Place

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TritonRequest:
    """What Triton would compile. types: by parameter. constants, divisible: their places."""

    types: Mapping[str, Any]
    constants: frozenset[Place]
    divisible: frozenset[Place]
    options: Any

    def meets(self, spec: KernelSpec) -> bool:
        """Whether that is what `spec` says."""
        options = {"num_warps": spec.num_warps, "enable_fp_fusion": spec.enable_fp_fusion, **dict(spec.options)}
        return (
            dict(self.types) == dict(spec.signature)
            and self.constants == {parameter for parameter, _ in spec.constants}
            and self.divisible == set(spec.divisible)
            and all(getattr(self.options, name, None) == value for name, value in options.items())
        )


def request_of(function: Any, launch: Callable[[], Any]) -> TritonRequest | None:
    """What Triton would compile of a @triton.jit function at a launch; None if it has launched what it has in memory.

    launch: the launch by Triton. During the call Triton compiles and launches nothing: its request is recorded.
    """
    request: list[TritonRequest] = []

    def note(_key: Any, signature: Any, _device: Any, constexprs: Any, options: Any, attrs: Any, _warmup: Any) -> None:
        known = {parameter for parameter, value in attrs.items() if ["tt.divisibility", 16] in value}
        other = [value for value in attrs.values() if value not in ([], [["tt.divisibility", 16]])]
        request.append(
            TritonRequest({} if other else signature, frozenset(constexprs), frozenset(known), options)
        )  # a property that no `KernelSpec` has meets none

    function._do_compile = note
    try:
        launch()
    finally:
        del function._do_compile
    return request[0] if request else None


def launcher(
    function: Any, by_triton: Callable[[], Any], ready: Callable[[], Any], spec: KernelSpec
) -> Callable[[], Any]:
    """A launch that runs `ready` where Triton asks for what `spec` says, and Triton's own otherwise.

    Triton is asked once: later launches have the same arguments, and asking takes longer than many kernels.
    """
    chosen: list[Callable[[], Any]] = []

    def start() -> Any:
        if chosen:
            return chosen[0]()
        try:
            request = request_of(function, by_triton)
        except TypeError:  # another version of Triton asks otherwise
            request = None
        else:
            if request is None:
                chosen.append(by_triton)
                return None
        chosen.append(ready if request is not None and request.meets(spec) else by_triton)
        return chosen[0]()

    return start


DEVICE = "cuda"

_TORCH = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip


class GpuBackend:
    """See `ptxdiff.jobs.Backend`. Runs on torch's current CUDA device in this process, one job at a time.

    Use it only in a process that another one supervises: a kernel that destroys the CUDA context makes this process
    useless.
    """

    name = "gpu"

    def __init__(self) -> None:
        self._lost = ""

    def unavailable(self, target: str) -> str | None:
        """The reason why nothing for `target` can run here; None if it can."""
        if self._lost:
            return f"the CUDA context was lost: {self._lost}"
        try:
            import torch
            import triton  # noqa: F401 - only to find out whether it is installed
        except ImportError as error:
            return f"{error.name} is not installed"
        if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
            return "TRITON_INTERPRET is set, so that Triton runs kernels on the CPU"
        if not torch.cuda.is_available():
            return "torch finds no CUDA device"
        device = device_target()
        return None if device == target else f"the device is {device}"

    def run(self, job: Job) -> Outcome:
        """Compile, launch twice, and read the outputs back."""
        if reason := self.unavailable(job.target):
            return Outcome("not run", reason)
        built = compiled(job)
        return built if isinstance(built, Outcome) else self.run_built(job, built)

    def run_built(self, job: Job, built: Built) -> Outcome:
        """Launch a job's built kernel twice, and read the outputs back."""
        try:
            outcome = launched(job, made=built if by_driver(launch_of(job)) else None)
        except Exception as error:
            outcome = Outcome("error", self._device_fault(error))
        return completed(outcome, job, built, device_name())

    def on_device(self, function: str, job: Job, *arguments: Any) -> tuple[Outcome, Any]:
        """See `ptxdiff.jobs.DeviceBackend`. The function runs in this process."""
        outcome_and_value: tuple[Outcome, Any] = resolve(function)(job, *arguments)
        if outcome_and_value[0].status == "error":
            self._note_loss(outcome_and_value[0].words)
        return outcome_and_value

    def _device_fault(self, error: Exception) -> str:
        """The error as one line. Also notes whether the context is lost, so that no further kernel can run here."""
        self._note_loss(first_line(error))
        return fault_words(error)

    def _note_loss(self, words: str) -> None:
        try:
            _synchronize()
        except RuntimeError:
            self._lost = words


def first_line(error: Exception) -> str:
    """The first line of an exception's text, or its type's name if it has no text."""
    return one_line(str(error).partition("\n")[0]) or type(error).__name__


# CUDA's texts for faults of a kernel, and what to add to each.
_EXPLANATIONS = (
    ("unspecified launch failure", "the kernel trapped, or had a fault that the driver does not name"),
    ("illegal memory access", "the kernel accessed unallocated memory; run with --ptx-sanitize to find where"),
    ("misaligned address", "run with --ptx-sanitize to find where"),
    ("launch timed out", "the driver stopped the kernel"),
)


def fault_words(error: Exception) -> str:
    """One line to record for an exception on the device."""
    message = first_line(error)
    explanation = next((f" ({added})" for fault, added in _EXPLANATIONS if fault in message), "")
    return f"{type(error).__name__}: {message}{explanation}"


def compiled(job: Job) -> Built | Outcome:
    """A job's kernel, compiled and assembled in this process's workers; an outcome if that fails."""
    try:
        built = launch_of(job).build(job.target)
    except (ValueError, TypeError) as error:
        return Outcome("error", str(error))
    return refused(built) if isinstance(built, Refusal) else built


def launched(job: Job, guard: int = GUARD, made: Built | None = None) -> Outcome:
    """Launch a job's kernel twice and read the outputs back. Raises CUDA's errors.

    guard: bytes of the guard zones around tensors. made: the machine code for the driver API, if another process has
    built it.
    """
    launch = replace(launch_of(job), made=made)
    if refusal := unlaunched(launch, job.target):
        return Outcome("not run", refusal)
    runs = [_run(job, launch, job.inputs, pattern, guard) for pattern in PATTERNS]
    return Outcome("ran", outputs=runs[0].outputs, findings=_findings(runs), evidence="hardware")


def completed(outcome: Outcome, job: Job, built: Built, device: str) -> Outcome:
    """The outcome with the build's artifacts and notes, and its identity. device: the GPU's name."""
    ran = outcome.status == "ran"
    is_open = ran and job.setup.fusion and may_contract(built.compilation.ptx)
    on = f"{device}, {machine(built)}"
    identity = launched_experiment(on, job, launch_of(job), built.compilation).digest if ran else ""
    noted = (*outcome.notes, *notes(built))
    return replace(outcome, contraction_open=is_open, artifacts=artifacts(built), identity=identity, notes=noted)


def may_contract(ptx: str) -> bool:
    """Whether ptxas may fuse a product and a sum of a kernel; also False if the emulator cannot load the kernel."""
    from ptxdiff.emulator import PtxError, load_kernel

    try:
        return load_kernel(ptx).analysis.contraction_open
    except PtxError:
        return False


def device_name() -> str:
    """The name of torch's current CUDA device."""
    import torch

    return str(torch.cuda.get_device_name())


def device_target() -> str:
    """The target of torch's current CUDA device; `sm_N` without a suffix if ptxdiff does not know the device."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    try:
        return normal(f"{major}{minor}")
    except ValueError:
        return f"sm_{major}{minor}"


def torch_dtype(fmt: Format) -> torch.dtype:
    """The torch dtype of a format's storage units."""
    import torch

    dtype: torch.dtype = getattr(torch, _TORCH[fmt.element_type])
    return dtype


def _synchronize() -> None:
    import torch

    torch.cuda.synchronize()


@dataclass(frozen=True)
class _Run:
    """One launch: output units by name, for each output which bytes still hold the pattern, and stray writes."""

    outputs: dict[str, NDArray[Any]]
    untouched: dict[str, NDArray[np.bool_]]
    findings: tuple[str, ...]


def _run(job: Job, launch: Launch, inputs: Mapping[str, Any], pattern: int, guard: int = GUARD) -> _Run:
    setup = launch.setup
    buffers = {
        t.name: _DeviceTensor(
            t, setup.alignment_of(t.name), pattern, inputs.get(t.name), guard, written=t in launch.outputs
        )
        for t in launch.tensors
    }
    if all(launch.grid):
        start(job, launch, {name: buffer.device for name, buffer in buffers.items()})
        _synchronize()
    findings = [f for buffer in buffers.values() for f in buffer.damage()]
    outputs = {t.name: buffers[t.name] for t in launch.outputs}
    return _Run(
        {name: buffer.read() for name, buffer in outputs.items()},
        {name: buffer.untouched() for name, buffer in outputs.items()},
        tuple(findings),
    )


def start(job: Job, launch: Launch, pointers: Mapping[str, Any]) -> Any:
    """Launch the kernel by Triton's own launcher, which returns the compiled kernel, or by the driver API."""
    return prepared(job, launch, pointers)()


def prepared(job: Job, launch: Launch, pointers: Mapping[str, Any]) -> Callable[[], Any]:
    """A function that launches a job's kernel on device tensors, given by name. It may be called repeatedly."""
    if by_driver(launch):
        return machine_code(job, launch, pointers)
    function, by_triton = triton_launch(job, launch, pointers)
    _forget_other_constants(function, launch, job.target)
    if launch.made is None or not is_of(launch, job.target, launch.made):
        return by_triton
    try:
        ready = machine_code(job, launch, pointers)
    except driver.DriverError:
        return by_triton  # which has better words for what does not fit on the device
    return launcher(function, by_triton, ready, launch.made.compilation.spec)


def triton_launch(job: Job, launch: Launch, pointers: Mapping[str, Any]) -> tuple[Any, Callable[[], Any]]:
    """The @triton.jit function of a job, and its launch by Triton on tensors, given by name."""
    import triton.language as tl

    arguments = launch.arguments(pointers, tl.constexpr)
    function = launch.function
    if launch.elementwise is not None:
        from ptxdiff.triton import templates

        function = getattr(templates, launch.elementwise.template)
        if isinstance(job.variant, PlainVariant):
            arguments["FUNCTION"] = job.variant.function
    assert isinstance(job.variant, AsmVariant | PlainVariant | KernelVariant)
    options = {"num_warps": launch.setup.num_warps, "enable_fp_fusion": launch.setup.fusion, **launch.options}
    return function, lambda: function[launch.grid](**arguments, **options)


def is_of(launch: Launch, target: str, built: Built) -> bool:
    """Whether something was built of a launch as it is here, and the driver API can launch it."""
    same = digest_with_code(launch.spec(target), exact=True) == digest_with_code(built.compilation.spec, exact=True)
    return same and launches_ready(launch, built)


def launches_ready(launch: Launch, built: Built) -> bool:
    """Whether the driver API can launch a kernel of Triton's that has been compiled and assembled."""
    try:
        driver.bindings()
    except driver.NoDriver:
        return False
    return not launch.compiler and not _unpacked(built)


def by_driver(launch: Launch) -> bool:
    """Whether the driver API launches the kernel: a PTX file of the case, or code of a chosen assembler."""
    return launch.given is not None or launch.setup.assembler is not None


def machine_code(job: Job, launch: Launch, pointers: Mapping[str, Any]) -> Callable[[], Any]:
    """A function that launches the assembled machine code by the driver API on device tensors, given by name."""
    built = launch.build(job.target)
    assert isinstance(built, Built)
    compilation, given = built.compilation, launch.given
    addresses = {name: tensor.data_ptr() for name, tensor in pointers.items()}
    values = entry_parameters(launch, compilation, addresses)
    scratch = _scratch(compilation, launch)
    if given is None:  # after its arguments Triton's kernel takes addresses of scratch memory
        values += [a.data_ptr() for a in scratch]
        values += [0] * (parameter_count(compilation.ptx, compilation.entry) - len(values))
    parameters = packed(compilation.ptx, compilation.entry, values)
    block = given.block if given else (32 * compilation.num_warps, 1, 1)
    code = driver.DriverLaunch(compilation.entry, launch.grid, block, compilation.shared, parameters)
    start = driver.prepared(built.assembly.cubin, code)

    def run(held: object = scratch) -> None:  # keeps the scratch memory alive as long as the function
        start()

    return run


def _scratch(compilation: Compilation, launch: Launch) -> list[torch.Tensor]:
    """The global scratch memory of a launch; empty if the kernel needs none."""
    import torch

    size = compilation.scratch * max(1, math.prod(launch.grid))
    return [torch.zeros(size, dtype=torch.uint8, device=DEVICE)] if size else []


def unlaunched(launch: Launch, target: str) -> str:
    """The reason why the driver API cannot launch a kernel here; "" if it can, or if Triton launches the kernel."""
    if not by_driver(launch):
        return ""
    try:
        driver.bindings()
    except driver.NoDriver as missing:
        return str(missing)
    return _not_launched(launch, target)


def _not_launched(launch: Launch, target: str) -> str:
    """The reason why the driver API cannot pass the arguments of Triton's kernel; "" if it can."""
    built = launch.build(target)
    return "" if launch.given is not None or not isinstance(built, Built) else _unpacked(built)


def _unpacked(built: Built) -> str:
    """Why the driver API cannot be given the arguments of a kernel of Triton's; "" where it can."""
    compilation = built.compilation
    if compilation.descriptors:
        return "only Triton, with its own ptxas, can launch a kernel with tensor descriptors among its arguments"
    if unpacked := [kind for _, kind in compilation.spec.signature if kind in _NOT_PACKED]:
        return f"only Triton, with its own ptxas, can pass a number of type {unpacked[0]} as an argument"
    return ""


_NOT_PACKED = ("bf16", "fp8e4nv", "fp8e5", "fp8e4b15")
"""Types of numbers that Python's `struct` cannot convert to bytes."""


_launched: dict[int, tuple[Any, Launch, str]] = {}
"""Functions launched in this process, by id: the function, its latest launch, and a digest of that launch's
constants."""


def _forget_other_constants(function: Any, launch: Launch, target: str) -> None:
    """Empty Triton's in-memory table of compiled kernels if the constants differ from those of the last launch.

    The table compares constants with ==, under which 0.0 equals -0.0 and 2 equals 2.0. Triton's cache on disk does
    not.
    """
    _, last, before = _launched.get(id(function), (None, None, ""))
    if last is launch:  # a sweep launches thousands of times
        return
    now = digest(launch.spec(target).constants)
    _launched[id(function)] = (function, launch, now)
    caches = getattr(function, "device_caches", None)
    if before not in ("", now) and caches is not None:
        caches.clear()


class _DeviceTensor:
    """A tensor on the device, and a copy of its bytes before the launch. guard: see `Layout`.

    units: the contents of an input, or of a tensor updated in place; every launch gets a copy. written: whether it is
    an output.
    """

    def __init__(
        self, tensor: TensorLayout, alignment: int, pattern: int, units: Any | None, guard: int = GUARD,
        *, written: bool,
    ) -> None:  # fmt: skip
        import torch

        self._layout = Layout(tensor, alignment, guard)
        self._pattern = pattern
        self._is_input = not written
        self._before = self._layout.image(pattern, units)
        self._bytes = torch.tensor(self._before, device=DEVICE)
        self.device = self._bytes[self._layout.span].view(torch_dtype(tensor.format))
        if self.device.data_ptr() % 16 == 0 and alignment % 16 and tensor.extent:
            raise RuntimeError(f"{tensor.name} starts on a 16-byte boundary, but alignment {alignment} was asked for")
        self._host: NDArray[np.uint8] | None = None

    def _after(self) -> NDArray[np.uint8]:
        if self._host is None:
            self._host = self._bytes.cpu().numpy()
        return self._host

    def read(self) -> NDArray[Any]:
        """The units, contiguous."""
        return np.array(self._layout.units(self._after()))

    def untouched(self) -> NDArray[np.bool_]:
        """For each byte of the tensor, whether it still holds the pattern.

        A tensor updated in place starts with the same bytes in both runs, so no byte of it holds both patterns.
        """
        unchanged: NDArray[np.bool_] = self.read().reshape(-1).view(np.uint8) == self._pattern
        return unchanged

    def damage(self) -> list[str]:
        """A finding if bytes changed in an input, or outside an output."""
        layout, name = self._layout, self._layout.tensor.name
        forbidden = layout.forbidden(is_input=self._is_input)
        changed = np.flatnonzero((self._before != self._after()) & forbidden)
        if not changed.size:
            return []
        first = int(changed[0])
        if self._is_input and layout.span.start <= first < layout.span.stop:
            return [input_overwritten(name, changed.size, layout.where(first))]
        return [f"{changed.size} bytes outside {name} were overwritten, first {layout.where(first)}"]


def _findings(runs: list[_Run]) -> tuple[str, ...]:
    messages = list(dict.fromkeys(f for run in runs for f in run.findings))
    one, two = runs
    for name, units in one.outputs.items():
        never = one.untouched[name] & two.untouched[name]
        messages += never_written(name, never)
        same = (units == two.outputs[name]).reshape(-1)
        # Unwritten bytes differ by construction, and are reported already.
        differs = ~same & ~never.reshape(same.size, units.itemsize).any(axis=1)
        if differs.any():
            messages.append(
                f"{int(differs.sum())} elements of {name} differ between two runs, first {int(differs.argmax())}"
            )
    return tuple(messages)
