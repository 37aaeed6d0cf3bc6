"""Follows one thread of machine code: what each instruction that it executes reads and writes.

The machine runs as usual, all blocks up to the thread's own or those of its cluster; following it changes no result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import SCHEDULES, Fibre, Lanes, Machine, MachineLaunch, MachineStep
from ptxdiff.sass.run import SEEDS, deadline, placed
from ptxdiff.sass.text import MachineInstruction

_WARP = 32
Place = tuple[str, int]
"""A register or predicate: "R", "P", "UR" or "UP", and its number."""


@dataclass
class TracedInstruction:
    """An instruction that the thread came to. reads, writes: bits by register; a guard is among the reads."""

    instruction: MachineInstruction
    reads: dict[Place, int] = field(default_factory=dict)
    writes: dict[Place, int] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The instruction with its address."""
        return f"0x{self.instruction.address:04x} {self.instruction.text}"


def followed(
    code: MachineCode, parameters: Sequence[Any], grid: Sequence[int], block: Sequence[int] | int, thread: int,
    *, shared_bytes: int = 0, limit: float | None = None, cluster: tuple[int, int, int] | None = None,
) -> list[TracedInstruction]:  # fmt: skip
    """The instructions of a thread of the grid in order. The arguments are those of `run_machine_code`.

    thread: its number. Blocks in clusters are numbered cluster by cluster, and by rank within one. Raises what
    `run_machine_code` raises. The buffers' arrays do not change.
    """
    kernel = placed(code, parameters, grid, block, shared_bytes, deadline(limit), cluster)
    launch, size = kernel.launch(SCHEDULES[0], SEEDS[0], exact=True), kernel.cluster[1]
    steps = {at: _TracedStep(step) for at, step in kernel.steps.items()}
    together = size * math.prod(kernel.block)
    number, lane = divmod(thread, together)
    for before in range(number):
        kernel.on(Machine(launch, before * size, size)).run(steps)
    machine = kernel.on(_TracingMachine(launch, number * size, size))
    machine.lane = lane
    machine.run(steps)
    return machine.trace


class _TracingMachine(Machine):
    """A machine that notes what a lane reads and writes."""

    lane = -1

    def __init__(self, launch: MachineLaunch, first: int, count: int) -> None:
        super().__init__(launch, first, count)
        self.trace: list[TracedInstruction] = []
        self.noted: TracedInstruction | None = None

    def _note(self, into: str, kind: str, number: int, value: Array, at: int) -> None:
        if self.noted is not None and number >= 0 and not (kind.endswith("P") and number == 7):
            getattr(self.noted, into)[kind, number] = int(value[at])

    def _at(self, lanes: Lanes) -> int:
        """The lane's place among some lanes; -1 if it is not among them."""
        if lanes is None:
            return self.lane
        place = int(np.searchsorted(lanes, self.lane))
        return place if place < len(lanes) and lanes[place] == self.lane else -1

    def fetch(self, kind: str, number: int, lanes: Lanes) -> Array:
        """See Machine.fetch."""
        found = super().fetch(kind, number, lanes)
        if (at := self._at(lanes)) >= 0:
            self._note("reads", kind, number, found, at)
        return found

    def write(self, kind: str, number: int, lanes: Lanes, value: Array) -> None:
        """See Machine.write."""
        if (at := self._at(lanes)) >= 0:
            self._note("writes", kind, number, value, at)
        super().write(kind, number, lanes, value)

    def uniform_register(self, number: int) -> Array:
        """See Machine.uniform_register."""
        found = super().uniform_register(number)
        self._note("reads", "UR", number, found, self.lane // _WARP)
        return found

    def write_uniform(self, kind: str, number: int, warps: Lanes, value: Array) -> None:
        """See Machine.write_uniform."""
        held = None if self.noted is None else dict(self.noted.reads)
        super().write_uniform(kind, number, warps, value)
        if self.noted is not None and held is not None and number >= 0:
            self.noted.reads = held
            place = self.uniform if kind == "UR" else self.uniform_predicates
            self._note("writes", kind, number, place[number], self.lane // _WARP)


class _TracedStep(MachineStep):
    """A step whose reads and writes a tracing machine notes."""

    def __init__(self, step: MachineStep) -> None:
        super().__init__(step.instruction)
        self.step = step

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        if not isinstance(machine, _TracingMachine) or machine._at(fibre.lanes) < 0:
            return self.step.run(machine, fibre)
        machine.noted = TracedInstruction(self.instruction)
        machine.trace.append(machine.noted)
        try:
            return self.step.run(machine, fibre)
        finally:
            machine.noted = None
