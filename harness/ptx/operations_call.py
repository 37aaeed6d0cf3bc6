"""Calls of functions: their bodies are put in the place of the call, and .param variables are registers.

PTX passes arguments through variables in .param memory, of which each byte range is written and read by one spelling;
a register for each range is the same thing. What the CUDA runtime does (prints, failed assertions) is built in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .errors import ExecutionError, NotElementwise, OperandError
from .isa.registry import Bound
from .kernelframe import KernelFrame
from .nodes import Address, Declaration, Function, Instruction, Name, Operand, Vector
from .operations import binds, runs
from .program import Builder, Reader, Register, Scope, Step
from .types import TYPES
from .vectorise import Array

if TYPE_CHECKING:
    from .kernel import KernelBuilder

__all__ = ["called", "inlined", "param_register", "returning"]

RUNTIME = ("vprintf", "__assertfail")
"""Functions of the CUDA runtime that kernels with prints and assertions call."""

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
    message = builder.scope.variable(_names(node)[-1][0].text) if _names(node)[-1] else None
    slot = None if message is None else _slot(builder, message, 0, 64)  # type: ignore[arg-type]
    return Step("call", node, bound, () if slot is None else (Reader(slot.slot, 64),), detail=name.text)


@runs("call")
def _run_call(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """A print prints nothing; a failed assertion stops the kernel."""
    if step.detail != "__assertfail":
        return
    lane = 0 if active is None else int(np.flatnonzero(active)[0])
    text = ""
    if step.sources:
        addresses, undefined = frame.read(step.sources[0])
        if undefined is None or not np.broadcast_to(undefined, addresses.shape)[lane]:
            text = f": {frame.launch.memory.text(int(addresses[lane]))}"
    raise frame.fault(ExecutionError, step, f"a device assertion failed in {frame.who(lane)}{text}")


def called(node: Instruction) -> Name | None:
    """The name that a call goes to; None for a call through a register."""
    return next((o for o in node.operands if isinstance(o, Name)), None)


def _names(node: Instruction) -> list[list[Name]]:
    """What a call passes: the results and the arguments, each a list of names."""
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
    builder.add(function.body)
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
