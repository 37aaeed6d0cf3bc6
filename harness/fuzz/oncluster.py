"""A campaign on a cluster: nodes make, assemble, run and judge whole batches; the driver checks and counts them.

What a node says is held to what it was asked: its batch, its plan with the very files of the assemblers. A finding is
emulated again here before it counts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from harness.cluster.connect import ClusterError
from harness.cluster.given import given_gpu
from harness.cluster.joining import served
from harness.cluster.nodes import CPU, Needs
from harness.cluster.tasks import Event, Lost, Tasks, Yielded
from harness.fuzz.assemblers import Ptxas
from harness.fuzz.campaign import FuzzCampaign, Tried
from harness.fuzz.execution import GpuRunner
from harness.fuzz.judge import BatchJudge, FuzzPlan, JudgedBatch, PtxasFault, prepared
from harness.fuzz.oracle import emulated, inputs_of
from harness.processes.child import Device
from harness.ptx import PtxError
from harness.triton.ptxas import NoAssembler
from harness.triton.targets import assembler as bundled

ON_NODE = "harness.fuzz.oncluster:on_node"
AHEAD = 2
"""Batches for each place: one runs, one waits beside it."""


@dataclass
class ClusterFuzz:
    """Runs a campaign's batches as tasks. needs: of a batch. lost: batches without a result, with the reason."""

    tasks: Tasks
    campaign: FuzzCampaign
    needs: Needs = CPU
    work: str = ON_NODE
    lost: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the assemblers, which nodes must have as they are here."""
        self._files = {a.path: digest_of_file(a.path) for a in self.campaign.plan.assemblers}
        self._plan = digest_of_plan(self.campaign.plan, self._files)

    def run(self, seconds: float, most: int | None = None, tell: Callable[[Tried], None] = lambda _: None) -> Tried:
        """As `FuzzCampaign.run`. Raises ClusterError where no node can run a batch."""
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
                        tell(self.campaign.state)
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
                raise ClusterError(f"no node is left that could run batch {number}; --resume goes on")

    def _took(self, event: Event) -> bool:
        """Count a batch; whether one was counted."""
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
        """What is wrong with the result for a batch, in words."""
        if not isinstance(judged, JudgedBatch) or judged.number != number:
            which = f"batch {judged.number}" if isinstance(judged, JudgedBatch) else repr(judged)[:100]
            return f"sent {which} where batch {number} was due"
        if number in self.campaign.state.batches:
            return f"sent batch {number} a second time"
        plan = self.campaign.plan
        if judged.plan != self._plan:
            return "tried another plan, or other files of the assemblers"
        if judged.programs + judged.refused != plan.batch:
            return f"tried {judged.programs + judged.refused} programs of {plan.batch}"
        runs = judged.programs * len(plan.assemblers) if self.needs.gpus else 0
        if judged.runs != runs and not judged.findings and not judged.known:
            return f"ran {judged.runs} programs of {runs}, and names no assembler that gave it nothing to run"
        return next((words for f in judged.findings if (words := unfounded(f))), "")


def unfounded(finding: PtxasFault) -> str:
    """Why a finding of other bits does not stand: the emulator does not give here what it should have given there."""
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
        return (
            f"sent a finding that is none: for its inputs the emulator does not give what it says ({finding.skeleton})"
        )
    return ""


def digest_of_file(path: str) -> str:
    """Of an assembler."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_plan(plan: FuzzPlan, files: Mapping[str, str]) -> str:
    """Of all that decides what a batch is; assemblers by label, as their paths are a machine's own."""
    told = plan.identity() | {"capability": plan.capability, "avoid": sorted(plan.avoid)}
    told["files"] = [files[a.path] for a in plan.assemblers]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


# ---- On a node ---------------------------------------------------------------------------------------------------


_device: Device | None = None


def on_node(
    plan: FuzzPlan, files: Mapping[str, str], number: int, before: tuple[PtxasFault, ...], gpu: bool
) -> Iterator[JudgedBatch]:
    """Try one batch here. files: digests of the assemblers by path. Raises NoAssembler, RuntimeError."""
    here = replace(plan, assemblers=tuple(_found(a, files[a.path], plan.target) for a in plan.assemblers))
    runner = GpuRunner(_device_for(plan.target)) if gpu else None
    judged = BatchJudge(here, runner, before).judge(prepared(here, number))
    own = {a.path: digest_of_file(a.path) for a in here.assemblers}
    yield replace(judged, plan=digest_of_plan(here, own))


def _found(asked: Ptxas, digest: str, target: str) -> Ptxas:
    """The same file on this node: at the same place, or the one that came with Triton."""
    for path in (asked.path, str(bundled(target).path)):
        if Path(path).is_file() and digest_of_file(path) == digest:
            return replace(asked, choice=replace(asked.choice, path=path))
    raise NoAssembler(f"{asked.label}: this node lacks the file that the driver has at {asked.path}")


def _device_for(target: str) -> Device:
    """The process for the GPU that Ray gave to this task; it is kept for the next task that gets the same one."""
    global _device
    gpu = given_gpu(target)
    if _device is None or _device.gpu != gpu:
        if _device is not None:
            _device.close()
        _device = Device(gpu)
    return _device
