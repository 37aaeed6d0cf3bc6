"""Delta debugging: reduce a program that shows a fault to a small one that still shows it.

The algorithm is the same for all programs. This module makes the smaller candidates for random programs, which are
trees of statements; `cut` makes those for kernels of any shape.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

from ptxdiff.fuzz.program import INPUTS, Operand, RandomProgram, Statement, Variable, renamed

P = TypeVar("P", bound=Hashable)
Shows = Callable[[Sequence[P]], Sequence[bool]]
"""Tells which of some programs show the fault. It gets several programs at once, so that they can share a module."""
Making = Callable[[], P]
"""Makes a smaller program on demand."""
_AT_ONCE = 24


def reduced(
    program: P,
    shows: Shows[P],
    smaller: Callable[[P], Iterable[Making[P]]],
    *,
    seconds: float = math.inf,
    at_once: int = _AT_ONCE,
    onwards: bool = False,
) -> P:
    """The smallest program that was found. Each step keeps the first candidate that shows the fault.

    smaller: gives candidates, the smallest first. seconds: the time limit, after which the present program is returned.
    at_once: the number of candidates that are tested together. onwards: whether a step starts after the candidate that
    the previous step kept, because most of those before it were tested, or at the first candidate. No candidate is
    tested twice.
    """
    until = time.monotonic() + seconds
    vain, begin = {program}, 0
    while True:
        made = list(smaller(program))
        order = [*range(min(begin, len(made)), len(made)), *range(min(begin, len(made)))]
        waiting = iter(order)
        while asked := _untried(waiting, made, vain, at_once):
            shown = shows([p for _, p in asked]) if time.monotonic() < until else []
            better = next((one for one, is_shown in zip(asked, shown, strict=False) if is_shown), None)
            if better is not None:
                begin, program = better[0] if onwards else 0, better[1]
                vain.add(program)
                break
            if not shown:
                return program
            vain |= {one for _, one in asked}
        else:
            return program


def reduced_by_rounds(
    program: P,
    shows: Shows[P],
    smaller: Callable[[P], Iterable[Making[P]]],
    unrolled: Callable[[P], Iterable[Sequence[Making[P]]]],
    size: Callable[[P], int],
    *,
    seconds: float = math.inf,
    at_once: int = _AT_ONCE,
    onwards: bool = False,
) -> P:
    """As `reduced`. Then each remaining loop is unrolled and reduced again; the result is kept if it is smaller.

    unrolled: gives for each loop the ways to unroll it; the first that shows the fault is reduced. size: of a program,
    in instructions.
    """
    until = time.monotonic() + seconds

    def cut(one: P) -> P:
        left = max(0.0, until - time.monotonic())
        return reduced(one, shows, smaller, seconds=left, at_once=at_once, onwards=onwards)

    program, vain = cut(program), set[P]()
    while True:
        for ways in unrolled(program):
            flat = _first_shown(ways, shows, vain, at_once, until)
            if flat is not None and size(small := cut(flat)) < size(program):
                program = small
                break
        else:
            return program


def _first_shown(ways: Sequence[Making[P]], shows: Shows[P], vain: set[P], at_once: int, until: float) -> P | None:
    """The first of some programs that shows the fault, without those in `vain`; None if there is none in time."""
    waiting = iter(range(len(ways)))
    while asked := [one for _, one in _untried(waiting, ways, vain, at_once)]:
        if time.monotonic() >= until:
            return None
        vain |= set(asked)
        found = next((one for one, shown in zip(asked, shows(asked), strict=True) if shown), None)
        if found is not None:
            return found
    return None


def _untried(waiting: Iterator[int], made: Sequence[Making[P]], vain: Container[P], most: int) -> list[tuple[int, P]]:
    """The next candidates, with their numbers, without those that were tested in vain."""
    new = ((number, one) for number in waiting if (one := made[number]()) not in vain)
    return list(islice(new, most))


def candidates(program: RandomProgram) -> Iterator[Making[RandomProgram]]:
    """Programs that are smaller than a random program."""
    count = len(list(_flat(program.statements)))
    for made in _fewer_outputs(program):
        yield partial(_same, made)
    length = count
    while length:
        for first in range(0, count, length):
            yield partial(without, program, range(first, min(first + length, count)))
        length //= 2
    for made in (*_unnested(program), *_simpler_operands(program)):
        yield partial(_same, made)


def _same(program: RandomProgram) -> RandomProgram:
    return program


def _flat(statements: Sequence[Statement]) -> Iterator[Statement]:
    for statement in statements:
        yield statement
        yield from _flat(statement.body)


def without(program: RandomProgram, numbers: range) -> RandomProgram:
    """The program without some statements, which are numbered in order, including those in bodies.

    Statements that read a removed result read an older register of its kind instead, or are removed, too. Statements
    whose results are not read are removed.
    """
    counter = iter(range(1 << 30))
    names: dict[Variable, Operand | None] = {}

    def of(operand: Operand) -> Operand | None:
        while isinstance(operand, Variable) and operand in names:
            other = names[operand]
            if other is None:
                return None
            operand = other
        return operand

    def kept(statements: Sequence[Statement], known: list[Variable]) -> list[Statement]:
        found = []
        for statement in statements:
            number, inner = next(counter), list(known)
            body = kept(statement.body, inner + list(statement.writes))
            reads = [of(r) for r in statement.reads]
            result = of(statement.result)
            if number in numbers or None in reads or result is None:
                for register in statement.writes:
                    names[register] = _stand_in(register, known)
                continue
            found.append(
                replace(statement, reads=tuple(r for r in reads if r is not None), body=tuple(body), result=result)
            )
            known += statement.writes
        return found

    statements = kept(program.statements, [Variable("r", k) for k in range(INPUTS)])
    outputs = tuple("0" if (o := of(operand)) is None else o for operand in program.outputs)
    return RandomProgram(tuple(_used(statements, set(outputs))), outputs)


def _stand_in(register: Variable, known: Sequence[Variable]) -> Variable | None:
    same = [r for r in known if r.kind == register.kind]
    return same[register.number % len(same)] if same else None


def _used(statements: Sequence[Statement], wanted: set[Operand]) -> list[Statement]:
    """The statements whose results are read.

    wanted: the registers that are read later. Those that the statements read are added."""
    found: list[Statement] = []
    for statement in reversed(statements):
        if wanted.isdisjoint(statement.writes):
            continue
        inner: set[Operand] = {statement.result} | set(statement.writes)
        body = _used(statement.body, inner)
        wanted |= set(statement.reads) | inner
        found.append(replace(statement, body=tuple(body)))
    return found[::-1]


def _fewer_outputs(program: RandomProgram) -> Iterator[RandomProgram]:
    """Programs with only one of the outputs, and with one output less."""
    for one in range(len(program.outputs)):
        for outputs in (
            tuple(o if k == one else "0" for k, o in enumerate(program.outputs)),
            tuple("0" if k == one else o for k, o in enumerate(program.outputs)),
        ):
            if outputs != program.outputs and any(o != "0" for o in outputs):
                yield without(replace(program, outputs=outputs), range(0))


def _unnested(program: RandomProgram) -> Iterator[RandomProgram]:
    """Programs with a loop or a branch replaced by its body."""
    for number, statement in enumerate(program.statements):
        if statement.body:
            names: dict[Variable, Operand] = {statement.writes[0]: statement.result}
            # The first register that a loop writes is the carried one: in its body it becomes the initial value.
            inside: dict[Variable, Operand] = {w: Variable("r", k % INPUTS) for k, w in enumerate(statement.writes)}
            inside[statement.writes[0]] = statement.reads[0]
            if statement.result == statement.writes[0]:
                names[statement.writes[0]] = statement.reads[0]
            body = renamed(statement.body, inside)
            after = renamed(program.statements[number + 1 :], names)
            outputs = tuple(names.get(o, o) if isinstance(o, Variable) else o for o in program.outputs)
            yield RandomProgram((*program.statements[:number], *body, *after), outputs)


def _simpler_operands(program: RandomProgram) -> Iterator[RandomProgram]:
    """Programs with one operand replaced by an input of the program."""
    for number, statement in enumerate(program.statements):
        for place, operand in enumerate(statement.reads):
            if isinstance(operand, Variable) and operand.kind == "r" and operand.number >= INPUTS:
                for simple in range(min(2, INPUTS)):
                    reads = list(statement.reads)
                    reads[place] = Variable("r", simple)
                    statements = list(program.statements)
                    statements[number] = replace(statement, reads=tuple(reads))
                    yield without(RandomProgram(tuple(statements), program.outputs), range(0))
