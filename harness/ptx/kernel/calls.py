"""Calls of functions: their bodies are put in the place of the call, and .param variables are registers.

PTX passes arguments through variables in .param memory, of which each byte range is written and read by one spelling;
a register for each range is the same thing. What the CUDA runtime does (prints, failed assertions) is built in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.ptx.binding.program import Builder, Reader, Register, Scope, Step, Writer
from harness.ptx.errors import ExecutionError, NotElementwise, OperandError, TooLarge
from harness.ptx.isa.registry import Bound
from harness.ptx.kernel import printing
from harness.ptx.kernel.frame import Access, KernelFrame
from harness.ptx.machine.operations import binds, runs
from harness.ptx.numeric.vectorise import Array
from harness.ptx.text.nodes import Address, Declaration, Function, Instruction, Name, Operand, Vector
from harness.ptx.text.types import TYPES

if TYPE_CHECKING:
    from harness.ptx.kernel.builder import KernelBuilder

__all__ = ["called", "inlined", "param_register", "returning"]

RUNTIME = {"vprintf": (64, 64), "__assertfail": (64, 64, 32, 64, 64)}
"""Functions of the CUDA runtime that kernels with prints and assertions call, and the widths of their parameters."""

END = "\x02end"
"""The label behind an inlined body; no PTX text can spell it."""


def param_register(builder: KernelBuilder, node: Operand, number: int, width: int) -> Register | None:
    """The register that stands for element `number` of an access to a .param variable; None for a kernel's parameter.

    Raises OperandError where the access lies outside the variable.
    """
    if not isinstance(node, Address) or node.base is None:
        raise builder.error(OperandError, "an argument of a call is named in brackets", node.offset)
    declared = builder.scope.variable(node.base.text)
    if declared is None or declared.space != "param":
        return None
    size, offset = width // 8, node.displacement + number * width // 8
    if not 0 <= offset <= TYPES[declared.type].width // 8 * (declared.size or 1) - size:
        raise builder.error(OperandError, f"{size} bytes lie outside {declared.name}", node.offset)
    return _slot(builder, declared, offset, width)


def _slot(builder: KernelBuilder, declared: Declaration, offset: int, width: int) -> Register:
    key = (id(declared), offset, width)
    if key not in builder.passed:
        builder.passed[key] = builder.new_register(f"{declared.name}+{offset}", TYPES[f"b{width}"])
    return builder.passed[key]


@runs("param_move")
def _run_param_move(frame: KernelFrame, step: Step, active: Array | None) -> None:
    for reader, writer in zip(step.sources, step.destinations, strict=True):
        frame.write(writer, *frame.read(reader), active)


@binds("call")
def _bind_call(builder: Builder, node: Instruction, bound: Bound) -> Step:
    """A call that has no body in the module."""
    name = called(node)
    if name is None or name.text not in RUNTIME:
        text = name.text if name else "an address"
        raise builder.error(
            NotElementwise, f"the emulator has no body for this call, which goes to {text}", node.offset
        )
    results, arguments = _names(node)
    widths = RUNTIME[name.text]
    passed = [builder.scope.variable(a.text) for a in arguments]
    if len(passed) != len(widths) or any(p is None or p.space != "param" for p in passed):
        message = f"{name.text} takes {len(widths)} .param variables"
        raise builder.error(OperandError, message, node.offset)
    slots = [_slot(builder, p, 0, w) for p, w in zip(passed, widths, strict=True) if p is not None]  # type: ignore[arg-type]
    readers = tuple(Reader(s.slot, w) for s, w in zip(slots, widths, strict=True))
    given = builder.scope.variable(results[0].text) if results else None
    writers = () if given is None else (Writer(_slot(builder, given, 0, 32).slot, 32),)  # type: ignore[arg-type]
    return Step("call", node, bound, readers, writers, detail=name.text)


@runs("call")
def _run_call(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """A print goes to standard output; a failed assertion stops the kernel."""
    lanes = frame.every if active is None else np.flatnonzero(active)
    if step.detail == "vprintf":
        _print(frame, step, lanes, active)
        return
    lane = int(lanes[0])
    message, file, line, function = (_passed(frame, reader, lane) for reader in step.sources[:4])
    text = f"a device assertion failed in {frame.who(lane)}"
    if message is not None:
        text += f": {frame.launch.memory.text(message)}"
    if file is not None and line is not None:
        text += f" ({frame.launch.memory.text(file)}:{line}"
        text += f", in {frame.launch.memory.text(function)})" if function is not None else ")"
    raise frame.fault(ExecutionError, step, text)


def _passed(frame: KernelFrame, reader: Reader, lane: int) -> int | None:
    """What one thread passes; None where nobody defined it."""
    value, undefined = frame.read(reader)
    if undefined is not None and np.broadcast_to(undefined, value.shape)[lane]:
        return None
    return int(value[lane])


def _print(frame: KernelFrame, step: Step, lanes: Array, active: Array | None) -> None:
    """Print for each thread, in their order. Threads with the same format load their arguments together."""
    forms, undefined = frame.read(step.sources[0])
    if undefined is not None:
        frame.refuse_undefined(step, np.broadcast_to(undefined, forms.shape)[lanes], lanes, "the format of a print")
    lines: dict[int, str] = {}
    counts = np.zeros(frame.lanes, np.uint32)
    for address in np.unique(forms[lanes]).tolist():
        form = frame.launch.memory.text(address)
        some = lanes[forms[lanes] == address]
        columns = []
        for offset, size in printing.sizes(form):
            access = Access("", offset, 8 * size, 1)
            _, places = frame.locate_lanes(step, step.sources[1], access, some)
            (values,), (mask,) = frame.load(step, access, some, places)
            doubt = [False] * len(some) if mask is None else (mask != 0).tolist()
            columns.append([None if d else v for v, d in zip(values.tolist(), doubt, strict=True)])
        counts[some] = len(columns)
        for number, lane in enumerate(some.tolist()):
            lines[lane] = printing.formatted(form, [c[number] for c in columns], frame.launch.memory.text)
    if not frame.launch.printer.write("".join(lines[lane] for lane in sorted(lines))):
        raise frame.fault(TooLarge, step, f"the kernel prints more than {printing.PRINTED:,} characters")
    for writer in step.destinations:
        frame.write(writer, counts, None, active)


def called(node: Instruction) -> Name | None:
    """The name that a call goes to; None for a call through a register."""
    return next((o for o in node.operands if isinstance(o, Name)), None)


def _names(node: Instruction) -> list[list[Name]]:
    """What a call passes: the results and the arguments, each a list of names."""
    if called(node) is None:
        return [[], []]
    at = next(i for i, o in enumerate(node.operands) if isinstance(o, Name))
    groups = [node.operands[:at], node.operands[at + 1 :]]
    return [[e for o in group if isinstance(o, Vector) for e in o.elements if isinstance(e, Name)] for group in groups]


def inlined(builder: KernelBuilder, node: Instruction, function: Function) -> None:
    """Put a function's body in the place of a call. Raises NotElementwise for a recursive or a guarded call."""
    if function.name in builder.calling:
        raise builder.error(
            NotElementwise, f"{function.name} calls itself, which the emulator does not run", node.offset
        )
    if node.guard is not None:
        raise builder.error(NotElementwise, "the emulator runs no call under a predicate", node.offset)
    assert function.body is not None
    inner = Scope()
    inner.variables |= {v.name: v for v in builder.module.variables}
    results, arguments = _names(node)
    for names, declared in ((results, function.results), (arguments, function.parameters)):
        if len(names) != len(declared):
            text = f"{function.name} takes {len(declared)} here, not {len(names)}"
            raise builder.error(OperandError, text, node.offset)
        for name, parameter in zip(names, declared, strict=True):
            given = builder.scope.variable(name.text)
            if given is None or given.space != "param":
                raise builder.error(OperandError, f"{name.text} is no .param variable", name.offset)
            inner.variables[parameter.name] = given
    outer, builder.scope = builder.scope, inner
    builder.calling.append(function.name)
    builder.nested(function.body)
    builder.calling.pop()
    inner.labels[END] = len(builder.steps)
    builder.scope = outer


def returning(builder: KernelBuilder, step: Step) -> Step:
    """`ret` in an inlined body goes to its end; in the kernel it ends the thread."""
    if not builder.calling or step.node.opcode != "ret":
        return step
    there = Step("branch", step.node, step.bound, guard=step.guard, guard_negated=step.guard_negated)
    builder.jump(there, Name(END, step.node.offset))
    return there
