"""Smaller candidates for `reduce` from a kernel of any shape, with branches, loops and barriers.

A candidate need not be meaningful. The caller runs it in the emulator, which refuses kernels that read undefined bits,
race, deadlock or do not end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from ptxdiff.fuzz.pieces import FlowProgram, Piece
from ptxdiff.fuzz.program import Operand, Variable

_CONSTANTS = ("0", "1", "-1")

StandIn = Callable[[Variable, Sequence[Variable]], Operand | None]
"""Gives the operand that replaces a register that is no longer written, from the registers written before; None to
remove the piece that reads it."""


def nearest(register: Variable, known: Sequence[Variable]) -> Operand | None:
    """The latest register of the same kind, else zero."""
    found = next((k for k in reversed(known) if k.kind == register.kind), None)
    return found or (None if register.kind == "pred_" else "0")


def farthest(register: Variable, known: Sequence[Variable]) -> Operand | None:
    """The first register of the same kind, else one."""
    found = next((k for k in known if k.kind == register.kind), None)
    return found or (None if register.kind == "pred_" else "1")


def nothing(register: Variable, known: Sequence[Variable]) -> Operand | None:
    """None, so that pieces that read the register are removed."""
    return None


_STAND_INS: tuple[StandIn, ...] = (nothing, nearest, farthest)


def smaller(program: FlowProgram) -> Iterator[Callable[[], FlowProgram]]:
    """Smaller kernels, the smallest first.

    First, runs of pieces are removed, from halves down to single pieces. This also removes whole blocks; a removed
    branch falls through, and a loop without its closing branch runs once. Then guards are dropped, which makes a branch
    unconditional, and registers that are read become constants or other registers of their kind.
    """
    pieces = program.pieces
    length = 1 << max(0, len(pieces) - 1).bit_length()
    while length:
        for first in range(0, len(pieces), length):
            for by in _STAND_INS:
                yield partial(_without, pieces, first, length, by)
        length //= 2
    for place, piece in enumerate(pieces):
        if piece.guard is not None:
            yield partial(_with, pieces, place, replace(piece, guard=None, negated=False))
        for at in range(piece.outs, len(piece.operands)):
            operand = piece.operands[at]
            if isinstance(operand, Variable) and operand.kind != "pred_":
                others = [v for v in _written_before(pieces, place) if v.kind == operand.kind and v != operand]
                stand_ins: list[Operand] = [*_CONSTANTS, *others[-1:], *others[:1]]
                for other in stand_ins:
                    operands = (*piece.operands[:at], other, *piece.operands[at + 1 :])
                    yield partial(_with, pieces, place, replace(piece, operands=operands))


def _written_before(pieces: tuple[Piece, ...], place: int) -> list[Variable]:
    return [w for p in pieces[:place] for w in p.writes if isinstance(w, Variable)]


def _without(pieces: tuple[Piece, ...], first: int, length: int, by: StandIn) -> FlowProgram:
    return FlowProgram(settled((*pieces[:first], *pieces[first + length :]), by))


def _with(pieces: tuple[Piece, ...], place: int, piece: Piece) -> FlowProgram:
    return FlowProgram(settled((*pieces[:place], piece, *pieces[place + 1 :]), nearest))


def settled(pieces: tuple[Piece, ...], by: StandIn) -> tuple[Piece, ...]:
    """The pieces without unreachable code, unused labels and instructions whose results are not read."""
    while True:
        made = _read(_jumped_to(_reached(_defined(pieces, by))))
        if made == pieces:
            return made
        pieces = made


def _defined(pieces: tuple[Piece, ...], by: StandIn) -> tuple[Piece, ...]:
    """Replace registers that are read but not written. A guard without predicate is dropped, or its piece removed."""
    written = {w for p in pieces for w in p.writes}
    known: list[Variable] = []
    found = []
    for piece in pieces:
        if piece.guard is not None and piece.guard not in written:
            if by is nothing:
                continue
            piece = replace(piece, guard=None, negated=False)
        operands = [by(o, known) if isinstance(o, Variable) and o not in written else o for o in piece.operands]
        if None in operands:
            continue
        found.append(replace(piece, operands=tuple(o for o in operands if o is not None)))
        known += [w for w in piece.writes if isinstance(w, Variable)]
    return tuple(found)


def _reached(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Remove unreachable pieces: those between an unconditional branch or an end and the next label."""
    found, passes = [], True
    for piece in pieces:
        passes = passes or bool(piece.label)
        if passes:
            found.append(piece)
            passes = piece.passes
    return tuple(found)


def _jumped_to(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Remove labels without a branch to them, and branches to a removed or directly following label."""
    labels = {p.label for p in pieces if p.label}
    targets = {p.target for p in pieces if p.target}
    found = []
    for place, piece in enumerate(pieces):
        if (piece.label and piece.label not in targets) or (piece.target and piece.target not in labels):
            continue
        behind = next((k for k in range(place + 1, len(pieces)) if not pieces[k].label), len(pieces))
        if piece.target and piece.target in {p.label for p in pieces[place + 1 : behind]}:
            continue
        found.append(piece)
    return tuple(found)


def _read(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Remove instructions whose results no other piece reads, unless they have side effects."""
    readers: dict[Operand, set[int]] = {}
    for place, piece in enumerate(pieces):
        for operand in (*piece.reads, piece.guard):
            if isinstance(operand, Variable):
                readers.setdefault(operand, set()).add(place)

    def is_read(place: int, piece: Piece) -> bool:
        return piece.carries or any(readers.get(w, set()) - {place} for w in piece.writes)

    return tuple(p for k, p in enumerate(pieces) if not p.outs or p.acts or is_read(k, p))
