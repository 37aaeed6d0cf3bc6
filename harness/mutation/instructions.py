"""The instructions of asm, or of a PTX kernel, with the places of their words in the text, for replacing them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptxdiff.ptx.text.lexer import OPERAND, Token, tokenize
from ptxdiff.ptx.text.llvmtext import expanded, without_places
from ptxdiff.ptx.text.nodes import CodeBlock, Declaration, Instruction, Source, Statement
from ptxdiff.ptx.text.parser import parse_asm, parse_module


@dataclass(frozen=True)
class Word:
    """A part of the text, from `start` up to `end`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Written:
    """An instruction in the text: its tree, and the places of its opcode, modifiers, operands and guard."""

    node: Instruction
    opcode: Word
    modifiers: tuple[Word, ...]
    operands: tuple[Word, ...]
    guard: Word | None
    whole: Word

    @property
    def sources(self) -> tuple[Word, ...]:
        """The operands after the first one, which is the destination."""
        return self.operands[1:]


def instructions(text: str) -> tuple[list[Written], dict[str, str]]:
    """The instructions of asm with LLVM's escapes, in order, and the types of the registers that it declares.

    Raises PtxError if the text does not parse.
    """
    tree, _ = parse_asm(text)
    source = Source(text)
    return _found(tree, source, tokenize(source, expanded(source, None, None)))


def kernel_instructions(text: str, entry: str | None = None) -> tuple[list[Written], dict[str, str]]:
    """The instructions and register types of a kernel in a PTX module, including its inline asm.

    entry: the kernel's name; None for the only one. Raises PtxError if the text does not parse or has no such kernel.
    """
    body = parse_module(text).kernel(entry).body
    assert body is not None
    source = Source(text)
    return _found(body, source, tokenize(source, without_places(text)))


def _found(block: CodeBlock, source: Source, tokens: list[Token]) -> tuple[list[Written], dict[str, str]]:
    starts = {token[2]: number for number, token in enumerate(tokens)}
    nodes = list(_statements(block))
    types: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, Declaration):
            names = [node.name] if node.count is None else [f"{node.name}{k}" for k in range(node.count)]
            types |= dict.fromkeys(names, node.type)
    written = [_written(source, tokens, starts[n.offset], n) for n in nodes if isinstance(n, Instruction)]
    return written, types


def _statements(block: CodeBlock) -> Iterator[Statement]:
    for statement in block.statements:
        if isinstance(statement, CodeBlock):
            yield from _statements(statement)
        else:
            yield statement


def _written(source: Source, tokens: list[Token], first: int, node: Instruction) -> Written:
    text = source.text

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
