"""The right outputs of random programs, statement by statement: faster than the emulator, and the same.

A program is made of few kinds of statements, with other registers each. The emulator parses and binds each kind once,
as a kernel of its own; what it binds becomes records, which the machine code for SASS runs (`sass.threaded_loop`). So
the definitions of instructions are the emulator's, and so are all steps that exchange values or access memory: they run
in a frame of the emulator, on the same registers.

Nothing here knows undefined bits. A program of which it is not plain that each register is written before it is read
runs in the emulator, and so does one with a step that has no record. `judge.prepared` compares a part of all programs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator import Buffer, PtxError, load_kernel
from ptxdiff.emulator.binding.program import ReadSlot, Step, WriteSlot
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.kernel import Kernel
from ptxdiff.emulator.kernel.memory.space import Shared
from ptxdiff.emulator.limits import Deadline
from ptxdiff.emulator.machine.frame import _widen
from ptxdiff.emulator.machine.lockstep import execute
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array, ArrayFunction, read
from ptxdiff.fuzz.program import BLOCK, INPUTS, KINDS, OUTPUTS, Operand, RandomProgram, Statement, Variable
from ptxdiff.sass.threaded_loop import ARRAYS, runner
from ptxdiff.sass.threaded_records import (
    CONSTANT,
    MOST_RESULTS,
    MOST_SOURCES,
    PAIR,
    PREDICATE,
    REGISTER,
    TO_PAIR,
    TO_PREDICATE,
    TO_REGISTER,
    SourceChange,
    _definition,
)

Words = NDArray[np.uint32]
_ROWS = 2048
"""Rows of the table of registers, and of predicates."""
_MOST_TEMPLATES = 1 << 15
_BODY, _OWN = "%body", "%own"
_WIDE, _PREDICATES = frozenset("de"), frozenset("p")


class NotPlain(Exception):
    """A program that cannot run statement by statement: the emulator has to run it as a whole."""


# Templates: statements with numbered registers -----------------------------------------------------------------------


@dataclass
class Template:
    """A statement, bound."""

    steps: list[_Record | _Python | _Jump | None]
    """In order; None is the place of the body."""
    slots: dict[int, int]
    """By slot of the bound program, the place among the operands of the statement: first those that it writes, then
    those that it reads; -1: %own."""
    own: list[tuple[int, int]]
    """Slots of other registers, each with its kind: 1 (a row), 2 (two rows) or 0 (a predicate)."""


@dataclass(frozen=True)
class _Record:
    """An instruction as numbers (`threaded_records`). patches: the places that take the row of a slot."""

    numbers: tuple[int, ...]
    patches: tuple[tuple[int, int, int], ...]
    """Place, slot, and what is added to its row."""


@dataclass(frozen=True)
class _Python:
    """A step that the emulator's frame runs."""

    step: Step


@dataclass(frozen=True)
class _Jump:
    """A branch under a predicate, or always (slot -1). target: the number of a step of the template."""

    slot: int
    negated: bool
    target: int


def _copy(a: int) -> int:
    return a


def _halves(a: int, b: int) -> int:
    return a | b << 16


_COPIES = {w: ArrayFunction(_copy, (), ((w, False),), w) for w in (1, 16, 32, 64)}
_HALVES = ArrayFunction(_halves, (), ((16, False), (16, False)), 32)


class _StatementRecorder:
    """Makes the records of the steps of one bound statement."""

    def __init__(self, kernel: Kernel) -> None:
        self.registers = [r.type.width for r in kernel.program.registers]
        self.added: list[tuple[int, int]] = []

    def records(self, step: Step) -> list[_Record] | None:
        """The records of a step; None if Python has to run it."""
        to, given = step.destinations, step.sources
        if step.kind == "scalar":
            return self._scalar(step)
        if step.kind == "mov" and len(to) == 1 and given[0].width == to[0].width in _COPIES:
            return [self._record(step, [_COPIES[to[0].width]], given, to)]
        if step.kind == "unpack" and len(given) == 1 and len(to) == 2 and to[0].width == to[1].width:
            width = to[0].width
            if (given[0].slot >= 0 and given[0].width == 2 * width == self.registers[given[0].slot]
                    and width in (16, 32)):  # fmt: skip
                low, high = (replace(given[0], width=width) for _ in range(2))
                return [
                    self._record(step, [_COPIES[width]], [reader], [writer], upper=bool(number))
                    for number, (reader, writer) in enumerate(zip((low, high), to, strict=True))
                    if writer.slot >= 0
                ]
        if step.kind == "pack" and len(given) == 2 and len(to) == 1:
            if [r.width for r in given] == [16, 16] and to[0].width == 32:
                return [self._record(step, [_HALVES], given, to)]
            if [r.width for r in given] == [32, 32] and to[0].width == 64:
                return [
                    self._record(step, [_COPIES[32]], [reader], [replace(to[0], width=32)], further=number)
                    for number, reader in enumerate(given)
                ]
        return None

    def _scalar(self, step: Step) -> list[_Record] | None:
        if len(step.sources) > MOST_SOURCES or len(step.functions) > MOST_RESULTS:
            return None
        to, behind = [], []
        for function, writer in zip(step.functions, step.destinations, strict=True):
            if writer.upper >= 0 or len(function.sources) != len(step.sources):
                return None
            if function.width == writer.width:
                to.append(writer)
                continue
            if function.width > 32:
                return None
            slot = len(self.registers)  # a register between, from which the result is widened
            self.registers.append(32)
            self.added.append((slot, 1))
            to.append(WriteSlot(slot, 32))
            copy = ArrayFunction(_copy, (), ((function.width, writer.signed),), writer.width)
            behind.append(self._record(step, [copy], [ReadSlot(slot, function.width)], [writer]))
        return [self._record(step, step.functions, step.sources, to), *behind]

    def _record(
        self, step: Step, functions: Sequence[ArrayFunction], given: Sequence[ReadSlot], to: Sequence[WriteSlot],
        *, upper: bool = False, further: int = 0,
    ) -> _Record:  # fmt: skip
        """upper: read the upper half of the source. further: write that many rows further."""
        numbers = [0, -1, int(step.guard_negated), len(given), len(functions)]
        patches = []
        if step.guard >= 0:
            patches.append((1, step.guard, 0))
            numbers[1] = 0
        for place, reader in enumerate(given):
            self._source(reader, functions[0].sources[place], numbers, patches, upper=upper)
        for function, writer in zip(functions, to, strict=True):
            code = _definition(function)
            if code is None or writer.slot < 0:
                raise NotPlain
            wide = self.registers[writer.slot] if further or writer.width == 32 else writer.width
            if not further and not (writer.width == 32 and wide == 64) and self.registers[writer.slot] != writer.width:
                raise NotPlain
            how = TO_PREDICATE if writer.width == 1 else TO_PAIR if writer.width == 64 else TO_REGISTER
            numbers += (code.address, code.constants.ctypes.data, how, 0)
            patches.append((len(numbers) - 1, writer.slot, further))
        numbers[0] = len(numbers)
        return _Record(tuple(numbers), tuple(patches))

    def _source(
        self, reader: ReadSlot, source: tuple[int, bool], numbers: list[int], patches: list[tuple[int, int, int]],
        *, upper: bool,
    ) -> None:  # fmt: skip
        width, signed = source
        if reader.width != width or reader.shared:
            raise NotPlain
        if reader.slot == -1:
            pattern = reader.pattern & (1 << width) - 1
            numbers += (CONSTANT, read(pattern ^ 1 if reader.negated else pattern, width, signed), 0, 0, *(0,) * 8)
            return
        if reader.slot < 0:
            raise NotPlain
        own = self.registers[reader.slot]
        if width == 1 or own == 1:
            if width != own:
                raise NotPlain
            how, change = PREDICATE, SourceChange(flip=int(reader.negated))
        elif width == 64:
            if own != 64 or reader.negated:
                raise NotPlain
            how, change = PAIR, SourceChange()
        elif reader.negated:
            raise NotPlain
        else:
            shift = 16 if upper and width == 16 else 0
            part = (1 << width) - 1
            how, change = REGISTER, SourceChange(shift, part, extend=64 - width if signed else 0)
            if width == 32 and not signed:
                change = SourceChange()
        patches.append((len(numbers) + 1, reader.slot, int(upper and width == 32)))
        numbers += (how, 0, 0, *change.numbers)


def _bound(text: str, target: str, version: str) -> Kernel:
    header = f".version {version}\n.target {target}\n.address_size 64\n\n"
    return load_kernel(f"{header}{text}", "p0")


Key = tuple[str, str, tuple[str, ...]]


def _template(key: Key, target: str, version: str) -> Template:
    """The template of a statement. key: its text, the kinds that it writes, and kinds or constants that it reads; the
    result of its body is the last of them. Raises NotPlain."""
    text, writes, reads = key
    names = {f"w{k}": f"%w{k}" for k in range(len(writes))}
    names |= {f"r{k}": f"%q{k}" if r in KINDS else r for k, r in enumerate(reads)}
    declared = [f".reg .{KINDS[kind]} %w{k};" for k, kind in enumerate(writes)]
    declared += [f".reg .{KINDS[kind]} %q{k};" for k, kind in enumerate(reads) if kind in KINDS]
    written = text.replace("{result}", f"{{r{len(reads) - 1}}}").replace("{body}", f"mov.b32 {_BODY}, 0;")
    written = written.replace("{l0}", "$L0").replace("{l1}", "$L1")
    for name, as_written in names.items():
        written = written.replace(f"{{{name}}}", as_written)
    shared = f".shared .align 16 .b8 own[{8 * BLOCK}];\n" if "own" in text else ""
    kernel = _bound(
        f".visible .entry p0() .maxntid {BLOCK}\n{{\n{shared}.reg .b32 {_OWN}, {_BODY};\n"
        + "\n".join(declared) + f"\n{written}\nret;\n}}\n",
        target, version,
    )  # fmt: skip
    return _made(kernel, len(writes), reads, has_body="{body}" in text)


def _made(kernel: Kernel, writes: int, reads: Sequence[str], *, has_body: bool) -> Template:
    slots = {r.name: r.slot for r in kernel.program.registers}
    places = {slots[f"%w{k}"]: k for k in range(writes)}
    places |= {slots[f"%q{k}"]: writes + k for k, r in enumerate(reads) if r in KINDS}
    places[slots[_OWN]] = -1
    recorder, body = _StatementRecorder(kernel), slots[_BODY]
    steps: list[_Record | _Python | _Jump | None] = []
    begins: list[int] = []
    bound = kernel.program.steps[:-1]
    for step in bound:
        begins.append(len(steps))
        if step.kind == "branch":
            steps.append(_Jump(step.guard, step.guard_negated, step.target))
        elif any(w.slot == body for w in step.destinations):
            steps.append(None)
        else:
            records = recorder.records(step)
            steps += [_Python(step)] if records is None else records
    begins.append(len(steps))
    steps = [replace(s, target=begins[s.target]) if isinstance(s, _Jump) else s for s in steps]
    result = slots.get(f"%q{len(reads) - 1}", -1) if has_body else -1
    _refuse_unwritten(bound, places, writes, body, result)
    kinds = {1: 0, 64: 2}
    own = [(r.slot, kinds.get(r.type.width, 1)) for r in kernel.program.registers
           if r.slot not in places and r.slot != body]  # fmt: skip
    return Template(steps, places, own + recorder.added)


def _refuse_unwritten(steps: Sequence[Step], places: dict[int, int], writes: int, body: int, result: int) -> None:
    """Raise NotPlain unless a statement writes each register before it reads it, and all that it writes.

    Both sides of a predicate count, as long as it stays the same. A jump back comes after what it jumps over, and one
    that skips statements skips nothing that others read. The result of the body is there from the body to the place to
    which a jump skips it. result: its slot, or -1.
    """
    written = {slot for slot, place in places.items() if (place < 0 or place >= writes) and slot != result}
    result_ends = -1
    half: dict[int, tuple[int, bool]] = {}
    last_forward = -1
    for number, step in enumerate(steps):
        if number == result_ends:
            written.discard(result)
        if result >= 0 and any(w.slot == body for w in step.destinations):
            written.add(result)
            result_ends = last_forward if number < last_forward else -1
        needed = {r.slot for r in step.sources if r.slot >= 0} | ({step.guard} if step.guard >= 0 else set())
        if any(r.slot < -1 for r in step.sources) or not needed <= written:
            raise NotPlain
        if step.kind == "branch":
            if step.target > number:
                last_forward = max(last_forward, step.target)
            continue
        for to in (w.slot for w in step.destinations if w.slot >= 0 and w.slot != body):
            half = {s: side for s, side in half.items() if side[0] != to}
            if number < last_forward:
                if to not in written:
                    raise NotPlain
            elif step.guard < 0 or half.get(to) == (step.guard, not step.guard_negated):
                written.add(to)
            else:
                half.setdefault(to, (step.guard, step.guard_negated))
    if not {slot for slot, place in places.items() if 0 <= place < writes} <= written:
        raise NotPlain


# Programs -------------------------------------------------------------------------------------------------------------


@dataclass
class _ProgramCode:
    """A program, ready to run. at: of each step, its place among the numbers, or -1. steps: those that Python runs,
    with the rows of their slots. jumps: the row of their predicate (-1: always), whether negated, and their target."""

    numbers: list[int] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    steps: dict[int, tuple[Step, dict[int, int]]] = field(default_factory=dict)
    jumps: dict[int, tuple[int, bool, int]] = field(default_factory=dict)
    rows: dict[Variable, int] = field(default_factory=dict)
    next_row: int = 0
    next_predicate: int = 0

    def row_of(self, kind: int) -> int:
        """A new row: kind 1 (a row), 2 (two rows), or 0 (a predicate)."""
        if kind == 0:
            self.next_predicate += 1
            return self.next_predicate - 1
        self.next_row += kind
        if self.next_row > _ROWS or self.next_predicate > _ROWS:
            raise NotPlain
        return self.next_row - kind

    def variable(self, variable: Variable) -> int:
        """The row of a register that is written."""
        if variable not in self.rows:
            self.rows[variable] = self.row_of(_kind(variable))
        return self.rows[variable]


def _kind(variable: Variable) -> int:
    return 0 if variable.kind in _PREDICATES else 2 if variable.kind in _WIDE else 1


class StatementEmulator:
    """Emulates programs for a target, statement by statement. version: of the PTX ISA that they state.

    Raises NotPlain where it cannot, and without llvmlite.
    """

    def __init__(self, target: str, version: str, own: Array, kernel: Kernel) -> None:
        """own: the address of shared memory of each thread, as the emulator has it. kernel: one that accesses it."""
        self.target, self.version, self.own, self.kernel = target, version, own, kernel
        self._templates: dict[Key, Template | None] = {}
        self._table = np.zeros((_ROWS, BLOCK), np.uint32)
        self._predicates = np.zeros((_ROWS, BLOCK), np.uint8)
        self._values = np.empty((MOST_SOURCES, BLOCK), np.int64)
        self._results = np.empty((MOST_RESULTS, BLOCK), np.int64)
        self._chosen = np.empty(BLOCK + 1, np.int64)
        self._numbers = np.zeros(ARRAYS + 3 * (object.__basicsize__ // 8 + 1), np.int64)
        tables = (self._table, self._predicates, self._table, self._predicates)
        addresses = [a.ctypes.data for a in (*tables, self._values, self._results, self._chosen)]
        self._numbers[:ARRAYS] = (BLOCK, *addresses[:4], BLOCK // 32, *addresses[4:])
        self._run_records = runner()
        self._frame: _Frame | None = None

    def outputs(self, program: RandomProgram, inputs: Words) -> Words:
        """The right outputs, shape [BLOCK, OUTPUTS]. inputs: shape [BLOCK, INPUTS]. Raises NotPlain."""
        if self._run_records is None or inputs.shape != (BLOCK, INPUTS):
            raise NotPlain
        code = _ProgramCode()
        for number in range(INPUTS):
            code.variable(Variable("r", number))
        own = code.row_of(1)
        self._table[:INPUTS] = inputs.T
        self._table[own] = self.own
        written = {Variable("r", k) for k in range(INPUTS)}
        self._add(code, program.statements, written)
        stored = [self._output(code, o, written) for o in program.outputs]
        self._run(code)
        found = np.zeros((BLOCK, OUTPUTS), np.uint32)
        for number, row in enumerate(stored):
            if row >= 0:
                found[:, number] = self._table[row]
        return found

    @staticmethod
    def _output(code: _ProgramCode, operand: Operand, written: set[Variable]) -> int:
        if operand == "0":
            return -1
        if not isinstance(operand, Variable) or operand not in written or operand.kind != "r":
            raise NotPlain
        return code.rows[operand]

    def _add(self, code: _ProgramCode, statements: Sequence[Statement], written: set[Variable]) -> None:
        """Put statements behind the others. written: the registers that are, to which theirs are added."""
        for statement in statements:
            if len(set(statement.writes)) < len(statement.writes) or not written.isdisjoint(statement.writes):
                raise NotPlain  # a template has a register of its own for each operand: see `_refuse_unwritten`
            operands: list[Operand] = [*statement.writes, *statement.reads]
            reads = tuple(r.kind if isinstance(r, Variable) else r for r in statement.reads)
            if statement.body:
                operands.append(statement.result)
                result = statement.result
                reads = (*reads, result.kind if isinstance(result, Variable) else result)
            if not all(r in written for r in statement.reads if isinstance(r, Variable)):
                raise NotPlain
            template = self._of((statement.text, "".join(w.kind for w in statement.writes), reads))
            rows = {slot: code.row_of(kind) for slot, kind in template.own}
            for slot, place in template.slots.items():
                if place < 0:
                    rows[slot] = INPUTS
                elif place < len(statement.writes) + len(statement.reads):
                    variable = operands[place]
                    assert isinstance(variable, Variable)
                    rows[slot] = code.variable(variable)
            self._put(code, statement, template, rows, written)
            written.update(statement.writes)

    def _put(
        self, code: _ProgramCode, statement: Statement, template: Template, rows: dict[int, int], written: set[Variable]
    ) -> None:
        begins: list[int] = []
        jumps: list[tuple[int, _Jump]] = []
        numbers, at = code.numbers, code.at
        last = len(statement.writes) + len(statement.reads)
        for step in template.steps:
            begins.append(len(at))
            if isinstance(step, _Record):
                here = len(numbers)
                at.append(here)
                numbers += step.numbers
                for place, slot, further in step.patches:
                    numbers[here + place] = rows[slot] + further
            elif step is None:
                inner = {*written, *statement.writes}
                self._add(code, statement.body, inner)
                if isinstance(statement.result, Variable):
                    if statement.result not in inner:
                        raise NotPlain
                    slot = next(s for s, place in template.slots.items() if place == last)
                    rows[slot] = code.rows[statement.result]
            elif isinstance(step, _Jump):
                jumps.append((len(at), step))
                at.append(-1)
            else:
                code.steps[len(at)] = step.step, rows
                at.append(-1)
        begins.append(len(at))
        for number, jump in jumps:
            code.jumps[number] = rows[jump.slot] if jump.slot >= 0 else -1, jump.negated, begins[jump.target]

    def _of(self, key: Key) -> Template:
        if key not in self._templates:
            if len(self._templates) > _MOST_TEMPLATES:
                self._templates.clear()
            try:
                self._templates[key] = _template(key, self.target, self.version)
            except (NotPlain, PtxError):  # the emulator says why
                self._templates[key] = None
        found = self._templates[key]
        if found is None:
            raise NotPlain
        return found

    def _frame_of_a_program(self) -> _Frame:
        """The frame, with shared memory that nobody has written."""
        if self._frame is None:
            self._frame = _Frame(self.kernel, self._table, self._predicates)
        self._frame.forget()
        return self._frame

    def _run(self, code: _ProgramCode) -> None:
        """Run it. Lanes at the lowest step go first, as in the emulator."""
        at, run_records = code.at, self._run_records
        assert run_records is not None
        words = np.frombuffer(struct.pack(f"={len(code.numbers)}q", *code.numbers), np.int64)
        counts = np.zeros(len(at) + 1, np.int64)
        first, here, count_at = words.ctypes.data, self._numbers.ctypes.data, counts.ctypes.data
        following = [0] * (len(at) + 1)
        for number in range(len(at) - 1, -1, -1):
            following[number] = following[number + 1] + 1 if at[number] >= 0 else 0
        waiting: dict[int, Array] = {}
        number = 0
        lanes: Array | None = None
        frame: _Frame | None = None
        while True:
            limit = len(at)
            if waiting:
                lowest = min(waiting)
                if lowest < number:
                    waiting[number] = _joined(waiting.get(number), lanes)
                    number, lanes = lowest, waiting.pop(lowest)
                elif lowest == number:
                    lanes = _joined(waiting.pop(lowest), lanes)
                if lanes is not None and len(lanes) == BLOCK:
                    lanes = None
                limit = min(waiting, default=limit)
            if number == len(at):
                return
            if at[number] >= 0:
                steps = min(following[number], limit - number)
                many = BLOCK if lanes is None else len(lanes)
                run_records(
                    here, first + 8 * at[number], count_at, 0 if lanes is None else id(lanes), many | steps << 32
                )
                number += steps
            elif number in code.steps:
                frame = frame or self._frame_of_a_program()
                step, frame.rows = code.steps[number]
                frame.execute(step, lanes)
                number += 1
            else:
                row, negated, target = code.jumps[number]
                number += 1
                here_now = _EVERY if lanes is None else lanes
                holds = self._predicates[row, here_now] != negated if row >= 0 else np.ones(len(here_now), np.bool_)
                if holds.all():
                    number = target
                elif holds.any():
                    waiting[target] = _joined(waiting.get(target), here_now[holds])
                    lanes = here_now[~holds]


_EVERY = np.arange(BLOCK)


def _joined(some: Array | None, others: Array | None) -> Array:
    """The lanes of both, in order. At least one is given."""
    if some is None or others is None:
        found = others if some is None else some
        assert found is not None  # all lanes are never among others
        return found
    return np.sort(np.concatenate((some, others)))


class _Frame(KernelFrame):
    """A frame of the emulator whose registers are rows of the tables. rows: of the slots of the step that runs."""

    def __init__(self, kernel: Kernel, table: Array, predicates: Array) -> None:
        given = np.zeros((BLOCK, INPUTS), np.uint32)
        buffers = [Buffer(given, "inputs"), Buffer(np.zeros_like(given), "outputs", defined=False)]
        super().__init__(KernelGrid(kernel, buffers, (1, 1, 1), (BLOCK, 1, 1), 0, True, Deadline(None)), 0, 1)
        self.table, self.predicates = table, predicates
        self.rows: dict[int, int] = {}

    def forget(self) -> None:
        """Forget what was written to shared memory, and who accessed it."""
        grid = self.grid
        self.shared = Shared(1, grid.shared_bytes, grid.unit("shared"), grid.races, self.order)
        self.owed.clear()
        self.tables.clear()

    def execute(self, step: Step, lanes: Array | None) -> None:
        """Run a step in some lanes. Raises NotPlain for an error, which the emulator words, and for undefined bits."""
        active = None
        if lanes is not None:
            active = np.zeros(BLOCK, np.bool_)
            active[lanes] = True
        try:
            execute(self, step, active)
        except PtxError:
            raise NotPlain from None

    def read(self, reader: ReadSlot) -> tuple[Array, Any]:
        """See Frame.read."""
        if reader.slot < 0:
            return super().read(reader)
        row = self.rows[reader.slot]
        if reader.width == 1:
            value = self.predicates[row].copy()
            return (value ^ 1 if reader.negated else value), None
        value = self.table[row].astype(UNSIGNED[reader.width])
        if reader.width == 64:
            value |= self.table[row + 1].astype(np.uint64) << np.uint64(32)
        return value, None

    def write(self, writer: WriteSlot, value: Array, undefined: Any, active: Array | None) -> None:
        """See Frame.write."""
        if writer.slot < 0:
            return
        if writer.upper >= 0 or (undefined is not None and undefined.any()):
            raise NotPlain
        kind = UNSIGNED[writer.width]
        if value.dtype != kind:
            value, _ = _widen(value, None, kind, writer.signed)
        row, value = self.rows[writer.slot], np.broadcast_to(value, (BLOCK,))
        lanes: Any = slice(None) if active is None else active
        if writer.width == 1:
            self.predicates[row][lanes] = value[lanes]
            return
        self.table[row][lanes] = value[lanes].astype(np.uint32)
        if writer.width == 64:
            self.table[row + 1][lanes] = (value[lanes] >> np.uint64(32)).astype(np.uint32)


_ACCESSES = (
    Statement("st.shared.u8 [%own+1], {r0};", (), (Variable("r", 0),)),
    Statement("mov.b32 {w0}, %own;", (Variable("r", INPUTS + 1),)),
)
"""Statements of the kernel whose frame runs Python steps: it accesses single bytes of shared memory."""


@lru_cache(maxsize=4)
def statement_emulator(target: str) -> StatementEmulator:
    """The emulator of a target."""
    from ptxdiff.fuzz.execution import emulated_words, text_of

    outputs = (Variable("r", INPUTS + 1), "0", "0", "0")
    text = text_of([RandomProgram(_ACCESSES, outputs)], target)
    kernel = load_kernel(text, "p0")
    own = emulated_words(kernel, np.zeros((BLOCK, INPUTS), np.uint32))[:, 0]
    return StatementEmulator(target, text.split()[1], own, kernel)
