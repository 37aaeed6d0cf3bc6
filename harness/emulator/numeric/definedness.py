"""Rules for how undefined bits propagate through an instruction.

A form states one of these rules, or a function of values and masks:

- "all": any undefined bit makes the whole result undefined.
- "bits": bit i depends only on bit i of the sources.
- "words", "halves", "bytes": each part depends on the same part of the sources.
- "pair": the upper part depends on the first source, the lower on the second; or each on one half of a single source.
- "two parts", "four parts": the result has so many equal parts; each depends on the same part of every source.
- "sources": one equal part for each source but the last, the first source's uppermost; all depend on the last source.
- "own half": result number i depends on half i of the sources, and on predicates.
- "upward": bit i depends on bits i and below, as in a sum.
- "moves a b": the bits of the named sources are moved, copied and cleared, as the other sources direct.
- "logic": bit i is a function of the bits i of the sources. Known bits may decide it: `x & 0` is known for every x.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ptxdiff.emulator.numeric.vectorise import Array


def propagate(rule: Any, values: list[Array], masks: list[Any], result: Array, number: int = 0) -> Array:
    """The undefined bits of `result`, the instruction's result `number`; `masks` has None for fully defined sources."""
    if callable(rule):
        full = [
            np.zeros_like(v) if m is None else np.broadcast_to(m, v.shape) for v, m in zip(values, masks, strict=True)
        ]
        answer: Array = rule(values, full)
        return answer.astype(result.dtype)
    if rule == "own half":
        masks = [m if m is None or m.dtype == np.uint8 else m >> 16 * number & 0xFFFF for m in masks]
    some = [np.broadcast_to(m, result.shape) for m in masks if m is not None]
    ones = np.array(1 if result.dtype == np.uint8 else np.iinfo(result.dtype).max, result.dtype)
    if result.dtype == np.uint8:
        ones = np.array(255, np.uint8)
    if rule == "bits":
        return _joined(some, result)
    if rule == "pair":
        return _paired(masks, result)
    if rule == "sources":
        return _of_sources(masks, result)
    if rule in _COUNTS:
        return _by_parts(masks, result, _COUNTS[rule])
    if rule in _PARTS:
        answer = np.zeros_like(result)
        for bits in _PARTS[rule]:
            part = result.dtype.type(bits)
            for mask in some:
                answer |= np.where(mask.astype(result.dtype) & part, part, result.dtype.type(0))
        return answer
    if rule == "upward":
        joined = _joined(some, result)
        # The lowest set bit and all bits above it: x | -x.
        upper: Array = joined | (~joined + result.dtype.type(1))
        return upper
    touched = np.zeros(result.shape, np.bool_)
    for mask in some:
        touched |= mask != 0
    return np.where(touched, ones, result.dtype.type(0))


def _paired(masks: list[Any], result: Array) -> Array:
    """The mask for rule "pair"."""
    half = 4 * result.dtype.itemsize
    part = result.dtype.type((1 << half) - 1)
    if len(masks) == 1:
        middle = 4 * masks[0].dtype.itemsize
        high, low = masks[0] >> masks[0].dtype.type(middle), masks[0] & masks[0].dtype.type((1 << middle) - 1)
    else:
        high, low = masks[0], masks[1]
    zero = result.dtype.type(0)
    upper = zero if high is None else np.where(high != 0, part << result.dtype.type(half), zero)
    lower = zero if low is None else np.where(low != 0, part, zero)
    return np.broadcast_to(upper | lower, result.shape).astype(result.dtype)


def _of_sources(masks: list[Any], result: Array) -> Array:
    """The mask for rule "sources"."""
    *sources, last = masks
    width = 8 * result.dtype.itemsize // len(sources)
    ones, zero = result.dtype.type((1 << width) - 1), result.dtype.type(0)
    answer = np.zeros_like(result)
    for place, mask in enumerate(reversed(sources)):
        if mask is not None:
            answer |= np.where(mask != 0, ones << result.dtype.type(width * place), zero)
    if last is not None:
        answer = np.where(last != 0, ~zero, answer)
    return answer


_COUNTS = {"two parts": 2, "four parts": 4}


def _by_parts(masks: list[Any], result: Array, count: int) -> Array:
    """The mask for a result of equal parts that each depend on the same part of the sources."""
    width = 8 * result.dtype.itemsize // count
    ones = result.dtype.type((1 << width) - 1)
    answer = np.zeros_like(result)
    for mask in [m for m in masks if m is not None]:
        own = 8 * mask.dtype.itemsize // count
        for i in range(count):
            touched = (mask >> mask.dtype.type(own * i)) & mask.dtype.type((1 << own) - 1) != 0
            answer |= np.where(touched, ones << result.dtype.type(width * i), result.dtype.type(0))
    return answer


def _joined(masks: list[Array], result: Array) -> Array:
    joined = masks[0].astype(result.dtype)
    for mask in masks[1:]:
        joined = joined | mask.astype(result.dtype)
    return joined


_PARTS = {
    "words": (0xFFFFFFFF, 0xFFFFFFFF00000000),
    "halves": (0xFFFF, 0xFFFF0000),
    "bytes": (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
}


def moved(names: list[str], function: Any, rule: str, values: list[Array], masks: list[Any]) -> Array:
    """The mask for rule "moves": the form itself, applied to the masks of the sources that it moves.

    `names`: the names of the sources. Undefined bits in a source that is not moved make everything undefined.
    """
    movable = rule.split()[1:]
    doubtful = np.zeros(values[0].shape, np.bool_)
    arguments = []
    for name, value, mask in zip(names, values, masks, strict=True):
        if name in movable:
            full = np.zeros_like(value) if mask is None else np.broadcast_to(mask, value.shape).astype(value.dtype)
            arguments.append(np.ascontiguousarray(full))
        else:
            arguments.append(value)
            if mask is not None:
                doubtful |= mask != 0
    answer: Array = function(len(doubtful), *arguments)
    return np.where(doubtful, _ones(answer), answer)


def combined(function: Any, values: list[Array], masks: list[Any], result: Array) -> Array:
    """The mask for rule "logic": each result bit is a function of its sources' bits at the same place.

    A bit is undefined if it differs from `result` for some choice of all zeros or all ones for each source's undefined
    bits.
    """
    choices = []
    for value, mask in zip(values, masks, strict=True):
        low = value if mask is None else value & ~mask
        both = (low,) if mask is None else (low, low | mask)
        choices.append([np.ascontiguousarray(np.broadcast_to(v, result.shape), value.dtype) for v in both])
    answer: Array = np.zeros_like(result)
    for chosen in itertools.product(*choices):
        answer |= function(len(result), *chosen) ^ result
    return answer


def and_(values: list[Array], masks: list[Array]) -> Array:
    """A defined zero makes the result bit defined."""
    (a, b), (ua, ub) = values, masks
    return (ua | ub) & (a | ua) & (b | ub)


def or_(values: list[Array], masks: list[Array]) -> Array:
    """A defined one makes the result bit defined."""
    (a, b), (ua, ub) = values, masks
    return (ua | ub) & (~a | ua) & (~b | ub)


def select(values: list[Array], masks: list[Array]) -> Array:
    """`selp d, a, b, p`: the mask of the chosen source; all bits if the predicate is undefined."""
    a, b, p = masks
    chosen = np.where(values[2] != 0, a, b)
    return np.where(p != 0, np.array(np.iinfo(a.dtype).max, a.dtype), chosen)


def extend(values: list[Array], masks: list[Array]) -> Array:
    """A conversion between integers keeps the mask, which the machine truncates or extends."""
    return masks[0]


def _ones(like: Array) -> Array:
    return np.array(np.iinfo(like.dtype).max, like.dtype)
