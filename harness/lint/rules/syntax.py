"""Rules about text and constraints that cannot be parsed, and instructions that do not exist or do not take their
operands."""

from __future__ import annotations

from collections.abc import Iterator

from ptxdiff.emulator import OperandError, PtxError, isa
from ptxdiff.emulator.isa.forms import FORMS, find
from ptxdiff.emulator.isa.lookup import lookup
from ptxdiff.emulator.isa.registry import REFUSED
from ptxdiff.emulator.text import OPERAND, Instruction, Source, parse_asm
from ptxdiff.lint import ptxas_modifiers
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.rules.availability import REMOVED
from ptxdiff.lint.rules.declarations import undeclared_names
from ptxdiff.lint.rules.spelling import EXPLAIN, alone
from ptxdiff.lint.snippet import Found


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


COMPLETE = frozenset(
    ("activemask", "elect", "fence", "griddepcontrol", "match", "mbarrier", "membar", "redux", "shfl", "vote")
)
"""Opcodes outside arithmetic of which the emulator's table has every form (`tests/lint/test_unknown_instructions.py`
asks ptxas), but for those with a modifier of `_INCOMPLETE`."""
_INCOMPLETE = {
    "fence": frozenset(
        (
            "alias",
            "async::generic",
            "sync_restrict::shared::cluster",
            "sync_restrict::shared::cta",
            "tensormap::generic",
        )
    ),
    "mbarrier": frozenset(("noComplete",)),
}
"""Modifiers beside which ptxas takes forms that the table lacks, such as `mbarrier.arrive.b64.noComplete`."""


@rule(
    "unknown-instruction",
    "An instruction, or one of its modifiers, does not exist.",
    why="ptxas refuses it.",
)
def unknown(block: LintedBlock) -> Iterator[Found]:
    """Spellings that are neither in the emulator's table of forms nor made of what ptxas accepts at that name."""
    isa.load()
    seen: set[str] = set()
    for node in block.instructions:
        if node.spelling not in seen and block.source is not None:
            seen.add(node.spelling)
            if message := _unknown(node, block.source):
                yield Found(block.place(node.offset), message)


def _unknown(node: Instruction, source: Source) -> str:
    """What is wrong with a spelling; "" if nothing is, or if part of it is an operand's text."""
    if OPERAND in node.spelling or find(node.opcode, node.modifiers):
        return ""
    if any(form.matches(node) for form in REMOVED):
        return ""  # the rule `removed-form` reports it
    incomplete = _INCOMPLETE.get(node.opcode, frozenset())
    if node.opcode not in FORMS or (node.opcode in REFUSED and node.opcode not in COMPLETE) or incomplete:
        message = ptxas_modifiers.mistake(node.opcode, node.modifiers, (*FORMS, *REFUSED))
        if message or not incomplete or not incomplete.isdisjoint(node.modifiers):
            return message
    try:
        lookup(node, source, None, elementwise=False)
    except PtxError as error:
        return error.message
    return ""


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
