"""A PTX kernel as a flat list of pieces, which are instructions and labels, that can be removed one by one.

Every register has a unique name, in whatever scope it was declared. Labels have numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ptxdiff.emulator.isa.facts import Facts, true_of
from ptxdiff.emulator.isa.lookup import facts_of
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
