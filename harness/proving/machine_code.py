"""Run one thread of a kernel's machine code on terms, by the rows of `ptxdiff.sass.isa`.

The inputs are those of `kernels`: a load gives the bits that the PTX's load of the same address gives, and a load for
which there is none is refused. A register that was never written may hold anything.

One thread is followed, so what threads do together is refused by name: exchanges, votes, shared memory, barriers of a
block. Convergence barriers decide no value of one thread, and are passed. A uniform register holds one value for a
warp: what is written to it must not differ between threads, and no thread may be elsewhere meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxdiff.emulator.numeric.vectorise import ArrayFunction
from ptxdiff.proving import definitions
from ptxdiff.proving import terms as t
from ptxdiff.proving.kernels import Load, Store, Thread, of_all_lanes
from ptxdiff.proving.terms import FALSE, TRUE, NotModelled, Term
from ptxdiff.sass import control, generic
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import Computed, MachineStep, RefusedStep, SourceFetch, driver_words, prepared
from ptxdiff.sass.text import BYTES, Operand

STEPS = 20_000
"""Instructions after which code with loops is given up."""

Finder = Callable[[Term, Term, int], Load | None]
"""The PTX's load for a condition, an address and a size in bytes."""

_SIGNS = {"f32": 0x80000000, "f16x2": 0x80008000, "f64": 1 << 63, "f32x2": 0x8000000080000000}


@dataclass(frozen=True)
class MachineResults:
    """What a thread of machine code does. forms: of the table, that ran; approximate: rows that are a model; rows: the
    definitions that were applied, with their operands and results."""

    loads: tuple[Load, ...]
    stores: tuple[Store, ...]
    forms: frozenset[str]
    approximate: frozenset[str]
    computed: tuple[tuple[str, ArrayFunction, tuple[Term, ...], Term], ...]


def run(code: MachineCode, thread: Thread, loaded: Finder) -> MachineResults:
    """What a thread does. loaded: finds the PTX's load. Raises NotModelled."""
    machine = _MachineThread(code, thread, loaded)
    machine.run()
    return MachineResults(
        tuple(machine.loads),
        tuple(machine.stores),
        frozenset(machine.forms),
        frozenset(machine.approximate),
        tuple(machine.computed),
    )


class _MachineThread:
    def __init__(self, code: MachineCode, thread: Thread, loaded: Finder) -> None:
        self.code, self.thread, self.loaded = code, thread, loaded
        self.steps = prepared(code)
        self.registers: dict[tuple[str, int], Term] = {}
        self.loads: list[Load] = []
        self.stores: list[Store] = []
        self.forms: set[str] = set()
        self.approximate: set[str] = set()
        self.computed: list[tuple[str, ArrayFunction, tuple[Term, ...], Term]] = []
        self.waiting: dict[int, Term] = {0: TRUE}
        self.active = TRUE
        grid = {-1 - k: count for k, count in enumerate(thread.grid)}
        self.driver: dict[int, Term] = {}
        for at, parameters in driver_words(code.base, thread.block, tuple(grid)).items():
            for k, word in enumerate(parameters):
                opaque = len(parameters) == 2 or (len(parameters) == 1 and word > 0)  # a descriptor, or the stack's top
                value = t.variable(f"driver{at + 4 * k}", 32) if opaque else grid.get(word, t.const(word, 32))
                self.driver[at + 4 * k] = value

    # Registers and constants

    def read(self, kind: str, number: int) -> Term:
        """A register of 32 bits, or a predicate."""
        width = 0 if kind.endswith("P") else 32
        if number == (7 if width == 0 else -1):
            return TRUE if width == 0 else t.const(0, 32)
        if (kind, number) not in self.registers:
            self.registers[kind, number] = t.variable(f"unset{kind}{number}", width)
        return self.registers[kind, number]

    def wide(self, kind: str, number: int) -> Term:
        """A pair of registers."""
        return _joined(self.read(kind, number), self.read(kind, number + 1 if number >= 0 else -1))

    def write(self, kind: str, number: int, value: Term, condition: Term) -> None:
        """Write a register or predicate where a condition holds. Raises NotModelled for a uniform one that differs."""
        if number == (7 if kind.endswith("P") else -1):
            return
        if kind.startswith("U"):
            if not of_all_lanes(value):
                raise NotModelled(f"{kind}{number} gets a value that differs between the threads of a warp")
            if condition is not self.active and not of_all_lanes(condition):
                raise NotModelled(f"{kind}{number} is written under a condition that differs between threads")
            if any(w is not FALSE for w in self.waiting.values()) and not of_all_lanes(self.active):
                raise NotModelled(f"{kind}{number} is written while other threads of the warp are elsewhere")
        self.registers[kind, number] = t.ite(condition, value, self.read(kind, number))

    def guarded(self, guard: Operand | None) -> Term:
        """Whether this thread executes an instruction with a guard."""
        if guard is None:
            return self.active
        held = self.read(guard.kind, guard.number)
        return t.band(self.active, t.bnot(held) if guard.inverted else held)

    def constant(self, bank: int, at: int, size: int) -> Term:
        """Bytes of a constant bank."""
        if bank == 0:
            if at >= self.code.base:
                return self.thread.parameter(at - self.code.base, size)
            constant_words = [self.driver.get(at + k) for k in range(0, max(size, 4), 4)]
            if at % 4 or size < 4 or any(w is None for w in constant_words):
                raise NotModelled(f"c[0x0][0x{at:x}]: what the driver keeps there is not known")
            joined = t.const(0, 8 * size)
            for k, word in enumerate(constant_words):
                assert word is not None
                joined = t.or_(joined, t.shl(t.zext(word, 8 * size), t.const(32 * k, 8 * size)))
            return joined
        held = self.code.banks.get(bank, b"")
        if at < 0 or at + size > len(held):
            raise NotModelled(f"c[0x{bank:x}][0x{at:x}]: the cubin has no such constant")
        return t.const(int.from_bytes(held[at : at + size], "little"), 8 * size)

    # Control

    def run(self) -> None:
        """Take every way, each under its condition, the lowest address first."""
        for _ in range(STEPS):
            if not self.waiting:
                return
            pc = min(self.waiting)
            self.active = self.waiting.pop(pc)
            if self.active is FALSE:
                continue
            step = self.steps.get(pc)
            if step is None:
                raise NotModelled(f"a jump to 0x{pc:x}, where no instruction is")
            following = self.step(pc, step)
            self.wait(pc + BYTES, following)
        raise NotModelled(f"more than {STEPS} steps: the end of a loop depends on the inputs")

    def wait(self, pc: int, condition: Term) -> None:
        """Let a way go on at an address."""
        if condition is not FALSE:
            self.waiting[pc] = t.bor(self.waiting.get(pc, FALSE), condition)

    def step(self, pc: int, step: MachineStep) -> Term:
        """Run an instruction; the condition under which the next one follows."""
        if isinstance(step, RefusedStep):
            raise NotModelled(step.words)
        if isinstance(step, Computed):
            self.compute(step)
            return self.active
        condition = self.guarded(step.instruction.guard)
        if isinstance(step, control.Exit | control.ExitUnder):
            return self.end(step, condition)
        if isinstance(step, control.Branch):
            return self.branch(step, condition)
        if isinstance(step, control.Return):
            self.leave(step, condition)
            return FALSE
        runner = _RUNNERS.get(type(step))
        if runner is None:
            raise NotModelled(f"{step.instruction.text}, which is not a matter of one thread")
        runner(self, step, condition)
        return self.active

    def end(self, step: control.Exit | control.ExitUnder, condition: Term) -> Term:
        """End where a condition holds; whether the next instruction follows."""
        if isinstance(step, control.ExitUnder):
            held = self.read(step.condition.kind, step.condition.number)
            condition = t.band(condition, t.bnot(held) if step.condition.inverted else held)
        return t.band(self.active, t.bnot(condition))

    def branch(self, step: control.Branch, condition: Term) -> Term:
        """Jump where a condition holds; whether the next instruction follows."""
        if step.condition is not None:
            held = self.read(step.condition.kind, step.condition.number)
            condition = t.band(condition, t.bnot(held) if step.condition.inverted else held)
        self.wait(step.target, condition)
        return t.band(self.active, t.bnot(condition))

    def leave(self, step: control.Return, condition: Term) -> None:
        """Jump to an address that was written as a constant, or as one of several."""
        kind = "UR" if isinstance(step, control.UniformJump) else "R"
        left = [(condition, t.add(self.wide(kind, step.register), t.const(step.base, 64)))]
        while left:
            taken, target = left.pop()
            if taken is FALSE:
                continue
            if target.constant is not None:
                self.wait(target.constant, taken)
            elif target.op == "ite":
                chosen, yes, no = target.args
                left += [(t.band(taken, chosen), yes), (t.band(taken, t.bnot(chosen)), no)]
            else:
                raise NotModelled(f"{step.instruction.text}: a jump to an address that depends on the inputs")

    # Instructions with a row

    def compute(self, step: Computed) -> None:
        """Apply a row's definition."""
        row, condition = step.match.row, self.guarded(step.instruction.guard)
        if condition is FALSE:
            return
        if row.undecided is not None:
            raise NotModelled(f"{step.instruction.text}: its first result is not known for all operands")
        self.forms.add(step.form)
        unit = row.name.startswith("MUFU")
        if row.approximate:
            self.approximate.add(row.name)
        values = tuple(self.fetched(s) for s in step.sources)
        build = definitions.uninterpreted if row.approximate and not unit else definitions.of_lanes
        results = [build(f, *values) for f in step.functions]
        for function, value in zip(step.functions, results, strict=True):
            self.computed.append((step.instruction.text, function, values, value))
        for (kind, destination), value in zip(step.destinations, results, strict=True):
            if kind == "R2":
                low, high = t.extract(value, 31, 0), t.extract(value, 63, 32)
                self.write(destination.kind, destination.number, low, condition)
                if destination.number >= 0:
                    self.write(destination.kind, destination.number + 1, high, condition)
            else:
                self.write(destination.kind, destination.number, value, condition)

    def fetched(self, source: SourceFetch) -> Term:
        """A source with its signs: the same as `SourceFetch.lanes` on terms."""
        operand, kind, width = source.operand, source.kind, source.source.width
        if source.constant is not None:
            value = t.const(source.constant, 64 if source.wide else 32)
        elif operand.kind == "c":
            value = self.constant(operand.bank, operand.offset, 8 if source.wide else 4)
        elif not source.wide:
            value = self.read(operand.kind, operand.number)
        elif operand.suffix == "F32":
            value = _joined(*2 * (self.read(operand.kind, operand.number),))
        else:
            value = self.wide(operand.kind, operand.number)
        if kind in ("p", "p-"):
            if value.width:
                raise NotModelled("a predicate that is an immediate")
            return t.bnot(value) if operand.inverted else value
        if kind == "S":
            raise NotModelled("a pair of scales whose lower half must be 0")
        value = _half(value, kind, operand.suffix)
        if kind in ("X", "Z"):
            value = _joined(t.extract(value, 63, 32), t.extract(value, 31, 0))
        if kind in ("N", "Z"):
            value = t.xor(value, t.const(1 << 63, 64))
        if kind == "l":
            number = t.sext(value, 64)
            return t.neg(number) if operand.negated and source.constant is None else number
        if kind == "j":
            wide = t.zext(value, 64)
            if operand.negated and source.constant is None:
                return t.add(t.xor(wide, t.const(0xFFFFFFFF, 64)), t.const(1, 64))
            return wide
        signs = operand.negated or operand.absolute or operand.inverted
        if source.constant is not None or source.source.negation == "raw" or not signs:
            return value
        assert value.width == width
        return _with_signs(value, operand, source.source.negation)


def _joined(low: Term, high: Term) -> Term:
    if high.op == "extract" and high.detail == (63, 32) and t.extract(high.args[0], 31, 0) is low:
        return high.args[0]
    return t.or_(t.zext(low, 64), t.shl(t.zext(high, 64), t.const(32, 64)))


def _half(value: Term, kind: str, suffix: str) -> Term:
    """The half or byte of a register that a suffix names, as the definition gets it."""
    low, high = t.zext(t.extract(value, 15, 0), value.width), t.zext(t.extract(value, 31, 16), value.width)
    if kind in ("h", "g") and suffix in ("H0_H0", "H1_H1"):
        part = low if suffix == "H0_H0" else high
        return t.or_(part, t.shl(part, t.const(16, 32)))
    if kind == "e":
        return high if suffix == "H1_H1" else low
    if kind in ("k", "K"):
        return high if suffix else low
    if kind == "y":
        first = 8 * int(suffix[1:] or 0)
        return t.zext(t.extract(value, first + 7, first), 32)
    return value


def _with_signs(value: Term, operand: Operand, negation: str) -> Term:
    width = value.width
    sign = t.const(_SIGNS.get(negation, 0), width)
    if negation == "f64":  # the sign of a NaN stays as it is
        size = t.and_(value, t.not_(sign))
        changed = size if operand.absolute else value
        changed = t.xor(changed, sign) if operand.negated else changed
        return t.ite(t.ult(t.const(0x7FF0000000000000, width), size), value, changed)
    if operand.absolute:
        value = t.and_(value, t.not_(sign))
    if operand.inverted:
        value = t.not_(value)
    if operand.negated:
        value = t.neg(value) if negation == "two" else t.xor(value, sign)
    return value


# Instructions without a row


def _pass(machine: _MachineThread, step: MachineStep, condition: Term) -> None:
    return None


def _special(machine: _MachineThread, step: MachineStep, condition: Term) -> None:
    assert isinstance(step, control.SpecialRegister)
    thread = machine.thread
    value: Term | None = None
    if step.name in control.COORDINATES:
        which, axis = control.COORDINATES[step.name]
        value = (thread.thread if which == "TID" else thread.number)[axis]
    elif step.name == "SR_LANEID":
        value = thread.lane
    elif step.name == "SRZ":
        value = t.const(0, 32)
    if value is None:
        raise NotModelled(step.instruction.text)
    machine.write(step.place.kind, step.place.number, value, condition)
    if step.wide and step.place.number >= 0:
        machine.write(step.place.kind, step.place.number + 1, t.const(0, 32), condition)


def _constant(machine: _MachineThread, step: MachineStep, condition: Term) -> None:
    assert isinstance(step, control.ConstantLoad)
    source = step.source
    at: int | None = source.offset
    if step.index is not None:
        index = machine.read(step.index.kind, step.index.number).constant
        at = None if index is None else source.offset + t.signed(index, 32)
    if at is None:
        raise NotModelled(f"{step.instruction.text}: a constant whose place depends on the inputs")
    value = machine.constant(source.bank, at, step.size)
    _spread(machine, step.place, value, step.size, step.signed, condition)


def _spread(machine: _MachineThread, place: Operand, value: Term, size: int, signed: int, condition: Term) -> None:
    """Write loaded bytes to registers."""
    if place.number < 0:
        return
    if size < 4:
        machine.write(place.kind, place.number, t.sext(value, 32) if signed else t.zext(value, 32), condition)
        return
    for k in range(size // 4):
        machine.write(place.kind, place.number + k, t.extract(value, 32 * k + 31, 32 * k), condition)


def _predicates(machine: _MachineThread, step: MachineStep, condition: Term) -> None:
    assert isinstance(step, control.PredicatesAsBits)
    operands = step.instruction.operands
    if step.instruction.opcode == "P2R":
        value = t.and_(machine.read("R", operands[2].number), t.const(~step.mask, 32))
        for k in range(7):
            if step.mask >> k & 1:
                value = t.or_(value, t.shl(t.as_bits(machine.read("P", k), 32), t.const(k, 32)))
        machine.write("R", operands[0].number, value, condition)
        return
    value = machine.read("R", operands[1].number)
    for k in range(7):
        if step.mask >> k & 1:
            machine.write("P", k, t.nonzero(t.extract(value, k, k)), condition)


def _to_uniform(machine: _MachineThread, step: MachineStep, condition: Term) -> None:
    destination, source = step.instruction.operands
    machine.write("UR", destination.number, machine.read("R", source.number), condition)


def _memory(machine: _MachineThread, step: MachineStep, condition: Term) -> None:
    assert isinstance(step, control.MemoryAccess)
    text = step.instruction.text
    if step.local:
        raise NotModelled(f"{text}, an access to local memory")
    if set(step.instruction.modifiers) & control.STRENGTHS:
        raise NotModelled(f"{text}, which orders accesses of threads")
    where = step.where
    address = t.const(where.offset, 64)
    if where.base is not None:
        address = t.add(machine.wide("R", where.base.number), address)
    if where.uniform is not None:
        address = t.add(machine.wide("UR", where.uniform.number), address)
    if condition is FALSE:
        return
    if not step.loads:
        machine.stores.append(Store(condition, address, _stored(machine, step), t.const(0, 8 * step.size)))
        return
    if machine.stores:
        raise NotModelled(f"{text} after a store, which may have changed what it reads")
    loaded = machine.loaded(condition, address, step.size)
    if loaded is None:
        raise NotModelled(f"{text}, a load that the PTX does not have")
    machine.loads.append(Load(condition, address, loaded.value))
    _spread(machine, step.data, loaded.value, step.size, step.signed, condition)


def _stored(machine: _MachineThread, step: control.MemoryAccess) -> Term:
    size, number = step.size, step.data.number
    if size < 4:
        return t.extract(machine.read("R", number), 8 * size - 1, 0)
    width = 8 * size
    value = t.const(0, width)
    for k in range(size // 4):
        word = machine.read("R", number + k if number >= 0 else -1)
        value = t.or_(value, t.shl(t.zext(word, width), t.const(32 * k, width)))
    return value


_RUNNERS: dict[type[MachineStep], Callable[[_MachineThread, MachineStep, Term], None]] = {
    control.Nop: _pass, control.Bssy: _pass, control.Break: _pass, control.Bsync: _pass, control.WarpSync: _pass,
    control.SpecialRegister: _special, control.ConstantLoad: _constant, control.PredicatesAsBits: _predicates,
    control.ToUniform: _to_uniform, control.MemoryAccess: _memory,
    generic.GenericAccess: _memory,
}  # fmt: skip
