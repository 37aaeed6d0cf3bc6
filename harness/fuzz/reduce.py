"""Delta debugging: reduce a program that shows a fault to a small one that still shows it.

The algorithm is the same for all programs. This module makes the smaller candidates for random programs, which are
trees of statements; `cut` makes those for kernels of any shape.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from typing import TypeVar

from ptxdiff.fuzz.pieces import FlowProgram, Piece
from ptxdiff.fuzz.program import INPUTS, OUTPUTS, Operand, RandomProgram, Statement, Variable, registers, renamed

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
        smaller_one = next((one for one, shown in zip(asked, shows(asked), strict=True) if shown), None)
        if smaller_one is not None:
            return smaller_one
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
    for made in (*_unnested(program), *_simpler_operands(program), *_plainer(program)):
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
        statements_kept = []
        for statement in statements:
            number, inner = next(counter), list(known)
            body = kept(statement.body, inner + list(statement.writes))
            reads = [of(r) for r in statement.reads]
            result = of(statement.result)
            if number in numbers or None in reads or result is None:
                for register in statement.writes:
                    names[register] = _stand_in(register, known)
                continue
            statements_kept.append(
                replace(statement, reads=tuple(r for r in reads if r is not None), body=tuple(body), result=result)
            )
            known += statement.results
        return statements_kept

    statements = kept(program.statements, [Variable("r", k) for k in range(INPUTS)])
    outputs = tuple("0" if (o := of(operand)) is None else o for operand in program.outputs)
    return RandomProgram(tuple(_used(statements, set(outputs))), outputs)


def _stand_in(register: Variable, known: Sequence[Variable]) -> Variable | None:
    same = [r for r in known if r.kind == register.kind]
    return same[register.number % len(same)] if same else None


def _used(statements: Sequence[Statement], wanted: set[Operand]) -> list[Statement]:
    """The statements whose results are read.

    wanted: the registers that are read later. Those that the statements read are added."""
    needed: list[Statement] = []
    for statement in reversed(statements):
        if wanted.isdisjoint(statement.writes):
            continue
        inner: set[Operand] = {statement.result} | set(statement.writes)
        body = _used(statement.body, inner)
        wanted |= set(statement.reads) | inner
        needed.append(replace(statement, body=tuple(body)))
    return needed[::-1]


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
        if _has_body(statement):
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
    """Programs with one operand replaced by an input of the program, or by the first register of its kind.

    `without` replaces a removed result wherever it is read. Here the other statements that read it keep it.
    """
    first: dict[str, Variable] = {}
    for number, statement in enumerate(program.statements):
        for index, operand in enumerate(statement.reads):
            if not isinstance(operand, Variable) or (operand.kind == "r" and operand.number < INPUTS):
                continue
            inputs = [Variable("r", k) for k in range(2)]
            for simple in inputs if operand.kind == "r" else [first.get(operand.kind, operand)]:
                if simple == operand:
                    continue
                reads = (*statement.reads[:index], simple, *statement.reads[index + 1 :])
                yield _with_statement(program, number, replace(statement, reads=reads))
        for register in statement.results:
            first.setdefault(register.kind, register)


# Plainer programs ------------------------------------------------------------------------------------------------
#
# One fault has many programs: other instructions compute its operands and read its result, and its instructions have
# other types. These candidates lead them to one program, so that a campaign reports the fault once.

PLAIN_SOURCES = {
    "d": "mov.b64 {w0}, {{r0}, {r1}};",
    "h": "cvt.u16.u32 {w0}, {r0};",
    "p": "setp.lt.s32 {w0}, {r0}, {r1};",
    "f": "mov.b32 {w0}, {r0};",
    "s": "mov.b32 {w0}, {r0};",
    "b": "mov.b32 {w0}, {r0};",
    "e": "cvt.rn.f64.s32 {w0}, {r0};",
}
"""How a register of each kind is made of inputs."""

PLAIN_USES = {"h": "cvt.u32.u16 {w0}, {r0};", "p": "selp.b32 {w0}, 1, 0, {r0};", "d": "mov.b64 {{w0}, {w1}}, {r0};"}
"""How a register of a kind is made words that are stored. Floats are not: the bits of a NaN are not specified."""

PLAINER_SPELLINGS = tuple(
    (re.compile(rf"\b{pattern}"), plainer)
    for pattern, plainer in (
        (r"(add|addc|sub|subc|mad\.lo|madc\.lo)\.cc\.", r"\1."),
        (r"(cvt\.rn\.satfinite)\.relu\.", r"\1."),
        (r"(cvt\.[\w.]*)e5m2x2", r"\1e4m3x2"),
        (r"cvt\.r[nmp]i\.([su]\d+)\.f", r"cvt.rzi.\1.f"),
        (r"cvt\.r[zmp]\.f32\.([su]\d+)", r"cvt.rn.f32.\1"),
        (r"mul\.hi\.s(16|32|64)", r"mul.hi.u\1"),
        (r"shr\.s16", "shr.u16"),
        (r"ld\.shared\.s(8|16)", r"ld.shared.u\1"),
        (r"ld\.shared\.u16", "ld.shared.u8"),
    )
)
"""Instructions and plainer ones that take the same operands. The plainer one is defined for every operand, because
nothing else keeps a program's operands from those for which an instruction has no result."""

_SMALL = 3
"""Constants up to this one stay."""


def _plainer(program: RandomProgram) -> Iterator[RandomProgram]:
    yield from _earlier_outputs(program)
    yield from _operands_stored(program)
    yield from _without_an_instruction(program)
    yield from _plain_sources(program)
    yield _plain_first(program)
    for number, statement in enumerate(program.statements):
        for pattern, plainer in PLAINER_SPELLINGS:
            for match in pattern.finditer(statement.text):
                text = statement.text[: match.start()] + match.expand(plainer) + statement.text[match.end() :]
                if _carries_are_made(text):
                    yield _with_statement(program, number, replace(statement, text=text))
        for index, read in enumerate(statement.reads):
            if isinstance(read, str) and read.isdecimal() and int(read) > _SMALL:
                for smaller_one in (1, 2, _SMALL, int(read) // 2):
                    reads = (*statement.reads[:index], str(smaller_one), *statement.reads[index + 1 :])
                    yield _with_statement(program, number, replace(statement, reads=reads))


def _earlier_outputs(program: RandomProgram) -> Iterator[RandomProgram]:
    """Smaller programs that store a word computed earlier, or an input, instead of an output."""
    for index, output in enumerate(program.outputs):
        for word in _storable(program) if isinstance(output, Variable) else ():
            outputs = (*program.outputs[:index], word, *program.outputs[index + 1 :])
            made = without(replace(program, outputs=outputs), range(0))
            if made.size < program.size:
                yield made


def _operands_stored(program: RandomProgram) -> Iterator[RandomProgram]:
    """Plainer programs that store what a statement reads instead of the outputs that depend on its results."""
    storable, uses = set(_storable(program)), set(PLAIN_USES.values())
    numbers = iter(range(1 + max((r.number for r in registers(program.statements)), default=INPUTS), 1 << 30))
    for number, statement in enumerate(program.statements):
        if statement.text in uses:
            continue
        depends: set[Operand] = set(statement.writes)
        for later in program.statements[number + 1 :]:
            if not depends.isdisjoint(_reads(later)):
                depends |= set(registers([later]))
        stored: list[Operand] = [o for o in program.outputs if o != "0" and o not in depends]
        added = []
        for read in dict.fromkeys((*statement.reads, statement.result)):
            if read in storable:
                stored.append(read)
            elif isinstance(read, Variable) and read.kind in PLAIN_USES:
                text = PLAIN_USES[read.kind]
                stored_words = tuple(Variable("r", next(numbers)) for _ in range(2 if "{w1}" in text else 1))
                added.append(Statement(text, stored_words, (read,)))
                stored += stored_words
        stored = list(dict.fromkeys(stored))
        if 0 < len(stored) <= OUTPUTS:
            outputs = (*stored, *["0"] * (OUTPUTS - len(stored)))
            made = without(RandomProgram((*program.statements, *added), outputs), range(0))
            if _involved(made) < _involved(program):
                yield made


def _without_an_instruction(program: RandomProgram) -> Iterator[RandomProgram]:
    """Programs without one of the instructions of a statement, whose result nothing reads."""
    read = {*program.outputs, *(r for s in program.statements for r in _reads(s))}
    for number, statement in enumerate(program.statements):
        lines = statement.text.split("\n")
        if _has_body(statement) or len(lines) == 1:
            continue
        for index, line in enumerate(lines):
            before, rest = "\n".join(lines[:index]), "\n".join(lines[:index] + lines[index + 1 :])
            own = [int(k) for k in re.findall(r"\{w(\d+)\}", line) if f"{{w{k}}}" not in before]
            unread = all(f"{{w{k}}}" not in rest and statement.writes[k] not in read for k in own)
            if unread and _carries_are_made(rest):
                yield _with_statement(program, number, _with_text(statement, rest))


def _plain_sources(program: RandomProgram) -> Iterator[RandomProgram]:
    """Programs in which a register is made of inputs by a plain instruction instead of another statement."""
    read = {*program.outputs, *(r for s in program.statements for r in _reads(s))}
    for number, statement in enumerate(program.statements):
        used = [w for w in statement.writes if w in read]
        if len(used) != 1 or _is_plain(statement) or _has_body(statement):
            continue
        text = PLAIN_SOURCES.get(used[0].kind, "")
        for first in range(INPUTS if text else 0):
            inputs_read = tuple(Variable("r", (first + k) % INPUTS) for k in range(text.count("{r")))
            yield _with_statement(program, number, Statement(text, (used[0],), inputs_read))


def _plain_first(program: RandomProgram) -> RandomProgram:
    """The program with the plain instructions that read inputs alone at its start, ordered by kind."""
    inputs = {Variable("r", k) for k in range(INPUTS)}
    first = [s for s in program.statements if s.text in PLAIN_SOURCES.values() and inputs.issuperset(s.reads)]
    first.sort(key=lambda s: s.text)
    return replace(program, statements=(*first, *(s for s in program.statements if s not in first)))


def _carries_are_made(text: str) -> bool:
    """Whether each instruction of a statement that reads the carry flag follows one that writes it."""
    pairs = pairwise(["", *text.split("\n")])
    return all(".cc." in before for before, line in pairs if re.search(r"\b(addc|subc|madc)\.", line))


def _has_body(statement: Statement) -> bool:
    return "{body}" in statement.text


def _reads(statement: Statement) -> set[Operand]:
    """The registers that a statement and its body read."""
    return {*statement.reads, statement.result}.union(*map(_reads, statement.body))


def _storable(program: RandomProgram) -> list[Variable]:
    """The inputs and the words that statements write for others."""
    written_words = (w for s in program.statements for w in s.results if w.kind == "r")
    return [*(Variable("r", k) for k in range(INPUTS)), *written_words]


def _is_plain(statement: Statement) -> bool:
    return statement.text in PLAIN_SOURCES.values() or statement.text in PLAIN_USES.values()


def _involved(program: RandomProgram) -> int:
    """The number of statements that are not plain."""
    return sum(not _is_plain(s) for s in _flat(program.statements))


def _with_statement(program: RandomProgram, number: int, statement: Statement) -> RandomProgram:
    statements = (*program.statements[:number], statement, *program.statements[number + 1 :])
    return without(replace(program, statements=statements), range(0))


def _with_text(statement: Statement, text: str) -> Statement:
    """A statement with another text, which has some of its registers, numbered anew."""
    kept: dict[str, list[int]] = {"w": [], "r": []}

    def numbered(found: re.Match[str]) -> str:
        order, number = kept[found[1]], int(found[2])
        if number not in order:
            order.append(number)
        return f"{{{found[1]}{order.index(number)}}}"

    text = re.sub(r"\{([wr])(\d+)\}", numbered, text)
    writes, reads = [statement.writes[k] for k in kept["w"]], [statement.reads[k] for k in kept["r"]]
    inner = tuple(new for new, old in enumerate(kept["w"]) if old in statement.inner)
    return replace(statement, text=text, writes=tuple(writes), reads=tuple(reads), inner=inner)


# Smaller candidates for `reduce` from a kernel of any shape, with branches, loops and barriers ---------------------
#
# A candidate need not be meaningful. The caller runs it in the emulator, which refuses kernels that read undefined
# bits, race, deadlock or do not end.

_CONSTANTS = ("0", "1", "-1")

StandIn = Callable[[Variable, Sequence[Variable]], Operand | None]
"""Gives the operand that replaces a register that is no longer written, from the registers written before; None to
remove the piece that reads it."""


def nearest(register: Variable, known: Sequence[Variable]) -> Operand | None:
    """The latest register of the same kind, else zero."""
    register_before = next((k for k in reversed(known) if k.kind == register.kind), None)
    return register_before or (None if register.kind == "pred_" else "0")


def farthest(register: Variable, known: Sequence[Variable]) -> Operand | None:
    """The first register of the same kind, else one."""
    first_register = next((k for k in known if k.kind == register.kind), None)
    return first_register or (None if register.kind == "pred_" else "1")


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
    for index, piece in enumerate(pieces):
        if piece.guard is not None:
            yield partial(_with, pieces, index, replace(piece, guard=None, negated=False))
        for at in range(piece.outs, len(piece.operands)):
            operand = piece.operands[at]
            if isinstance(operand, Variable) and operand.kind != "pred_":
                others = [v for v in _written_before(pieces, index) if v.kind == operand.kind and v != operand]
                stand_ins: list[Operand] = [*_CONSTANTS, *others[-1:], *others[:1]]
                for other in stand_ins:
                    operands = (*piece.operands[:at], other, *piece.operands[at + 1 :])
                    yield partial(_with, pieces, index, replace(piece, operands=operands))


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
    defined_pieces = []
    for piece in pieces:
        if piece.guard is not None and piece.guard not in written:
            if by is nothing:
                continue
            piece = replace(piece, guard=None, negated=False)
        operands = [by(o, known) if isinstance(o, Variable) and o not in written else o for o in piece.operands]
        if None in operands:
            continue
        defined_pieces.append(replace(piece, operands=tuple(o for o in operands if o is not None)))
        known += [w for w in piece.writes if isinstance(w, Variable)]
    return tuple(defined_pieces)


def _reached(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Remove unreachable pieces: those between an unconditional branch or an end and the next label."""
    reachable, passes = [], True
    for piece in pieces:
        passes = passes or bool(piece.label)
        if passes:
            reachable.append(piece)
            passes = piece.passes
    return tuple(reachable)


def _jumped_to(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Remove labels without a branch to them, and branches to a removed or directly following label."""
    labels = {p.label for p in pieces if p.label}
    targets = {p.target for p in pieces if p.target}
    remaining = []
    for index, piece in enumerate(pieces):
        if (piece.label and piece.label not in targets) or (piece.target and piece.target not in labels):
            continue
        behind = next((k for k in range(index + 1, len(pieces)) if not pieces[k].label), len(pieces))
        if piece.target and piece.target in {p.label for p in pieces[index + 1 : behind]}:
            continue
        remaining.append(piece)
    return tuple(remaining)


def _read(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Remove instructions whose results no other piece reads, unless they have side effects."""
    readers: dict[Operand, set[int]] = {}
    for index, piece in enumerate(pieces):
        for operand in (*piece.reads, piece.guard):
            if isinstance(operand, Variable):
                readers.setdefault(operand, set()).add(index)

    def is_read(place: int, piece: Piece) -> bool:
        return piece.carries or any(readers.get(w, set()) - {place} for w in piece.writes)

    return tuple(p for k, p in enumerate(pieces) if not p.outs or p.acts or is_read(k, p))


# Unroll loops into straight-line copies of their bodies ------------------------------------------------------------
#
# Unroll loops into straight-line copies of their bodies, so that each iteration can be reduced separately.
#
# The result need not compute the same as the loop, because the caller runs it in the emulator. A loop counter with a
# constant initial value and step is set to a constant in each copy, so that no copy needs the previous ones.

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
        yield [partial(_flat_program, pieces, loop, n, leaves) for n in counts for leaves in (False, True)]


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


def _flat_program(pieces: tuple[Piece, ...], loop: _Loop, rounds: int, leaves: bool) -> FlowProgram:
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
    counters: dict[Operand, _Counter] = {}
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
            counters[register] = _Counter(begin[1], int(begin[2], 0), sign * int(step[2], 0))
    return counters


def _known(piece: Piece, counter: _Counter, rounds: int) -> Piece:
    """The step of a counter, replaced by a `mov` of the counter's value after `rounds` iterations."""
    value = counter.begin + rounds * counter.step
    return Piece(f"mov.{counter.kind} «0», {value}", piece.operands[:1], 1)


# random programs --------------------------------------------------------------------------------------------------


MOST_ROUNDS = 8
"""The most iterations of a random program's loop."""


def unrolled_random(program: RandomProgram) -> Iterator[Sequence[Making[RandomProgram]]]:
    """For each outermost loop of a random program, the ways to unroll it."""
    for index, statement in enumerate(program.statements):
        if "{l0}:\n{body}" in statement.text:
            yield [partial(_flat_random, program, index, rounds) for rounds in range(2, MOST_ROUNDS + 1)]


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

    copies = []
    for statement in statements:
        reads = tuple(map(of, statement.reads))
        writes = tuple(Variable(w.kind, next(numbers)) for w in statement.writes)
        names |= dict(zip(statement.writes, writes, strict=True))
        body = _copied(statement.body, names, numbers)
        copies.append(replace(statement, reads=reads, writes=writes, body=body, result=of(statement.result)))
    return tuple(copies)
