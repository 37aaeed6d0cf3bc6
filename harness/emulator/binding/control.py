"""Bind branches, and instructions that compute nothing."""

from __future__ import annotations

from ptxdiff.emulator.binding import resolver
from ptxdiff.emulator.binding.builder import Builder, binds, binds_alone, expect
from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import OperandError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.text.nodes import (
    CodeBlock,
    Declaration,
    Guard,
    Immediate,
    Instruction,
    Label,
    Name,
    Operand,
    Statement,
)
from ptxdiff.emulator.text.types import TYPES


@binds("bra")
def _bind_bra(builder: Builder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 1)
    label = node.operands[0]
    if not isinstance(label, Name) or label.negated:
        raise builder.error(OperandError, "bra needs a label", node.offset)
    step = Step("branch", node, bound)
    builder.jump(step, label)
    return step


@binds("brx")
def _bind_brx(builder: Builder, node: Instruction, bound: Bound) -> Step:
    """A comparison and a branch for each target. An index past the last target, which the ISA leaves undefined, falls
    through."""
    expect(builder, node, 2)
    index, table = node.operands
    targets = builder.scope.branch_targets(table.text) if isinstance(table, Name) and not table.negated else None
    if targets is None or resolver.is_special(index):
        raise builder.error(
            OperandError, f"{node.spelling} takes a register and a label of .branchtargets", node.offset
        )
    met, end, at = Name("(met)", node.offset), Name("(end)", node.offset), (node.offset, node.location)
    parts: list[Statement] = [Declaration("reg", "pred", met.text, node.offset)]
    if node.guard is not None:
        over = Guard(node.guard.register, not node.guard.negated)
        parts.append(Instruction("bra", (), [end], over, *at))
    for number, target in enumerate(targets):
        compared: list[Operand] = [met, index, Immediate(number, node.offset)]
        parts.append(Instruction("setp", ("eq", "u32"), compared, None, *at))
        parts.append(Instruction("bra", (), [target], Guard(met, False), *at))
    builder.add(CodeBlock([CodeBlock([*parts, Label(end.text, node.offset)], node.offset)], node.offset))
    return Step("nothing", node, bound)


binds_alone("exit")


_EVENTS = {"pmevent": 15, "pmevent.mask": 0xFFFF}
"""Instructions that take a constant, each with the largest allowed value."""


@binds("nothing")
def _bind_nothing(builder: Builder, node: Instruction, bound: Bound) -> Step:
    """Bind an instruction without effect: nanosleep takes a time, pmevent the number of an event or a mask of
    events."""
    expect(builder, node, 1)
    what, most = node.operands[0], _EVENTS.get(bound.spelling)
    if most is None:
        builder.read(what, TYPES["u32"], False, f"operand of {bound.spelling}")
    elif not isinstance(what, Immediate) or isinstance(what.value, float) or not 0 <= what.value <= most:
        raise builder.error(OperandError, f"{bound.spelling} takes a constant from 0 to {most}", node.offset)
    return Step("nothing", node, bound)


@binds("kept")
def _bind_kept(builder: Builder, node: Instruction, bound: Bound) -> Step:
    """Bind an instruction for which ptxas generates no code after its checks: the destination keeps its value."""
    builder.operands(node, bound)
    return Step("nothing", node, bound)
