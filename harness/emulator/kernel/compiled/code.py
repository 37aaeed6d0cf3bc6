"""LLVM code of a kernel whose threads are independent of each other.

One call runs consecutive blocks. Each block runs its steps in groups: a loop over its threads for all steps between two
accesses to memory, which LLVM makes vectors of, and a loop for each access. What a later group reads of a register lies
in an array with an entry for each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from ptxdiff.emulator.binding.program import Program, ReadSlot, Step, WriteSlot
from ptxdiff.emulator.kernel.compiled.analysis import Independent
from ptxdiff.emulator.kernel.memory.space import BUFFER_SPACING, VARIABLES_BASE, Access
from ptxdiff.emulator.numeric.translation.expressions import int_constant
from ptxdiff.emulator.numeric.translation.functions import texts, unit
from ptxdiff.emulator.numeric.translation.helpers import INT64
from ptxdiff.emulator.numeric.translation.loops import of_array_objects, of_arrays
from ptxdiff.emulator.text.types import TYPES

FIRST, FAILED, COUNT, BUFFERS, GRID, HEADER = 0, 1, 2, 3, 4, 7
"""The first entries of a call's state: the first block; whether something may be wrong; the steps that threads have
executed; how many buffers there are; blocks of the grid along x, y and z. Then, for each buffer, whether it was read,
and how many units were stored."""
LOW, HIGH, DATA, STORED, LOADED, REFUSED, ROW = range(7)
"""The entries of a buffer's row: the offsets of its first byte and of the byte behind it, the addresses of its bytes
and of the marks of units that are stored and loaded (0: no marks), and what is refused: `NO_LOADS | NO_STORES`."""
NO_LOADS, NO_STORES = 1, 2
MOST_BYTES = 1 << 18
"""Of the arrays by thread: they lie on the stack."""

_ANY, _BYTE, _BIT = ir.PointerType(), ir.IntType(8), ir.IntType(1)
_SHIFT = BUFFER_SPACING.bit_length() - 1
_ACTIVE = -1
"""In place of a slot: whether a thread is at the present step; for a step to which there are jumps `-2 - step`, whether
it has jumped there."""


class TooLargeForCode(Exception):
    """A kernel's registers take more room than there is."""


@dataclass(frozen=True)
class CodeShape:
    """What code is made for, beside the steps. block: threads along x, y and z. unit: bytes of a mark.

    own: whether threads may load bytes of a buffer in which there are stores, where these are the thread's own.
    """

    block: tuple[int, int, int]
    unit: int
    own: bool

    @property
    def threads(self) -> int:
        """Threads of a block."""
        x, y, z = self.block
        return x * y * z


def text(program: Program, of: Independent, shape: CodeShape, parameters: dict[tuple[str, int, int], int]) -> str:
    """The function SYMBOL(table, parameters, state, blocks) of int64 arrays, for `machinecode.load`.

    parameters: by name, offset and bytes, the entry of the second array; it is filled here. Raises Untranslatable and
    TooLargeForCode.
    """
    return _Kernel(program, of, shape, parameters).text()


@dataclass
class _Group:
    """Steps of one loop over a block's threads. memory: whether it is one access. first: the number of the first."""

    first: int
    memory: bool
    steps: list[Step] = field(default_factory=list)


def _groups(of: Independent) -> list[_Group]:
    groups: list[_Group] = []
    for at, step in enumerate(of.steps):
        memory = step.kind in ("ld", "st")
        if memory or not groups or groups[-1].memory:
            groups.append(_Group(at, memory))
        groups[-1].steps.append(step)
    return groups


def _at(b: Any, array: Any, lane: Any) -> Any:
    """The place of a thread's entry in an array by thread."""
    return b.gep(array, [int_constant(0), lane], inbounds=True)


class _Kernel:
    """A function under construction."""

    def __init__(
        self, program: Program, of: Independent, shape: CodeShape, parameters: dict[tuple[str, int, int], int]
    ) -> None:
        self.program, self.of, self.shape, self.parameters = program, of, shape, parameters
        self.llvm = of_arrays("blocks", 3)
        for argument in self.llvm.args[:3]:
            argument.add_attribute("noalias")
        self.table, self.given, self.state, self.blocks = self.llvm.args
        self.entry = self.llvm.append_basic_block("entry")
        self.first = ir.IRBuilder(self.entry)
        self.failed = self.llvm.append_basic_block("failed")
        self.arrays: dict[int, Any] = {}
        self.called: dict[str, Any] = {}
        self.parts: dict[str, str] = {}
        self.values: dict[int, Any] = {}
        self.written: set[int] = set()
        self.sites: dict[int, Any] = {}
        """By the number of a step, the array of the addresses that it accesses, 0 for none, if these are kept."""

    # the whole ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The finished module."""
        groups = _groups(self.of)
        self.first_block = self._entry_of(self.state, FIRST, self.first)
        self.buffers = self._entry_of(self.state, BUFFERS, self.first)
        self.grid = tuple(self._entry_of(self.state, GRID + axis, self.first) for axis in range(3))
        start, after, end = (self.llvm.append_basic_block(name) for name in ("block", "next", "end"))
        self.b = ir.IRBuilder(start)
        self.number = self.b.phi(INT64)
        self.block = self.b.add(self.first_block, self.number)
        if self.of.branches:
            self._all_active()
        for at, group in enumerate(groups):
            later = {slot for one in groups[at + 1 :] for slot in self._reads(one)}
            if group.memory:
                self._access(group)
            else:
                self._registers(group, later)
        if self.shape.own:
            self._mark_loads()
        if not self.of.branches:
            self._count(int_constant(self.shape.threads * len(self.of.steps)))
        self.b.branch(after)
        self.b.position_at_end(after)
        following = self.b.add(self.number, int_constant(1))
        self.b.cbranch(self.b.icmp_signed("<", following, self.blocks), start, end)
        self._clear()
        self.first.cbranch(self.first.icmp_signed(">", self.blocks, int_constant(0)), start, end)
        self.number.add_incoming(int_constant(0), self.first.block)
        self.number.add_incoming(following, after)
        ir.IRBuilder(end).ret_void()
        failing = ir.IRBuilder(self.failed)
        self._set(self.state, int_constant(FAILED), int_constant(1), failing)
        failing.ret_void()
        return "\n".join([*self.parts.values(), str(self.llvm), str(of_array_objects(self.llvm))])

    def _clear(self) -> None:
        """Fill all arrays by thread with zeros: threads for which nothing was written read them, in vain."""
        head, body, done = (self.llvm.append_basic_block() for _ in range(3))
        self.first.branch(head)
        b = ir.IRBuilder(head)
        lane = b.phi(INT64)
        lane.add_incoming(int_constant(0), self.entry)
        b.cbranch(b.icmp_signed("<", lane, int_constant(self.shape.threads)), body, done)
        b.position_at_end(body)
        for array in (*self.arrays.values(), *self.sites.values()):
            b.store(ir.Constant(array.allocated_type.element, 0), _at(b, array, lane))
        following = b.add(lane, int_constant(1))
        lane.add_incoming(following, body)
        b.branch(head)
        self.first.position_at_end(done)

    def _lanes(self) -> Iterator[Any]:
        """A loop over the threads of a block; the caller emits its body at `self.b`, once, for the lane it gets."""
        before = self.b.block
        body, done = self.llvm.append_basic_block(), self.llvm.append_basic_block()
        self.b.branch(body)
        self.b.position_at_end(body)
        lane = self.b.phi(INT64)
        lane.add_incoming(int_constant(0), before)
        yield lane
        following = self.b.add(lane, int_constant(1))
        lane.add_incoming(following, self.b.block)
        self.b.cbranch(self.b.icmp_signed("<", following, int_constant(self.shape.threads)), body, done)
        self.b.position_at_end(done)

    # arrays ---------------------------------------------------------------------------------------------------

    def _entry_of(self, array: Any, number: int, b: Any) -> Any:
        return b.load(b.gep(array, [int_constant(number)], source_etype=INT64), typ=INT64)

    def _set(self, array: Any, place: Any, value: Any, b: Any) -> None:
        b.store(value, b.gep(array, [place], source_etype=INT64))

    def _count(self, more: Any) -> None:
        place = self.b.gep(self.state, [int_constant(COUNT)], source_etype=INT64)
        self.b.store(self.b.add(self.b.load(place, typ=INT64), more), place)

    def _stored_kind(self, slot: int) -> Any:
        return _BYTE if slot < 0 else ir.IntType(max(self.program.registers[slot].type.width, 8))

    def _array(self, slot: int) -> Any:
        """The array of a register."""
        if slot not in self.arrays:
            self.arrays[slot] = self._room(self._stored_kind(slot))
        return self.arrays[slot]

    def _room(self, kind: Any) -> Any:
        of_threads = ir.ArrayType(kind, self.shape.threads)
        taken = sum(a.allocated_type.element.width // 8 for a in (*self.arrays.values(), *self.sites.values()))
        if (taken + kind.width // 8) * self.shape.threads > MOST_BYTES:
            raise TooLargeForCode
        with self.first.goto_block(self.entry):
            self.first.position_at_start(self.entry)
            made = self.first.alloca(of_threads)
            made.align = 64
            return made

    def _load(self, slot: int, lane: Any) -> Any:
        return self.b.load(_at(self.b, self._array(slot), lane))

    def _store(self, slot: int, lane: Any, value: Any) -> None:
        self.b.store(value, _at(self.b, self._array(slot), lane))

    def _all_active(self) -> None:
        for lane in self._lanes():
            self._store(_ACTIVE, lane, ir.Constant(_BYTE, 1))
            for join in self.of.joins:
                self._store(-2 - join, lane, ir.Constant(_BYTE, 0))

    def _reads(self, group: _Group) -> set[int]:
        """The slots that a group reads, or has to keep as they were in some threads."""
        slots: set[int] = set()
        for at, step in enumerate(group.steps, group.first):
            slots |= {one.slot for one in step.sources if one.slot >= 0}
            slots |= {step.guard} - {-1}
            if step.guard >= 0 or self.of.branches:
                slots |= {one.slot for one in step.destinations if one.slot >= 0}
            if self.of.branches:
                slots |= {_ACTIVE} | ({-2 - at} if at in self.of.joins else set())
                slots |= {-2 - step.target} if step.kind == "branch" else set()
        return slots

    # registers ------------------------------------------------------------------------------------------------

    def _registers(self, group: _Group, later: set[int]) -> None:
        """A loop for steps between accesses."""
        for lane in self._lanes():
            self.lane, self.values, self.written = lane, {}, set()
            executed: Any = ir.Constant(INT64, 0)
            for at, step in enumerate(group.steps, group.first):
                if self.of.branches:
                    self._join(at)
                    executed = self.b.add(executed, self.b.zext(self._value(_ACTIVE), INT64))
                self._step(step)
            for slot in sorted(self.written & later):
                self._store(slot, lane, self.values[slot])
            if self.of.branches:
                self._count(executed)

    def _join(self, at: int) -> None:
        if at in self.of.joins:
            self._put(_ACTIVE, self.b.or_(self._value(_ACTIVE), self._value(-2 - at)))

    def _value(self, slot: int) -> Any:
        """A register's pattern in this lane."""
        if slot not in self.values:
            self.values[slot] = self._load(slot, self.lane)
        return self.values[slot]

    def _put(self, slot: int, value: Any) -> None:
        self.values[slot] = value
        self.written.add(slot)

    def _held(self, step: Step) -> Any:
        """Whether this lane executes a step, in one bit; None: all do."""
        held = None
        if step.guard >= 0:
            held = self.b.trunc(self._value(step.guard), _BIT)
            if step.guard_negated:
                held = self.b.not_(held)
        if self.of.branches:
            active = self.b.trunc(self._value(_ACTIVE), _BIT)
            held = active if held is None else self.b.and_(held, active)
        return held

    def _step(self, step: Step) -> None:
        if step.kind in ("branch", "exit"):
            held = self._held(step)
            held = self.b.zext(ir.Constant(_BIT, 1) if held is None else held, _BYTE)
            if step.kind == "branch":
                slot = -2 - step.target
                self._put(slot, self.b.or_(self._value(slot), held))
            if self.of.branches:
                self._put(_ACTIVE, self.b.and_(self._value(_ACTIVE), self.b.xor(held, ir.Constant(_BYTE, 1))))
            return
        results = _MAKERS[step.kind](self, step)
        held = self._held(step) if results else None
        for writer, value, signed in results:
            if writer.slot >= 0:
                value = self._as_wide(value, ir.IntType(max(writer.width, 8)), signed)
                if held is not None:
                    value = self.b.select(held, value, self._value(writer.slot))
                self._put(writer.slot, value)

    def _as_wide(self, value: Any, kind: Any, signed: bool = False) -> Any:
        if value.type.width > kind.width:
            return self.b.trunc(value, kind)
        if value.type.width < kind.width:
            return self.b.sext(value, kind) if signed else self.b.zext(value, kind)
        return value

    def read(self, reader: ReadSlot) -> Any:
        """A source operand, as wide as it is read; see `Frame.read`."""
        kind = ir.IntType(max(reader.width, 8))
        if reader.slot < 0:
            return ir.Constant(kind, reader.pattern & ((1 << kind.width) - 1))
        value = self._as_wide(self._value(reader.slot), kind)
        return self.b.xor(value, ir.Constant(kind, 1)) if reader.negated else value

    def scalar(self, step: Step) -> list[tuple[WriteSlot, Any, bool]]:
        """The results of a definition."""
        sources = [self.read(one) for one in step.sources]
        results = []
        for function, writer in zip(step.functions, step.destinations, strict=True):
            values = []
            for value, (width, signed) in zip(sources, function.sources, strict=True):
                assert value.type.width == max(width, 8)
                values.append(self._as_wide(value, INT64, signed))
            values += map(int_constant, function.constants)
            made = unit(function.function, (INT64,) * len(values))
            for name, part in texts(made).items():
                self.parts[name] = part
            if made.name not in self.called:
                kind = ir.FunctionType(made.result, [INT64] * len(values))
                self.called[made.name] = ir.Function(self.llvm.module, kind, made.name)
            value = self.b.call(self.called[made.name], values)
            value = self.b.trunc(value, ir.IntType(max(function.width, 8)))
            if function.width == 1:
                value = self.b.and_(value, ir.Constant(_BYTE, 1))
            results.append((writer, value, writer.signed))
        return results

    def mov(self, step: Step) -> list[tuple[WriteSlot, Any, bool]]:
        """Moves, and address conversions of spaces whose addresses are generic ones."""
        return [(w, self.read(r), w.signed) for w, r in zip(step.destinations, step.sources, strict=True)]

    def unpack(self, step: Step) -> list[tuple[WriteSlot, Any, bool]]:
        """The parts of registers, lowest first."""
        results, each = [], len(step.destinations) // len(step.sources)
        sources = [self.read(one) for one in step.sources]
        for number, writer in enumerate(step.destinations):
            value, kind = sources[number // each], ir.IntType(max(writer.width, 8))
            if value.type.width != kind.width:
                shift = ir.Constant(value.type, number % each * writer.width)
                value = self._as_wide(self.b.lshr(value, shift), kind)
            results.append((writer, value, writer.signed))
        return results

    def split(self, step: Step) -> list[tuple[WriteSlot, Any, bool]]:
        """Parts of `detail` bits, each in a register of its own."""
        value, results = self.read(step.sources[0]), []
        ones = ir.Constant(value.type, (1 << step.detail) - 1)
        for number, writer in enumerate(step.destinations):
            at = number * step.detail
            part = ir.Constant(value.type, 0)
            if at < writer.width:
                part = self.b.and_(self.b.lshr(value, ir.Constant(value.type, at)), ones)
            results.append((writer, part, writer.signed))
        return results

    def pack(self, step: Step) -> list[tuple[WriteSlot, Any, bool]]:
        """Registers made of parts, lowest first."""
        results, each, width = [], len(step.sources) // len(step.destinations), step.sources[0].width
        sources = [self.read(one) for one in step.sources]
        for number, writer in enumerate(step.destinations):
            kind = ir.IntType(max(writer.width, 8))
            value = ir.Constant(kind, 0)
            for place, part in enumerate(sources[number * each : (number + 1) * each]):
                value = self.b.or_(value, self.b.shl(self._as_wide(part, kind), ir.Constant(kind, place * width)))
            results.append((writer, value, writer.signed))
        return results

    def special(self, step: Step) -> list[tuple[WriteSlot, Any, bool]]:
        """The special registers of a thread of a grid without clusters; see `ThreadFrame.special`."""
        return [
            (writer, self._special(name, "xyz".find(component) if component else 0), False)
            for writer, (name, component) in zip(step.destinations, step.detail, strict=True)
        ]

    def _special(self, name: str, axis: int) -> Any:
        if name == "%tid":
            return self._thread_along(axis)
        if name == "%ctaid":
            return self._block_along(axis)
        if name == "%laneid":
            return self.b.and_(self.lane, int_constant(31))
        if name == "%warpid":
            return self.b.lshr(self.lane, int_constant(5))
        if name == "%nctaid":
            return self.grid[axis]
        return int_constant(self.shape.block[axis] if name == "%ntid" else -(-self.shape.threads // 32))

    def _thread_along(self, axis: int) -> Any:
        x, y, z = self.shape.block
        if axis == 0 and y == z == 1:
            return self.lane
        along = self.b.udiv(self.lane, int_constant((1, x, x * y)[axis]))
        return self.b.urem(along, int_constant(self.shape.block[axis]))

    def _block_along(self, axis: int) -> Any:
        """LLVM moves it out of the loop over threads."""
        number = self.block
        for size in self.grid[:axis]:
            number = self.b.udiv(number, size)
        return self.b.urem(number, self.grid[axis])

    def ld_param(self, step: Step) -> list[tuple[WriteSlot, Any, bool]]:
        """Parameters, which are the same for all threads."""
        name, offset = step.detail
        width, results = TYPES[step.bound.modifiers["type"] or ""].width, []
        for number, writer in enumerate(step.destinations):
            which = name, offset + number * width // 8, width // 8
            entry = self.parameters.setdefault(which, len(self.parameters))
            value = self._as_wide(self._entry_of(self.given, entry, self.b), ir.IntType(max(width, 8)))
            results.append((writer, value, writer.signed))
        return results

    def policy(self, step: Step) -> list[tuple[WriteSlot, Any, bool]]:
        """A cache policy is opaque, and decides no value."""
        return [(step.destinations[0], int_constant(0), False)]

    # memory ---------------------------------------------------------------------------------------------------

    def _access(self, group: _Group) -> None:
        """A loop for one load or store."""
        (step,) = group.steps
        for lane in self._lanes():
            self.lane, self.values, self.written = lane, {}, set()
            if self.of.branches:
                self._join(group.first)
                self._count(self.b.zext(self._value(_ACTIVE), INT64))
                if _ACTIVE in self.written:
                    self._store(_ACTIVE, lane, self.values[_ACTIVE])
            held = self._held(step)
            address = self._address(step)
            if self.shape.own:
                self._keep_address(group.first, address, held)
            done = self.llvm.append_basic_block()
            if held is not None:
                inside = self.llvm.append_basic_block()
                self.b.cbranch(held, inside, done)
                self.b.position_at_end(inside)
            row, offset, number = self._located(step.detail, address, NO_LOADS if step.kind == "ld" else NO_STORES)
            data = self._pointer(row, DATA)
            kind = ir.IntType(step.detail.width)
            places = [
                self.b.gep(data, [self.b.add(offset, int_constant(k * kind.width // 8))], source_etype=_BYTE)
                for k in range(step.detail.count)
            ]
            place = self.b.add(self.b.shl(number, int_constant(1)), int_constant(HEADER))
            if step.kind == "ld":
                loaded = [self.b.load(one, typ=kind, align=kind.width // 8) for one in places]
                for writer, value in zip(step.destinations, loaded, strict=True):
                    if writer.slot >= 0:
                        wide = self._as_wide(value, ir.IntType(max(writer.width, 8)), writer.signed)
                        self._store(writer.slot, lane, wide)
                self._set(self.state, place, int_constant(1), self.b)
            else:
                for reader, one in zip(step.sources[1:], places, strict=True):
                    self.b.store(self._as_wide(self.read(reader), kind), one, align=kind.width // 8)
                units = self._mark(self._pointer(row, STORED), offset, step.detail)
                counted = self.b.gep(self.state, [self.b.add(place, int_constant(1))], source_etype=INT64)
                self.b.store(self.b.add(self.b.load(counted, typ=INT64), int_constant(units)), counted)
            self.b.branch(done)
            self.b.position_at_end(done)

    def _address(self, step: Step) -> Any:
        return self.b.add(self._as_wide(self.read(step.sources[0]), INT64), int_constant(step.detail.displacement))

    def _pointer(self, row: Any, number: int) -> Any:
        return self.b.inttoptr(self._entry_of(row, number, self.b), _ANY)

    def _located(self, access: Access, address: Any, refused: int) -> tuple[Any, Any, Any]:
        """The row of the buffer that an access lies in, its offset there, and the buffer's number.

        The code fails unless all its bytes are inside one buffer that allows it, at a multiple of their size.
        """
        b = self.b
        number = b.lshr(b.sub(address, int_constant(VARIABLES_BASE)), int_constant(_SHIFT))
        known = b.icmp_unsigned("<", number, self.buffers)
        aligned = b.icmp_unsigned("==", b.and_(address, int_constant(access.size - 1)), int_constant(0))
        further = self.llvm.append_basic_block()
        b.cbranch(b.and_(known, aligned), further, self.failed)
        b.position_at_end(further)
        row = b.gep(self.table, [b.mul(number, int_constant(ROW))], source_etype=INT64)
        offset = b.and_(address, int_constant(BUFFER_SPACING - 1))
        below = b.icmp_signed("<=", self._entry_of(row, LOW, b), offset)
        above = b.icmp_signed("<=", b.add(offset, int_constant(access.size)), self._entry_of(row, HIGH, b))
        forbidden = b.and_(self._entry_of(row, REFUSED, b), int_constant(refused))
        inside = b.and_(b.and_(below, above), b.icmp_signed("==", forbidden, int_constant(0)))
        further = self.llvm.append_basic_block()
        b.cbranch(inside, further, self.failed)
        b.position_at_end(further)
        return row, offset, number

    def _mark(self, marks: Any, offset: Any, access: Access) -> int:
        """Mark the units of an access; returns how many there are."""
        unit = self.shape.unit
        units = max(access.size // unit, 1)
        place = self.b.gep(marks, [self.b.udiv(offset, int_constant(unit))], source_etype=_BYTE)
        kind = ir.IntType(8 * units)
        self.b.store(ir.Constant(kind, sum(1 << 8 * k for k in range(units))), place, align=1)
        return units

    # loads and stores of one buffer ---------------------------------------------------------------------------

    def _keep_address(self, at: int, address: Any, held: Any) -> None:
        if at not in self.sites:
            self.sites[at] = self._room(INT64)
        kept = address if held is None else self.b.select(held, address, int_constant(0))
        self.b.store(kept, _at(self.b, self.sites[at], self.lane))

    def _mark_loads(self) -> None:
        """Mark the units that threads load, without those that the same thread stores, in one access as large.

        A load that is not coherent is always marked: it must not meet a store, not even of the same thread.
        """
        steps = self.of.steps
        stores = [at for at in self.sites if steps[at].kind == "st"]
        for at in [at for at in self.sites if steps[at].kind == "ld"]:
            alike = [s for s in stores if steps[s].detail.size == steps[at].detail.size]
            if "nc" in steps[at].node.modifiers:
                alike = []
            for lane in self._lanes():
                address, *others = (self.b.load(_at(self.b, self.sites[one], lane)) for one in (at, *alike))
                wanted = self.b.icmp_unsigned("!=", address, int_constant(0))
                for other in others:
                    wanted = self.b.and_(wanted, self.b.icmp_unsigned("!=", address, other))
                inside, marking, done = (self.llvm.append_basic_block() for _ in range(3))
                self.b.cbranch(wanted, inside, done)
                self.b.position_at_end(inside)
                number = self.b.lshr(self.b.sub(address, int_constant(VARIABLES_BASE)), int_constant(_SHIFT))
                row = self.b.gep(self.table, [self.b.mul(number, int_constant(ROW))], source_etype=INT64)
                marks = self._entry_of(row, LOADED, self.b)
                self.b.cbranch(self.b.icmp_unsigned("!=", marks, int_constant(0)), marking, done)
                self.b.position_at_end(marking)
                offset = self.b.and_(address, int_constant(BUFFER_SPACING - 1))
                self._mark(self.b.inttoptr(marks, _ANY), offset, steps[at].detail)
                self.b.branch(done)
                self.b.position_at_end(done)


_MAKERS: dict[str, Callable[[_Kernel, Step], list[tuple[WriteSlot, Any, bool]]]] = {
    "scalar": _Kernel.scalar,
    "mov": _Kernel.mov,
    "cvta": _Kernel.mov,
    "pack": _Kernel.pack,
    "unpack": _Kernel.unpack,
    "split": _Kernel.split,
    "special": _Kernel.special,
    "ld_param": _Kernel.ld_param,
    "policy": _Kernel.policy,
    "nothing": lambda code, step: [],
}
