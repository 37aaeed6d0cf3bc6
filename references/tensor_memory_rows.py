"""Where d and a lie in tensor memory when one block multiplies with `.ws` (tcgen05.mma.ws), element by element.

Sources: PTX ISA 9, 9.7.16.10.5, layouts D, E and G: 128 rows have as many lanes; of 64 or 32 rows each half or quarter
of the lanes has all rows, and that half or quarter of the columns. Every lane has the row of a whose d it has, so that
each row of a lies in several lanes: FlashMLA, csrc/kerutils, device/sm100/gemm.cuh, says so at `tmem_frg_elastic`, and
its kernels on sm_100a rely on it. No hardware was available.
"""

from __future__ import annotations


def place_of_d(rows: int, columns: int, row: int, column: int) -> tuple[int, int]:
    """Lane and column of an element of a rows x columns accumulator. Raises ValueError for other numbers of rows."""
    if rows not in (32, 64, 128):
        raise ValueError(f"tcgen05.mma.ws multiplies 32, 64 or 128 rows, not {rows}")
    part, within = divmod(column, columns * rows // 128)
    return part * rows + row, within


def lanes_of_row_of_a(rows: int, columns: int, row: int) -> list[int]:
    """The lanes in which a row of a lies."""
    return sorted({place_of_d(rows, columns, row, column)[0] for column in range(columns)})
