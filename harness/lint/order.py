"""Find outputs that are written before an input's last read, in blocks that the emulator cannot run.

A block with memory, barriers or other threads cannot run alone. If it has no branch, the order of its instructions
suffices: with both operands in one register, the later instruction reads the value that the earlier one wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxdiff.emulator import REGISTER_WIDTH, NotElementwise
from ptxdiff.emulator.text import OPERAND, Instruction, Name
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.flow import control_of, read_names, written_names


@dataclass(frozen=True)
class Early:
    """An output that is written (`write`) before an input of the same size is read (`read`)."""

    output: int
    input: int
    write: Instruction
    read: Instruction

    @property
    def certain(self) -> bool:
        """Whether a thread that executes one of the two finds the register shared: both run, or one without a guard.

        Of two instructions under different guards, no thread may run both.
        """
        return self.write.guard is None or self.read.guard is None


def written_early(block: LintedBlock) -> Iterator[Early]:
    """For each output without `&` one such pair, a certain one if there is any.

    There is none for a block with branches, or that cannot be bound.

    These do not count: two instructions of which only one runs (`@p` and `@!p`), a copy of the input into the output,
    and a tied output, whose register no other input can have.
    """
    if block.parsed is None or not isinstance(block.bind_error, NotElementwise):
        return
    instructions = block.instructions
    if any(map(control_of, instructions)):
        return
    tied = {c.tied for c in block.parsed if c.tied is not None}
    inputs = [n for n in block.inputs if block.parsed[n].tied is None and not block.parsed[n].immediate]
    for output in block.outputs:
        constraint = block.parsed[output]
        if constraint.early or output in tied:
            continue
        same = [n for n in inputs if REGISTER_WIDTH[block.parsed[n].letter] == REGISTER_WIDTH[constraint.letter]]
        same.sort(key=lambda n: block.parsed[n].letter != constraint.letter)  # type: ignore[index]
        pairs = [e for n in same for e in _pairs(instructions, output, n)]
        if pairs:
            yield next((e for e in pairs if e.certain), pairs[0])


def _pairs(instructions: Sequence[Instruction], output: int, source: int) -> Iterator[Early]:
    for at, write in enumerate(instructions):
        if not _names(written_names(write), output) or _copies(write, source):
            continue
        for later, read in enumerate(instructions[at + 1 :], at + 1):
            if _names(read_names(read), source) and not _exclude(write, read, instructions[at + 1 : later]):
                yield Early(output, source, write, read)


def _names(names: Iterator[Name] | Sequence[Name], number: int) -> bool:
    return any(n.text.partition(".")[0] == f"{OPERAND}{number}" for n in names)


def _copies(instruction: Instruction, source: int) -> bool:
    return instruction.opcode == "mov" and _names(read_names(instruction), source)


def _exclude(one: Instruction, other: Instruction, between: Sequence[Instruction]) -> bool:
    """Whether only one of two instructions runs: their guards are opposite, and no instruction between writes the
    predicate."""
    if one.guard is None or other.guard is None or one.guard.negated == other.guard.negated:
        return False
    name = one.guard.register.text
    return name == other.guard.register.text and all(
        n.text != name for instruction in between for n in written_names(instruction)
    )
