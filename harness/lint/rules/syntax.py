"""Rules about text and constraints that cannot be parsed, and instructions that do not exist or do not take their
operands."""

from __future__ import annotations

from collections.abc import Iterator

from harness.lint.block import LintedBlock
from harness.lint.rules import rule
from harness.lint.rules.declarations import undeclared_names
from harness.lint.rules.spelling import EXPLAIN, alone
from harness.lint.snippet import Found
from harness.ptx.errors import OperandError, PtxError, UnknownInstruction
from harness.ptx.isa.forms import FORMS
from harness.ptx.isa.registry import REFUSED
from harness.ptx.text.parser import parse_asm


@rule(
    "syntax",
    "The text is not PTX.",
    why="ptxas refuses it, in Triton only when the kernel is first compiled for a GPU.",
)
def syntax(block: LintedBlock) -> Iterator[Found]:
    """The parser's error, if no other rule has a better message."""
    error = block.parse_error
    if error and (text := alone(block)) != block.text:
        try:
            parse_asm(text, None, dict(block.constants))
        except PtxError as other:
            error = other
        else:
            return
    if error and not any(True for each in EXPLAIN for found in each(block) if found.severity != "note"):
        yield Found(block.place_of(error), _shown(block, error.message))


def _shown(block: LintedBlock, message: str) -> str:
    """The parser's message with operands in the author's spelling."""
    if block.snippet.convention != "cuda":
        return message
    import re

    return re.sub(r"\$(\d+)", r"%\1", message)


@rule(
    "constraints",
    "The constraint string is invalid.",
    why="A wrong constraint ends the whole process inside LLVM, or LLVM silently drops the block.",
)
def constraints(block: LintedBlock) -> Iterator[Found]:
    """The constraint parser's error; 128-bit registers (`q`) and symbols (`C`, `s`) are not supported here."""
    words = [w.strip().lstrip("=+&") for w in block.snippet.constraints.split(",")]
    if block.constraint_error and not {"q", "C", "s"} & set(words):
        message = block.constraint_error.message
        if block.snippet.convention == "llvm":
            message = message.replace("Triton", "LLVM")
        yield Found(0, message, part="constraints")


@rule(
    "unknown-instruction",
    "An instruction, or one of its modifiers, does not exist.",
    why="ptxas refuses it.",
)
def unknown(block: LintedBlock) -> Iterator[Found]:
    """Unknown opcodes, and unknown modifiers of opcodes whose forms the emulator has completely."""
    error = block.bind_error
    if not isinstance(error, UnknownInstruction):
        return
    at = block.place_of(error)
    for instruction in block.instructions:
        if block.place(instruction.offset) == at and instruction.opcode in FORMS and instruction.opcode not in REFUSED:
            yield Found(at, error.message)


@rule(
    "operand-type",
    "An operand is of the wrong type or size for its instruction, or there are too many or too few.",
    why="ptxas refuses it.",
)
def operand_type(block: LintedBlock) -> Iterator[Found]:
    """Errors of binding about operands, if no other rule reports the register."""
    error = block.bind_error
    if type(error) is not OperandError or any(True for _ in undeclared_names(block)):
        return
    if any(words in error.message for words in ("declared twice", "there is no label", "is declared here")):
        return  # the rules on declarations report it, or a variable of the module is declared elsewhere
    yield Found(block.place_of(error), _shown(block, error.message))
