"""The instructions of an asm text with the places of their words, so that one word can be replaced by another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.ptx.text.lexer import OPERAND, Token, tokenize
from harness.ptx.text.llvmtext import expanded
from harness.ptx.text.nodes import CodeBlock, Declaration, Instruction, Source, Statement
from harness.ptx.text.parser import parse_asm


@dataclass(frozen=True)
class Word:
    """A part of the text, from `start` up to `end`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Written:
    """An instruction where it stands: its tree, and the places of its opcode, modifiers, operands and guard."""

    node: Instruction
    opcode: Word
    modifiers: tuple[Word, ...]
    operands: tuple[Word, ...]
    guard: Word | None
    whole: Word

    @property
    def sources(self) -> tuple[Word, ...]:
        """The operands behind the first one, which is the destination."""
        return self.operands[1:]


def instructions(text: str) -> tuple[list[Written], dict[str, str]]:
    """The instructions of a block with LLVM's escapes, in order, and the types of the registers that it declares.

    Raises PtxError where the text does not parse.
    """
    tree, _ = parse_asm(text)
    source = Source(text)
    tokens = tokenize(source, expanded(source, None, None))
    starts = {token[2]: number for number, token in enumerate(tokens)}
    nodes = list(_statements(tree))
    types = {n.name: n.type for n in nodes if isinstance(n, Declaration)}
    return [_written(text, source, tokens, starts[n.offset], n) for n in nodes if isinstance(n, Instruction)], types


def _statements(block: CodeBlock) -> Iterator[Statement]:
    for statement in block.statements:
        if isinstance(statement, CodeBlock):
            yield from _statements(statement)
        else:
            yield statement


def _written(text: str, source: Source, tokens: list[Token], first: int, node: Instruction) -> Written:
    def span(begin: int, last: int) -> Word:
        """The text from one token to another."""
        start = source.original(tokens[begin][2])
        _, word, offset = tokens[last]
        end = source.original(offset + len(word) - 1) + 1
        if word.startswith(OPERAND) and text[source.original(offset) + 1] == "{":
            end = text.index("}", start) + 1
        return Word(text[start:end], start, end)

    at = first + 1
    while tokens[at][0] == "dot":
        at += 1
    modifiers = tuple(span(k, k) for k in range(first + 1, at))
    operands: list[Word] = []
    begin, depth = at, 0
    while tokens[at][0] not in (";", "end"):
        depth += (tokens[at][0] in ("{", "[", "(")) - (tokens[at][0] in ("}", "]", ")"))
        if tokens[at][0] == "," and depth == 0:
            operands.append(span(begin, at - 1))
            begin = at + 1
        at += 1
    if at > begin:
        operands.append(span(begin, at - 1))
    guard, front = None, first
    if node.guard is not None:
        front = first - 2 - node.guard.negated
        guard = span(front, first - 1)
    return Written(node, span(first, first), modifiers, tuple(operands), guard, span(front, at))
