"""Runs rows of the table as threaded code: machine code of this processor that takes steps one after the other.

A step with a row of the table is a function of registers, which `ptxdiff.sass.machine.Computed` calls from Python. Most
of its time is not the function, but Python's way to it. Here each such instruction becomes a record of numbers, once
for all kernels, and machine code runs records that follow one another. All other steps run as before, on the same
registers, and so does every step for which no record can be made: `threaded_records.record` says which.

The registers of all lanes are one table, so that a record can name them by their numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import (
    Computed,
    Fibre,
    Lanes,
    Machine,
    MachineLaunch,
    MachineStep,
    StepCode,
    are_unlike,
    is_private,
    prepared_step,
)
from ptxdiff.sass.prologue import prologue
from ptxdiff.sass.rows import ROWS
from ptxdiff.sass.text import BYTES, MachineInstruction, Unsupported
from ptxdiff.sass.threaded_loop import ARRAYS, runner
from ptxdiff.sass.threaded_records import (
    MOST_RESULTS,
    MOST_SOURCES,
    PREDICATES,
    ROWS_OF_REGISTERS,
    UNIFORM,
    UNIFORM_PREDICATES,
    Record,
    record,
    register_places,
    registers_apart,
    with_registers,
)


class ThreadedCode:
    """A kernel's instructions in a launch, ready to run.

    records: the numbers of all records, one after the other. at: for an address with a record, where it is among them,
    which one it is, and how many records follow one another from it on. ordered: the records. registers: one more than
    the highest register in a record.
    """

    def __init__(self, code: MachineCode, launch: MachineLaunch) -> None:
        self.code = code
        self.at: dict[int, tuple[int, int, int]] = {}
        self.ordered: list[Record] = []
        self._steps: dict[int, MachineStep] = {}
        self._instructions = code.function.instructions
        parts: list[bytes] = []
        places: list[tuple[int, int]] = []
        size = 0
        for instruction in self._instructions if runner() is not None else ():
            made = _record_of(instruction, code)
            if made is None:
                continue
            if made.constants:
                try:
                    words = made.bytes_in(launch)
                except Unsupported:  # Python says so, if a lane comes to it
                    continue
            else:
                words = made.words
            places.append((instruction.address, size))
            parts.append(words)
            self.ordered.append(made)
            size += len(words)
        following = 0
        for number in range(len(places) - 1, -1, -1):
            address, place = places[number]
            following = following + 1 if address + BYTES in self.at else 1
            self.at[address] = place, number, following
        self.registers = max((r.registers for r in self.ordered), default=0)
        self.records: Array = np.frombuffer(b"".join(parts), np.uint8)

    def step(self, address: int) -> MachineStep | None:
        """The step at an address, made when it is first asked for; None if no instruction is there."""
        found = self._steps.get(address)
        if found is None and address % BYTES == 0 and 0 <= address < BYTES * len(self._instructions):
            instruction = self._instructions[address // BYTES]
            if instruction.address != address:
                return {i.address: prepared_step(i, self.code) for i in self._instructions}.get(address)
            found = self._steps[address] = prepared_step(instruction, self.code)
        return found

    def moves(self, visited: Collection[int]) -> dict[str, StepCode]:
        """The forms of instructions without a row at some addresses, each with what its step does. A `prologue` has
        none."""
        aside = prologue(self.code)
        steps = (self.step(address) for address in visited if address not in self.at and address not in aside)
        return {step.move: step.code for step in steps if step is not None and not isinstance(step, Computed)}


_records: dict[tuple[str, int], tuple[Any, Record | None]] = {}
"""Records by the text of their instruction and the half of its word that has its immediates, with the rows that its
opcode had then: all that decides what `Computed` makes of it. None: Python runs it."""
MOST_RECORDS = 1 << 16


def _record_of(instruction: MachineInstruction, code: MachineCode) -> Record | None:
    """The record of an instruction, if it has one."""
    rows = ROWS.get(instruction.opcode)
    if rows is None:
        return None
    known = _records.get((instruction.text, instruction.low))
    if known is None or known[0] is not rows:
        if len(_records) > MOST_RECORDS:
            _records.clear()
            _alike.clear()
        known = rows, _like_another(instruction, rows) or _new_record(instruction, rows, code)
        _records[instruction.text, instruction.low] = known
    return known[1]


def _new_record(instruction: MachineInstruction, rows: Any, code: MachineCode) -> Record | None:
    step = prepared_step(instruction, code)
    made = record(step) if isinstance(step, Computed) else None
    if made is not None and (form := registers_apart(instruction)) is not None:
        places = register_places(made)
        if places is not None:
            _alike[form[0]] = rows, made, places
    return made


def _like_another(instruction: MachineInstruction, rows: Any) -> Record | None:
    """The record of an instruction that differs from an earlier one in the numbers of registers alone."""
    form = registers_apart(instruction)
    if form is None:
        return None
    known = _alike.get(form[0])
    if known is None or known[0] is not rows:
        return None
    return with_registers(known[1], known[2], form[1])


_alike: dict[tuple[Any, ...], tuple[Any, Record, tuple[tuple[int, int, int], ...]]] = {}
"""Records by their instruction without numbers of registers, with the rows that its opcode had then and the places of
those numbers."""


class LanesMeet(Exception):
    """A step in which lanes can notice each other is to run while some lanes are elsewhere: see `ThreadedMachine`."""


class ThreadedMachine(Machine):
    """A machine whose registers are rows of tables, and that runs records (see the top of this module).

    What was never written is filled at once, and not when it is first read.

    private: raise `LanesMeet` before a step in which lanes can notice each other (`is_private`), unless all lanes are
    at it.
    """

    def __init__(
        self, launch: MachineLaunch, first: int, count: int, code: ThreadedCode, *, private: bool = False
    ) -> None:
        super().__init__(launch, first, count)
        self.code, self.private = code, private
        self._table = np.empty((ROWS_OF_REGISTERS, self.lanes), np.uint32)
        self._filled = 0
        self._predicates = self._rows(PREDICATES, self.lanes, 1)
        self._uniform = self._rows(UNIFORM, self.warps, 32)
        self._uniform_predicates = self._rows(UNIFORM_PREDICATES, self.warps, 1)
        self._fill(code.registers)
        self._values = np.empty((MOST_SOURCES, self.lanes), np.int64)
        self._results = np.empty((MOST_RESULTS, self.lanes), np.int64)
        self._chosen = np.empty(self.lanes + 1, np.int64)
        self._counts = np.zeros(max(len(code.ordered), 1), np.int64)
        tables = (self._table, self._predicates, self._uniform, self._uniform_predicates)
        rooms = (self._values, self._results, self._chosen)
        self._numbers = np.zeros(ARRAYS + 3 * (object.__basicsize__ // 8 + 1), np.int64)
        addresses = [array.ctypes.data for array in (*tables, *rooms)]
        self._numbers[:ARRAYS] = (self.lanes, *addresses[:4], self.warps, *addresses[4:])
        self._here, self._first = self._numbers.ctypes.data, code.records.ctypes.data
        self._count_at = self._counts.ctypes.data
        self._run_records = runner()

    def _fill(self, rows: int) -> None:
        """Give rows of the table up to this one random bits, unless they have some."""
        if rows > self._filled:
            self._table[self._filled : rows] = self._rows(rows - self._filled, self.lanes, 32)
            self._filled = rows

    def _rows(self, rows: int, width: int, bits: int) -> Array:
        """Rows of random numbers, one for each lane or warp. The parts of a launch lie along the first axis."""
        return np.ascontiguousarray(self.unknown((width, rows), bits).T)

    # Registers ----------------------------------------------------------------------------------------------------

    def register(self, number: int) -> Array:
        """See Machine.register."""
        if number < 0:
            return self.zeros
        self._fill(number + 1)
        row: Array = self._table[number]
        return row

    def predicate(self, number: int) -> Array:
        """See Machine.predicate."""
        return self.ones if number == 7 else self._predicates[number]

    def uniform_register(self, number: int) -> Array:
        """See Machine.uniform_register."""
        return super().uniform_register(number) if number < 0 else self._uniform[number]

    def uniform_predicate(self, number: int) -> Array:
        """See Machine.uniform_predicate."""
        return super().uniform_predicate(number) if number == 7 else self._uniform_predicates[number]

    def _row(self, kind: str, number: int, table: dict[int, Array]) -> Array:
        """See Machine._row. All bits are there."""
        of_kind = {
            "R": self.register, "P": self.predicate, "UR": self.uniform_register, "UP": self.uniform_predicate,
        }  # fmt: skip
        return of_kind[kind](number)

    def fetch(self, kind: str, number: int, lanes: Lanes) -> Array:
        """See Machine.fetch. It is a copy: rows change in place."""
        if kind == "R":
            found = self.register(number)
        elif kind == "P":
            found = self.predicate(number)
        else:
            return super().fetch(kind, number, lanes)
        return found.copy() if lanes is None else found[lanes]

    def write(self, kind: str, number: int, lanes: Lanes, value: Array) -> None:
        """See Machine.write."""
        if number < 0 or (kind != "R" and number == 7):
            return
        row = self.register(number) if kind == "R" else self.predicate(number)
        row[slice(None) if lanes is None else lanes] = value

    # Running ------------------------------------------------------------------------------------------------------

    def _wait_with(self, lanes: Array, masks: Array) -> None:
        """See Machine._wait_with."""
        if self.private and are_unlike(lanes, masks):
            raise LanesMeet

    def run_threaded(self) -> None:
        """As Machine.run. It runs as many records as follow one another before it looks for another fibre."""
        try:
            self._run(self._advance)
        finally:
            self._note_counts()

    def _advance(self, fibre: Fibre, in_turns: bool, others: Collection[int]) -> bool:
        """Run the records from a fibre's place on that follow one another, or one step without a record."""
        pc, run_records = fibre.pc, self._run_records
        place = self.code.at.get(pc)
        if place is None or run_records is None:
            step = self.code.step(pc)
            if step is not None and self.private and fibre.lanes is not None and not is_private(step):
                raise LanesMeet
            return self._take(fibre, step)
        start, number, following = place
        if in_turns:
            following = 1
        elif others:
            behind = [other for other in others if pc < other < pc + BYTES * following]
            following = (min(behind) - pc) // BYTES if behind else following
        lanes = fibre.lanes
        many = self.lanes if lanes is None else len(lanes)
        run_records(
            self._here, self._first + start, self._count_at + 8 * number, 0 if lanes is None else id(lanes),
            many | following << 32,
        )  # fmt: skip
        fibre.pc = pc + BYTES * following
        self.launch.visited.update(range(pc, fibre.pc, BYTES))
        self.steps += following
        return True

    def _note_counts(self) -> None:
        """Tell the launch which forms ran in how many lanes, as `Computed` does."""
        ran, approximate = self.launch.ran, self.launch.approximate
        for record_, count in zip(self.code.ordered, self._counts.tolist(), strict=False):
            if count:
                ran[record_.step.form] = ran.get(record_.step.form, 0) + count
                if record_.step.match.row.approximate:
                    approximate.add(record_.step.match.row.name)
        self._counts[:] = 0
