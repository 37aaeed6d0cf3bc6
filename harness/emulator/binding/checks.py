"""Checks of an asm block as a compiler uses it: names declared outside braces, and inputs that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptxdiff.emulator.binding.constraints import REGISTER_WIDTH, Constraint
from ptxdiff.emulator.errors import DeclaredOutside, InputWritten
from ptxdiff.emulator.isa.lookup import facts_of
from ptxdiff.emulator.text.lexer import OPERAND
from ptxdiff.emulator.text.nodes import (
    BranchTargets,
    CodeBlock,
    Declaration,
    Instruction,
    Label,
    Name,
    Operand,
    Pair,
    Source,
    Vector,
    instructions,
)
from ptxdiff.emulator.text.parser import parse_asm

_UNIQUE = "${:uid}"


def check_repeated(asm: str, operand_count: int) -> None:
    """Raise DeclaredOutside for a register, variable or label that a second copy of the block would declare again.

    A label with `${:uid}` in its name gets a different name in each copy. Raises PtxError if the text cannot be parsed.
    """
    tree, source = parse_asm(asm, operand_count)
    again = tree if _UNIQUE not in asm else parse_asm(asm.replace(_UNIQUE, "1"), operand_count)[0]
    copies = {name for name, _, _ in _outermost(again)}
    for name, what, offset in _outermost(tree):
        if name in copies:
            message = (
                f"{what} is declared outside braces; a thread that has several packs repeats the block, and "
                "ptxas then finds the name declared twice: put braces around the whole block, `{ ... }`"
            )
            raise source.error(DeclaredOutside, message, offset)


def _outermost(tree: CodeBlock) -> Iterator[tuple[str, str, int]]:
    """Name, description and place of each declaration outside braces."""
    for statement in tree.statements:
        if isinstance(statement, Declaration):
            count = f"<{statement.count}>" if statement.count is not None else ""
            kind = "variable" if statement.space != "reg" else "register" if not count else "registers"
            yield statement.name, f"{kind} {statement.name}{count}", statement.offset
        elif isinstance(statement, Label):
            yield statement.name, f"label {statement.name}", statement.offset
        elif isinstance(statement, BranchTargets):
            yield statement.label, f"label {statement.label}", statement.offset


def check_inputs(tree: CodeBlock, source: Source, constraints: Sequence[Constraint]) -> None:
    """Raise InputWritten for the first instruction that writes an input not tied to an output."""
    inputs = {n: c for n, c in enumerate(constraints) if not (c.output or c.immediate) and c.tied is None}
    for instruction in instructions(tree):
        for number in _written(instruction):
            if number in inputs:
                words = _words(source.statement(instruction.offset), number, inputs[number], constraints)
                raise source.error(InputWritten, words, instruction.offset)


def _words(statement: str, number: int, constraint: Constraint, constraints: Sequence[Constraint]) -> str:
    width = REGISTER_WIDTH[constraint.letter]
    kind = "pred" if width == 1 else f"b{width}"
    move = "mov.pred" if width == 1 else f"mov.b{width}"
    outputs = sum(c.output for c in constraints)
    return (
        f"`{statement}` writes the input ${number}, and the compiler assumes that an input keeps its value; copy it "
        f"into a register of your own (.reg .{kind} t; {move} t, ${number};), or declare one more output "
        f"'={constraint.letter}' and tie the input to it, with the output's number (here '{outputs}') as its constraint"
    )


def _written(instruction: Instruction) -> Iterator[int]:
    """The numbers of the asm operands that an instruction writes."""
    yield from _numbers(destination(instruction))


def destination(instruction: Instruction) -> Operand | None:
    """The operand that an instruction writes, by its spelling alone; None where it writes none.

    A copy gives its address `[a]`, in which no register is written.
    """
    first, *others = instruction.operands or (None,)
    count = facts_of(instruction.opcode, instruction.modifiers).destinations
    if first is None or count == 0:
        return None
    return Pair(first, others[0], first.offset) if count == 2 and len(others) > 1 else first


def _numbers(destination: Operand | None) -> Iterator[int]:
    if isinstance(destination, Pair):
        yield from _numbers(destination.first)
        yield from _numbers(destination.second)
    elif isinstance(destination, Vector):
        for element in destination.elements:
            yield from _numbers(element)
    elif isinstance(destination, Name) and destination.text.startswith(OPERAND):
        yield int(destination.text.removeprefix(OPERAND).partition(".")[0])  # video instructions write `$0.b3`
