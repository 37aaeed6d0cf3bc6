"""The layout of a sparse matrix's metadata in tensor memory (tcgen05.mma.sp), element by element.

Each element of the dense m x k matrix has a share of metadata: one bit if two of four elements are stored, two bits if
one of two is (tf32), half a bit if two pairs of eight 4-bit elements are. So four bits are at the place of a chunk's
first element. With these shares, low bits first:

- 8-bit kinds and 4-bit kinds: row m in lane m, elements along k through the columns.
- f16, tf32: the lane is that of the group of 16 rows, plus m % 8, plus 8 for the second half of k; rows from 8 on of
  the group are in the upper 16 bits. One column.

Rows in lanes: 128 rows are in 128 lanes; of 64 rows, 16 are in each quarter of the lanes. With .ws, 64 or 32 rows are
in as many lanes, and all other groups of that many lanes repeat them (CUTLASS, `tmem_e_frg_ws`).

Sources: CUTLASS, mma_traits_sm100_frag.hpp, `tmem_e_frg`, whose strides (for 128 rows) these are; notes of a public
Triton fork (dot_sparse) that read PTX ISA 9's figures 263 to 267 and had bit-equal results on an sm_110 for f16 and
8-bit kinds, of 128 and 64 rows. Which column of two f16 and tf32 take is the sparsity selector (ISA 9.7.16.10.8.4; the
notes).
"""

from __future__ import annotations

BITS = {"tf32": 32, "f16": 16, "f8f6f4": 8, "i8": 8, "mxf8f6f4": 8, "mxf4": 4, "mxf4nvf4": 4}
"""By kind, the bits of an element, which determine the layout."""


def copies(rows: int) -> range:
    """Lane offsets at which weight-stationary products (.ws) have copies of the metadata."""
    return range(0, 128, rows)


def place(kind: str, rows: int, row: int, column: int, ws: bool = False) -> tuple[int, int, int]:
    """Lane, column of tensor memory, and lowest of the four bits for the chunk with this first column."""
    group, within = divmod(row, 16)
    lane = group * (16 if rows == 128 or ws else 32)
    bits = BITS[kind]
    if bits >= 16:
        half = bits if bits == 16 else 8  # columns whose metadata fills 16 bits
        return lane + within % 8 + 8 * (column // half), 0, within // 8 * 16 + column % half * (16 // half)
    share = column if bits == 8 else column // 2
    return lane + within, share // 32, share % 32
