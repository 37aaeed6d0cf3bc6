"""Loops as straight-line copies of their bodies, so that one round of a loop can be reduced apart from the others.

A copy need not behave as the loop did: the caller has it emulated. A counter of rounds is known in each copy: if it
begins at a constant and grows by a constant, it is set to its value, so that no round needs the rounds before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from harness.fuzz.cut import nearest, settled
from harness.fuzz.pieces import FlowProgram, Piece
from harness.fuzz.program import Operand, RandomProgram, Statement, Variable, registers, renamed
from harness.fuzz.reduce import Making

ROUNDS = (2, 4, 8, 16, 32, 64, 3, 5, 6, 7, *range(9, 16), *range(17, 32))
"""How many copies are tried, in this order. The reduction removes copies that are not needed."""
MOST_PIECES = 4096
_STEP = re.compile(r"(add|sub)\.[bsu](?:16|32|64) «0», «1», (-?(?:0x)?[0-9a-fA-F]+)")
_BEGIN = re.compile(r"mov\.([bsu](?:16|32|64)) «0», (-?(?:0x)?[0-9a-fA-F]+)")


# kernels of any shape ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Loop:
    """A loop that contains no loop: the index of its label, and that of the last branch back to the label."""

    first: int
    last: int


def unrolled(program: FlowProgram) -> Iterator[Sequence[Making[FlowProgram]]]:
    """For each innermost loop the ways to unroll it, each a kernel without that loop."""
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
        # It is entered at its label alone, and every branch back within it goes to the label.
        entered = any(first < to <= last and at not in inside for at, to in jumps)
        deeper = any(at in inside and first < to < at for at, to in jumps)
        if not entered and not deeper and all(at > first for at, to in jumps if to == first):
            yield _Loop(first, last)


def _flat(pieces: tuple[Piece, ...], loop: _Loop, rounds: int, leaves: bool) -> FlowProgram:
    """The kernel with `rounds` copies of a loop's body. leaves: threads may leave after each copy, as in the loop."""
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
    """A register that begins at a constant and grows by a constant in every round. kind: the type of its first mov."""

    kind: str
    begin: int
    step: int


def _counters(pieces: Sequence[Piece], loop: _Loop) -> dict[Operand, _Counter]:
    """The counters of a loop's rounds: registers set to a constant before it, and stepped once by a constant in it."""
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
    """A counter's step, replaced by the constant that is its result."""
    value = counter.begin + rounds * counter.step
    return Piece(f"mov.{counter.kind} «0», {value}", piece.operands[:1], 1)


# random programs --------------------------------------------------------------------------------------------------


MOST_ROUNDS = 8
"""Rounds of a random program's loop."""


def unrolled_random(program: RandomProgram) -> Iterator[Sequence[Making[RandomProgram]]]:
    """As `unrolled`, for the loops of a random program that lie in no other loop."""
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
    """Statements that write registers of their own. names: from variables to registers; new ones are added to it."""

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
