"""A PTX kernel as a flat list of pieces, which are instructions and labels, that can be removed one by one.

Every register has a unique name, in whatever scope it was declared. Labels have numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ptxdiff.emulator import PtxError, destination
from ptxdiff.emulator.isa.facts import Facts, true_of
from ptxdiff.emulator.isa.lookup import facts_of
from ptxdiff.emulator.text import (
    CodeBlock,
    Declaration,
    Function,
    Instruction,
    Label,
    Name,
    Pair,
    Vector,
    parse_module,
)
from ptxdiff.emulator.text import (
    Operand as OperandNode,
)
from ptxdiff.fuzz.program import Operand, Variable


@dataclass(frozen=True)
class Piece:
    """An instruction or a label.

    text: without guard and semicolon, with «k» in place of operand k; "" for a label. operands: registers, or constants
    that replace them; the first `outs` are written. guard, negated: the predicate under which it runs. target: the
    number of the label to which it branches; 0 for none. label: the label's number; 0 for an instruction.
    """

    text: str = ""
    operands: tuple[Operand, ...] = ()
    outs: int = 0
    guard: Variable | None = None
    negated: bool = False
    target: int = 0
    label: int = 0

    @property
    def _spelling(self) -> list[str]:
        return self.text.split(None, 1)[0].split(".") if self.text else [""]

    @property
    def opcode(self) -> str:
        """`ld` of `ld.global.u32`; "" for a label."""
        return self._spelling[0]

    @property
    def facts(self) -> Facts:
        """The facts of its instruction."""
        opcode, *modifiers = self._spelling
        return facts_of(opcode, tuple(modifiers))

    @property
    def acts(self) -> bool:
        """Whether it does more than write its results: it has an effect, or other threads take part."""
        return true_of(self.facts.effects, self._spelling) or bool(self.facts.exchanges)

    @property
    def carries(self) -> bool:
        """Whether it writes the carry flag, which is no register."""
        return "cc" in self._spelling

    @property
    def writes(self) -> tuple[Operand, ...]:
        """The registers that it writes."""
        return self.operands[: self.outs]

    @property
    def reads(self) -> tuple[Operand, ...]:
        """The registers and constants that it reads, without the guard."""
        return self.operands[self.outs :]

    @property
    def passes(self) -> bool:
        """Whether a thread may continue after it."""
        return self.guard is not None or self.facts.control not in ("end", "branch")


@dataclass(frozen=True)
class FlowProgram:
    """The pieces of a kernel in order. A thread ends after the last one."""

    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """The number of instructions, without the last `ret`."""
        return sum(not p.label for p in self.pieces)


@dataclass(frozen=True)
class KernelPieces:
    """A kernel as pieces. head: the module's text before the kernel's brace. variables: declarations of shared and
    local variables, by name.
    """

    head: str
    variables: tuple[tuple[str, str], ...]
    program: FlowProgram

    def text(self, program: FlowProgram) -> str:
        """The module with another program in its kernel. Registers and labels are numbered anew."""
        names: dict[Variable, str] = {}
        labels: dict[int, str] = {}
        lines = [_written(p, names, labels) for p in program.pieces]
        body = "\n".join(lines)
        registers = [f".reg .{v.kind.rstrip('_')} {name};" for v, name in sorted(names.items(), key=lambda n: n[1])]
        kept = [text for name, text in self.variables if re.search(rf"(?<![\w$%.]){re.escape(name)}\b", body)]
        end = [] if lines and lines[-1] == "ret;" else ["ret;"]
        return "\n".join([self.head, "{", *dict.fromkeys(kept), *registers, *lines, *end, "}", ""])


def _written(piece: Piece, names: dict[Variable, str], labels: dict[int, str]) -> str:
    def called(operand: Operand) -> str:
        if not isinstance(operand, Variable):
            return operand
        return names.setdefault(operand, f"%{operand.kind}{len(names)}")

    def label(number: int) -> str:
        return labels.setdefault(number, f"$L{len(labels)}")

    if piece.label:
        return f"{label(piece.label)}:"
    guard = f"@{'!' * piece.negated}{called(piece.guard)} " if piece.guard else ""
    text = HOLE.sub(lambda found: called(piece.operands[int(found[1])]), piece.text)
    return f"{guard}{text}{f' {label(piece.target)}' if piece.target else ''};"


HOLE = re.compile(r"«(\d+)»")


# ---- Parse a PTX kernel of any shape into pieces ---------------------------------------------------------------------

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


def _names(operand: OperandNode) -> Iterator[str]:
    """The names of a destination's registers."""
    if isinstance(operand, Name):
        yield operand.text.partition(".")[0]
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _names(element)
    elif isinstance(operand, Pair):
        yield from _names(operand.first)
        yield from _names(operand.second)
