"""The layout of matrices when the tensor cores of two blocks multiply together (tcgen05 with .cta_group::2).

A pair is two blocks of a cluster whose ranks differ in the lowest bit; here block 0 is the one with an even rank. An
element of d is in one lane and column of one block's tensor memory; each row of a and column of b is in one block's
shared memory.

Source: PTX ISA 9, 9.7.16.5 (pairs), 9.7.16.10.5, layout A (256 rows: 128 lanes of each block) and layout B (128 rows,
dense: of each block's 64 rows lanes 0 to 63 have the first half of the columns, lanes 64 to 127 the second), layout C
(128 rows, sparse: 16 of each block's 64 rows in each quarter of its lanes), table 39 for shapes. No
hardware was available.

Scales: PTX ISA 9, 9.7.16.10.7, has 32 of them in neighbouring lanes, the next 32 in the next column, and all in each
quarter of the lanes. It has no figure of b's for layout B. There a quarter of the lanes has those of the columns whose
d it has: CUTLASS, include/cute/atom/mma_traits_sm100.hpp, tmem_sf_frg, "SFB, 2x2 datapath".
"""

from __future__ import annotations

from functools import cache


def place_of_d(rows: int, columns: int, row: int, column: int, sparse: bool = False) -> tuple[int, int, int]:
    """Block, lane and column of an element of a rows x columns accumulator. Raises ValueError for other shapes."""
    if rows == 256:
        return divmod(row, 128)[0], row % 128, column
    if rows != 128:
        raise ValueError(f"a pair of blocks multiplies 128 or 256 rows, not {rows}")
    block, lane = divmod(row, 64)
    if sparse:
        return block, lane // 16 * 32 + lane % 16, column
    half = columns // 2
    return (block, lane, column) if column < half else (block, 64 + lane, column - half)


def block_of_a(rows: int, row: int) -> tuple[int, int]:
    """The block of a row of a, and the row in that block."""
    return divmod(row, rows // 2)


def places_of_row_of_a(rows: int, columns: int, row: int, sparse: bool = False) -> list[tuple[int, int]]:
    """Block and lane of each copy of a row of a, where a lies in tensor memory: every lane has the row whose d it has.

    So a row of 128 lies in two lanes of its block, 64 apart, because its d does (layout B). CUTLASS,
    include/cute/atom/mma_traits_sm100.hpp, tmem_frg: "2x2 duplicated layout atom", of 128 lanes for 64 rows.
    """
    return sorted({place_of_d(rows, columns, row, column, sparse)[:2] for column in range(columns)})


def block_of_b(columns: int, column: int) -> tuple[int, int]:
    """The block of a column of b, and the column in that block."""
    return divmod(column, columns // 2)


def columns_taken(kind: str) -> range:
    """The numbers of columns that a kind allows for dense products of a pair (table 39)."""
    return range(32, 257, 32) if kind == "i8" else range(16, 257, 16)


def places_of_scale_a(rows: int, row: int) -> list[tuple[int, int, int]]:
    """Block, lane and column of each copy of the scales of a row of a."""
    block, own = block_of_a(rows, row)
    return [(block, 32 * quarter + own % 32, own // 32) for quarter in range(4)]


def places_of_scale_b(rows: int, columns: int, column: int) -> list[tuple[int, int, int]]:
    """Block, lane and column of each copy of the scales of a column of b, of which both blocks have all."""
    places = []
    for (block, quarter), had in _columns_of_d(rows, columns).items():
        if column in had:
            number = had.index(column)
            places.append((block, 32 * quarter + number % 32, number // 32))
    return places


@cache
def _columns_of_d(rows: int, columns: int) -> dict[tuple[int, int], list[int]]:
    """By block and quarter of its lanes: the columns of d of which an element is there."""
    had: dict[tuple[int, int], set[int]] = {(block, quarter): set() for block in range(2) for quarter in range(4)}
    for row in range(rows):
        for column in range(columns):
            block, lane, _ = place_of_d(rows, columns, row, column)
            had[block, lane // 32].add(column)
    return {place: sorted(found) for place, found in had.items()}
