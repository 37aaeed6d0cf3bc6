"""Parse a PTX kernel of any shape into pieces that `cut` can remove: instructions and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ptxdiff.emulator import PtxError, destination
from ptxdiff.emulator.isa.lookup import facts_of
from ptxdiff.emulator.text import (
    CodeBlock,
    Declaration,
    Function,
    Instruction,
    Label,
    Name,
    Operand,
    Pair,
    Vector,
    parse_module,
)
from ptxdiff.fuzz.pieces import FlowProgram, KernelPieces, Piece
from ptxdiff.fuzz.program import Variable

_WORD = re.compile(r"(?<![\w$%.])%?[A-Za-z_$][\w$]*")
_LINES_OF_DEBUGGING = re.compile(r"^\s*\.(?:loc|file)\b[^\n]*$", re.M)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


class UnsupportedCode(ValueError):
    """Code that is not supported: with calls, branches through tables, or vector registers."""


def pieces_of(ptx: str) -> KernelPieces:
    """The only kernel of a module, as pieces. Raises UnsupportedCode for code that is not supported."""
    try:
        module = parse_module(ptx)
        kernel = module.kernel()
    except PtxError as error:
        raise UnsupportedCode(str(error)) from None
    assert kernel.body is not None
    made = _Pieces(ptx, kernel)
    made.take(kernel.body, {}, {})
    if made.pieces and made.pieces[-1] == Piece("ret"):
        made.pieces.pop()
    head = ptx[: kernel.body.offset].rstrip().removesuffix("{")
    head = _LINES_OF_DEBUGGING.sub("", _COMMENTS.sub("", head))
    lines = [line.rstrip() for line in head.splitlines() if line.strip()]
    return KernelPieces("\n".join(lines), tuple(made.variables.items()), FlowProgram(tuple(made.pieces)))


class _Pieces:
    """Collects the pieces of a kernel."""

    def __init__(self, text: str, kernel: Function) -> None:
        self.text = text
        self.pieces: list[Piece] = []
        self.variables: dict[str, str] = {}
        self._numbers: Iterator[int] = iter(range(1, 1 << 30))

    def take(self, block: CodeBlock, outer: Mapping[str, Variable], labels: Mapping[str, int]) -> None:
        """Collect the pieces of a scope, in which names of outer scopes may be declared again."""
        names = dict(outer)
        for node in block.statements:
            if isinstance(node, Declaration):
                self._declared(node, names)
        labels = {**labels, **{n.name: next(self._numbers) for n in block.statements if isinstance(n, Label)}}
        for node in block.statements:
            if isinstance(node, CodeBlock):
                self.take(node, names, labels)
            elif isinstance(node, Instruction):
                self.pieces.append(self._instruction(node, names, labels))
            elif isinstance(node, Label):
                self.pieces.append(Piece(label=labels[node.name]))
            elif not isinstance(node, Declaration):
                raise UnsupportedCode(type(node).__name__)

    def _declared(self, node: Declaration, names: dict[str, Variable]) -> None:
        if node.space in ("shared", "local") and node.name not in self.variables:
            self.variables[node.name] = self._source(
                self.text.rindex(f".{node.space}", 0, node.offset + 1), node.offset
            )
        elif node.space == "reg" and node.vector == 1:
            called = [node.name] if node.count is None else [f"{node.name}{k}" for k in range(node.count)]
            names |= {name: Variable(f"{node.type.lstrip('.')}_", next(self._numbers)) for name in called}
        else:
            raise UnsupportedCode(f"{node.space} {node.name}")

    def _instruction(self, node: Instruction, names: Mapping[str, Variable], labels: Mapping[str, int]) -> Piece:
        if facts_of(node.opcode, node.modifiers).control in ("table", "call"):
            raise UnsupportedCode(node.spelling)
        text = self._source(node.offset, node.offset).rstrip(";").rstrip()
        if "«" in text:
            raise UnsupportedCode("the character «, which marks the place of an operand")
        guard, negated, target = None, False, 0
        if node.guard:
            guard, negated = names.get(node.guard.register.text), node.guard.negated
            if guard is None:
                raise UnsupportedCode(f"the guard {node.guard.register.text}")
        if node.opcode == "bra":
            target = labels.get(text.split()[-1], 0)
            if not target:
                raise UnsupportedCode(text)
            # Without `.uni`, because after cutting the branch may diverge.
            text = "bra"
        writes = []
        if (written := destination(node)) is not None:
            writes = [names[n] for n in _names(written) if n in names]
        operands = [names[w] for w in _WORD.findall(text) if w in names]
        if operands[: len(writes)] != writes:
            raise UnsupportedCode(f"the destination of {node.spelling}")
        places = iter(range(len(operands)))
        text = _WORD.sub(lambda found: f"«{next(places)}»" if found[0] in names else found[0], text)
        return Piece(text, tuple(operands), len(writes), guard, negated, target)

    def _source(self, start: int, inside: int) -> str:
        """The text from `start` to the first semicolon after `inside`, on one line without comments."""
        end = self.text.index(";", inside)
        return " ".join(_LINES_OF_DEBUGGING.sub("", _COMMENTS.sub("", self.text[start : end + 1])).split())


def _names(operand: Operand) -> Iterator[str]:
    """The names of a destination's registers."""
    if isinstance(operand, Name):
        yield operand.text.partition(".")[0]
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _names(element)
    elif isinstance(operand, Pair):
        yield from _names(operand.first)
        yield from _names(operand.second)
