"""A campaign: batches of programs, each assembled by every assembler, run, and judged (`ptxdiff.fuzz.judge`).

Worker processes make, emulate and assemble batches ahead of the device. A journal has a line for each finished batch
and each finding; a campaign that is started again with it continues after these.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ptxdiff.fuzz.execution import MachineCodeRunner
from ptxdiff.fuzz.judge import Batch, BatchJudge, FuzzPlan, JudgedBatch, PtxasFault, prepared


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


class FuzzCampaign:
    """Runs a plan. runner: None without a device; then only crashes, hangs and refusals of assemblers are judged."""

    def __init__(self, plan: FuzzPlan, runner: MachineCodeRunner | None, journal: Path, *, jobs: int = 1) -> None:
        self.plan, self.runner, self.jobs = plan, runner, jobs
        self.state = Tried()
        self._journal = CampaignJournal(journal, plan.identity())
        self._take_up(self._journal.earlier)

    def run(self, seconds: float, most: int | None = None, progress: Callable[[Tried], None] = lambda _: None) -> Tried:
        """Continue for some seconds, or until `most` programs were tried in all. progress: called after each batch."""
        end = time.monotonic() + seconds
        # Not forked: a forked child would share our connection to the device's process.
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn"), initializer=_alone) as pool:
            waiting: dict[Future[Batch], int] = {}
            numbers = self.numbers(most)
            while True:
                while len(waiting) < 2 * self.jobs and time.monotonic() < end:
                    number = next(numbers, None)
                    if number is None:
                        break
                    waiting[pool.submit(prepared, self.plan, number)] = number
                if not waiting:
                    return self.state
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    del waiting[future]
                    before = tuple(self.state.findings.values())
                    self.take(BatchJudge(self.plan, self.runner, before).judge(future.result()))
                    progress(self.state)
                if time.monotonic() >= end:
                    for future in waiting:
                        future.cancel()
                    waiting = {f: n for f, n in waiting.items() if not f.cancelled()}

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
        for finding in judged.findings:
            self._add(finding)
        self.state.runs += judged.runs
        self.state.known += judged.known
        self.state.programs += judged.programs
        self.state.refused_here += judged.refused
        self.state.unread += judged.unread
        self.state.why.update(judged.why)
        self.state.batches.add(judged.number)
        self._journal.note({"batch": judged.number, "programs": judged.programs, "refused": judged.refused})

    def _add(self, finding: PtxasFault) -> None:
        key = (finding.kind, finding.skeleton, finding.assemblers)
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
            else:
                finding = finding_of(line["finding"])
                self.state.findings[finding.kind, finding.skeleton, finding.assemblers] = finding


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
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.note({"plan": plan})
            return
        first, *self.earlier = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if first.get("plan") != plan:
            raise ValueError(
                f"{path} belongs to another campaign ({_apart(first.get('plan'), plan)}); choose another folder, or "
                "the options that it was begun with"
            )

    def note(self, line: Mapping[str, Any]) -> None:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _apart(there: Any, here: Any) -> str:
    """In what two plans differ: `batch: 256 there, 32 here`."""
    if not (isinstance(there, dict) and isinstance(here, dict)):
        return f"{there} there, {here} here"
    names = dict.fromkeys([*there, *here])
    return "; ".join(f"{n}: {there.get(n)} there, {here.get(n)} here" for n in names if there.get(n) != here.get(n))
