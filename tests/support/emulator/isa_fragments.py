"""Row and column of each lane's elements in a tile, as the ISA prints them for each shape (9.7.14.5.1 to 9.7.14.5.13).

`A[m, k, bits]` and the tables of B and C map a lane and the number of an element (`a0`, `a1`, ...) to row and column.
"""

from __future__ import annotations

from collections.abc import Callable

Where = Callable[[int, int], tuple[int, int]]


def _halves(inside: Callable[[int], bool], column: Where) -> Where:
    """The row is groupID for the elements that the ISA lists, groupID + 8 for the others."""
    return lambda lane, i: ((lane >> 2) + (0 if inside(i) else 8), column(lane, i)[1])


A: dict[tuple[int, int, int], Where] = {
    (8, 4, 64): lambda lane, i: (lane >> 2, lane % 4),
    (8, 16, 8): lambda lane, i: (lane >> 2, lane % 4 * 4 + i),
    (8, 32, 4): lambda lane, i: (lane >> 2, lane % 4 * 8 + i),
    (8, 128, 1): lambda lane, i: (lane >> 2, lane % 4 * 32 + i),
    (16, 4, 64): _halves(lambda i: i == 0, lambda lane, i: (0, lane % 4)),
    (16, 8, 64): _halves(lambda i: i in (0, 2), lambda lane, i: (0, lane % 4 + (4 if i >= 2 else 0))),
    (16, 16, 64): _halves(lambda i: i % 2 == 0, lambda lane, i: (0, i // 2 * 4 + lane % 4)),
    (16, 4, 32): _halves(lambda i: i == 0, lambda lane, i: (0, lane % 4)),
    (16, 8, 32): _halves(lambda i: i in (0, 2), lambda lane, i: (0, lane % 4 + (4 if i >= 2 else 0))),
    (16, 8, 16): _halves(lambda i: i < 2, lambda lane, i: (0, lane % 4 * 2 + (i & 1))),
    (16, 16, 16): _halves(
        lambda i: 0 <= i < 2 or 4 <= i < 6, lambda lane, i: (0, lane % 4 * 2 + (i & 1) + (8 if i >= 4 else 0))
    ),
    (16, 16, 8): _halves(lambda i: i < 4, lambda lane, i: (0, lane % 4 * 4 + (i & 3))),
    (16, 32, 8): _halves(
        lambda i: 0 <= i < 4 or 8 <= i < 12, lambda lane, i: (0, lane % 4 * 4 + (i & 3) + (16 if i >= 8 else 0))
    ),
    (16, 32, 4): _halves(lambda i: i < 8, lambda lane, i: (0, lane % 4 * 8 + (i & 7))),
    (16, 64, 4): _halves(
        lambda i: 0 <= i < 8 or 16 <= i < 24, lambda lane, i: (0, lane % 4 * 8 + (i & 7) + (32 if i >= 16 else 0))
    ),
    (16, 128, 1): _halves(lambda i: i < 32, lambda lane, i: (0, lane % 4 * 32 + (i & 31))),
    (16, 256, 1): _halves(
        lambda i: 0 <= i < 32 or 64 <= i < 96, lambda lane, i: (0, lane % 4 * 32 + (i & 31) + (128 if i >= 64 else 0))
    ),
}
B: dict[tuple[int, int], Where] = {
    (4, 64): lambda lane, i: (lane % 4, lane >> 2),
    (8, 64): lambda lane, i: (lane % 4 + 4 * i, lane >> 2),
    (16, 64): lambda lane, i: (lane % 4 + 4 * i, lane >> 2),
    (4, 32): lambda lane, i: (lane % 4, lane >> 2),
    (8, 32): lambda lane, i: (lane % 4 + (4 if i == 1 else 0), lane >> 2),
    (8, 16): lambda lane, i: (lane % 4 * 2 + (i & 1), lane >> 2),
    (16, 16): lambda lane, i: (lane % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), lane >> 2),
    (16, 8): lambda lane, i: (lane % 4 * 4 + i, lane >> 2),
    (32, 8): lambda lane, i: (lane % 4 * 4 + (i & 3) + (16 if i >= 4 else 0), lane >> 2),
    (32, 4): lambda lane, i: (lane % 4 * 8 + i, lane >> 2),
    (64, 4): lambda lane, i: (lane % 4 * 8 + (i & 7) + (32 if i >= 8 else 0), lane >> 2),
    (128, 1): lambda lane, i: (lane % 4 * 32 + i, lane >> 2),
    (256, 1): lambda lane, i: (lane % 4 * 32 + (i & 31) + (128 if i >= 32 else 0), lane >> 2),
}
C: dict[int, Where] = {
    8: lambda lane, i: (lane >> 2, lane % 4 * 2 + (i & 1)),
    16: lambda lane, i: ((lane >> 2) + (0 if i < 2 else 8), lane % 4 * 2 + (i & 1)),
}


def _low(lane: int) -> int:
    return lane % 4 if lane < 16 else lane % 4 + 4


# m8n8k4 of float16: a warp multiplies four tiles, and (lane % 16) / 4 is the number of a lane's tile.
A_QUADS: dict[str, Where] = {
    "row": lambda lane, i: (_low(lane), i),
    "col": lambda lane, i: (i % 4 if lane < 16 else i % 4 + 4, lane % 4),
}
B_QUADS: dict[str, Where] = {
    "row": lambda lane, i: (lane % 4, i if lane < 16 else i + 4),
    "col": lambda lane, i: (i, _low(lane)),
}
C_QUADS: dict[int, Where] = {
    16: lambda lane, i: (_low(lane), i),
    32: lambda lane, i: (
        (lane & 1) + (i & 2) + (0 if lane < 16 else 4),
        (i & 4) + (lane & 2) + (i & 1),
    ),
}
