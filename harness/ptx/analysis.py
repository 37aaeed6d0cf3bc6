"""What can be said about an asm block without running it, and a trace of it running on one pack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from .api import assemble, check_options
from .binding import bind, constants_of, parse_constraints
from .contraction import contraction_open
from .data import DType, Placement, dtype_of, load, store, tensors, width_of
from .errors import InputWritten, PtxError, only_own
from .lexer import OPERAND
from .limits import SNIPPET_SECONDS, Deadline
from .machine import Frame, run
from .operands import check_inputs
from .parser import parse_asm
from .program import Program, Step
from .standins import named_values, refuse_stand_ins
from .vectorise import UNSIGNED, Array


@dataclass(frozen=True)
class Analysis:
    """Facts about a block: the instruction forms in it, by full spelling in the ISA's order, without repetition.

    `approximate` are those whose result here is a model; `contraction_open`: whether ptxas may fuse a product
    with a sum, so that the result depends on the assembler.
    """

    forms: tuple[str, ...]
    approximate: tuple[str, ...]
    contraction_open: bool


@only_own("an asm block")
def analyse(asm: str, constraints: str, *, target: str | None = None) -> Analysis:
    """Parse and check a block and say what is in it. Raises PtxError as `emulate` would (target None: any)."""
    return describe(assemble(asm, constraints, target).program)


def describe(program: Program) -> Analysis:
    """What is in a program."""
    forms = dict.fromkeys(s.bound.name for s in program.steps)
    models = dict.fromkeys(s.bound.name for s in program.steps if s.bound.form.approximate)
    return Analysis(tuple(forms), tuple(models), contraction_open(program))


@lru_cache(maxsize=512)
def program_text(asm: str, constraints: str, target: str) -> str:
    """The block as the machine has it: every instruction bound to a form, registers in the place of names.

    Blocks of equal text compute the same from the same operands, on whatever target. Raises PtxError.
    """
    block = assemble(asm, constraints, target)
    lines = [f"slots {block.slots} registers {[(r.slot, r.type.name) for r in block.program.registers]}"]
    for step in block.program.steps:
        functions = [(f.constants, f.sources, f.width) for f in step.functions]
        lines.append(
            f"{step.kind} {step.bound.name} {step.bound.chosen} {step.bound.selected} {functions} "
            f"{step.sources} {step.destinations} {step.target} {step.detail!r} {step.guard} {step.guard_negated}"
        )
    text = "\n".join(lines)
    return f"{text}\n{target}\n{asm}" if " object at 0x" in text else text  # an address is nothing to compare


def refusal(asm: str, constraints: str, target: str) -> str | None:
    """Why the block cannot be used on `target`, in one message, or None if it can."""
    try:
        analyse(asm, constraints, target=target)
    except PtxError as error:
        return str(error)
    return None


def written_input(asm: str, constraints: str) -> str | None:
    """How the block writes an operand that is an input, in one message, or None where it writes none.

    It needs no target and covers instructions that `emulate` cannot run. None too where text or constraints cannot be
    read: `refusal` tells that.
    """
    try:
        parsed = parse_constraints(constraints)
        check_inputs(*parse_asm(asm, len(parsed)), parsed)
    except InputWritten as error:
        return str(error)
    except PtxError:
        return None
    return None


@dataclass(frozen=True)
class TraceLine:
    """One executed instruction: its place, its text, and registers by name with their bit patterns.

    A pattern is None where bits are undefined. `executed` is False where the guard kept it from running.
    """

    line: int
    text: str
    reads: dict[str, int | None]
    writes: dict[str, int | None]
    executed: bool = True


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
    limit: float | None = SNIPPET_SECONDS,
    special: Mapping[str, Any] | None = None,
) -> Trace:
    """Run a block on one pack (`args` of at most `pack` elements) and record every instruction.

    The arguments are those of `emulate`, the limit of 10 seconds included. Raises PtxError.
    """
    several = isinstance(dtype, (list, tuple))
    wanted = [dtype_of(d) for d in dtype] if several else [dtype_of(dtype)]
    inputs, shape = tensors(args)
    elements = math.prod(shape)
    if elements > pack:
        raise PtxError(f"a trace follows one pack; {elements} elements are more than pack={pack}")
    widths = [width_of(t.dtype) for t in inputs]
    operands = bind(parse_constraints(constraints), widths, [width_of(d) for d in wanted], pack)
    check_options(target=target, order=None, padding=None, share=share, limit=limit)
    block = assemble(asm, constraints, target, tuple((share or {}).items()), fuse, constants_of(operands, args))
    placement = Placement.make(elements, pack, None, None)
    named = named_values(special or {}, shape, pack)
    outputs = [np.zeros(elements, UNSIGNED[max(width_of(d), 8)]) for d in wanted]
    recorder = _Recorder()

    def follow(trusting: bool) -> None:
        frame = Frame(block.program, 1, deadline=Deadline(limit))
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
        """Note what the instruction will read."""
        slots = [r.slot for r in step.sources if r.slot >= 0] + ([step.guard] if step.guard >= 0 else [])
        self.before = {_name(frame, s): _pattern(frame, s) for s in slots}

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """Note what it wrote."""
        line, _ = frame.program.source.position(step.node.offset)
        written = {_name(frame, w.slot): _pattern(frame, w.slot) for w in step.destinations if w.slot >= 0}
        text = frame.program.source.statement(step.node.offset)
        if step.guard >= 0:
            text = f"@{'!' if step.guard_negated else ''}{_name(frame, step.guard)} {text}"
        self.lines.append(TraceLine(line, text, self.before, written if executed else {}, executed))


def _name(frame: Frame, slot: int) -> str:
    return frame.program.registers[slot].name.replace(OPERAND, "$")


def _pattern(frame: Frame, slot: int) -> int | None:
    value = frame.values[slot]
    if value is None or frame.undefined[slot] is not None:
        return None
    return int(value[0])
