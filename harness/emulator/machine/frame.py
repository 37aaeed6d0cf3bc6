"""The registers of lanes that run together.

Each register has its values and a mask of undefined bits. The mask is None when all bits are defined, so that defined
code needs no extra work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.program import UNDEFINED, Program, ReadSlot, Step, WriteSlot
from ptxdiff.emulator.binding.special_registers import spelled
from ptxdiff.emulator.limits import Deadline
from ptxdiff.emulator.machine.special_registers import special
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array

Constants = dict[tuple[int, int, int], Array]
"""Arrays filled with one pattern, by lanes, width and pattern; the frames of one run share them."""


class Later:
    """The values of a register that are made when somebody reads them."""

    def __init__(self, make: Callable[[], Array]) -> None:
        self._make: Callable[[], Array] | None = make
        self._made: Any = None

    def made(self) -> Array:
        """The values; the same array each time."""
        if self._make is not None:
            self._made, self._make = self._make(), None
        values: Array = self._made
        return values


class Registers(list[Any]):
    """The values of registers by slot. Those held as `Later` are made when somebody reads them."""

    def __getitem__(self, slot: Any) -> Any:
        found = super().__getitem__(slot)
        return found.made() if type(found) is Later else found

    def __iter__(self) -> Iterator[Any]:
        return (self[slot] for slot in range(len(self)))

    def held(self, slot: int) -> Any:
        """What stands for a register's values, without making any: as long as it is the same, so are they."""
        return super().__getitem__(slot)


class Frame:
    """The register file of a number of lanes, and the deadline of the call to which they belong.

    `values[slot]`: an array over lanes (None: never written), perhaps made `Later`. `undefined[slot]`: the mask of its
    undefined bits: None, an array over lanes, or a 0-dimensional array for all lanes. Arrays are never changed in
    place. `named`: by name, the values of special registers, one for each lane.
    """

    def __init__(
        self, program: Program, lanes: int, constants: Constants | None = None, deadline: Deadline | None = None
    ) -> None:
        self.program = program
        self.deadline = deadline or Deadline(None)
        self.lanes = lanes
        self.values = Registers([None] * len(program.registers))
        self.undefined: list[Any] = [None] * len(program.registers)
        self._constants: Constants = {} if constants is None else constants
        self.named: Mapping[str, Array] = {}
        self.trusts_stand_ins = False

    def constant(self, pattern: int, width: int) -> Array:
        """An array with the same pattern in every lane."""
        key = (self.lanes, width, pattern)
        pattern_array = self._constants.get(key)
        if pattern_array is None:
            pattern_array = self._constants[key] = np.full(self.lanes, pattern, UNSIGNED[width])
        return pattern_array

    def read(self, reader: ReadSlot) -> tuple[Array, Any]:
        """The values and undefined bits of a source operand, truncated to its width."""
        slot = reader.slot
        if slot == -1:
            return self.constant(reader.pattern, reader.width), None
        value = self.values[slot] if slot != UNDEFINED else None
        if value is None:
            kind = UNSIGNED[reader.width]
            ones = 1 if reader.width == 1 else (1 << reader.width) - 1
            return self.constant(0, reader.width), np.array(ones, kind)
        undefined = self.undefined[slot]
        kind = UNSIGNED[reader.width]
        if value.dtype != kind:
            value = value.astype(kind)
            if undefined is not None:
                undefined = undefined.astype(kind)
        if reader.negated:
            value = value ^ 1
        return value, undefined

    def write(self, writer: WriteSlot, value: Array, undefined: Any, active: Array | None) -> None:
        """Store a result in the active lanes (None: all), widened to the register."""
        slot = writer.slot
        if slot < 0:
            return
        kind: Any = UNSIGNED[writer.width]
        if value.dtype != kind:
            value, undefined = _widen(value, undefined, kind, writer.signed)
        if writer.upper >= 0:
            self.write(WriteSlot(writer.upper, 64), *_above(value, undefined, writer.signed), active)
        if undefined is not None and not undefined.any():
            undefined = None
        if active is not None:
            old, old_undefined = self.values[slot], self.undefined[slot]
            if old is None:
                old = self.constant(0, writer.width)
                old_undefined = np.array(1 if writer.width == 1 else (1 << writer.width) - 1, kind)
            value = np.where(active, value, old)
            if undefined is not None or old_undefined is not None:
                zero: Any = kind(0)
                undefined = np.where(
                    active,
                    zero if undefined is None else undefined,
                    zero if old_undefined is None else old_undefined,
                )
                if not undefined.any():
                    undefined = None
        self.values[slot] = value
        self.undefined[slot] = undefined

    def write_later(self, writers: Sequence[WriteSlot], make: Callable[[], Sequence[Array]]) -> tuple[Later, ...]:
        """Store results of 32 bits, defined in all lanes, which are made together when somebody reads one of them.

        Returns what stands for each (see `Registers.held`).
        """
        together = cache(make)

        def one(number: int) -> Array:
            return together()[number]

        values = tuple(Later(partial(one, number)) for number in range(len(writers)))
        for writer, value in zip(writers, values, strict=True):
            if writer.slot >= 0 and writer.width == 32 and writer.upper < 0:
                self.values[writer.slot], self.undefined[writer.slot] = value, None
            else:
                self.write(writer, value.made(), None, None)
        return values

    def under_doubt(self, step: Step, lanes: Array) -> None:
        """Called when an undefined guard decides whether `lanes` execute a step."""

    def special(self, name: str, component: str) -> Array:
        """The values of a special register, one for each lane: those in `named`, else stand-ins."""
        named = self.named.get(spelled(name, component))
        return special(name, component, self.lanes) if named is None else named

    def knows(self, name: str, component: str) -> bool:
        """Whether a special register has a value here. If not, its bits are undefined."""
        return self.trusts_stand_ins or spelled(name, component) in self.named


def _widen(value: Array, undefined: Any, kind: Any, signed: bool) -> tuple[Array, Any]:
    """Zero- or sign-extend values and their masks. Copies of an undefined sign are undefined."""
    if not signed:
        return value.astype(kind), None if undefined is None else undefined.astype(kind)
    narrow = value.dtype.str.replace("u", "i")
    wide = np.dtype(kind).str.replace("u", "i")
    extended = value.view(narrow).astype(wide).view(kind)
    if undefined is None:
        return extended, None
    return extended, undefined.view(narrow).astype(wide).view(kind)


def _above(value: Array, undefined: Any, signed: bool) -> tuple[Array, Any]:
    """The upper 64 bits for 64-bit values, with masks: zeros, or copies of the sign."""
    if not signed:
        return np.zeros_like(value), None
    signs = value.view(np.int64) >> 63
    return signs.view(np.uint64), None if undefined is None else (undefined.view(np.int64) >> 63).view(np.uint64)
