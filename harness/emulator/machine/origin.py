"""Find where undefined bits come from: one invocation runs again, to find the instruction that first reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxdiff.emulator.binding.program import Program, Step
from ptxdiff.emulator.errors import PtxError, UndefinedBits
from ptxdiff.emulator.machine.frame import Frame
from ptxdiff.emulator.machine.lockstep import run
from ptxdiff.emulator.text.lexer import OPERAND


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
    words = _reason(program, slot, blamed)
    if skipped is not None:
        line, _ = program.source.position(skipped.step.node.offset)
        where = "this instruction" if blamed is None else f"line {line}"
        words += f"; {where} would write {_name(program, slot)}, but its predicate is false"
    found = program.source.error(UndefinedBits, error.message + words, at.step.node.offset)
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
