"""The layouts of mma's fragments: tables that give the lane, register and position of each element of a tile.

The registers of a warp for an operand form one row of elements: register by register, within each the 32 lanes, within
each lane the elements from the low bits up. A table holds the position in this row for each element of a tile.

ISA 9.7.14.5.1 to 9.7.14.5.13. Four lanes hold a row of `a`, a column of `b`, or a row of the accumulator. A register
holds neighbours along k. From one register of `a` to the next, the row first increases by 8 (if the tile has 16 rows),
then k increases by four registers' worth of elements. For `b` only k increases. A lane holds two neighbours of an
accumulator row, then those of the row 8 below. Only m8n8k4 of float16 differs: its warp computes four tiles, each with
two groups of four lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ptxdiff.emulator.numeric.vectorise import Array

Place = Callable[[Array, Array, Array], tuple[Array, Array, Array]]
"""Maps lane, register and element in the register to tile, row and column."""


def registers(rows: int, columns: int, bits: int) -> int:
    """How many registers of 32 bits (64 for float64) of a tile each lane has."""
    return rows * columns // (32 * per_register(bits)) or 1


def per_register(bits: int) -> int:
    """How many elements a register holds; 64-bit elements have one register each."""
    return max(32 // bits, 1)


def _table(tiles: int, rows: int, columns: int, count: int, each: int, place: Place) -> Array:
    """Positions by tile, row and column. Elements and positions correspond one to one."""
    register, lane, element = np.meshgrid(np.arange(count), np.arange(32), np.arange(each), indexing="ij")
    tile, row, column = place(lane, register, element)
    table = np.full((tiles, rows, columns), -1)
    table[tile, row, column] = np.arange(count * 32 * each).reshape(register.shape)
    assert (table >= 0).all(), "a layout that leaves elements out"
    table.flags.writeable = False
    return table


@cache
def of_a(m: int, k: int, bits: int) -> Array:
    """`a` (row): the lanes of a group hold neighbouring elements of a row."""
    each, halves = per_register(bits), m // 8

    def place(lane: Array, register: Array, element: Array) -> tuple[Array, Array, Array]:
        row = lane // 4 + 8 * (register % halves)
        return 0 * lane, row, lane % 4 * each + element + register // halves * (4 * each)

    return _table(1, m, k, registers(m, k, bits), each, place)


@cache
def of_b(k: int, n: int, bits: int) -> Array:
    """`b` (col): the lanes of a group hold neighbouring elements of a column."""
    each = per_register(bits)

    def place(lane: Array, register: Array, element: Array) -> tuple[Array, Array, Array]:
        return 0 * lane, lane % 4 * each + element + register * (4 * each), lane // 4

    return _table(1, k, n, registers(k, n, bits), each, place)


@cache
def of_c(m: int, n: int, bits: int) -> Array:
    """The accumulator, `c` and `d`: each lane holds two neighbours of a row, in one register or two."""
    each = per_register(bits)

    def place(lane: Array, register: Array, element: Array) -> tuple[Array, Array, Array]:
        number = register * each + element
        return 0 * lane, lane // 4 + 8 * (number // 2), lane % 4 * 2 + number % 2

    return _table(1, m, n, registers(m, n, bits), each, place)


# m8n8k4 of float16: lanes l and l + 16, of l in the same four, compute tile (l % 16) / 4 --------------------------


def _tile(lane: Array) -> Array:
    found: Array = lane % 16 // 4
    return found


@cache
def of_quads(operand: str, layout: str) -> Array:
    """m8n8k4 of float16: `operand` a or b in `layout` row or col; c16 and c32, the accumulator by its bits."""

    def along(lane: Array, register: Array, element: Array) -> tuple[Array, Array, Array]:
        return _tile(lane), lane % 4 + 4 * (lane // 16), 2 * register + element

    def across(lane: Array, register: Array, element: Array) -> tuple[Array, Array, Array]:
        return _tile(lane), 2 * register + element + 4 * (lane // 16), lane % 4

    def spread(lane: Array, register: Array, element: Array) -> tuple[Array, Array, Array]:
        row = lane % 2 + (register & 2) + 4 * (lane // 16)
        return _tile(lane), row, (register & 4) + (lane & 2) + (register & 1)

    if operand == "c16":
        return _table(4, 8, 8, 4, 2, along)
    if operand == "c32":
        return _table(4, 8, 8, 8, 1, spread)
    # b has the layout of a transposed: its column layout is a's row layout.
    if operand == "a":
        return _table(4, 8, 4, 2, 2, along if layout == "row" else across)
    found = _table(4, 8, 4, 2, 2, along if layout == "col" else across)
    return found.transpose(0, 2, 1)
