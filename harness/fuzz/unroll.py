"""Unroll loops into straight-line copies of their bodies, so that each iteration can be reduced separately.

The result need not compute the same as the loop, because the caller runs it in the emulator. A loop counter with a
constant initial value and step is set to a constant in each copy, so that no copy needs the previous ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ptxdiff.fuzz.cut import nearest, settled
from ptxdiff.fuzz.pieces import FlowProgram, Piece
from ptxdiff.fuzz.program import Operand, RandomProgram, Statement, Variable, registers, renamed
from ptxdiff.fuzz.reduce import Making

ROUNDS = (2, 4, 8, 16, 32, 64, 3, 5, 6, 7, *range(9, 16), *range(17, 32))
"""The numbers of copies to try, in this order. If there are more than needed, the reduction removes the rest."""
MOST_PIECES = 4096
_STEP = re.compile(r"(add|sub)\.[bsu](?:16|32|64) «0», «1», (-?(?:0x)?[0-9a-fA-F]+)")
_BEGIN = re.compile(r"mov\.([bsu](?:16|32|64)) «0», (-?(?:0x)?[0-9a-fA-F]+)")


# kernels of any shape ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Loop:
    """An innermost loop: the index of its label, and of the last branch back to it."""

    first: int
    last: int


def unrolled(program: FlowProgram) -> Iterator[Sequence[Making[FlowProgram]]]:
    """For each innermost loop, the ways to unroll it: kernels without that loop."""
    pieces = program.pieces
    for loop in _loops(pieces):
        counts = [n for n in ROUNDS if n * (loop.last - loop.first) <= MOST_PIECES]
        yield [partial(_flat, pieces, loop, n, leaves) for n in counts for leaves in (False, True)]


def _loops(pieces: Sequence[Piece]) -> Iterator[_Loop]:
    places = {p.label: k for k, p in enumerate(pieces) if p.label}
    jumps = [(k, places[p.target]) for k, p in enumerate(pieces) if p.target]
    for first in sorted({to for at, to in jumps if to < at}):
        last = max(at for at, to in jumps if to == first)
        inside = range(first, last + 1)
        # An innermost loop is entered only at its label, and has no other backward branch.
        entered = any(first < to <= last and at not in inside for at, to in jumps)
        deeper = any(at in inside and first < to < at for at, to in jumps)
        if not entered and not deeper and all(at > first for at, to in jumps if to == first):
            yield _Loop(first, last)


def _flat(pieces: tuple[Piece, ...], loop: _Loop, rounds: int, leaves: bool) -> FlowProgram:
    """The kernel with `rounds` copies of a loop's body. leaves: whether a thread may leave after each copy."""
    body, closing = pieces[loop.first + 1 : loop.last], pieces[loop.last]
    numbers = iter(range(1 + max(p.label for p in pieces), 1 << 30))
    inner = [p.label for p in body if p.label]
    own = pieces[loop.first].label
    begins = [next(numbers) for _ in range(rounds + 1)]
    counters = _counters(pieces, loop)
    copies: list[Piece] = []
    for number in range(rounds):
        labels = {label: next(numbers) for label in inner} | {own: begins[number + 1]}
        copies.append(Piece(label=begins[number]))
        for piece in body:
            if piece.writes and piece.writes[0] in counters and _STEP.fullmatch(piece.text):
                piece = _known(piece, counters[piece.writes[0]], number + 1)
            target, label = labels.get(piece.target, piece.target), labels.get(piece.label, piece.label)
            copies.append(replace(piece, target=target, label=label))
        if leaves and closing.guard is not None:
            copies.append(replace(closing, negated=not closing.negated, target=begins[rounds]))
    copies.append(Piece(label=begins[rounds]))
    return FlowProgram(settled((*pieces[: loop.first], *copies, *pieces[loop.last + 1 :]), nearest))


@dataclass(frozen=True)
class _Counter:
    """A register with a constant initial value and a constant step. kind: the type of the `mov` that sets it."""

    kind: str
    begin: int
    step: int


def _counters(pieces: Sequence[Piece], loop: _Loop) -> dict[Operand, _Counter]:
    """The counters of a loop: registers set to a constant before it, with one constant step in it."""
    found: dict[Operand, _Counter] = {}
    for piece in pieces[loop.first : loop.last]:
        step = _STEP.fullmatch(piece.text)
        if step is None or piece.guard is not None or piece.operands[0] != piece.operands[1]:
            continue
        register = piece.operands[0]
        before = [p for p in pieces[: loop.first] if register in p.writes]
        within = [p for p in pieces[loop.first : loop.last] if register in p.writes]
        begin = _BEGIN.fullmatch(before[-1].text) if before and before[-1].guard is None else None
        if len(within) == 1 and begin is not None:
            sign = -1 if step[1] == "sub" else 1
            found[register] = _Counter(begin[1], int(begin[2], 0), sign * int(step[2], 0))
    return found


def _known(piece: Piece, counter: _Counter, rounds: int) -> Piece:
    """The step of a counter, replaced by a `mov` of the counter's value after `rounds` iterations."""
    value = counter.begin + rounds * counter.step
    return Piece(f"mov.{counter.kind} «0», {value}", piece.operands[:1], 1)


# random programs --------------------------------------------------------------------------------------------------


MOST_ROUNDS = 8
"""The most iterations of a random program's loop."""


def unrolled_random(program: RandomProgram) -> Iterator[Sequence[Making[RandomProgram]]]:
    """For each outermost loop of a random program, the ways to unroll it."""
    for place, statement in enumerate(program.statements):
        if "{l0}:\n{body}" in statement.text:
            yield [partial(_flat_random, program, place, rounds) for rounds in range(2, MOST_ROUNDS + 1)]


def _flat_random(program: RandomProgram, place: int, rounds: int) -> RandomProgram:
    loop = program.statements[place]
    numbers = iter(range(1 + max((r.number for r in registers(program.statements)), default=0), 1 << 30))
    carried, counter = loop.writes[:2]
    value: Operand = loop.reads[0]
    copies: list[Statement] = []
    for number in range(rounds):
        count = Variable("r", next(numbers))
        copies.append(Statement(f"mov.b32 {{w0}}, {number};", (count,)))
        names: dict[Variable, Operand] = {carried: value, counter: count}
        copies += _copied(loop.body, names, numbers)
        value = names.get(loop.result, loop.result) if isinstance(loop.result, Variable) else loop.result
    after: dict[Variable, Operand] = {carried: value}
    rest = renamed(program.statements[place + 1 :], after)
    outputs = tuple(after.get(o, o) if isinstance(o, Variable) else o for o in program.outputs)
    return RandomProgram((*program.statements[:place], *copies, *rest), outputs)


def _copied(
    statements: Sequence[Statement], names: dict[Variable, Operand], numbers: Iterator[int]
) -> tuple[Statement, ...]:
    """A copy of statements that writes new registers. names: replacements for registers that are read; those for the
    copied registers are added.
    """

    def of(operand: Operand) -> Operand:
        return names.get(operand, operand) if isinstance(operand, Variable) else operand

    found = []
    for statement in statements:
        reads = tuple(map(of, statement.reads))
        writes = tuple(Variable(w.kind, next(numbers)) for w in statement.writes)
        names |= dict(zip(statement.writes, writes, strict=True))
        body = _copied(statement.body, names, numbers)
        found.append(replace(statement, reads=reads, writes=writes, body=body, result=of(statement.result)))
    return tuple(found)
