"""The gpu backend sends jobs to the process that owns the GPU (`ptxdiff.processes.child`).

A job is sent by names; the GPU's process loads the case file and finds the case and the variant by name. Compiling
happens in this process's workers, which are replaced if a compiler aborts. The GPU's process only launches and sweeps.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptxdiff.backends import sanitizer
from ptxdiff.jobs import Job, Outcome, Setup, Status
from ptxdiff.model.identity.definition import definition, what_changed
from ptxdiff.model.load import load
from ptxdiff.model.policies import variant_on
from ptxdiff.model.variants import CaseError
from ptxdiff.processes.child import PLAIN_LIMIT, SWEEP_LIMIT, Device, DeviceFault, of_target
from ptxdiff.processes.gpus import gpus
from ptxdiff.processes.worker import resolve
from ptxdiff.triton.build import Built
from ptxdiff.triton.launch import launch_of


@dataclass(frozen=True)
class JobRef:
    """A job by names, for another process. definition: of the variant; the other process must find the same."""

    path: str
    case: str
    variant: str
    target: str
    setup: Setup
    inputs: Mapping[str, Any]
    definition: Mapping[str, str]

    def job(self) -> Job:
        """The job, from the case file. Raises CaseError if the file lacks the case or the variant, or has changed."""
        cases = load(Path(self.path))
        named = [c for c in cases if c.name == self.case] or [c for c in cases if c.attribute == self.case]
        loaded = named[0] if named else None
        if loaded is None or self.variant not in loaded.case.variants:
            raise CaseError(f"{self.path} binds no case {self.case!r} with a variant {self.variant!r} to a name")
        variant = variant_on(loaded.case.variants[self.variant], self.target)
        if changes := what_changed(definition(loaded.case, variant, exact=True), self.definition):
            raise CaseError(f"{self.path} has changed since the run began: of {self.variant}, {changes}")
        return Job(
            loaded.case, self.case, Path(self.path), self.variant, variant, self.target, self.setup, self.inputs
        )  # fmt: skip


class WatchedGpu:
    """See `ptxdiff.jobs.Backend`. Runs on this process's share of the host's GPUs.

    limit: the time limit of a call in seconds; None for 60, and 600 for `on_device`. sanitize: the tool of
    compute-sanitizer under which kernels run; "" for none.
    """

    name = "gpu"

    def __init__(self, *, limit: float | None = None, sanitize: str = "") -> None:
        self._limits = (limit or PLAIN_LIMIT, limit or SWEEP_LIMIT)
        self._tool = Sanitizer(sanitize) if sanitize else None

    def unavailable(self, target: str) -> str | None:
        """The reason why nothing for `target` can run here; None if it can."""
        for package in ("torch", "triton"):
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed"
        if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
            return "TRITON_INTERPRET is set, so that Triton runs kernels on the CPU"
        devices = gpus()
        if not devices:
            return "CUDA finds no device"
        there = sorted({g.target for g in devices})
        if target not in there:
            return f"the device is {there[0]}" if len(there) == 1 else f"the devices are {', '.join(there)}"
        return None

    def run(self, job: Job) -> Outcome:
        """Compile here, launch in the GPU's process."""
        from ptxdiff.backends.gpu import compiled

        if reason := self.unavailable(job.target):
            return Outcome("not run", reason)
        built = compiled(job)
        return built if isinstance(built, Outcome) else self.run_built(job, built)

    def run_built(self, job: Job, built: Built) -> Outcome:
        """Launch a job's built kernel in the GPU's process."""
        from ptxdiff.backends.gpu import by_driver, completed, launches_ready
        from ptxdiff.triton.guarded import GUARD

        launch = launch_of(job)
        made = built if by_driver(launch) or launches_ready(launch, built) else None
        device = self._device(job.target)
        guard = 0 if self._tool else GUARD
        try:
            outcome: Outcome = device.call(f"{__name__}:run_here", self._ref(job), guard, made, limit=self._limits[0])
        except (DeviceFault, CaseError) as error:
            outcome = Outcome("error", str(error))
        if self._tool:
            outcome = self._tool.with_findings(outcome)
        return completed(replace(outcome, device=device.gpu.uuid), job, built, device.gpu.name)

    def on_device(self, function: str, job: Job, *arguments: Any) -> tuple[Outcome, Any]:
        """See `ptxdiff.jobs.DeviceBackend`. Errors of the function pass through."""
        device = self._device(job.target)
        try:
            outcome, value = device.call(
                f"{__name__}:call_here", function, self._ref(job), *arguments, limit=self._limits[1]
            )
        except (DeviceFault, CaseError) as error:
            outcome, value = Outcome("error", str(error)), None
        if self._tool:
            outcome = self._tool.with_findings(outcome)
        return replace(outcome, device=device.gpu.uuid), value

    def _device(self, target: str) -> Device:
        device = of_target(target, *self._tool.wrapper) if self._tool else of_target(target)
        assert device is not None  # callers have checked `unavailable`
        return device

    def _ref(self, job: Job) -> JobRef:
        return JobRef(
            str(job.path), job.case_name, job.variant_name, job.target, job.setup, dict(job.inputs),
            definition(job.case, job.variant, exact=True),
        )  # fmt: skip


NOT_ATTACHED = (
    "compute-sanitizer did not attach to the process on the GPU in time, so it checked nothing; run again, with fewer "
    "workers (-n) if this host is busy"
)
SETTLING = 0.05  # seconds: the tool's own process writes the log shortly after the kernel has ended


class Sanitizer:
    """compute-sanitizer around a GPU's process, and how much of its logs has been read."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.folder = Path(tempfile.mkdtemp(prefix="ptxdiff-sanitizer-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self._read: dict[Path, int] = {}
        self._unchecked = False

    @property
    def wrapper(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """The command to run a process under, and the environment variables that it needs."""
        return sanitizer.command(self._name, self.folder / "%p.log"), sanitizer.VARIABLES

    def with_findings(self, outcome: Outcome) -> Outcome:
        """The outcome with the faults that the tool has logged since the last call.

        An outcome "error" becomes "ran" if there are faults: the tool stopped the kernel, and the finding fails it. Any
        outcome becomes "error" once the tool has said that it attached to no process: nothing was checked.
        """
        faults = self._found()
        if not faults:
            time.sleep(SETTLING)
            faults = self._found()
        if self._unchecked:
            return Outcome("error", NOT_ATTACHED)
        if not faults:
            return outcome
        status: Status = "ran" if outcome.status == "error" else outcome.status
        return replace(outcome, status=status, words="", findings=(*outcome.findings, *faults), evidence="hardware")

    def _found(self) -> tuple[str, ...]:
        log = "".join(map(self._unread, sorted(self.folder.iterdir())))
        self._unchecked |= sanitizer.not_attached(log)
        return sanitizer.findings(self._name, log)

    def _unread(self, log: Path) -> str:
        text = log.read_text(errors="replace")
        known, self._read[log] = self._read.get(log, 0), len(text)
        return text[known:]


# ---- What runs in the GPU's process ------------------------------------------------------------------------------


def run_here(ref: JobRef, guard: int, made: Built | None = None) -> Outcome:
    """Launch a job in this process. guard: bytes around each tensor. made: the machine code for the driver API."""
    import torch

    from ptxdiff.backends.gpu import fault_words, launched

    job = ref.job()
    try:
        return launched(job, guard, made)
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
        return Outcome("error", fault_words(error))


def call_here(function: str, ref: JobRef, *arguments: Any) -> tuple[Outcome, Any]:
    """Call a function on a job in this process."""
    outcome_and_value: tuple[Outcome, Any] = resolve(function)(ref.job(), *arguments)
    return outcome_and_value
