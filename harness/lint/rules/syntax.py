"""Text or constraints that cannot be read at all."""

from __future__ import annotations

from collections.abc import Iterator

from harness.lint.block import Block
from harness.lint.rules import rule
from harness.lint.snippet import Found


@rule(
    "syntax",
    "The text is not PTX.",
    why="ptxas refuses it, in some builds only when the kernel is first launched.",
)
def syntax(block: Block) -> Iterator[Found]:
    """What the parser says, where it says it."""
    if block.parse_error:
        yield Found(block.place_of(block.parse_error), block.parse_error.message)


@rule(
    "constraints",
    "The constraint string is refused by LLVM, or the block is dropped in silence.",
    why="A wrong constraint ends the whole process inside LLVM, or drops the block without a word.",
)
def constraints(block: Block) -> Iterator[Found]:
    """What the reader of constraints says."""
    if block.constraint_error:
        yield Found(0, block.constraint_error.message, part="constraints")
