"""A kernel in PTX as a program that `reduce` can cut down: straight code, in which each register gets its value once.

Instructions that write one register one after the other are one statement: for example the value that a register has by
default, and a load into it under a predicate. What writes no register (a store, a barrier) writes a register of no
type, which the program gives as an output, so that nothing drops it as unread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.fuzz.program import RandomProgram, Statement, Variable, registers
from harness.ptx.errors import PtxError
from harness.ptx.text.nodes import (
    CodeBlock,
    Declaration,
    Function,
    Instruction,
    Label,
    Name,
    Operand,
    Pair,
    Vector,
)
from harness.ptx.text.parser import parse_module

_NO_VALUE = "none_"
_WRITE_NOTHING = {
    "st",
    "red",
    "bar",
    "barrier",
    "membar",
    "fence",
    "prefetch",
    "nanosleep",
    "griddepcontrol",
    "pmevent",
}
_NOT_STRAIGHT = {"bra", "brx", "call", "exit", "trap", "brkpt", "setmaxnreg"}
_WORD = re.compile(r"%?[A-Za-z_$][\w$]*")
_LINES_OF_DEBUGGING = re.compile(r"^\s*\.(?:loc|file)\b[^\n]*$", re.M)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


class NotStraight(ValueError):
    """Code with branches, calls, or registers that are written in several places: it is not taken apart."""


@dataclass(frozen=True)
class ApartPtx:
    """A kernel taken apart. head: the module's text up to the kernel's brace."""

    head: str
    program: RandomProgram

    def text(self, program: RandomProgram) -> str:
        """The module with another program in its kernel."""
        found = {r for r in registers(program.statements) if r.kind != _NO_VALUE}
        declared = [f".reg .{r.kind.rstrip('_')} {r};" for r in sorted(found, key=lambda r: (r.kind, r.number))]
        return "\n".join([self.head, "{", *declared, *map(_written, program.statements), "ret;", "}", ""])


def _written(statement: Statement) -> str:
    names = {f"w{k}": str(r) for k, r in enumerate(statement.writes)}
    names |= {f"r{k}": str(o) for k, o in enumerate(statement.reads)}
    return _HOLE.sub(lambda found: names[found[1]], statement.text)


_HOLE = re.compile(r"«(\w+)»")


def taken_apart(ptx: str) -> ApartPtx:
    """The only kernel of a module. Raises NotStraight for code that it does not know how to take apart."""
    try:
        module = parse_module(ptx)
        kernel = module.kernel()
    except PtxError as error:
        raise NotStraight(str(error)) from None
    assert kernel.body is not None
    made = _Statements(ptx, kernel)
    made.take(kernel.body, {})
    if not made.ended:
        raise NotStraight("it has no end")
    outputs = tuple(r for s in made.statements for r in s.writes if r.kind == _NO_VALUE)
    head = ptx[: kernel.body.offset].rstrip().removesuffix("{")
    head = _LINES_OF_DEBUGGING.sub("", _COMMENTS.sub("", head))
    lines = [line.rstrip() for line in head.splitlines() if line.strip()]
    return ApartPtx("\n".join(lines), RandomProgram(tuple(made.statements), outputs))


class _Statements:
    """The statements of a kernel, as they are found."""

    def __init__(self, text: str, kernel: Function) -> None:
        self.text = text
        self.statements: list[Statement] = []
        self.ended = False
        self._numbers: Iterator[int] = iter(range(1, 1 << 30))
        self._written: set[Variable] = set()

    def take(self, block: CodeBlock, outer: dict[str, Variable]) -> None:
        """Go through a scope of names."""
        names = dict(outer)
        for node in block.statements:
            if isinstance(node, Declaration):
                self._declared(node, names)
        for node in block.statements:
            if isinstance(node, CodeBlock):
                self.take(node, names)
            elif isinstance(node, Instruction):
                self._instruction(node, names)
            elif isinstance(node, Label):
                if not re.match(r"\$L__(?:tmp|func_begin|func_end|BB\d+_0$)", node.name):
                    raise NotStraight(f"label {node.name}")
            elif not isinstance(node, Declaration):
                raise NotStraight(type(node).__name__)

    def _declared(self, node: Declaration, names: dict[str, Variable]) -> None:
        if node.space != "reg" or node.vector != 1:
            raise NotStraight(f"{node.space} {node.name}")
        called = [node.name] if node.count is None else [f"{node.name}{k}" for k in range(node.count)]
        names |= {name: Variable(f"{node.type.lstrip('.')}_", next(self._numbers)) for name in called}

    def _instruction(self, node: Instruction, names: dict[str, Variable]) -> None:
        if self.ended or node.opcode in _NOT_STRAIGHT:
            raise NotStraight(node.spelling)
        if node.opcode == "ret":
            if node.guard:
                raise NotStraight("ret under a predicate")
            self.ended = True
            return
        writes: list[Variable] = []
        if node.opcode not in _WRITE_NOTHING and node.operands:
            writes = [names[n] for n in _names(node.operands[0]) if n in names]
        text = self._source(node)
        if "«" in text:
            raise NotStraight("a character that stands for a place")
        mentioned = [names[w] for w in _WORD.findall(text) if w in names]
        made = Statement(text, tuple(dict.fromkeys(writes)), tuple(dict.fromkeys(mentioned)))
        self._add(made, names, node)

    def _add(self, made: Statement, names: dict[str, Variable], node: Instruction) -> None:
        """Append a statement, or make it one with the last, which wrote the same registers."""
        again = [w for w in made.writes if w in self._written]
        last = self.statements[-1] if self.statements else None
        text, writes, mentioned = made.text, made.writes, made.reads
        named = {name: v for name, v in names.items() if v in mentioned}
        if again:
            if last is None or not set(again) <= set(last.writes):
                raise NotStraight(f"{node.spelling} writes a register again")
            writes = tuple(dict.fromkeys((*last.writes, *writes)))
        elif not writes:
            writes = (Variable(_NO_VALUE, next(self._numbers)),)
        before = last.reads if again and last else ()
        reads = tuple(dict.fromkeys(v for v in (*before, *mentioned) if v not in writes))
        holes = {v: f"«r{k}»" for k, v in enumerate(reads)} | {v: f"«w{k}»" for k, v in enumerate(writes)}
        text = _WORD.sub(lambda found: holes[named[found[0]]] if found[0] in named else found[0], text)
        if again and last:
            self.statements.pop()
            old = {f"w{k}": v for k, v in enumerate(last.writes)} | {f"r{k}": v for k, v in enumerate(last.reads)}
            first = _HOLE.sub(lambda found: holes[_variable(old[found[1]])], last.text)
            text = f"{first}\n{text}"
        self._written |= set(writes)
        self.statements.append(replace(made, text=text, writes=writes, reads=reads))

    def _source(self, node: Instruction) -> str:
        """The instruction as it is written, with its guard, on one line."""
        start = node.guard.register.offset if node.guard else node.offset
        end = self.text.index(";", node.offset)
        if node.guard:
            start = self.text.rindex("@", 0, start)
        return " ".join(_LINES_OF_DEBUGGING.sub("", _COMMENTS.sub("", self.text[start : end + 1])).split())


def _variable(operand: Variable | str) -> Variable:
    assert isinstance(operand, Variable)
    return operand


def _names(operand: Operand) -> Iterator[str]:
    """The names of the registers that a destination has."""
    if isinstance(operand, Name):
        yield operand.text.partition(".")[0]
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _names(element)
    elif isinstance(operand, Pair):
        yield from _names(operand.first)
        yield from _names(operand.second)
