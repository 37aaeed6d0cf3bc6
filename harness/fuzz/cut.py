"""Smaller kernels from one with branches, loops and barriers: candidates for `reduce`, which keeps what shows a fault.

A candidate need not mean anything: who asks has it emulated, and one that reads undefined bits, races, waits for ever
or does not end is refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from harness.fuzz.pieces import FlowProgram, Piece
from harness.fuzz.program import Operand, Variable

_ACT = frozenset({"atom", "atomg", "ld.volatile", "shfl", "vote", "activemask", "barrier", "bar", "mbarrier", "redux"})
"""What is not dropped because nobody reads its result: it also acts, or other threads wait in it."""
_CONSTANTS = ("0", "1", "-1")

StandIn = Callable[[Variable, Sequence[Variable]], Operand | None]
"""What is read for a register that nothing writes any more, given those written before; None: nothing."""


def nearest(register: Variable, known: Sequence[Variable]) -> Operand | None:
    """The last register of the kind, or zero."""
    found = next((k for k in reversed(known) if k.kind == register.kind), None)
    return found or (None if register.kind == "pred_" else "0")


def farthest(register: Variable, known: Sequence[Variable]) -> Operand | None:
    """The first register of the kind, or one."""
    found = next((k for k in known if k.kind == register.kind), None)
    return found or (None if register.kind == "pred_" else "1")


def nothing(register: Variable, known: Sequence[Variable]) -> Operand | None:
    """Who reads it goes too."""
    return None


_STAND_INS: tuple[StandIn, ...] = (nothing, nearest, farthest)


def smaller(program: FlowProgram) -> Iterator[Callable[[], FlowProgram]]:
    """Smaller kernels, those that leave most out first.

    Runs of pieces are left out, halves first and single ones last: a run of a block's size is a block, a branch left
    out falls through, and a loop without the branch that closes it is cut to one round. Then guards are dropped, which
    makes a branch unconditional, and registers that are read become constants, or others of their kind.
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
    """Pieces without what has lost its use: code that nothing reaches, labels, results that nobody reads."""
    while True:
        made = _read(_jumped_to(_reached(_defined(pieces, by))))
        if made == pieces:
            return made
        pieces = made


def _defined(pieces: tuple[Piece, ...], by: StandIn) -> tuple[Piece, ...]:
    """No register is read that nothing writes. A guard without its predicate is dropped, or goes with its piece."""
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
    """Without what stands behind an unconditional branch or an end, up to the next label."""
    found, passes = [], True
    for piece in pieces:
        passes = passes or bool(piece.label)
        if passes:
            found.append(piece)
            passes = piece.passes
    return tuple(found)


def _jumped_to(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Without labels that nothing branches to, and branches to a label that is gone, or comes next."""
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
    """Without instructions whose results nobody else reads, and which do nothing else."""
    readers: dict[Operand, set[int]] = {}
    for place, piece in enumerate(pieces):
        for operand in (*piece.reads, piece.guard):
            if isinstance(operand, Variable):
                readers.setdefault(operand, set()).add(place)

    def is_read(place: int, piece: Piece) -> bool:
        return piece.carries or any(readers.get(w, set()) - {place} for w in piece.writes)

    return tuple(p for k, p in enumerate(pieces) if not p.outs or p.opcode in _ACT or is_read(k, p))
