"""Fragments of all warps of a frame, laid out for the processor's vectors, and kept while their registers stay.

`mma` reads most of its fragments again and again: a's for each column of tiles, b's for each row, and d as the next c.
Arrays of registers are never changed in place, so a fragment is the same as long as all its registers are the same
arrays. Only products whose tiles fill vectors are computed here, of all warps and without undefined bits; `mma` has the
others, and the definition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from ptxdiff.emulator.kernel.memory.array_code import ArrayCode
from ptxdiff.emulator.numeric.vectorise import Array

T = TypeVar("T")
TILES = 16
"""Tiles in one vector."""
_KEPT = 96
"""Fragments of a frame: as many as a kernel's innermost loop has, so that one laid out is used again."""


def _gather_code(
    registers: Array, register: Array, lane: Array, shift: Array, ones: Any, groups: Any, blocks: Any, codes: Array
) -> None:  # fmt: skip
    """Set codes (blocks x groups x positions x 16 tiles) to the elements of registers (registers x lanes).

    register, lane, shift: where each position of each block is in a warp's registers; a register of -1: nowhere, 0.
    """
    each = len(register) // blocks
    for block in range(blocks):
        for group in range(groups):
            for number in range(each):
                at = block * each + number
                to = ((block * groups + group) * each + number) * 16
                if register[at] < 0:
                    for tile in range(16):
                        codes[to + tile] = 0
                    continue
                first, down, row = group * 512 + lane[at], shift[at], register[at]
                for tile in range(16):
                    codes[to + tile] = registers[row, first + 32 * tile] >> down & ones


def _scatter_code(codes: Array, place: Array, each: Any, width: Any, tiles: Any, registers: Array) -> None:
    """Set registers (registers x lanes) from codes: groups x positions x `tiles`.

    place: for each register, lane and element in it (`each`), the position.
    """
    positions = registers.shape[0] * 32 * each
    for group in range(registers.shape[1] // (32 * tiles)):
        for row in range(registers.shape[0]):
            first = group * tiles * 32
            if each == 1 and tiles == 16:  # a loop over neighbours in codes, of known length: 2.5 times as fast
                for lane in range(32):
                    at = (group * positions + place[row * 32 + lane]) * 16
                    for tile in range(16):
                        registers[row, first + tile * 32 + lane] = codes[at + tile]
                continue
            for tile in range(tiles):
                if each == 1:  # a loop of its own, which is five times as fast
                    for lane in range(32):
                        at = group * positions + place[row * 32 + lane]
                        registers[row, first + tile * 32 + lane] = codes[at * tiles + tile]
                    continue
                for lane in range(32):
                    word = 0
                    for part in range(each):
                        at = place[(row * 32 + lane) * each + part]
                        word |= codes[(group * positions + at) * tiles + tile] << (part * width)
                    registers[row, first + tile * 32 + lane] = word


def _kinds_of_gather(t: Any) -> tuple[Any, ...]:
    wide, words = t.Array(t.int64, 1, "C", readonly=True), t.Array(t.uint32, 1, "C")
    return t.Array(t.uint32, 2, "C", readonly=True), wide, wide, wide, t.int64, t.int64, t.int64, words


def _kinds_of_scatter(t: Any) -> tuple[Any, ...]:
    wide, words = t.Array(t.int64, 1, "C", readonly=True), t.Array(t.uint32, 1, "C", readonly=True)
    return words, wide, t.int64, t.int64, t.int64, t.Array(t.uint32, 2, "C")


_gather = ArrayCode(_gather_code, _kinds_of_gather)
_scatter = ArrayCode(_scatter_code, _kinds_of_scatter)


class FragmentLayout:
    """Where the elements of an operand are: its table of positions (see `fragments`), and its elements' bits.

    terms: how many columns (of a) or rows (of b; `down`) a block has; 0: one block has all.
    """

    def __init__(self, table: Array, width: int, terms: int = 0, *, down: bool = False) -> None:
        each = max(32 // width, 1)
        self.width, self.each, self.count = width, each, table.size // (32 * each)
        rows, columns = table.shape[1:]
        along = rows if down else columns
        self.widths = [min(terms, along - start) for start in range(0, along, terms)] if terms else [along]
        size = terms or along
        self.shape = (size, columns) if down else (rows, size)
        parts = []
        for number, some in enumerate(self.widths):
            one = np.full(self.shape, -1, np.int64)
            part = slice(number * size, number * size + some)
            if down:
                one[:some] = table[0, part]
            else:
                one[:, :some] = table[0, :, part]
            parts.append(one.reshape(-1))
        at = np.concatenate(parts)
        self.register = np.where(at < 0, -1, at // (32 * each))
        self.lane = np.ascontiguousarray(at // each % 32)
        self.shift = np.ascontiguousarray(at % each * width)
        self.place = np.empty(table.size, np.int64)
        self.place[table.reshape(-1)] = np.arange(table.size)

    def gathered(self, registers: Sequence[Array], lanes: int) -> Array:
        """The codes in registers of all warps: blocks x groups x rows x columns x tiles."""
        groups = -(-lanes // (32 * TILES))
        whole = np.zeros((self.count, groups * 32 * TILES), np.uint32)
        for row, register in zip(whole, registers, strict=True):
            row[:lanes] = register
        codes = np.empty((len(self.widths), groups, *self.shape, TILES), np.uint32)
        ones = (1 << self.width) - 1
        _gather(
            whole, self.register, self.lane, self.shift, ones, groups, len(self.widths), codes.reshape(-1)
        )  # fmt: skip
        return codes

    def scattered(self, codes: Array, lanes: int) -> list[Array]:
        """The registers of all warps that hold codes: groups x rows x columns x tiles."""
        return self._in_registers(codes, TILES, lanes)

    def of_tiles(self, codes: Array, lanes: int) -> list[Array]:
        """The registers of all warps that hold codes: warps x rows x columns."""
        return self._in_registers(codes, 1, lanes)

    def _in_registers(self, codes: Array, tiles: int, lanes: int) -> list[Array]:
        whole = np.empty((self.count, len(codes) * 32 * tiles), np.uint32)
        words = np.ascontiguousarray(codes.reshape(-1), np.uint32)
        _scatter(words, self.place, self.each, self.width, tiles, whole)
        return [row[:lanes] for row in whole]


class Fragments:
    """What was made of registers, by the slots of these, while the same arrays are in them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[tuple[Any, ...], Any]] = OrderedDict()

    def of(self, key: Hashable, registers: tuple[Array, ...], make: Callable[[], T]) -> T:
        """What `make` gives for registers, from before if they are the same arrays."""
        found = self.found(key, registers)
        if found is not None:
            made: T = found
            return made
        made = make()
        self.keep(key, registers, made)
        return made

    def found(self, key: Hashable, registers: tuple[Any, ...]) -> Any:
        """What was kept of the same registers: arrays, or what stands for them in a frame. None if nothing was."""
        found = self._kept.get(key)
        if found is None or not all(map(_same, found[0], registers)):
            return None
        self._kept.move_to_end(key)
        return found[1]

    def keep(self, key: Hashable, registers: tuple[Any, ...], made: object) -> None:
        """Keep what was made of registers."""
        self._kept[key] = registers, made
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)


def _same(one: object, other: object) -> bool:
    return one is other
