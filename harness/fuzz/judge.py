"""Make, emulate, assemble and judge batches of random programs. Faults are confirmed and reduced.

A batch needs no other batch and no journal, so any machine can judge it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxdiff.emulator import PtxError
from ptxdiff.fuzz.assemblers import Ptxas
from ptxdiff.fuzz.execution import MachineCodeRunner
from ptxdiff.fuzz.generate import program
from ptxdiff.fuzz.oracle import Words, expected, inputs_of, text_of
from ptxdiff.fuzz.program import RandomProgram
from ptxdiff.fuzz.reduce import Shows, candidates, reduced_by_rounds
from ptxdiff.fuzz.unroll import unrolled_random


@dataclass(frozen=True)
class FuzzPlan:
    """The plan of a campaign.

    weights: of the families. avoid: skeletons of known faults. batch: the number of programs in a module.
    """

    seed: str
    target: str
    capability: int
    assemblers: tuple[Ptxas, ...]
    weights: Mapping[str, float]
    avoid: frozenset[str] = frozenset()
    batch: int = 32

    def identity(self) -> dict[str, Any]:
        """The values that must be the same to continue a journal."""
        return {"seed": self.seed, "target": self.target, "weights": dict(self.weights), "batch": self.batch,
                "assemblers": [a.label for a in self.assemblers]}  # fmt: skip


@dataclass(frozen=True)
class PtxasFault:
    """A fault of an assembler, reduced.

    kind: "wrong" (other bits than the emulator's), "crashed", "hung", "refused" (a program that the emulator accepts),
    "stopped the device", or "unsettled" (other bits that could not be reproduced). assemblers: the labels of those that
    show it. right: the labels of those that agree with the emulator on the reduced program. skeleton: its opcodes.
    size: its number of instructions. text: the reduced program as a module with one kernel p0. words: the error text.
    inputs, expected, given: words of the first thread that differs. seen: the number of programs that showed it.
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


@dataclass(frozen=True)
class Batch:
    """An assembled batch. cubins: for each assembler how it ended, the machine code, and its error text."""

    number: int
    programs: tuple[RandomProgram, ...]
    seeds: tuple[str, ...]
    expected: tuple[Words, ...]
    cubins: tuple[tuple[str, bytes, str], ...]
    refused: int


def prepared(plan: FuzzPlan, number: int) -> Batch:
    """Make, emulate and assemble a batch. Worker processes call this."""
    programs, seeds, right, refused = [], [], [], 0
    for place in range(plan.batch):
        seed = f"{plan.seed}/{number * plan.batch + place}"
        made = program(seed, plan.capability, plan.weights)
        try:
            right.append(expected(made, inputs_of(seed), plan.target))
        except PtxError:
            refused += 1  # a mistake in `families`, which should have only legal shapes
            continue
        programs.append(made)
        seeds.append(seed)
    cubins = []
    for one in plan.assemblers:
        done = one.assemble(text_of(programs, plan.target), plan.target)
        cubins.append((done.ended, done.cubin, done.words))
    return Batch(number, tuple(programs), tuple(seeds), tuple(right), tuple(cubins), refused)


@dataclass(frozen=True)
class JudgedBatch:
    """The result of judging a batch.

    known: the number of programs that show an earlier finding. plan: on a cluster, the digest of the node's plan.
    """

    number: int
    programs: int
    refused: int
    runs: int
    known: int
    findings: tuple[PtxasFault, ...]
    plan: str = ""


class BatchJudge:
    """Judges one batch. runner: None without a device; then only crashes, hangs and refusals are judged.

    before: the findings so far; programs that show one of them are counted and not reduced again.
    """

    def __init__(self, plan: FuzzPlan, runner: MachineCodeRunner | None, before: Sequence[PtxasFault] = ()) -> None:
        self.plan, self.runner, self.before = plan, runner, before
        self.findings: list[PtxasFault] = []
        self.known = self.runs = 0

    def judge(self, batch: Batch) -> JudgedBatch:
        """Run the machine code, and compare its outputs with the emulator's."""
        inputs = [inputs_of(seed) for seed in batch.seeds]
        for one, (ended, cubin, words) in zip(self.plan.assemblers, batch.cubins, strict=True):
            if ended != "assembled":
                self._ended_badly(batch, one, words)
            elif self.runner is not None:
                given = self.runner.run(cubin, inputs)
                self.runs += len(inputs)
                if isinstance(given, str):
                    self._stopped(batch, one, given)
                    continue
                for place, (right, got) in enumerate(zip(batch.expected, given, strict=True)):
                    if not np.array_equal(right, got):
                        self.differs(batch.programs[place], batch.seeds[place], one)
        found = tuple(self.findings)
        return JudgedBatch(batch.number, len(batch.programs), batch.refused, self.runs, self.known, found)

    def differs(self, program: RandomProgram, seed: str, one: Ptxas) -> None:
        """Add a finding for a program that gives other bits than the emulator: reduced, or "unsettled" if the bits
        cannot be reproduced.
        """
        if self._is_known(program, one):
            return
        inputs = inputs_of(seed)
        if not all(self._wrong([program], inputs, one)[0] for _ in range(2)):
            self.findings.append(self._finding("unsettled", program, seed, one))
            return
        small = _smallest(program, lambda programs: self._wrong(programs, inputs, one))
        self.findings.append(self._finding("wrong", small, seed, one))

    def _wrong(self, programs: Sequence[RandomProgram], inputs: Words, one: Ptxas) -> list[bool]:
        """Which programs give other bits than the emulator's with this assembler."""
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
        elif len(programs) > 1:  # one faulty program may make the whole module fail, so each runs alone
            return [self._wrong([p], inputs, one)[0] for p in programs]
        return shown

    def _run(self, programs: Sequence[RandomProgram], inputs: Words, one: Ptxas) -> list[Words] | None:
        done = one.assemble(text_of(programs, self.plan.target), self.plan.target)
        if self.runner is None or done.ended != "assembled":
            return None
        given = self.runner.run(done.cubin, [inputs] * len(programs))
        return None if isinstance(given, str) else given

    def _ended_badly(self, batch: Batch, one: Ptxas, words: str) -> None:
        """Add findings for the programs on which this assembler crashes or hangs, or which it refuses, each alone."""
        for made, seed in zip(batch.programs, batch.seeds, strict=True):
            done = one.assemble(text_of([made], self.plan.target), self.plan.target)
            if done.ended == "assembled" or self._is_known(made, one):
                continue
            ended = done.ended

            def shows(programs: Sequence[RandomProgram], ended: str = ended) -> list[bool]:
                return [one.assemble(text_of([p], self.plan.target), self.plan.target).ended == ended for p in programs]

            small = _smallest(made, shows)
            error = one.assemble(text_of([small], self.plan.target), self.plan.target).words
            self.findings.append(replace(self._finding(ended, small, seed, one), words=error or words))

    def _stopped(self, batch: Batch, one: Ptxas, words: str) -> None:
        """Add findings for the programs that stop the device, each run alone. None has undefined behaviour."""
        for made, seed in zip(batch.programs, batch.seeds, strict=True):
            given = self._run([made], inputs_of(seed), one)
            if given is None and not self._is_known(made, one):
                self.findings.append(replace(self._finding("stopped the device", made, seed, one), words=words))

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
        """Whether the program contains a known fault's instructions in order. Counts such programs."""
        found = [f for f in (*self.before, *self.findings) if one.label in f.assemblers and f.kind != "unsettled"]
        opcodes = made.skeleton.split()
        for skeleton in (*self.plan.avoid, *(f.skeleton for f in found)):
            if skeleton and _within(skeleton.split(), opcodes):
                self.known += 1
                return True
        return False


def _smallest(program: RandomProgram, shows: Shows[RandomProgram]) -> RandomProgram:
    return reduced_by_rounds(program, shows, candidates, unrolled_random, lambda p: p.size)


def _within(few: Sequence[str], many: Sequence[str]) -> bool:
    left = iter(many)
    return all(word in left for word in few)
