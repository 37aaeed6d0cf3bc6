"""The lockstep machine: every register is an array over lanes, every instruction runs on all of them at once.

A lane is an element (or pack) of an asm block, or a thread of a kernel. Where lanes diverge, those with the lowest step
number run. Lanes that jumped ahead wait until the others reach them, so that loops and if-else reconverge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ptxdiff.emulator.binding.program import Program, ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, PtxError, TimeLimit, UndefinedBits, unexpected
from ptxdiff.emulator.limits import CHECKED_EVERY
from ptxdiff.emulator.machine.frame import Frame
from ptxdiff.emulator.machine.operations import RUNNERS
from ptxdiff.emulator.numeric.definedness import combined, moved, propagate
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.text.lexer import OPERAND

STEP_LIMIT = 20_000_000
"""Steps after which a program is stopped. Unlike a limit in seconds, this gives the same outcome on every machine."""


class Observer(Protocol):
    """An object that is called before and after every instruction."""

    def enter(self, frame: Frame, step: Step) -> None:
        """Called before a step."""

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """Called after a step; `executed`: whether any lane ran it."""


def run(program: Program, frame: Frame, observer: Observer | None = None) -> None:
    """Execute the program to its end. Raises ExecutionError or a subclass, with the instruction's place."""
    if frame.deadline.passed:
        # Earlier lanes may have used up the time, and these may run too few steps to check the clock.
        offset = program.steps[0].node.offset if program.steps else 0
        raise program.source.error(TimeLimit, frame.deadline.words, offset)
    if not program.branches and observer is None:
        _straight(program, frame)
    else:
        Scheduler(program, frame, observer).run()


def _straight(program: Program, frame: Frame) -> None:
    steps = program.steps
    step = None
    try:
        for first in range(0, len(steps), CHECKED_EVERY):
            if frame.deadline.passed:
                raise program.source.error(TimeLimit, frame.deadline.words, steps[first].node.offset)
            for step in steps[first : first + CHECKED_EVERY]:
                execute(frame, step, None)
    except PtxError:
        raise
    except Exception as error:
        raise internal(program, step, error) from error


def internal(program: Program, step: Step | None, error: Exception) -> PtxError:
    """The InternalError for a fault of the emulator at a step."""
    fault = unexpected(error, "running this instruction")
    return program.source.error(type(fault), fault.message, step.node.offset) if step else fault


def execute(frame: Frame, step: Step, active: Array | None) -> bool:
    """Execute one step in the active lanes; returns False if its guard was false in all of them."""
    if step.guard >= 0:
        active, doubtful = guarded(frame, step, active)
        if active is not None and not active.any():
            if doubtful is not None:
                _taint(frame, step, doubtful)
            return False
    else:
        doubtful = None
    runner = RUNNERS.get(step.kind)
    if runner is not None:
        runner(frame, step, active)
    else:
        _scalar(frame, step, active)
    if doubtful is not None:
        _taint(frame, step, doubtful)
    return True


def guarded(frame: Frame, step: Step, active: Array | None) -> tuple[Array | None, Array | None]:
    """The active lanes whose guard is true (None: all), and the lanes whose guard is undefined (None: none)."""
    value, undefined = frame.read(ReadSlot(step.guard, 1, negated=step.guard_negated))
    holds = value.view(np.bool_)
    doubtful = None
    if undefined is not None and undefined.any():
        doubtful = np.broadcast_to(undefined.astype(np.bool_), holds.shape)
        if active is not None:
            doubtful = doubtful & active
    if active is not None:
        return holds & active, doubtful
    return (None if holds.all() else holds), doubtful


def _scalar(frame: Frame, step: Step, active: Array | None) -> None:
    arguments = [frame.read(r) for r in step.sources]
    values = [a for a, _ in arguments]
    masks = [u for _, u in arguments]
    known = all(u is None for u in masks)
    results = []
    for number, (function, writer) in enumerate(zip(step.functions, step.destinations, strict=True)):
        value = function(frame.lanes, *values)
        undefined = None if known else _undefined(step, number, values, masks, value)
        results.append((writer, value, undefined))
    for writer, value, undefined in results:
        frame.write(writer, value, undefined, active)


def _undefined(step: Step, number: int, values: list[Array], masks: list[Any], value: Array) -> Array:
    form = step.bound.form
    if isinstance(form.undefined, str) and form.undefined.startswith("moves"):
        names = [*(s.name for s in form.sources), *form.reads]
        return moved(names, step.functions[number], form.undefined, values, masks)
    if form.undefined == "logic":
        return combined(step.functions[number], values, masks, value)
    return propagate(form.undefined, values, masks, value, number)


def _taint(frame: Frame, step: Step, doubtful: Array) -> None:
    """Mark the results of an instruction as undefined in the lanes whose guard is undefined."""
    if not doubtful.any():
        return
    frame.under_doubt(step, doubtful)
    for writer in step.destinations:
        kind: Any = UNSIGNED[writer.width]
        ones = kind(1 if writer.width == 1 else (1 << writer.width) - 1)
        for slot in (writer.slot, writer.upper):
            if slot >= 0:
                old: Any = frame.undefined[slot]
                frame.undefined[slot] = np.where(doubtful, ones, kind(0) if old is None else old)


class Scheduler:
    """Runs a program with branches: the lanes with the lowest step number go first.

    Lanes that jump back again and again may wait for others (as at a lock). They then rest until every other lane has
    ended, waits, or rests too, so that no lane starves another.
    """

    patience = 1 << 60
    """Jumps back after which lanes rest."""
    weights: Mapping[int, int] = {}
    """By the number of a branch's step, as how many jumps back one of its jumps counts; others count as one."""
    watch: Callable[[Step, Array], None] | None = None
    """Called before every step with the lanes that reach it, before its guard is applied."""

    def __init__(self, program: Program, frame: Frame, observer: Observer | None = None) -> None:
        self.program = program
        self.frame = frame
        self.observer = observer
        self.waiting: dict[int, Array] = {}
        self.resting: dict[int, Array] = {}
        """Lanes that have jumped back so often that all others run first, by their next step."""
        self.lane_steps = 0
        self._jumps_back = 0
        self._budget = STEP_LIMIT
        self._begun = False

    def left(self, lanes: Array) -> None:
        """Called with lanes that have left the program."""

    def block(self, step: Step, at: int, active: Array) -> tuple[int, Array | None]:
        """Called for a step at which lanes may have to wait for others.

        Returns the next step and the lanes that go on with it; None: all wait.
        """
        raise NotImplementedError

    def release(self) -> bool:
        """Called when no lane can go on; returns whether some waiting lanes now can."""
        return self.resume()

    def resume(self) -> bool:
        """Let all resting lanes go on; returns whether there are any."""
        resting, self.resting = self.resting, {}
        for at, lanes in resting.items():
            self._park(at, lanes)
        return bool(resting)

    def run(self) -> None:
        """Run until every lane has left the program, or `release` says that none goes on now; a later call continues.

        Raises ExecutionError or a subclass.
        """
        self.step: Step | None = None
        try:
            self._run()
        except PtxError:
            raise
        except Exception as error:
            raise internal(self.program, self.step, error) from error

    def _run(self) -> None:
        steps = self.program.steps
        frame = self.frame
        at: int = 0
        active: Array | None = None if self._begun else np.ones(frame.lanes, np.bool_)
        self._begun = True
        whole, count = True, frame.lanes
        budget = self._budget
        while True:
            if self.waiting or self._jumps_back > self.patience:
                group = active
                at, active = self._next(at, active)
                if active is not None and active is not group:
                    count = int(np.count_nonzero(active))
                    whole = count == frame.lanes
            if active is None:
                if self.waiting or self.release():
                    continue
                self._budget = budget
                return
            if at >= len(steps):
                self.left(active)
                active = None
                continue
            step = self.step = steps[at]
            self.lane_steps += count
            budget -= 1
            if budget % CHECKED_EVERY == 0 and (budget < 0 or frame.deadline.passed):
                raise self._too_long(step)
            if self.watch is not None:
                self.watch(step, active)
            if self.observer is not None:
                self.observer.enter(frame, step)
            waits = step.bound.form.facts.waits
            if waits or step.kind in ("branch", "exit"):
                before = at
                move = self.block if waits else self._jump
                at, active = move(step, at, active)
                executed = step.guard < 0 or at != before + 1 or active is None
                count = 0 if active is None else int(np.count_nonzero(active))
                whole = count == frame.lanes
            else:
                executed = execute(frame, step, None if whole else active)
                at += 1
            if self.observer is not None:
                self.observer.leave(frame, step, executed)

    def _next(self, at: int, active: Array | None) -> tuple[int, Array | None]:
        """The next step and the lanes that run it: the lowest step, with all lanes that wait there."""
        if active is not None and self._jumps_back > self.patience:
            old = self.resting.get(at)
            self.resting[at] = active if old is None else old | active
            self._jumps_back, active = 0, None  # not at a barrier, which a loop that waits may contain
        if active is None:
            if not self.waiting:
                return at, None
            lowest = min(self.waiting)
            return lowest, self.waiting.pop(lowest)
        lowest = min(self.waiting)
        if lowest > at:
            return at, active
        other = self.waiting.pop(lowest)
        if lowest == at:
            return at, active | other
        self._park(at, active)
        return lowest, other

    def _park(self, at: int, lanes: Array) -> None:
        old = self.waiting.get(at)
        self.waiting[at] = lanes if old is None else old | lanes

    def _jump(self, step: Step, at: int, active: Array) -> tuple[int, Array | None]:
        taken: Array = active
        if step.guard >= 0:
            held, doubtful = guarded(self.frame, step, active)
            if doubtful is not None and doubtful.any():
                lane = int(np.flatnonzero(doubtful)[0])
                raise self._error(UndefinedBits, step, f"the branch depends on undefined bits (first in lane {lane})")
            taken = active if held is None else held
        stay = active & ~taken
        if step.kind == "exit":
            self.left(taken)
        elif taken.any():
            if step.target <= at:
                self._jumps_back += self.weights.get(at, 1)
            if not stay.any():
                return step.target, taken
            self._park(step.target, taken)
        return at + 1, (stay if stay.any() else None)

    def _too_long(self, step: Step) -> ExecutionError:
        if self.frame.deadline.passed:
            return self._error(TimeLimit, step, self.frame.deadline.words)
        return self._error(ExecutionError, step, f"still running after {STEP_LIMIT} steps: an endless loop?")

    def _error(self, kind: type[ExecutionError], step: Step, message: str) -> ExecutionError:
        return self.program.source.error(kind, message, step.node.offset)


# Find where undefined bits come from -------------------------------------------------------------------------------
#
# One invocation runs again, to find the instruction that first reads them.


@dataclass(frozen=True)
class _Executed:
    """An executed step: the registers that it wrote, and the registers with undefined bits that it read."""

    step: Step
    ran: bool
    writes: frozenset[int]
    doubtful: tuple[int, ...]


@dataclass
class _Steps:
    """Observes a frame of one lane."""

    steps: list[_Executed] = field(default_factory=list)
    doubtful: tuple[int, ...] = ()

    def enter(self, frame: Frame, step: Step) -> None:
        """Record which sources have undefined bits."""
        slots = [r.slot for r in step.sources if r.slot >= 0] + ([step.guard] if step.guard >= 0 else [])
        self.doubtful = tuple(s for s in slots if frame.values[s] is None or frame.undefined[s] is not None)

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """Record what the step wrote, or would have written had its guard been true."""
        writes = frozenset(w.slot for w in step.destinations if w.slot >= 0)
        self.steps.append(_Executed(step, executed, writes, self.doubtful))


def traced_back(error: UndefinedBits, program: Program, frame: Frame, slot: int) -> UndefinedBits:
    """The error, moved to the instruction that brings undefined bits into register `slot`.

    frame: one lane with loaded inputs, not yet run. The search goes from the register to the last step that wrote it,
    from there to a register with undefined bits that this step read, and so on to a register that no step wrote.
    """
    observed = _Steps()
    try:
        run(program, frame, observed)
    except PtxError:  # the single invocation ends with another error: keep the first
        return error
    blamed: _Executed | None = None
    skipped: _Executed | None = None
    for done in reversed(observed.steps):
        if slot not in done.writes:
            continue
        if not done.ran:
            skipped = skipped or done
        elif not done.doubtful:
            blamed, skipped = done, None  # this instruction leaves bits undefined
            break
        else:
            blamed, skipped, slot = done, None, done.doubtful[0]
    at = blamed or skipped
    if at is None:
        return error
    reason = _reason(program, slot, blamed)
    if skipped is not None:
        line, _ = program.source.position(skipped.step.node.offset)
        where = "this instruction" if blamed is None else f"line {line}"
        reason += f"; {where} would write {_name(program, slot)}, but its predicate is false"
    found = program.source.error(UndefinedBits, error.message + reason, at.step.node.offset)
    found.element, found.output, found.lane = error.element, error.output, error.lane
    return found


def _reason(program: Program, slot: int, blamed: _Executed | None) -> str:
    if blamed is None or not blamed.doubtful:
        return ""
    name = _name(program, slot)
    if name.startswith("$"):
        why = "whose register is partly undefined: the bits past its elements, or the padding of a partial pack"
        return f"; this instruction reads {name}, {why}"
    return f"; this instruction reads {name}, which no earlier instruction defines"


def _name(program: Program, slot: int) -> str:
    return program.registers[slot].name.replace(OPERAND, "$")
