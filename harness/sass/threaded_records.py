"""Instructions with a row of the table as numbers, which machine code of this processor runs (`sass.threaded_loop`)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from ptxdiff.emulator.numeric.vectorise import SIGNED, Array, ArrayFunction
from ptxdiff.sass.machine import _SIGNS, Computed, MachineLaunch, SourceFetch, constant_word
from ptxdiff.sass.rows import SOURCES
from ptxdiff.sass.text import MachineInstruction, Operand, Unsupported

REGISTERS, PREDICATES, UNIFORM, UNIFORM_PREDICATES = 255, 7, 255, 15
"""How many registers there are."""
ROWS_OF_REGISTERS = REGISTERS + 3
"""Rows of the table of registers: behind those of a lane lie the two halves of its return address, at 256 and 257."""
MOST_SOURCES, MOST_RESULTS = 8, 4

# A record is a row of 64-bit numbers: its length; the guard's predicate (-1: none) and whether it is inverted; how many
# sources and results it has. For each source where its bits come from, two numbers for that, and whether its bits are
# changed, with the eight numbers of `SourceChange`. For each result the addresses of a definition's code and of its
# constants, where the bits go, and the number of the register.

HEAD, SOURCE, RESULT = 5, 12, 4
REGISTER, PAIR, PREDICATE, OF_WARPS, PREDICATE_OF_WARPS, CONSTANT = range(6)
"""Where the bits of a source come from: a register, two, a predicate, the same of a warp, or a number in the record."""
_NOWHERE, TO_REGISTER, TO_PAIR, TO_PREDICATE = range(4)

_ALL, WORD = (1 << 64) - 1, 0xFFFFFFFF


@dataclass(frozen=True)
class SourceChange:
    """What signs and suffixes do to the bits x of a source, in 64 bits.

    x = (x >> shift & part) * times; x = ((x & keep) ^ flip) + plus; x = x & low; then the sign of the lowest
    64 - extend bits goes on to the upper ones.
    """

    shift: int = 0
    part: int = _ALL
    times: int = 1
    keep: int = _ALL
    flip: int = 0
    plus: int = 0
    low: int = _ALL
    extend: int = 0

    def of(self, bits: int) -> int:
        """The changed bits, in Python."""
        x = (bits >> self.shift & self.part) * self.times & _ALL
        x = ((x & self.keep) ^ self.flip) + self.plus & self.low & _ALL
        x = x << self.extend & _ALL
        return (x - (x >> 63 << 64) >> self.extend) & _ALL

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """As a record has them: whether anything is changed, and how."""
        how = (self.shift, self.part, self.times, self.keep, self.flip, self.plus, self.low, self.extend)
        return (int(self != SourceChange()), *(n - (n >> 63 << 64) for n in how))


_HALVES = {
    "": SourceChange(),
    "H0_H0": SourceChange(part=0xFFFF, times=0x10001),
    "H1_H1": SourceChange(16, 0xFFFF, 0x10001),
}
_UPPER_HALVES = ("H1_H1", "H1")


def change_of(kind: str, operand: Operand) -> SourceChange | None:
    """What signs and suffix of a source of a kind do to the bits of its register; None if it is no `SourceChange`.

    It is the same as `SourceFetch` does, which is the definition.
    """
    return _change(kind, operand.negated, operand.absolute, operand.inverted, operand.suffix)


@cache
def _change(kind: str, negated: bool, absolute: bool, inverted: bool, suffix: str) -> SourceChange | None:
    operand, source = Operand("R", 0, negated, absolute, inverted, suffix), SOURCES[kind]
    signs = operand.negated + operand.absolute + operand.inverted
    extend = 64 - source.width if source.signed and source.width < 64 else 0
    if source.width == 1:
        return SourceChange(flip=int(operand.inverted))
    if kind == "N":
        return SourceChange(flip=1 << 63 ^ (_SIGNS["f32x2"] if operand.negated else 0))
    if kind == "x" and operand.suffix == "F32":
        start = SourceChange(times=1 << 32 | 1)
    elif kind in ("h", "g"):
        start = _HALVES[operand.suffix]
    elif kind in ("e", "k", "K", "t"):
        start = SourceChange(16) if operand.suffix in _UPPER_HALVES else SourceChange(part=0xFFFF)
    elif kind == "z":
        start = SourceChange(31)
    elif kind == "y":
        start = SourceChange(8 * int(operand.suffix[1:] or 0), 0xFF)
    elif kind in ("S", "X", "Z"):
        return None
    else:
        start = SourceChange()
    shift, part, times = start.shift, start.part, start.times
    low = WORD if source.width == 32 else _ALL
    if kind == "l":
        return None if signs else SourceChange(extend=32)
    if kind == "j":
        return SourceChange(flip=WORD, plus=1) if operand.negated else SourceChange() if not signs else None
    if source.negation == "raw" or not signs:
        return SourceChange(shift, part, times, extend=extend)
    if operand.inverted:
        return None if signs > 1 else SourceChange(shift, part, times, flip=low, extend=extend)
    sign = _SIGNS.get(source.negation, 0)
    if source.negation == "two":
        return None if signs > 1 or operand.absolute else SourceChange(shift, part, times, _ALL, low, 1, low, extend)
    if source.negation in ("f32", "f16x2", "f8x4", "f32x2"):
        keep = _ALL ^ sign if operand.absolute else _ALL
        return SourceChange(shift, part, times, keep, sign if operand.negated else 0, extend=extend)
    return None


@dataclass(frozen=True, eq=False)
class Record:
    """An instruction with a row of the table as numbers.

    words: the numbers as bytes. constants: the sources in a constant bank, each with the place of its number and which
    source it is; every kernel has other ones. registers: one more than the highest register. kept: what must not be
    freed, because the numbers have its address.
    """

    step: Computed
    numbers: tuple[int, ...]
    words: bytes
    constants: tuple[tuple[int, SourceFetch, int], ...]
    registers: int
    kept: Any = None

    def bytes_in(self, launch: MachineLaunch) -> bytes:
        """The record in a launch. Raises Unsupported for a word of a constant bank that is not known."""
        if not self.constants:
            return self.words
        numbers = list(self.numbers)
        for place, fetch, number in self.constants:
            word = constant_word(launch, fetch.operand, 8 if fetch.wide else 4)
            numbers[place] = _read(fetch, word, self.step.functions[0].sources[number])
        return _packed(numbers)


def _packed(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"={len(numbers)}q", *numbers)


def _read(fetch: SourceFetch, word: int, source: tuple[int, bool]) -> int:
    """A word that is the same in all lanes, with signs and suffix, as definitions expect it. Raises Unsupported."""
    o = fetch.operand
    key = (fetch.kind, o.negated, o.absolute, o.inverted, o.suffix, fetch.constant is None, word, source)
    found = _same_words.get(key)
    if found is None:
        if len(_same_words) > MOST_WORDS:
            _same_words.clear()
        found = _same_words[key] = _changed_word(fetch, word, source)
    return found


MOST_WORDS = 1 << 16
_same_words: dict[tuple[Any, ...], int] = {}
"""Words with signs and suffix. Beside these only whether a word is a literal decides what `SourceFetch` makes of it."""


def _changed_word(fetch: SourceFetch, word: int, source: tuple[int, bool]) -> int:
    kind = fetch.dtype if fetch.wide else np.uint8 if fetch.source.width == 1 else np.uint32
    value = fetch._signed(np.full(1, word, kind))
    width, signed = source
    return int((value.view(SIGNED[width]) if signed or width == 64 else value)[0])


def record(step: Computed) -> Record | None:
    """The record of a step; None for one that Python has to run.

    That is one of uniform registers, one with a guard or an operand of an unusual kind, one whose result is not always
    known, and one whose definition does not become machine code.
    """
    guard = step.instruction.guard
    if step.uniform or step.undecided is not None or not step.functions:
        return None
    if guard is not None and (guard.kind != "P" or guard.number >= PREDICATES):
        return None
    if len(step.sources) > MOST_SOURCES or len(step.functions) > MOST_RESULTS:
        return None
    numbers = [0, -1 if guard is None else guard.number, int(guard is not None and guard.inverted),
               len(step.sources), len(step.functions)]  # fmt: skip
    constants: list[tuple[int, SourceFetch, int]] = []
    highest = 0
    for number, fetch in enumerate(step.sources):
        try:
            source = _source(fetch, step.functions[0].sources[number])
        except Unsupported:
            return None
        if source is None:
            return None
        if fetch.operand.kind == "c":
            constants.append((len(numbers) + 1, fetch, number))
        elif source[0] in (REGISTER, PAIR):
            highest = max(highest, source[1] + 1 + (source[0] == PAIR))
        numbers += source
    kept = []
    for function, (kind, place) in zip(step.functions, step.destinations, strict=True):
        code = _definition(function)
        if code is None:
            return None
        kept.append(code)
        result = _result(kind, place.kind, place.number)
        if result is None:
            return None
        if result[0] in (TO_REGISTER, TO_PAIR):
            highest = max(highest, result[1] + 1 + (result[0] == TO_PAIR))
        numbers += (code.address, code.constants.ctypes.data, *result)
    numbers[0] = len(numbers)
    if highest > REGISTERS:
        return None
    return Record(step, tuple(numbers), _packed(numbers), tuple(constants), highest, kept)


# The same instruction with other registers ----------------------------------------------------------------------------
#
# Whether a row fits, and what a record has beside the numbers of registers, depends on a number only by three
# questions: whether it is RZ, whether it is even, and whether it is one of the last ones, which begin no pair.
# Predicates keep their numbers here, because PT has a meaning, and so do uniform registers.

_LAST = 252
"""Registers from this one on are told apart by their numbers."""


def registers_apart(instruction: MachineInstruction) -> tuple[tuple[Any, ...], tuple[int, ...]] | None:
    """An instruction without the numbers of its registers, and these, in order; None if it has no such form.

    Two instructions with equal forms have equal records but for these numbers.
    """
    form: list[Any] = [instruction.opcode, instruction.modifiers, instruction.guard]
    numbers: list[int] = []
    immediate = False
    for o in instruction.operands:
        if o.kind == "R":
            n = o.number
            form.append(("R", n if n < 0 or n >= _LAST else n % 2, o.negated, o.absolute, o.inverted, o.suffix))
            numbers.append(n)
        else:
            if o.base is not None or o.uniform is not None:
                return None
            immediate = immediate or o.kind not in ("P", "UP", "UR", "c")
            form.append(o)
    if immediate:
        form.append(instruction.immediate)
    return tuple(form), tuple(numbers)


def register_places(made: Record) -> tuple[tuple[int, int, int], ...] | None:
    """The places of the numbers of registers in a record: which of the registers of its instruction each is.

    None if two registers are written, whose numbers might have to differ, or if two operands are one object, as equal
    ones mostly are: then it is not plain which is which. The last of the three numbers: 1 where the register begins a
    pair.
    """
    registers = [o for o in made.step.instruction.operands if o.kind == "R"]
    order = {id(o): k for k, o in enumerate(registers)}
    if len(order) < len(registers) or sum(place.kind == "R" for _, place in made.step.destinations) > 1:
        return None
    found = []
    at = HEAD
    for fetch in made.step.sources:
        kind = made.numbers[at]
        if kind in (REGISTER, PAIR):
            if id(fetch.operand) not in order:
                return None
            found.append((at + 1, order[id(fetch.operand)], int(kind == PAIR)))
        at += SOURCE
    for _, place in made.step.destinations:
        kind = made.numbers[at + 2]
        if kind in (TO_REGISTER, TO_PAIR):
            if id(place) not in order:
                return None
            found.append((at + 3, order[id(place)], int(kind == TO_PAIR)))
        at += RESULT
    return tuple(found)


def with_registers(made: Record, places: Sequence[tuple[int, int, int]], registers: Sequence[int]) -> Record:
    """A record with other registers. places: of `register_places`; registers: of `registers_apart`."""
    numbers, highest = list(made.numbers), 0
    for place, which, pair in places:
        numbers[place] = registers[which]
        highest = max(highest, registers[which] + 1 + pair)
    return Record(made.step, tuple(numbers), _packed(numbers), made.constants, highest, made.kept)


def _source(fetch: SourceFetch, source: tuple[int, bool]) -> tuple[int, ...] | None:
    operand, same = fetch.operand, (0,) * 8
    if fetch.constant is not None:
        return CONSTANT, _read(fetch, fetch.constant, source), 0, 0, *same
    if operand.kind == "c":
        return CONSTANT, 0, 0, 0, *same
    if operand.kind in ("R", "UR") and operand.number < 0:
        return CONSTANT, _read(fetch, 0, source), 0, 0, *same
    if operand.kind in ("P", "UP") and operand.number == 7:
        return CONSTANT, _read(fetch, 1, source), 0, 0, *same
    change = change_of(fetch.kind, operand)
    most = {"R": REGISTERS, "P": PREDICATES, "UR": UNIFORM, "UP": UNIFORM_PREDICATES}.get(operand.kind, 0)
    pair = fetch.wide and operand.suffix != "F32"
    if change is None or not 0 <= operand.number < most - pair or (pair and operand.kind != "R"):
        return None
    place = {"R": REGISTER, "P": PREDICATE, "UR": OF_WARPS, "UP": PREDICATE_OF_WARPS}[operand.kind]
    place = PAIR if pair else place
    return place, operand.number, 0, *change.numbers


def _result(kind: str, register: str, number: int) -> tuple[int, int] | None:
    if register == "P":
        return (_NOWHERE, 0) if number == 7 else (TO_PREDICATE, number) if number < PREDICATES else None
    if register != "R":
        return None
    return (_NOWHERE, 0) if number < 0 else (TO_PAIR if kind == "R2" else TO_REGISTER, number)


@dataclass(frozen=True, eq=False)
class _Definition:
    """The shared code of a definition, and its constants, at the addresses that a record has."""

    address: int
    constants: Array
    code: Any


_definitions: dict[ArrayFunction, _Definition | None] = {}
_loops: dict[tuple[Callable[..., int], int, int], Any] = {}


def _definition(function: ArrayFunction) -> _Definition | None:
    if function not in _definitions:
        code = _shared(function.function, len(function.sources), len(function.constants))
        words = np.array([(c + (1 << 63)) % (1 << 64) - (1 << 63) for c in function.constants] or [0], np.int64)
        _definitions[function] = None if code is None else _Definition(_address(code), words, code)
    return _definitions[function]


def _shared(function: Callable[..., int], sources: int, constants: int) -> Any:
    """The code of a definition with constants as arguments; None for one that cannot be translated."""
    from ptxdiff.emulator.numeric.translation import loops, machinecode
    from ptxdiff.emulator.numeric.translation.source import Untranslatable

    key = function, sources, constants
    if key not in _loops:
        try:
            _loops[key] = machinecode.load(loops.shared(function, sources, constants))
        except Untranslatable:
            _loops[key] = None
    return _loops[key]


def _address(code: Any) -> int:
    import ctypes

    return int(ctypes.cast(code, ctypes.c_void_p).value or 0)
