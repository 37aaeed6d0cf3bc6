"""A campaign: programs in batches, every batch assembled by every assembler, run, judged; faults confirmed and reduced.

Batches are made, emulated and assembled in processes of their own, ahead of the device. A journal has a line for each
finished batch and each finding; a campaign that is started again with it goes on behind the last one.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from harness.fuzz.assemblers import Ptxas
from harness.fuzz.execution import MachineCodeRunner
from harness.fuzz.generate import program
from harness.fuzz.oracle import Words, expected, inputs_of, text_of
from harness.fuzz.program import RandomProgram
from harness.fuzz.reduce import reduced
from harness.ptx import PtxError


@dataclass(frozen=True)
class FuzzPlan:
    """What a campaign tries.

    weights: of the families. avoid: skeletons of faults that are known already. batch: programs in a module.
    """

    seed: str
    target: str
    capability: int
    assemblers: tuple[Ptxas, ...]
    weights: Mapping[str, float]
    avoid: frozenset[str] = frozenset()
    batch: int = 32

    def identity(self) -> dict[str, Any]:
        """What must be the same for a journal to go on."""
        return {"seed": self.seed, "target": self.target, "weights": dict(self.weights), "batch": self.batch,
                "assemblers": [a.label for a in self.assemblers]}  # fmt: skip


@dataclass(frozen=True)
class PtxasFault:
    """A fault of an assembler, reduced.

    kind: "wrong" (other bits than the emulator's), "crashed", "hung", "refused" (a program that the emulator takes),
    "unsettled" (the device gave the bits once and not again). assemblers: the labels of those that show it; right: of
    those that agree with the emulator on the reduced program. text: the reduced program as a module with one kernel p0.
    inputs, expected, given: words of the first thread that differs. seen: how many programs showed it.
    """

    kind: str
    seed: str
    assemblers: tuple[str, ...]
    right: tuple[str, ...]
    skeleton: str
    size: int
    text: str
    words: str = ""
    inputs: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    seen: int = 1


@dataclass
class Tried:
    """How far a campaign is. known: findings that `avoid` names or that were found before, not reduced again."""

    batches: set[int] = field(default_factory=set)
    programs: int = 0
    runs: int = 0
    known: int = 0
    refused_here: int = 0
    findings: dict[tuple[str, str, tuple[str, ...]], PtxasFault] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """A batch, assembled. cubins: by assembler; words in the place of machine code where it gave none."""

    number: int
    programs: tuple[RandomProgram, ...]
    seeds: tuple[str, ...]
    expected: tuple[Words, ...]
    cubins: tuple[tuple[str, bytes, str], ...]
    refused: int


def prepared(plan: FuzzPlan, number: int) -> Batch:
    """Make, emulate and assemble a batch: what a process of its own does."""
    programs, seeds, right, refused = [], [], [], 0
    for place in range(plan.batch):
        seed = f"{plan.seed}/{number * plan.batch + place}"
        made = program(seed, plan.capability, plan.weights)
        try:
            right.append(expected(made, inputs_of(seed), plan.target))
        except PtxError:
            refused += 1  # a fault of the families: every program should be free of these
            continue
        programs.append(made)
        seeds.append(seed)
    cubins = []
    for one in plan.assemblers:
        done = one.assemble(text_of(programs, plan.target), plan.target)
        cubins.append((done.ended, done.cubin, done.words))
    return Batch(number, tuple(programs), tuple(seeds), tuple(right), tuple(cubins), refused)


class FuzzCampaign:
    """Runs a plan. runner: None where there is no device: then only how assemblers end is judged."""

    def __init__(self, plan: FuzzPlan, runner: MachineCodeRunner | None, journal: Path, *, jobs: int = 1) -> None:
        self.plan, self.runner, self.jobs = plan, runner, jobs
        self.state = Tried()
        self._journal = journal
        self._resume()

    def run(self, seconds: float, most: int | None = None, tell: Callable[[Tried], None] = lambda _: None) -> Tried:
        """Go on for some seconds, or until `most` programs were tried in all."""
        end = time.monotonic() + seconds
        # A forked child would share the device's process with us.
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn"), initializer=_alone) as pool:
            waiting: dict[Future[Batch], int] = {}
            numbers = self._numbers(most)
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
                    self._judge(future.result())
                    tell(self.state)
                if time.monotonic() >= end:
                    for future in waiting:
                        future.cancel()
                    waiting = {f: n for f, n in waiting.items() if not f.cancelled()}

    def _numbers(self, most: int | None) -> Iterator[int]:
        last = None if most is None else -(-most // self.plan.batch)
        number = 0
        while last is None or number < last:
            if number not in self.state.batches:
                yield number
            number += 1

    def _judge(self, batch: Batch) -> None:
        inputs = [inputs_of(seed) for seed in batch.seeds]
        for one, (ended, cubin, words) in zip(self.plan.assemblers, batch.cubins, strict=True):
            if ended != "assembled":
                self._ended_badly(batch, one, words)
            elif self.runner is not None:
                given = self.runner.run(cubin, inputs)
                self.state.runs += len(inputs)
                if isinstance(given, str):
                    self._stopped(batch, one, given)
                    continue
                for place, (right, got) in enumerate(zip(batch.expected, given, strict=True)):
                    if not np.array_equal(right, got):
                        self._differs(batch.programs[place], batch.seeds[place], one)
        self.state.programs += len(batch.programs)
        self.state.refused_here += batch.refused
        self.state.batches.add(batch.number)
        self._note({"batch": batch.number, "programs": len(batch.programs), "refused": batch.refused})

    # what went wrong ---------------------------------------------------------------------------------------------

    def _differs(self, program: RandomProgram, seed: str, one: Ptxas) -> None:
        if self._is_known(program, one):
            return
        inputs = inputs_of(seed)
        if not all(self._wrong([program], inputs, one)[0] for _ in range(2)):
            self._add(self._finding("unsettled", program, seed, one))
            return
        small = reduced(program, lambda programs: self._wrong(programs, inputs, one))
        self._add(self._finding("wrong", small, seed, one))

    def _wrong(self, programs: Sequence[RandomProgram], inputs: Words, one: Ptxas) -> list[bool]:
        """Which programs give other bits than the emulator's when this assembler assembles them."""
        shown = [False] * len(programs)
        places, right = [], []
        for place, candidate in enumerate(programs):
            try:
                right.append(expected(candidate, inputs, self.plan.target))
                places.append(place)
            except PtxError:
                continue
        given = self._run([programs[p] for p in places], inputs, one) if places else None
        if given is not None:
            for place, wanted, got in zip(places, right, given, strict=True):
                shown[place] = not np.array_equal(wanted, got)
        elif len(programs) > 1:  # one of them spoils the module for all
            return [self._wrong([p], inputs, one)[0] for p in programs]
        return shown

    def _run(self, programs: Sequence[RandomProgram], inputs: Words, one: Ptxas) -> list[Words] | None:
        done = one.assemble(text_of(programs, self.plan.target), self.plan.target)
        if self.runner is None or done.ended != "assembled":
            return None
        given = self.runner.run(done.cubin, [inputs] * len(programs))
        return None if isinstance(given, str) else given

    def _ended_badly(self, batch: Batch, one: Ptxas, words: str) -> None:
        """The programs for which this assembler crashes, hangs or refuses by themselves."""
        for made, seed in zip(batch.programs, batch.seeds, strict=True):
            done = one.assemble(text_of([made], self.plan.target), self.plan.target)
            if done.ended == "assembled" or self._is_known(made, one):
                continue
            ended = done.ended

            def shows(programs: Sequence[RandomProgram], ended: str = ended) -> list[bool]:
                return [one.assemble(text_of([p], self.plan.target), self.plan.target).ended == ended for p in programs]

            small = reduced(made, shows)
            said = one.assemble(text_of([small], self.plan.target), self.plan.target).words
            self._add(replace(self._finding(ended, small, seed, one), words=said or words))

    def _stopped(self, batch: Batch, one: Ptxas, words: str) -> None:
        """The programs that stop the device by themselves: none of ours has undefined behaviour."""
        for made, seed in zip(batch.programs, batch.seeds, strict=True):
            given = self._run([made], inputs_of(seed), one)
            if given is None and not self._is_known(made, one):
                self._add(replace(self._finding("stopped the device", made, seed, one), words=words))

    def _finding(self, kind: str, made: RandomProgram, seed: str, one: Ptxas) -> PtxasFault:
        inputs = inputs_of(seed)
        text = text_of([made], self.plan.target)
        finding = PtxasFault(kind, seed, (one.label,), (), made.skeleton, made.size, text)
        if kind != "wrong":
            return finding
        right = expected(made, inputs, self.plan.target)
        agree, differ, shown = [], [], None
        for other in self.plan.assemblers:
            given = self._run([made], inputs, other)
            if given is None:
                continue
            if np.array_equal(right, given[0]):
                agree.append(other.label)
            else:
                differ.append(other.label)
                shown = given[0] if other == one else shown
        if shown is None:
            return replace(finding, kind="unsettled")
        lane = int(np.flatnonzero((right != shown).any(axis=1))[0])
        return replace(
            finding,
            assemblers=tuple(differ),
            right=tuple(agree),
            inputs=tuple(map(int, inputs[lane])),
            expected=tuple(map(int, right[lane])),
            given=tuple(map(int, shown[lane])),
        )

    def _is_known(self, made: RandomProgram, one: Ptxas) -> bool:
        """Whether a known fault's instructions stand in the program in order: it is counted, and not reduced again."""
        found = [f for f in self.state.findings.values() if one.label in f.assemblers and f.kind != "unsettled"]
        opcodes = made.skeleton.split()
        for skeleton in (*self.plan.avoid, *(f.skeleton for f in found)):
            if skeleton and _within(skeleton.split(), opcodes):
                self.state.known += 1
                return True
        return False

    def _add(self, finding: PtxasFault) -> None:
        key = (finding.kind, finding.skeleton, finding.assemblers)
        before = self.state.findings.get(key)
        self.state.findings[key] = finding if before is None else replace(before, seen=before.seen + 1)
        self._note({"finding": asdict(self.state.findings[key])})

    # the journal -------------------------------------------------------------------------------------------------

    def _note(self, line: Mapping[str, Any]) -> None:
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _resume(self) -> None:
        """Take up a journal, or begin one. Raises ValueError for one of another plan."""
        if not self._journal.exists():
            self._journal.parent.mkdir(parents=True, exist_ok=True)
            self._note({"plan": self.plan.identity()})
            return
        first, *lines = map(json.loads, self._journal.read_text(encoding="utf-8").splitlines())
        if first.get("plan") != self.plan.identity():
            raise ValueError(f"{self._journal} is of another campaign ({first.get('plan')}); name another folder")
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


def _within(few: Sequence[str], many: Sequence[str]) -> bool:
    left = iter(many)
    return all(word in left for word in few)


def _alone() -> None:
    """One thread a process: there is one for each core already."""
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"


def kinds(findings: Sequence[PtxasFault]) -> Counter[str]:
    """How many findings there are of each kind."""
    return Counter(f.kind for f in findings)
