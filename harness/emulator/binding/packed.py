"""Wrap a block of convention "llvm" so that Triton computes the same bits with it.

Triton puts as many elements of less than 32 bits into a 32-bit register as fit. A block written for MLIR or CUDA C++
may have one element in each operand (`=h,=h`), or two floats in one 64-bit register. For Triton, moves before the block
split registers into its operands, and moves after it pack its results. Where both layouts are equal, no move is added.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ptxdiff.emulator.binding.constraints import AsmOperand, bind, parse_constraints
from ptxdiff.emulator.errors import BindingError

_NUMBER = re.compile(r"\$\$|\$(\d+)|\$\{(\d+)(?::\w*)?\}", re.ASCII)
_PREFIX = "ptxdiff_"


def in_tritons_form(
    text: str, constraints: str, inputs: Sequence[int], outputs: Sequence[int], pack: int
) -> tuple[str, str]:
    """Text and constraints with which Triton computes the same bits as the block in convention "llvm".

    inputs, outputs: element widths in bits. The moves copy every operand of a tensor that they touch, so that its
    outputs never share a register with an input: test the original block for register sharing, not the result. Raises
    BindingError where operands do not fit, or elements cannot be moved.
    """
    operands = bind(parse_constraints(constraints), inputs, outputs, pack, "llvm")
    if all(o.count == _together(o, pack) for o in operands):
        return text, constraints
    wrapper = _Wrapper(operands, pack, text)
    clobbers = [word.strip() for word in constraints.split(",") if word.strip().startswith("~")]
    return wrapper.text(text), ",".join([*wrapper.constraints, *clobbers])


def _together(operand: AsmOperand, pack: int) -> int:
    """How many elements of an operand's tensor a register of Triton holds."""
    return min(max(32 // operand.element_width, 1), pack)


@dataclass(frozen=True)
class _Move:
    """A move between a register and its parts, the first part in the low bits. `apart`: from the register to the
    parts."""

    whole: str
    width: int
    parts: tuple[str, ...]
    apart: bool

    def __str__(self) -> str:
        parts = self.parts[0] if len(self.parts) == 1 else f"{{{', '.join(self.parts)}}}"
        ends = (parts, self.whole) if self.apart else (self.whole, parts)
        return f"mov.b{self.width} {', '.join(ends)};"

    @property
    def back(self) -> _Move:
        """The same move in the other direction."""
        return _Move(self.whole, self.width, self.parts, not self.apart)


class _Wrapper:
    """The moves around a block, and the names of its operands between them."""

    def __init__(self, operands: Sequence[AsmOperand], pack: int, text: str) -> None:
        self.pack = pack
        self.prefix = _PREFIX
        while self.prefix in text:
            self.prefix += "_"
        self.names: dict[int, str] = {}
        self.constraints: list[str] = []
        self.loads: list[_Move] = []
        self.saves: list[_Move] = []
        self._declared: list[tuple[int, str]] = []
        tensors: dict[tuple[bool, int], list[AsmOperand]] = {}
        for operand in operands:
            tensors.setdefault((operand.output, operand.tensor), []).append(operand)
        ties = [
            ((True, operands[o.constraint.tied].tensor), (False, o.tensor))
            for o in operands
            if o.constraint.tied is not None
        ]
        moved = {key for key, own in tensors.items() if own[0].count != _together(own[0], pack)}
        for _ in ties:  # a tensor that is tied to a moved tensor is moved too
            for pair in ties:
                moved |= set(pair) if not moved.isdisjoint(pair) else set()
        for key, own in tensors.items():
            (self._between_moves if key in moved else self._as_it_is)(own)

    def text(self, body: str) -> str:
        """The block with its moves before and after it."""

        def renamed(found: re.Match[str]) -> str:
            number = found[1] or found[2]
            return found[0] if number is None else self.names[int(number)]

        inner = _NUMBER.sub(renamed, body).strip("\n")
        lines = [f".reg .b{width} {name};" for width, name in self._declared]
        lines += [*map(str, self.loads), "{", inner, "}", *map(str, self.saves)]
        return "\n".join(["{", *lines, "}"])

    def _as_it_is(self, own: Sequence[AsmOperand]) -> None:
        for operand in own:
            tied = operand.constraint.tied
            self.names[operand.number] = f"${len(self.constraints)}"
            self.constraints.append(operand.constraint.text if tied is None else self.names[tied].removeprefix("$"))

    def _between_moves(self, own: Sequence[AsmOperand]) -> None:
        for operand in own:
            tied = operand.constraint.tied
            self.names[operand.number] = self._new(operand.width) if tied is None else self.names[tied]
        wide = own[0].element_width == 64
        count = _together(own[0], self.pack)
        outers = []
        for _ in range(self.pack // count):
            outers.append(f"${len(self.constraints)}")
            self.constraints.append(f"{'=&' if own[0].output else ''}{'l' if wide else 'r'}")
        moves = self._moves(own, outers, 64 if wide else 32)
        if own[0].output:
            self.saves += [move.back for move in reversed(moves)]
        else:
            self.loads += moves

    def _moves(self, own: Sequence[AsmOperand], outers: Sequence[str], width: int) -> list[_Move]:
        """The moves from Triton's registers (of `width` bits) to the operands of one tensor."""
        if len(outers) > len(own):
            each = len(outers) // len(own)
            groups = [outers[k * each : (k + 1) * each] for k in range(len(own))]
            return [self._put(o, group, width) for o, group in zip(own, groups, strict=True)]
        each = len(own) // len(outers)
        size = own[0].count * own[0].element_width
        pieces = [self.names[o.number] if o.width == size else self._new(size) for o in own]
        moves = []
        for k, outer in enumerate(outers):
            group = pieces[k * each : (k + 1) * each]
            moves.append(_Move(outer, width, self._filled(group, size, width), True))
        return moves + [self._put(o, [p], size) for o, p in zip(own, pieces, strict=True) if o.width != size]

    def _put(self, operand: AsmOperand, parts: Sequence[str], size: int) -> _Move:
        """The move of parts of `size` bits into an operand's register."""
        if size == 8 and operand.width > 32:
            raise BindingError(
                f"operand {operand.describes}: an element of 8 bits in a register of {operand.width} bits "
                f"(constraint {operand.constraint.text!r}) has no counterpart in Triton; use 'r' or 'h'"
            )
        return _Move(self.names[operand.number], operand.width, self._filled(parts, size, operand.width), False)

    def _filled(self, parts: Sequence[str], size: int, width: int) -> tuple[str, ...]:
        """All parts of a register, including unused ones, whose bits stay undefined."""
        return (*parts, *(self._new(size) for _ in range(width // size - len(parts))))

    def _new(self, width: int) -> str:
        name = f"{self.prefix}{len(self._declared)}"
        self._declared.append((width, name))
        return name
