"""Comparison of instructions with plain definitions in Python integers, which tests write from the text of the ISA."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod

import numpy as np

from ptxdiff.emulator.numeric.vectorise import UNSIGNED
from tests.support.emulator.isa.forms import form

Plain = Callable[..., int]


@cache
def width(kind: str) -> int:
    """Bits of a type such as u32 or pred."""
    return 1 if kind == "pred" else {"u16x2": 32, "s16x2": 32, "u8x4": 32, "s8x4": 32}.get(kind) or int(kind[1:])


def number(pattern: int, kind: str) -> int:
    """The integer that a pattern stands for in a type: two's complement for s types."""
    bits = width(kind)
    return pattern - (1 << bits) if kind[0] == "s" and "x" not in kind and pattern >> (bits - 1) else pattern


def signed(pattern: int, bits: int) -> int:
    """The low bits of a number as two's complement."""
    pattern &= (1 << bits) - 1
    return pattern - (1 << bits) if pattern >> (bits - 1) else pattern


def edges(bits: int) -> list[int]:
    """Values at which integer instructions change: around zero, signs of every part, powers of two, shift amounts."""
    ones = (1 << bits) - 1
    found = {0, 1, 2, 3, ones, ones - 1, ones >> 1, (ones >> 1) + 1, (ones >> 1) + 2}
    if bits > 1:
        found |= {7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 0x3210, 0x7FFF, 0x8000, 0xFFFF}
        found |= {int("80" * (bits // 8), 16), int("7f" * (bits // 8), 16), int("8000" * (bits // 16), 16)}
        found |= {1 << (bits // 2), (1 << (bits // 2)) - 1, 0xB7A93C51 & ones, 0x0102030405060708 & ones}
    return sorted(f & ones for f in found)


def inputs(kinds: Sequence[str], count: int = 400) -> list[tuple[int, ...]]:
    """Rows of patterns: combinations of edges (a sample of many) and random ones, the same every time."""
    rng = random.Random(repr(kinds))
    choices = [edges(width(k)) for k in kinds]
    if prod(map(len, choices)) <= 2 * count:
        rows = list(product(*choices))
    else:
        rows = [tuple(map(rng.choice, choices)) for _ in range(2 * count)]
    rows += [tuple(rng.getrandbits(width(k)) >> rng.randrange(width(k)) for k in kinds) for _ in range(count)]
    return rows + [tuple(rng.getrandbits(width(k)) for k in kinds) for _ in range(count)]


def check(
    spelling: str,
    kinds: Sequence[str],
    plain: Plain,
    rows: Iterable[tuple[int, ...]] | None = None,
    result: int = 0,
    selected: tuple[tuple[str, int], ...] = (),
) -> None:
    """Check that an instruction agrees with `plain`, which takes its operands as integers and may return any integer.

    `kinds` are the types of the operands, including implicit ones; `result` is the number of the destination.
    """
    rows = inputs(kinds) if rows is None else list(rows)
    bound = form(spelling, sum(1 for _ in kinds) - len(_implicit(spelling)))
    function = replace(bound, selected=selected).array_function(result)
    columns = [np.array(c, UNSIGNED[width(k)]) for c, k in zip(zip(*rows, strict=True), kinds, strict=True)]
    got = function(len(rows), *columns)
    ones = (1 << function.width) - 1
    numbers = [[number(p, k) for p in column] for column, k in zip(zip(*rows, strict=True), kinds, strict=True)]
    wrong = []
    for row, given, value in zip(rows, zip(*numbers, strict=True), got.tolist(), strict=True):
        expected = plain(*given) & ones
        if value != expected:
            wrong.append(f"{spelling} {[hex(p) for p in row]}: {value:#x}, expected {expected:#x}")
    assert not wrong, f"{len(wrong)} of {len(rows)}: " + "; ".join(wrong[:3])


def _implicit(spelling: str) -> list[str]:
    return ["cc"] if spelling.split(".")[0] in ("addc", "subc", "madc") else []
