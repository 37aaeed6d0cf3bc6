"""Integer instructions on 8-bit and 16-bit parts of a register, computed with Python's integers.

Sources: PTX ISA, integer arithmetic instructions: add, sub, neg, min, max with .u8x4, .s8x4, .u16x2, .s16x2. `.sat`
limits a result to the type's range, without it the result wraps; `.relu` makes negative results 0. Comparison and
selection instructions: set writes all ones to a part where the comparison holds, else 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "neg": np.negative,
    "min": np.minimum,
    "max": np.maximum,
}


def numbers(codes: Any, width: int, signed: bool) -> Any:
    """The numbers that codes of `width` bits represent."""
    return np.where(signed & (codes >> width - 1 == 1), codes - (1 << width), codes)


def result(opcode: str, words: Sequence[str], width: int, signed: bool, *codes: Any) -> Any:
    """Codes of the result for codes of the sources."""
    operands = [numbers(c, width, signed) for c in codes]
    ones = (1 << width) - 1
    if opcode == "set":
        return np.where(COMPARISONS[words[0]](*operands), ones, 0)
    found = OPERATIONS[opcode](*operands)
    low, high = (-(1 << width - 1), ones >> 1) if signed else (0, ones)
    if "sat" in words:
        found = np.clip(found, low, high)
    if "relu" in words:
        found = np.maximum(found, 0)
    return found & ones


EDGES = {
    8: range(256),
    16: sorted({(1 << n) + step & 0xFFFF for n in range(17) for step in (-2, -1, 0, 1)}),
    32: sorted({(1 << n) + step & 0xFFFFFFFF for n in range(33) for step in (-2, -1, 0, 1)}),
}


def pairs(width: int, count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """All pairs of the width's edges (8 bits: of all codes), and for wider ones `count` further pairs.

    In one third of these the numbers lie near each other; in one third their sum lies near an end of the range.
    """
    edges = np.array(EDGES[width], np.int64)
    a, b = (g.ravel() for g in np.meshgrid(edges, edges))
    if width == 8:
        return a, b
    ones = (1 << width) - 1
    c, d = rng.integers(0, 1 << width, (2, count))
    near = rng.integers(-2, 3, count)
    d = np.choose(np.arange(count) % 3, [d, c + near & ones, near - c & ones])
    return np.concatenate([a, c]), np.concatenate([b, d])
