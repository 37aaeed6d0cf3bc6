"""Registers that loads of tensor memory write, until `tcgen05.wait::ld`.

ISA 9.7.16.8.5: a thread blocks there until its earlier `tcgen05.ld` are complete, so before it their registers hold
nothing yet. A thread that reads or writes such a register gets an error, although the emulator has already loaded it. A
`mov` only hands on what the load will give, and the copy waits for it too: the compiler moves registers.

LLVM moves the wait itself: in Triton's attention it lies behind the arithmetic on the loaded scores and the
`tcgen05.st` of the result, just before the barrier that follows. ptxas waits where a register is read, so such code is
right. LLVM moves it neither over a barrier nor into another basic block, nor does it move anything within an asm block.
So in PTX that a compiler wrote, an access before the wait is an error at once only in the asm block of the load. Else
it is one if no wait has come when the thread branches or ends, and, unless it is arithmetic, which a compiler may move
ahead of a barrier, when the thread comes to a barrier.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace

import numpy as np

from ptxdiff.emulator.binding.program import REGISTERS_ONLY, Program, Step
from ptxdiff.emulator.errors import ExecutionError
from ptxdiff.emulator.kernel.in_flight import MemoryFrame, line_of
from ptxdiff.emulator.machine.lockstep import guarded
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text import llvmtext

LOADS = ("tcgen05_ld", "tcgen05_ld_red")
"""The kinds of steps whose registers wait for tcgen05.wait::ld."""


def loads(program: Program) -> bool:
    """Whether a program loads tensor memory."""
    return any(step.kind in LOADS for step in program.steps)


@dataclass
class AwaitedLoad:
    """Registers of one load before its wait, and copies of them: the lanes that wait for each, by register slot."""

    step: Step
    lanes: dict[int, Array]
    copies: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class EarlyAccess:
    """The first access to a load's registers before the wait: step, register slot, lanes, "reads" or "writes".

    `arithmetic`: it changes registers alone.
    """

    step: Step
    load: AwaitedLoad
    slot: int
    lanes: Array
    verb: str
    arithmetic: bool


class AwaitedRegisters:
    """The registers that threads of a frame have loaded from tensor memory, and not waited for."""

    def __init__(self, frame: MemoryFrame) -> None:
        self.frame = frame
        self.given: list[AwaitedLoad] = []
        self.early: list[EarlyAccess] = []
        """Accesses, in PTX that a compiler wrote, for which a wait has yet to come."""
        self._slots: set[int] = set()
        self._watched: set[int] = set()
        """Those of the slots for which arithmetic counts: no early access of all the load's lanes has been noted."""
        self._compiled = llvmtext.compiled(frame.program.source)

    def watch(self, step: Step, active: Array) -> None:
        """Called before every step. Raises ExecutionError if it reads or writes a register that a load has yet to
        write."""
        if step.kind in LOADS:
            self._load(step, self._running(step, active))
        elif step.kind == "tcgen05_wait_ld":
            self._end(self._running(step, active))
        elif self._slots:
            if self.early and (step.kind in ("branch", "exit") or step.facts.waits):
                self._refuse_early(step, active)
            slots = self._watched if step.kind in REGISTERS_ONLY else self._slots
            if slots:
                read = {r.slot for r in step.sources if r.slot in slots}
                written = {w.slot for w in step.destinations if w.slot in slots}
                if read or written:
                    self._access(step, self._running(step, active), read, written)

    def _running(self, step: Step, active: Array) -> Array:
        """The lanes that run a step: those whose guard holds."""
        held = active if step.guard < 0 else guarded(self.frame, step, active)[0]
        return active if held is None else held

    def _load(self, step: Step, lanes: Array) -> None:
        addresses = {r.slot for r in step.sources if r.slot in self._slots}
        if addresses:
            self._access(step, lanes, addresses, set())
        slots = {w.slot for w in step.destinations if w.slot >= 0}
        self._forget(slots & self._slots, lanes)  # loads of a thread complete in order
        self.given.append(AwaitedLoad(step, dict.fromkeys(slots, lanes)))
        self._slots |= slots
        self._watched |= slots

    def _access(self, step: Step, lanes: Array, read: Set[int], written: Set[int]) -> None:
        moves = step.node.opcode == "mov"
        handed_on: list[tuple[AwaitedLoad, Array]] = []
        for one in self.given:
            for slot in sorted(read & one.lanes.keys()):
                both = one.lanes[slot] & lanes
                if not both.any():
                    continue
                if not moves:
                    self._suspect(step, one, slot, both, "reads")
                    continue
                handed_on.append((one, both))
            for slot in sorted((written & one.lanes.keys()) - one.copies):
                if (one.lanes[slot] & lanes).any():
                    self._suspect(step, one, slot, one.lanes[slot] & lanes, "writes")
        self._forget(written, lanes)
        for one, both in handed_on:
            for slot in (w.slot for w in step.destinations if w.slot >= 0):
                one.copies.add(slot)
                one.lanes[slot] = one.lanes.get(slot, np.zeros_like(both)) | both
                self._slots.add(slot)
                self._watched.add(slot)

    def _suspect(self, step: Step, one: AwaitedLoad, slot: int, lanes: Array, verb: str) -> None:
        """An access before the wait: an error, or one if no wait comes in time."""
        source, at = self.frame.program.source, step.node.offset
        block = llvmtext.asm_block(source, at) if self._compiled else -1
        if not self._compiled or (block >= 0 and block == llvmtext.asm_block(source, one.step.node.offset)):
            raise self._refusal(step, one, slot, lanes, verb)
        arithmetic = step.kind in REGISTERS_ONLY
        for other in self.early:
            if other.load is one and other.arithmetic == arithmetic and not (lanes & ~other.lanes).any():
                return
        self.early.append(EarlyAccess(step, one, slot, lanes, verb, arithmetic))
        alone = all(o is one or o.lanes.keys().isdisjoint(one.lanes) for o in self.given)
        if arithmetic and alone and not any((waiting & ~lanes).any() for waiting in _distinct(one.lanes)):
            self._watched -= one.lanes.keys()

    def _refuse_early(self, step: Step, active: Array) -> None:
        """Raise the error of an access for which no wait comes before a branch, an end or a barrier of its thread."""
        ends = step.kind in ("branch", "exit")
        # LLVM moves the wait over asm, which may contain a loop such as that of an mbarrier.
        if llvmtext.in_asm(self.frame.program.source, step.node.offset):
            return
        for one in self.early:
            if (ends or not one.arithmetic) and (one.lanes & active).any():
                raise self._refusal(one.step, one.load, one.slot, one.lanes & active, one.verb)

    def _refusal(self, step: Step, one: AwaitedLoad, slot: int, lanes: Array, verb: str) -> ExecutionError:
        frame, name = self.frame, self.frame.program.registers[slot].name
        text = f"{frame.who(int(np.flatnonzero(lanes)[0]))} {verb} {name}, which the {one.step.bound.spelling} in line "
        text += f"{line_of(frame, one.step)} is still to write: tcgen05.wait::ld must come first"
        return frame.fault(ExecutionError, step, text)

    def _forget(self, slots: Set[int], lanes: Array) -> None:
        """Let lanes wait no more for some registers, which they write anew."""
        for one in self.given:
            for slot in slots & one.lanes.keys():
                one.lanes[slot] = one.lanes[slot] & ~lanes

    def _end(self, lanes: Array) -> None:
        """Complete the loads of lanes that wait."""
        still = [replace(one, lanes=one.lanes & ~lanes) for one in self.early]
        self.early = [one for one in still if one.lanes.any()]
        staying = []
        for one in self.given:
            left = {id(waiting): waiting & ~lanes for waiting in _distinct(one.lanes)}
            left = {number: waiting for number, waiting in left.items() if waiting.any()}
            one.lanes = {slot: left[id(waiting)] for slot, waiting in one.lanes.items() if id(waiting) in left}
            if one.lanes:
                staying.append(one)
        self.given = staying
        self._slots = {slot for one in staying for slot in one.lanes}
        self._watched &= self._slots


def _distinct(lanes: dict[int, Array]) -> list[Array]:
    """The arrays of lanes of some slots, each once: registers of a load have one together."""
    return list({id(waiting): waiting for waiting in lanes.values()}.values())
