"""Trace a block instruction by instruction on one pack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxdiff.emulator.asm_block import assemble, check_options
from ptxdiff.emulator.binding.constraints import bind, constants_of, parse_constraints
from ptxdiff.emulator.binding.contraction import HOPPER
from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import PtxError, only_own
from ptxdiff.emulator.independence import refuse_to_judge
from ptxdiff.emulator.limits import SNIPPET_SECONDS, Deadline
from ptxdiff.emulator.machine.data import DType, Placement, dtype_of, load, store, tensors, width_of
from ptxdiff.emulator.machine.frame import Frame
from ptxdiff.emulator.machine.lockstep import run
from ptxdiff.emulator.machine.special_registers import named_values, refuse_stand_ins
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.text.conventions import spelled
from ptxdiff.emulator.text.lexer import OPERAND


@dataclass(frozen=True)
class TraceLine:
    """One executed instruction: its place, its text, and its registers by name with their bit patterns.

    A pattern is None if any of its bits are undefined. `executed` is False if the guard was false. `offset`: the
    instruction's offset in the text that was parsed.
    """

    line: int
    text: str
    reads: dict[str, int | None]
    writes: dict[str, int | None]
    executed: bool = True
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Trace:
    """The lines of a run on one pack, and its results."""

    lines: tuple[TraceLine, ...]
    outputs: tuple[Array, ...]


@only_own("an asm block")
def trace(
    asm: str,
    constraints: str,
    args: Sequence[Any],
    dtype: DType | Sequence[DType],
    *,
    pack: int = 1,
    target: str = "sm_90a",
    share: Mapping[int, int] | None = None,
    fuse: bool = False,
    approximate: str = HOPPER,
    limit: float | None = SNIPPET_SECONDS,
    special: Mapping[str, Any] | None = None,
    convention: str = "triton",
) -> Trace:
    """Run a block on one pack (`args` of at most `pack` elements) and record every instruction.

    The arguments and the limit of 10 seconds are those of `emulate`. Raises PtxError.
    """
    refuse_to_judge()
    several = isinstance(dtype, (list, tuple))
    wanted = [dtype_of(d) for d in dtype] if several else [dtype_of(dtype)]
    inputs, shape = tensors(args)
    elements = math.prod(shape)
    if elements > pack:
        raise PtxError(f"a trace follows one pack; {elements} elements are more than pack={pack}")
    widths = [width_of(t.dtype) for t in inputs]
    written = spelled(asm, constraints, convention)
    asm, constraints = written.text, written.constraints
    operands = bind(parse_constraints(constraints), widths, [width_of(d) for d in wanted], pack, convention)
    check_options(target=target, order=None, padding=None, share=share, limit=limit, approximate=approximate)
    shared, constants = tuple((share or {}).items()), constants_of(operands, args)
    block = assemble(asm, constraints, target, shared, fuse, constants, approximate)
    placement = Placement.make(elements, pack, None, None)
    named = named_values(special or {}, shape, pack)
    outputs = [np.zeros(elements, UNSIGNED[max(width_of(d), 8)]) for d in wanted]
    recorder = _Recorder()
    deadline = Deadline(limit)

    def follow(trusting: bool) -> None:
        frame = Frame(block.program, 1, deadline=deadline)
        frame.named, frame.trusts_stand_ins = named, trusting
        for operand, slot in zip(operands, block.slots, strict=True):
            if not operand.output and slot >= 0:
                load(frame, slot, operand, inputs[operand.tensor], placement, 0)
        recorder.lines.clear()
        run(block.program, frame, recorder)
        for operand, slot in zip(operands, block.slots, strict=True):
            if operand.output:
                store(frame, slot, operand, outputs[operand.tensor], placement, 0)

    refuse_stand_ins(block.program, named, follow)
    results = tuple(o.view(d).reshape(shape) for o, d in zip(outputs, wanted, strict=True))
    return Trace(tuple(recorder.lines), results)


@dataclass
class _Recorder:
    """Observes a machine of one lane."""

    lines: list[TraceLine] = field(default_factory=list)
    before: dict[str, int | None] = field(default_factory=dict)

    def enter(self, frame: Frame, step: Step) -> None:
        """Record the registers that the instruction will read."""
        slots = [r.slot for r in step.sources if r.slot >= 0] + ([step.guard] if step.guard >= 0 else [])
        self.before = {_name(frame, s): _pattern(frame, s) for s in slots}

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """Record the registers that it wrote."""
        line, _ = frame.program.source.position(step.node.offset)
        written = {_name(frame, w.slot): _pattern(frame, w.slot) for w in step.destinations if w.slot >= 0}
        text = frame.program.source.statement(step.node.offset)
        if step.guard >= 0:
            text = f"@{'!' if step.guard_negated else ''}{_name(frame, step.guard)} {text}"
        writes = written if executed else {}
        self.lines.append(TraceLine(line, text, self.before, writes, executed, step.node.offset))


def _name(frame: Frame, slot: int) -> str:
    return frame.program.registers[slot].name.replace(OPERAND, "$")


def _pattern(frame: Frame, slot: int) -> int | None:
    value = frame.values[slot]
    if value is None or frame.undefined[slot] is not None:
        return None
    return int(value[0])
