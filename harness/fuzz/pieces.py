"""A kernel in PTX as a flat list of pieces, instructions and labels, that can be taken out one by one.

Every register has a name of its own, whatever scope declared it; labels and branches have numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.fuzz.program import Operand, Variable

ENDS = frozenset({"ret", "exit"})
"""What ends a thread; `bra` without a guard also lets nothing pass."""


@dataclass(frozen=True)
class Piece:
    """An instruction, or the place of a label.

    text: without guard and semicolon, with «k» in the place of operand k. operands: registers, or constants that stand
    in for them; the first `outs` are written. guard, negated: the predicate under which it runs. target: the label
    that it branches to. label: the number of the label that stands here; then there is no text.
    """

    text: str = ""
    operands: tuple[Operand, ...] = ()
    outs: int = 0
    guard: Variable | None = None
    negated: bool = False
    target: int = 0
    label: int = 0

    @property
    def opcode(self) -> str:
        """`ld` of `ld.global.u32`; "" for a label."""
        return self.text.split(None, 1)[0].partition(".")[0] if self.text else ""

    @property
    def carries(self) -> bool:
        """Whether it leaves a carry, which no register holds."""
        return "cc" in self.text.partition(" ")[0].split(".")

    @property
    def writes(self) -> tuple[Operand, ...]:
        """The registers that it writes."""
        return self.operands[: self.outs]

    @property
    def reads(self) -> tuple[Operand, ...]:
        """The registers and constants that it reads, the guard apart."""
        return self.operands[self.outs :]

    @property
    def passes(self) -> bool:
        """Whether a thread may go on behind it."""
        return self.guard is not None or self.opcode not in (*ENDS, "bra")


@dataclass(frozen=True)
class FlowProgram:
    """The pieces of a kernel in order. A thread ends behind the last."""

    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Instructions in it, without the last `ret`."""
        return sum(not p.label for p in self.pieces)


@dataclass(frozen=True)
class ApartPtx:
    """A kernel taken apart. head: the module's text up to the kernel's brace. variables: declared within the kernel."""

    head: str
    variables: tuple[tuple[str, str], ...]
    program: FlowProgram

    def text(self, program: FlowProgram) -> str:
        """The module with another program in its kernel, registers and labels numbered anew."""
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
