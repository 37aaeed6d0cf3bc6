"""A campaign on a cluster: nodes make, assemble, run and judge whole batches. The driver checks and counts them.

The driver checks that a result is of the requested batch, plan and assembler files. It emulates a finding again before
it counts it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ptxdiff.cluster.connect import ClusterError, served
from ptxdiff.cluster.nodes import CPU, Needs
from ptxdiff.cluster.tasks import Event, Lost, Tasks, Yielded, given_gpu
from ptxdiff.emulator import PtxError
from ptxdiff.fuzz.assemblers import Ptxas
from ptxdiff.fuzz.campaign import FuzzCampaign, Tried
from ptxdiff.fuzz.execution import GpuRunner, MachineCodeInterpreter
from ptxdiff.fuzz.judge import BatchJudge, FuzzPlan, JudgedBatch, PtxasFault, prepared
from ptxdiff.fuzz.oracle import emulated, inputs_of
from ptxdiff.processes.child import Device
from ptxdiff.triton.ptxas import NoAssembler
from ptxdiff.triton.targets import assembler as bundled

ON_NODE = "ptxdiff.fuzz.cluster:on_node"
AHEAD = 2
"""The number of batches submitted for each slot: one runs, and one waits."""


@dataclass
class ClusterFuzz:
    """Runs a campaign's batches as tasks. needs: of a batch. lost: the reason for each batch without a result."""

    tasks: Tasks
    campaign: FuzzCampaign
    needs: Needs = CPU
    work: str = ON_NODE
    lost: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compute digests of the assemblers' files, which must be the same on nodes."""
        self._files = {a.path: digest_of_file(a.path) for a in self.campaign.plan.assemblers}
        self._plan = digest_of_plan(self.campaign.plan, self._files)

    def run(self, seconds: float, most: int | None = None, progress: Callable[[Tried], None] = lambda _: None) -> Tried:
        """As `FuzzCampaign.run`. Raises ClusterError if no node can run a batch."""
        served(self.tasks.nodes, self.needs)
        numbers = self.campaign.numbers(most)
        end = time.monotonic() + seconds
        try:
            while True:
                if time.monotonic() < end:
                    self._send(numbers)
                if not self.tasks.running:
                    return self.campaign.state
                for event in self.tasks.events(1.0):
                    if self._took(event):
                        progress(self.campaign.state)
        finally:
            self.tasks.close()

    def _send(self, numbers: Iterator[int]) -> None:
        places = max(1, AHEAD * self.tasks.nodes.slots(self.needs))
        while len(self.tasks.running) < places and (number := next(numbers, None)) is not None:
            plan = self.campaign.plan
            before = tuple(self.campaign.state.findings.values())
            name = f"fuzz {plan.target}: batch {number} of {plan.batch} programs"
            arguments = (plan, self._files, number, before, bool(self.needs.gpus))
            if self.tasks.submit(number, self.work, *arguments, needs=self.needs, name=name) is None:
                raise ClusterError(f"no node is left that could run batch {number}; continue later with --resume")

    def _took(self, event: Event) -> bool:
        """Handle an event. Returns whether a batch was counted."""
        number: int = event.task.label
        if isinstance(event, Lost):
            self.lost[number] = event.words
        elif isinstance(event, Yielded):
            wrong = self._wrong(number, event.value)
            if not wrong:
                self.campaign.take(event.value)
                return True
            self.lost[number] = f"{event.host}: {wrong}"
        elif number not in self.campaign.state.batches:
            self.lost.setdefault(number, "its task ended without a result")
        return False

    def _wrong(self, number: int, judged: object) -> str:
        """The fault of a node's result for a batch, in words; "" if it is good."""
        if not isinstance(judged, JudgedBatch) or judged.number != number:
            which = f"batch {judged.number}" if isinstance(judged, JudgedBatch) else repr(judged)[:100]
            return f"sent {which} instead of batch {number}"
        if number in self.campaign.state.batches:
            return f"sent batch {number} a second time"
        plan = self.campaign.plan
        if judged.plan != self._plan:
            return "tried another plan, or other files of the assemblers"
        if judged.programs + judged.refused != plan.batch:
            return f"tried {judged.programs + judged.refused} programs of {plan.batch}"
        runs = judged.programs * len(plan.assemblers) if self.needs.gpus or plan.interpreted else 0
        if judged.runs != runs and not judged.findings and not judged.known:
            return f"ran {judged.runs} programs of {runs}, but reports no assembler that failed"
        return next((reason for f in judged.findings if (reason := unfounded(f))), "")


def unfounded(finding: PtxasFault) -> str:
    """The reason why a finding "wrong" is not valid: the emulator here does not give its expected bits; else ""."""
    if finding.kind != "wrong":
        return ""
    inputs = inputs_of(finding.seed)
    try:
        right = emulated(finding.text, "p0", inputs)
    except PtxError as error:
        return f"sent a finding that the emulator refuses: {error}"
    lanes = [k for k, row in enumerate(inputs) if tuple(row) == finding.inputs]
    shown = np.array(finding.expected, np.uint32)
    if finding.expected == finding.given or not any(np.array_equal(right[k], shown) for k in lanes):
        return f"sent an invalid finding: for its inputs the emulator here gives other bits ({finding.skeleton})"
    return ""


def digest_of_file(path: str) -> str:
    """The SHA-256 digest of an assembler's file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_plan(plan: FuzzPlan, files: Mapping[str, str]) -> str:
    """A digest of everything that decides a batch. Assemblers are identified by label and file, not by path."""
    identity = plan.identity() | {"capability": plan.capability, "avoid": sorted(plan.avoid)}
    identity["files"] = [files[a.path] for a in plan.assemblers]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


# ---- On a node ---------------------------------------------------------------------------------------------------


_device: Device | None = None


def on_node(
    plan: FuzzPlan, files: Mapping[str, str], number: int, before: tuple[PtxasFault, ...], gpu: bool
) -> Iterator[JudgedBatch]:
    """Make and judge one batch on this node. files: digests of the assemblers by the driver's path.

    Raises NoAssembler, and RuntimeError if Ray gave this task no GPU of the target.
    """
    here = replace(plan, assemblers=tuple(_found(a, files[a.path], plan.target) for a in plan.assemblers))
    interpreter = MachineCodeInterpreter(plan.target) if plan.interpreted else None
    runner = GpuRunner(_device_for(plan.target)) if gpu else interpreter
    judged = BatchJudge(here, runner, before).judge(prepared(here, number))
    own = {a.path: digest_of_file(a.path) for a in here.assemblers}
    yield replace(judged, plan=digest_of_plan(here, own))


def _found(asked: Ptxas, digest: str, target: str) -> Ptxas:
    """The same assembler on this node: at the same path, or the one that came with Triton. Raises NoAssembler."""
    for path in (asked.path, str(bundled(target).path)):
        if Path(path).is_file() and digest_of_file(path) == digest:
            return replace(asked, choice=replace(asked.choice, path=path))
    raise NoAssembler(f"{asked.label}: this node lacks the file that the driver has at {asked.path}")


def _device_for(target: str) -> Device:
    """The process for the GPU that Ray gave to this task. It is kept for later tasks with the same GPU."""
    global _device
    gpu = given_gpu(target)
    if _device is None or _device.gpu != gpu:
        if _device is not None:
            _device.close()
        _device = Device(gpu)
    return _device
