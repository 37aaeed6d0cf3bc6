"""Selectors of video instructions, written after an operand: `r1.b3`, `r2.h10` (ISA 9.7.18).

A form declares the kind of selector that an operand takes (`a.part`); its definition receives the code here as the
parameter `asel`.
"""

from __future__ import annotations

from itertools import combinations, product

_WORD = 32 << 8


def _mask(digits: str) -> int:
    return sum(1 << int(d) for d in digits)


SELECTORS: dict[str, dict[str, int]] = {
    # A byte or half of a word: its first bit, and 256 times its size.
    "part": {f"b{i}": 8 << 8 | 8 * i for i in range(4)} | {f"h{i}": 16 << 8 | 16 * i for i in range(2)},
    # Halves or bytes of b:a; both elements and digits are counted from the right.
    "pair": {f"h{x}{y}": x << 4 | y for x, y in product(range(4), repeat=2)},
    "quad": {"b" + "".join(d): int("".join(d), 16) for d in product("01234567", repeat=4)},
    # Which elements of the destination are written, one bit each.
    "halves": {f"h{d}": _mask(d) for d in ("0", "1", "10")},
    "bytes": {"b" + "".join(d): _mask("".join(d)) for n in range(1, 5) for d in combinations("3210", n)},
}
"""By kind of selector and spelling, the code."""

_DEFAULTS = {
    "part": (_WORD, _WORD),
    "pair": (0x10, 0x32),
    "quad": (0x3210, 0x7654),
    "halves": (0b11, 0b11),
    "bytes": (0b1111, 0b1111),
}


def default(kind: str, operand: str) -> int:
    """The code if no selector is written; for pairs and quads that of operand `b` differs."""
    return _DEFAULTS[kind][operand == "b"]


def spellings(kind: str) -> str:
    """The valid spellings, for messages."""
    if kind == "quad":
        return ".b followed by four digits from 0 to 7"
    return " ".join(f".{s}" for s in SELECTORS[kind])
