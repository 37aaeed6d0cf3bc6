"""Inline asm blocks: run one on numpy arrays, as `tl.inline_asm_elementwise` does on tensors, trace it, describe it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ptxdiff.emulator.binding import operations
from ptxdiff.emulator.binding.builder import Builder
from ptxdiff.emulator.binding.constraints import (
    REGISTER_WIDTH,
    AsmOperand,
    Constraint,
    bind,
    check_inputs,
    check_repeated,
    constants_of,
    parse_constraints,
)
from ptxdiff.emulator.binding.contents import Analysis, describe
from ptxdiff.emulator.binding.contraction import APPROXIMATE, HOPPER, ROUNDED, fused, rounded
from ptxdiff.emulator.binding.program import Program, Step
from ptxdiff.emulator.errors import BindingError, DeclaredOutside, InputWritten, PtxError, UndefinedBits, only_own
from ptxdiff.emulator.independence import refuse_to_judge
from ptxdiff.emulator.limits import SNIPPET_SECONDS, Deadline, lanes_together
from ptxdiff.emulator.machine.data import Argument, DType, Placement, by_lane, dtype_of, load, store, tensors, width_of
from ptxdiff.emulator.machine.frame import Constants, Frame
from ptxdiff.emulator.machine.lockstep import run, traced_back
from ptxdiff.emulator.machine.parallel import for_each
from ptxdiff.emulator.machine.special_registers import named_values, refuse_stand_ins
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.targets import AnyTarget, ByAnswers, Target
from ptxdiff.emulator.text.conventions import spelled
from ptxdiff.emulator.text.lexer import OPERAND
from ptxdiff.emulator.text.nodes import CodeBlock, Source
from ptxdiff.emulator.text.parser import parse_asm
from ptxdiff.emulator.text.types import TYPES
from ptxdiff.suggestions import known_keywords

CHUNK = 1 << 14
"""Lanes of one piece of work: few enough that their registers stay in a core's cache."""

Share = tuple[tuple[int, int], ...]

_LOADED = (operations,)
"""Modules that register the binders for operations of asm blocks."""


@known_keywords()
@only_own("an asm block")
def emulate(
    asm: str,
    constraints: str,
    args: Sequence[Any],
    dtype: DType | Sequence[DType],
    *,
    pack: int = 1,
    target: str = "sm_90a",
    order: int | None = None,
    padding: int | None = None,
    share: Mapping[int, int] | None = None,
    fuse: bool = False,
    approximate: str = HOPPER,
    limit: float | None = SNIPPET_SECONDS,
    special: Mapping[str, Any] | None = None,
    convention: str = "triton",
) -> Array | tuple[Array, ...]:
    """Run `asm` on every element of the arguments, `pack` elements in each invocation.

    `constraints`, `args`, `dtype` and `pack` are those of `tl.inline_asm_elementwise`: the arguments broadcast against
    each other and may be Python numbers. A partial pack is padded. Empty arrays give an empty array, and no arguments
    give a 0-dimensional one. Inputs and outputs are not converted. The result is one array, or a tuple of arrays if
    `dtype` is a sequence. dtypes are numpy's, ml_dtypes' or Triton's, or their names. An operand under constraint `n`
    or `i` is a Python int, which replaces `$n` in the text, as Triton's constants do.

    `target`: refuse instructions that this GPU does not have. `order`: a seed that shuffles which elements share a pack
    (None: consecutive ones). `padding`: a seed for the bits in a partial pack and in the unused part of a register;
    None leaves them undefined, and undefined bits that reach a result are an error. `share`: a mapping from output to
    input operand numbers that get one register, as LLVM may choose for an output without early clobber. `fuse`:
    evaluate a multiplication without rounding modifier and the addition that uses it as one fma, as ptxas may.
    `approximate`: the bits of approximate instructions: "hopper", those of a Hopper GPU (for every target, because no
    other GPU's are known), or "rounded", the true value rounded to nearest. `limit`: seconds that the whole call may
    run, 10 by default. A program that still runs then, such as an endless loop, raises TimeLimit with its current line.
    Compiling the definition of an instruction (once on each machine) does not count. Allow more for very many elements
    (2**24 take about 0.1 s for each instruction); None: no limit. `special`: values of special registers, such as
    {"%laneid": 3}: an integer, or with pack=1 an array that broadcasts against the arguments. A result that depends on
    a special register without a value is refused. `convention`: how the block is written. "triton": `$0`, and a
    register holds several elements of less than 32 bits. "llvm", that of `llvm.inline_asm` in MLIR: `$0`, and an
    operand holds one element, or as many as fill its register, as the number of operands implies. "cuda", an asm
    statement of CUDA C++: `%0`, otherwise as "llvm"; see `ptxdiff.emulator.text.conventions.spelled`. Messages show the
    text with `$0`.

    Raises PtxError (see `ptxdiff.emulator.errors`), and nothing else.
    """
    several = isinstance(dtype, (list, tuple))
    wanted = [dtype_of(d) for d in dtype] if several else [dtype_of(dtype)]
    if not wanted:
        raise BindingError("an asm block returns at least one tensor; dtype is empty")
    refuse_to_judge()
    inputs, shape = tensors(args)
    written = spelled(asm, constraints, convention)
    asm, constraints = written.text, written.constraints
    parsed = parse_constraints(constraints)
    operands = bind(parsed, [width_of(t.dtype) for t in inputs], [width_of(d) for d in wanted], pack, convention)
    check_options(target=target, order=order, padding=padding, share=share, limit=limit, approximate=approximate)
    shared, constants = tuple((share or {}).items()), constants_of(operands, args)
    block = assemble(asm, constraints, target, shared, fuse, constants, approximate)
    placement = Placement.make(math.prod(shape), pack, order, padding)
    outputs = [np.zeros(placement.elements, UNSIGNED[max(width_of(d), 8)]) for d in wanted]
    named = named_values(special or {}, shape, pack)

    deadline = Deadline(limit)

    def run_all(trusting: bool) -> None:
        _run_chunks(block, operands, inputs, outputs, placement, deadline, named, trusting)

    refuse_stand_ins(block.program, named, run_all)
    results = tuple(o.view(d).reshape(shape) for o, d in zip(outputs, wanted, strict=True))
    return results if several else results[0]


@dataclass(frozen=True)
class AsmBlock:
    """A checked block: its program and the register slot of each operand."""

    program: Program
    slots: tuple[int, ...]


@lru_cache(maxsize=512)
def assemble(
    asm: str,
    constraints: str,
    target: str | None,
    share: Share = (),
    fuse: bool = False,
    constants: tuple[tuple[int, int], ...] = (),
    approximate: str = HOPPER,
) -> AsmBlock:
    """Parse and check an asm block for a target (None: any). Raises PtxError.

    `approximate`: as `emulate` has it. `constants`: number and value of each operand under constraint `n` or `i`.
    """
    parsed = parse_constraints(constraints)
    values = dict(constants)
    for number, constraint in enumerate(parsed):
        if constraint.immediate and number not in values:
            raise BindingError(
                f"constraint {constraint.text!r}: ${number} is a compile-time constant, and a tensor never is one"
            )
    if target is None:
        return _bound(asm, constraints, None, share, fuse, constants, approximate)
    key = (asm, constraints, share, fuse, constants, approximate)
    block, _ = _blocks.get(key, Target.parse(target), lambda asked: _bound(asm, constraints, asked, *key[2:]))
    return block


_blocks: ByAnswers[AsmBlock] = ByAnswers(512)


def _bound(
    asm: str,
    constraints: str,
    target: AnyTarget | None,
    share: Share,
    fuse: bool,
    constants: tuple[tuple[int, int], ...],
    approximate: str,
) -> AsmBlock:
    parsed = parse_constraints(constraints)
    tree, source = _parsed(asm, len(parsed), constants)
    builder = Builder(source, target, elementwise=True)
    slots = _allot(builder, parsed, dict(share))
    program = builder.built(tree)
    check_inputs(tree, source, parsed)
    if fuse:
        program = fused(program)
    if approximate == ROUNDED:
        program = rounded(program)
    return AsmBlock(program, slots)


@lru_cache(maxsize=256)
def _parsed(asm: str, operands: int, constants: tuple[tuple[int, int], ...]) -> tuple[CodeBlock, Source]:
    """See `parse_asm`. No later step changes the tree, so all targets share it."""
    return parse_asm(asm, operands, dict(constants))


def _allot(builder: Builder, constraints: Sequence[Constraint], share: Mapping[int, int]) -> tuple[int, ...]:
    """Give each operand a register; tied and shared operands get the same one."""
    partner = {n: c.tied for n, c in enumerate(constraints) if c.tied is not None}
    for output, source in share.items():
        _check_share(constraints, output, source)
        partner[source] = output
    slots: list[int] = []
    for number, constraint in enumerate(constraints):
        if constraint.immediate:
            slots.append(-1)
            continue
        width = REGISTER_WIDTH[constraint.letter]
        kind = TYPES["pred" if width == 1 else f"b{width}"]
        other = partner.get(number)
        register = builder.registers[slots[other]] if other is not None else builder.new_register(f"${number}", kind)
        builder.declare_operand(number, register)
        slots.append(register.slot)
    return tuple(slots)


def _check_share(constraints: Sequence[Constraint], output: int, source: int) -> None:
    count = len(constraints)
    if not (
        0 <= output < count and constraints[output].output and 0 <= source < count and not constraints[source].output
    ):
        raise BindingError(f"share={{{output}: {source}}} must map an output operand to an input operand")
    if constraints[output].early:
        raise BindingError(f"output ${output} is an early clobber ('=&'), so it never shares a register with an input")
    if REGISTER_WIDTH[constraints[output].letter] != REGISTER_WIDTH.get(constraints[source].letter):
        raise BindingError(f"operands ${output} and ${source} have registers of different sizes")


def _run_chunks(
    block: AsmBlock,
    operands: Sequence[AsmOperand],
    inputs: Sequence[Argument],
    outputs: Sequence[Array],
    placement: Placement,
    deadline: Deadline,
    named: Mapping[str, Array],
    trusting: bool,
) -> None:
    constants: Constants = {}
    together = lanes_together(CHUNK, len(block.program.registers), len(block.program.steps))
    deadline.begin(placement.lanes, "invocations")
    registers = {name: Argument(values, values.dtype, values.size == 1) for name, values in named.items()}

    def loaded(start: int, stop: int, due: Deadline) -> Frame:
        frame = Frame(block.program, stop - start, constants, due)
        frame.named = {name: by_lane(tensor, placement, start, stop) for name, tensor in registers.items()}
        frame.trusts_stand_ins = trusting
        for operand, slot in zip(operands, block.slots, strict=True):
            if not operand.output and slot >= 0:
                load(frame, slot, operand, inputs[operand.tensor], placement, start)
        return frame

    def chunk(start: int) -> None:
        frame = loaded(start, min(start + together, placement.lanes), deadline)
        run(block.program, frame)
        for operand, slot in zip(operands, block.slots, strict=True):
            if operand.output:
                try:
                    store(frame, slot, operand, outputs[operand.tensor], placement, start)
                except UndefinedBits as error:
                    if error.lane is None:
                        raise
                    alone = loaded(error.lane, error.lane + 1, Deadline(deadline.seconds))
                    raise traced_back(error, block.program, alone, slot) from None
        deadline.done(frame.lanes)

    for_each(chunk, range(0, placement.lanes, together))


def check_options(
    *,
    target: object,
    order: object,
    padding: object,
    share: object,
    limit: object,
    approximate: object,
) -> None:
    """Raise BindingError for an option of the wrong kind."""
    if not isinstance(target, str):
        raise BindingError(f"target={target!r} is no name such as 'sm_90a'")
    for name, seed in (("order", order), ("padding", padding)):
        if seed is not None and (not isinstance(seed, (int, np.integer)) or seed < 0):
            raise BindingError(f"{name}={seed!r} is no seed: give an integer from 0 on, or None")
    if share is not None and not (
        isinstance(share, Mapping) and all(isinstance(n, int) for pair in share.items() for n in pair)
    ):
        raise BindingError(f"share={share!r} is no mapping of operand numbers")
    if limit is not None and not (isinstance(limit, (int, float)) and limit > 0):
        raise BindingError(f"limit={limit!r} is no number of seconds; None sets no limit")
    if approximate not in APPROXIMATE:
        raise BindingError(f"approximate={approximate!r} is none of {', '.join(map(repr, APPROXIMATE))}")


__all__ = ["AsmBlock", "PtxError", "assemble", "emulate"]


# ---- Facts about an asm block that need no run -----------------------------------------------------------------------


@only_own("an asm block")
def analyse(asm: str, constraints: str, *, target: str | None = None) -> Analysis:
    """Parse and check a block, and list its instruction forms. Raises PtxError as `emulate` would (target None:
    any)."""
    return describe(assemble(asm, constraints, target).program)


@lru_cache(maxsize=512)
def program_text(asm: str, constraints: str, target: str) -> str:
    """The block as the machine runs it: every instruction bound to a form, every name replaced by a register.

    Two blocks with equal texts give equal results for equal operands, on every target. Raises PtxError.
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
    return f"{text}\n{target}\n{asm}" if " object at 0x" in text else text  # an object's address differs between runs


def refusal(asm: str, constraints: str, target: str) -> str | None:
    """Why the block cannot be used on `target`, in one message, or None if it can."""
    try:
        analyse(asm, constraints, target=target)
    except PtxError as error:
        return str(error)
    return None


def written_input(asm: str, constraints: str) -> str | None:
    """A message about the first input operand that the block writes, or None if it writes none.

    It needs no target and covers instructions that `emulate` cannot run. It is also None where text or constraints
    cannot be parsed; `refusal` reports those.
    """
    try:
        parsed = parse_constraints(constraints)
        check_inputs(*parse_asm(asm, len(parsed)), parsed)
    except InputWritten as error:
        return str(error)
    except PtxError:
        return None
    return None


def repeated_name(asm: str, constraints: str) -> str | None:
    """A message about the first name that the block declares outside braces, or None if it declares none.

    A kernel can hold such a block only once. Like `written_input`, this needs no target and also gives None where text
    or constraints cannot be parsed.
    """
    try:
        check_repeated(asm, len(parse_constraints(constraints)))
    except DeclaredOutside as error:
        return str(error)
    except PtxError:
        return None
    return None


# ---- Trace a block instruction by instruction on one pack ------------------------------------------------------------


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
