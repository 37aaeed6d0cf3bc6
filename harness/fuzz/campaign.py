"""A campaign: batches of programs, each assembled by every assembler, run, and judged (`ptxdiff.fuzz.judge`).

Worker processes make, emulate and assemble batches ahead of the device. A journal has a line for each finished batch
and each finding; a campaign that is started again with it continues after these.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ptxdiff.cluster.connect import ClusterError, served
from ptxdiff.cluster.nodes import CPU, Needs
from ptxdiff.cluster.tasks import Event, Lost, Tasks, Yielded, given_gpu
from ptxdiff.emulator import PtxError
from ptxdiff.fuzz.assemblers import Ptxas
from ptxdiff.fuzz.execution import GpuRunner, MachineCodeInterpreter, MachineCodeRunner, emulated, inputs_of
from ptxdiff.fuzz.judge import (
    Batch,
    BatchJudge,
    FuzzPlan,
    JudgedBatch,
    PtxasFault,
    Suspect,
    prepared,
    shows_again,
)
from ptxdiff.processes.child import Device
from ptxdiff.triton.ptxas import NoAssembler
from ptxdiff.triton.targets import assembler as bundled


@dataclass
class Tried:
    """The progress of a campaign.

    known: the number of programs that show a finding in `avoid` or an earlier one; they are not reduced again.
    refused_here: the number of programs that the emulator refused. unread: runs of which the interpreter of machine
    code gave no bits; why: the reasons, with their numbers.
    """

    batches: set[int] = field(default_factory=set)
    programs: int = 0
    runs: int = 0
    known: int = 0
    refused_here: int = 0
    unread: int = 0
    why: Counter[str] = field(default_factory=Counter)
    findings: dict[tuple[str, str, tuple[str, ...]], PtxasFault] = field(default_factory=dict)
    suspects: dict[tuple[str, str], Suspect] = field(default_factory=dict)
    """Programs that were not examined yet, by what they showed and their seed."""

    def nothing_compared(self, least: int = 1) -> str:
        """Why no program's bits were compared, most often; "" if some were, or fewer than `least` programs made."""
        if self.programs + self.refused_here < least or self.runs > self.unread:
            return ""
        words = [*(f.words for f in self.findings.values()), *(s.words for s in self.suspects.values())]
        reasons = self.why + Counter(" ".join(w.split()) for w in words if w)
        return reasons.most_common(1)[0][0] if reasons else "the emulator refused all of them"


class FuzzCampaign:
    """Runs a plan. runner: None without a device; then only crashes, hangs and refusals of assemblers are judged."""

    def __init__(self, plan: FuzzPlan, runner: MachineCodeRunner | None, journal: Path, *, jobs: int = 1) -> None:
        self.plan, self.runner, self.jobs = plan, runner, jobs
        self.state = Tried()
        self.lost: dict[int, str] = {}
        """Why batches have no result: see `run`."""
        self._journal = CampaignJournal(journal, plan.identity())
        self._take_up(self._journal.earlier)

    def run(self, seconds: float, most: int | None = None, progress: Callable[[Tried], None] = lambda _: None) -> Tried:
        """Continue for some seconds, or until `most` programs were tried in all. progress: called after each batch.

        Programs that show something are noted in the journal, and then examined; that goes on when the time is over.
        If a worker process dies, the batches that were sent are lost, and no more are tried.
        """
        end = time.monotonic() + seconds
        # Not forked: a forked child would share our connection to the device's process.
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn"), initializer=_alone) as pool:
            waiting: dict[Future[Any], int | tuple[str, str]] = {}  # the number of a batch, or a suspect's key
            numbers = self.numbers(most)
            broken = False
            while True:
                while len(waiting) < 2 * self.jobs:
                    which: int | tuple[str, str] | None
                    which = next((key for key in self.state.suspects if key not in waiting.values()), None)
                    if which is None and time.monotonic() < end:
                        which = next(numbers, None)
                    if which is None:
                        break
                    try:
                        waiting[self._sent(pool, which)] = which
                    except BrokenProcessPool:
                        broken = True
                        if isinstance(which, int):
                            self.lost[which] = _DIED
                        break
                if not waiting:
                    return self.state
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    which = waiting.pop(future)
                    try:
                        made = future.result()
                    except BrokenProcessPool:
                        if isinstance(which, int):
                            self.lost[which] = _DIED
                        broken = True
                        continue
                    if isinstance(made, Examined):
                        self.take_examined(made)
                    else:
                        self.take(made if isinstance(made, JudgedBatch) else self._tried(made))
                        progress(self.state)
                if broken:
                    self.lost.update(dict.fromkeys((n for n in waiting.values() if isinstance(n, int)), _DIED))
                    return self.state
                if time.monotonic() >= end:
                    for future, which in waiting.items():
                        if isinstance(which, int):
                            future.cancel()
                    waiting = {f: n for f, n in waiting.items() if not f.cancelled()}

    def _tried(self, made: Batch) -> JudgedBatch:
        return BatchJudge(self.plan, self.runner).tried(made)

    def _sent(self, pool: ProcessPoolExecutor, which: int | tuple[str, str]) -> Future[Any]:
        """A batch, by its number, or the examination of a suspect, by its key. Raises BrokenProcessPool."""
        if isinstance(which, int):
            return pool.submit(tried_here if self.plan.interpreted else prepared, self.plan, which)
        return self._examined(pool, which)

    def _examined(self, pool: ProcessPoolExecutor, key: tuple[str, str]) -> Future[Any]:
        """Examine a program: in a worker process, or here, where the device is."""
        suspect, before = self.state.suspects[key], tuple(self.state.findings.values())
        if self.plan.interpreted:
            return pool.submit(examined_here, self.plan, suspect, before)
        found: Future[Any] = Future()
        found.set_result(examined(self.plan, self.runner, suspect, before))
        return found

    def numbers(self, most: int | None) -> Iterator[int]:
        """The numbers of the batches that were not judged yet, for `most` programs in all; None: without an end."""
        last = None if most is None else -(-most // self.plan.batch)
        number = 0
        while last is None or number < last:
            if number not in self.state.batches:
                yield number
            number += 1

    def take(self, judged: JudgedBatch) -> None:
        """Count a batch. Raises ValueError if it was counted before."""
        if judged.number in self.state.batches:
            raise ValueError(f"batch {judged.number} was counted before")
        known = judged.known + self._new(judged.findings)
        self.state.runs += judged.runs
        self.state.known += known
        self.state.programs += judged.programs
        self.state.refused_here += judged.refused
        self.state.unread += judged.unread
        self.state.why.update(judged.why)
        self.state.batches.add(judged.number)
        self.state.suspects |= {s.key: s for s in judged.suspects}
        self._journal.note({"batch": judged.number, "programs": judged.programs, "refused": judged.refused,
                            "runs": judged.runs, "known": known, "unread": dict(judged.why),
                            "suspects": [asdict(s) for s in judged.suspects]})  # fmt: skip

    def take_examined(self, made: Examined) -> None:
        """Count the findings of a program that was examined."""
        key = made.suspect.key
        if self.state.suspects.pop(key, None) is None:
            return
        known = made.known + self._new(made.findings)
        self.state.known += known
        self._journal.note({"examined": key, "known": known})

    def _new(self, findings: Sequence[PtxasFault]) -> int:
        """Count findings. Returns how many of them are known."""
        known = 0
        for finding in findings:
            # Another process or node may have found it since this one began.
            if self._has(finding):
                known += 1
            else:
                self._add(finding)
        return known

    def _has(self, finding: PtxasFault) -> bool:
        """Whether an earlier finding of the same assemblers is the same fault, by the rule of `BatchJudge`. One that is
        the same finding was only seen again."""
        return _key(finding) not in self.state.findings and any(
            set(finding.assemblers) <= set(f.assemblers)
            and shows_again(f, finding.kind, finding.text, finding.skeleton)
            for f in self.state.findings.values()
        )

    def _add(self, finding: PtxasFault) -> None:
        key = _key(finding)
        before = self.state.findings.get(key)
        self.state.findings[key] = finding if before is None else replace(before, seen=before.seen + 1)
        self._journal.note({"finding": asdict(self.state.findings[key])})

    def _take_up(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Count the batches and findings in an existing journal."""
        for line in lines:
            if "batch" in line:
                self.state.batches.add(line["batch"])
                self.state.programs += line["programs"]
                self.state.refused_here += line["refused"]
                self.state.runs += line.get("runs", 0)  # journals of earlier versions do not have these
                self.state.known += line.get("known", 0)
                self.state.why.update(line.get("unread", {}))
                self.state.unread = self.state.why.total()
                found = (Suspect(**s | {"assemblers": tuple(s["assemblers"])}) for s in line.get("suspects", ()))
                self.state.suspects |= {s.key: s for s in found}
            elif "examined" in line:
                self.state.known += line["known"]
                self.state.suspects.pop(tuple(line["examined"]), None)
            else:
                finding = finding_of(line["finding"])
                self.state.findings[_key(finding)] = finding


def _key(finding: PtxasFault) -> tuple[str, str, tuple[str, ...]]:
    """What two findings have in common that are one: they are counted together."""
    return finding.kind, finding.skeleton, finding.assemblers


_DIED = "a worker process died, perhaps because memory was short"


def tried_here(plan: FuzzPlan, number: int) -> JudgedBatch:
    """Make and try a batch whose machine code runs on the CPU. Worker processes call this."""
    return BatchJudge(plan, MachineCodeInterpreter(plan.target)).tried(prepared(plan, number))


@dataclass(frozen=True)
class Examined:
    """What examining a program brought: findings, or that it shows a known one."""

    suspect: Suspect
    known: int
    findings: tuple[PtxasFault, ...]


def examined(
    plan: FuzzPlan, runner: MachineCodeRunner | None, suspect: Suspect, before: Sequence[PtxasFault]
) -> Examined:
    """Examine a program. before: the findings so far."""
    judge = BatchJudge(plan, runner, before)
    judge.examine(suspect)
    return Examined(suspect, judge.known, tuple(judge.findings))


def examined_here(plan: FuzzPlan, suspect: Suspect, before: Sequence[PtxasFault]) -> Examined:
    """The same where machine code runs on the CPU. Worker processes call this."""
    return examined(plan, MachineCodeInterpreter(plan.target), suspect, before)


def finding_of(fields: Mapping[str, Any]) -> PtxasFault:
    """A finding from its JSON."""
    given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
    return PtxasFault(**given)


def _alone() -> None:
    """Use one thread in each process, because there is a process for each core; and collect garbage seldom: what is
    kept of instructions is many small objects, and to look through them takes a fifth of the time."""
    gc.set_threshold(200_000, 20, 50)
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"


def kinds(findings: Sequence[PtxasFault]) -> Counter[str]:
    """How many findings there are of each kind."""
    return Counter(f.kind for f in findings)


# The journal of a campaign -----------------------------------------------------------------------------------------
#
# Its plan, then a line for each finished piece of work, to continue a stopped campaign.


class CampaignJournal:
    """The journal of the campaign with this plan. Raises ValueError for a file of another plan.

    path: of the file; it and its folders are created if missing. plan: the plan's identity, of JSON values.
    """

    def __init__(self, path: Path, plan: Any) -> None:
        self.path = path
        self.earlier: list[dict[str, Any]] = []
        """The lines that the file had before, without the plan."""
        lines = _whole_lines(path)
        if not lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.note({"plan": plan})
            return
        first, *self.earlier = map(json.loads, lines)
        if first.get("plan") != plan:
            raise ValueError(
                f"{path} belongs to another campaign ({_apart(first.get('plan'), plan)}); choose another folder, or "
                "the options that it was begun with"
            )

    def note(self, line: Mapping[str, Any]) -> None:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _whole_lines(path: Path) -> list[str]:
    """The lines of a journal. One without an end, of a process that was stopped as it wrote it, is cut off: its batch
    is judged again."""
    data = path.read_bytes() if path.exists() else b""
    size = data.rfind(b"\n") + 1
    if size < len(data):
        with path.open("r+b") as file:
            file.truncate(size)
    return data[:size].decode().splitlines()


def _apart(there: Any, here: Any) -> str:
    """In what two plans differ: `batch: 256 there, 32 here`."""
    if not (isinstance(there, dict) and isinstance(here, dict)):
        return f"{there} there, {here} here"
    names = dict.fromkeys([*there, *here])
    return "; ".join(f"{n}: {there.get(n)} there, {here.get(n)} here" for n in names if there.get(n) != here.get(n))


# ---- A campaign on a cluster: nodes make, assemble, run and judge whole batches --------------------------------------
#
# The driver counts batches. It checks that a result is of the requested batch, plan and assembler files, and emulates a
# finding again before it counts it.

ON_NODE = "ptxdiff.fuzz.campaign:on_node"
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
