"""The syntax tree of PTX: plain data. Each node has its offset in the text from which it was parsed."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ptxdiff.emulator.errors import PtxError

_E = TypeVar("_E", bound=PtxError)
_N = TypeVar("_N")

_LINE_END = re.compile("\n")
_SHOWN = 200
"""How many characters of a line an error shows before and after the place."""


@dataclass(slots=True)
class Source:
    """The text of a tree, and the conversion from an offset to line and column.

    `moves` lists (offset in the expanded text, offset in the user's text) wherever their difference changes, as after a
    replaced `$0` of inline asm.
    """

    text: str
    moves: list[tuple[int, int]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list, repr=False, compare=False)
    """The offset of each line's beginning, computed at the first call of `position`."""

    def original(self, offset: int) -> int:
        """The offset in the user's text for an offset in the expanded text."""
        if self.moves:
            at = bisect_right(self.moves, (offset, 1 << 62)) - 1
            if at >= 0:
                start, original = self.moves[at]
                offset = original + offset - start
        return min(offset, len(self.text))

    def statement(self, offset: int) -> str:
        """The user's text from an offset to the next semicolon, on one line."""
        start = self.original(offset)
        end = self.text.find(";", start)
        return " ".join(self.text[start : end + 1 if end >= 0 else len(self.text)].split())

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, for an offset in the expanded text."""
        offset = self.original(offset)
        if not self.starts:
            self.starts = [0, *(line_end.end() for line_end in _LINE_END.finditer(self.text))]
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def error(self, kind: type[_E], message: str, offset: int) -> _E:
        """An exception of `kind` that points at `offset` and shows its line, or the part around it of a very long
        line."""
        line, column = self.position(offset)
        start = self.starts[line - 1]
        first = max(start, start + column - 1 - _SHOWN)
        return kind(message, line, column, self.text[first : first + 2 * _SHOWN].partition("\n")[0])


@dataclass(slots=True)
class Name:
    """An identifier: a register, label, variable or special register, with its component if one is named."""

    text: str
    offset: int
    negated: bool = False
    """`!p`"""
    minus: bool = False
    """`-a`, which video instructions take"""
    displacement: int = 0
    """`a+4`, the address of a variable and a constant"""


@dataclass(slots=True)
class Immediate:
    """A literal or constant expression.

    `value` is an int (64 bits, two's complement or unsigned) or a float (a double). `single` holds the 32 bits
    of a `0f` literal and `double` the 64 bits of a `0d` one, so that no bit pattern passes through a float.
    """

    value: int | float
    offset: int
    single: int | None = None
    double: int | None = None


@dataclass(slots=True)
class Sink:
    """`_`: a discarded result, or an unspecified vector element."""

    offset: int


@dataclass(slots=True)
class Vector:
    """`{a, b}`"""

    elements: list[Operand]
    offset: int


@dataclass(slots=True)
class Pair:
    """`p|q`: two destinations."""

    first: Operand
    second: Operand
    offset: int


@dataclass(slots=True)
class Address:
    """`[base+displacement]`; an absolute address has no base."""

    base: Name | None
    displacement: int
    offset: int
    extra: list[Operand] = field(default_factory=list)
    """Further operands inside the brackets, which tensor copies have."""


Operand = Name | Immediate | Sink | Vector | Pair | Address


@dataclass(slots=True)
class Guard:
    """`@p` or `@!p`"""

    register: Name
    negated: bool


@dataclass(slots=True)
class Location:
    """A `.loc` line: the place in the user's program of the instructions after it."""

    file: int
    line: int
    column: int
    inlined_at: Location | None = None


@dataclass(slots=True)
class Instruction:
    """One instruction: `opcode` without its dot suffixes; `modifiers`: these suffixes in written order."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: list[Operand]
    guard: Guard | None
    offset: int
    location: Location | None = None

    @property
    def spelling(self) -> str:
        """The instruction's name as written, `add.rn.f32`."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(slots=True)
class Label:
    """`name:`"""

    name: str
    offset: int


@dataclass(slots=True)
class Declaration:
    """A register or variable: `.reg .v4 .b32 %r<8>` or `.shared .align 16 .b8 s[1024]`.

    `space` is reg, shared, global, local, const or param. `count` is the `<n>` of a register range (None: one
    register), `vector` 1, 2 or 4. `size` is the number of elements of an array, None for `[]`.
    """

    space: str
    type: str
    name: str
    offset: int
    count: int | None = None
    vector: int = 1
    align: int = 0
    size: int | None = 1
    values: list[int] = field(default_factory=list)


@dataclass(slots=True)
class CodeBlock:
    """`{ ... }`: a scope of names."""

    statements: list[Statement]
    offset: int


@dataclass(slots=True)
class BranchTargets:
    """`label: .branchtargets a, b;`: the labels to which a brx.idx may jump."""

    label: str
    targets: list[Name]
    offset: int


Statement = Instruction | Label | Declaration | CodeBlock | BranchTargets


@dataclass(slots=True)
class Function:
    """An `.entry` (kernel) or `.func`, with its directives such as `reqntid`; `results`: what a `.func` returns."""

    name: str
    kernel: bool
    parameters: list[Declaration]
    directives: dict[str, list[int]]
    body: CodeBlock | None
    offset: int
    results: list[Declaration] = field(default_factory=list)


@dataclass(slots=True)
class Module:
    """A whole PTX file. `files` maps the numbers that `.loc` uses to file names."""

    version: str
    target: str
    functions: list[Function]
    variables: list[Declaration]
    files: dict[int, str]
    source: Source

    def kernel(self, name: str | None = None) -> Function:
        """The kernel of that name, or the only kernel."""
        kernels = [f for f in self.functions if f.kernel and f.body is not None and name in (None, f.name)]
        if len(kernels) != 1:
            known = [f.name for f in self.functions if f.kernel]
            names = ", ".join([*known[:20], *["..."][: len(known) > 20]]) or "none"
            raise PtxError(f"expected one kernel named {name or '(any)'}; the module has: {names}")
        return kernels[0]


def instructions(block: CodeBlock) -> Iterator[Instruction]:
    """All instructions of a block in the order of the text, those within inner braces included."""
    return _each(block, Instruction)


def declarations(block: CodeBlock) -> Iterator[Declaration]:
    """All declarations of a block in the order of the text, those within inner braces included."""
    return _each(block, Declaration)


def _each(block: CodeBlock, kind: type[_N]) -> Iterator[_N]:
    for statement in block.statements:
        if isinstance(statement, CodeBlock):
            yield from _each(statement, kind)
        elif isinstance(statement, kind):
            yield statement
