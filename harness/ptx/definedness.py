"""How undefined bits pass through an instruction.

A form states a rule: "all" (any undefined bit makes the whole result undefined), "bits" (bit i depends on bit i
of the sources alone), "halves" (each 16-bit half on the same half), or a function of values and masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .vectorise import Array


def propagate(rule: Any, values: list[Array], masks: list[Any], result: Array) -> Array:
    """The undefined bits of `result`; `masks` holds None for sources that are defined entirely."""
    if callable(rule):
        full = [
            np.zeros_like(v) if m is None else np.broadcast_to(m, v.shape) for v, m in zip(values, masks, strict=True)
        ]
        answer: Array = rule(values, full)
        return answer.astype(result.dtype)
    some = [np.broadcast_to(m, result.shape) for m in masks if m is not None]
    ones = np.array(1 if result.dtype == np.uint8 else np.iinfo(result.dtype).max, result.dtype)
    if result.dtype == np.uint8:
        ones = np.array(255, np.uint8)
    if rule == "bits":
        joined = some[0].astype(result.dtype)
        for mask in some[1:]:
            joined = joined | mask.astype(result.dtype)
        return joined
    if rule == "halves":
        answer = np.zeros_like(result)
        for half in (0xFFFF, 0xFFFF0000):
            part = result.dtype.type(half)
            for mask in some:
                answer |= np.where(mask.astype(result.dtype) & part, part, result.dtype.type(0))
        return answer
    touched = np.zeros(result.shape, np.bool_)
    for mask in some:
        touched |= mask != 0
    return np.where(touched, ones, result.dtype.type(0))


def and_(values: list[Array], masks: list[Array]) -> Array:
    """A zero that is known makes the bit known."""
    (a, b), (ua, ub) = values, masks
    return (ua | ub) & (a | ua) & (b | ub)


def or_(values: list[Array], masks: list[Array]) -> Array:
    """A one that is known makes the bit known."""
    (a, b), (ua, ub) = values, masks
    return (ua | ub) & (~a | ua) & (~b | ub)


def select(values: list[Array], masks: list[Array]) -> Array:
    """`selp d, a, b, p`: the chosen source's bits; all of them where the predicate is undefined."""
    a, b, p = masks
    chosen = np.where(values[2] != 0, a, b)
    return np.where(p != 0, np.array(np.iinfo(a.dtype).max, a.dtype), chosen)


def extend(values: list[Array], masks: list[Array]) -> Array:
    """A conversion between integers keeps each bit's definedness (the machine cuts or extends the mask)."""
    return masks[0]


def _ones(like: Array) -> Array:
    return np.array(np.iinfo(like.dtype).max, like.dtype)


def shift_left(values: list[Array], masks: list[Array]) -> Array:
    """Undefined bits move with the value; an undefined amount makes everything undefined."""
    (_, amount), (mask, doubt) = values, masks
    width = mask.dtype.itemsize * 8
    moved = np.where(amount < width, mask << np.minimum(amount, width - 1).astype(mask.dtype), mask.dtype.type(0))
    return np.where(doubt != 0, _ones(mask), moved)


def shift_right(values: list[Array], masks: list[Array]) -> Array:
    """As `shift_left`; zeros come in, or copies of the sign, which are taken to be as defined as the top bit."""
    (_, amount), (mask, doubt) = values, masks
    width = mask.dtype.itemsize * 8
    signed = mask.view(mask.dtype.str.replace("u", "i"))
    moved = (signed >> np.minimum(amount, width - 1).astype(signed.dtype)).view(mask.dtype)
    return np.where(doubt != 0, _ones(mask), moved)


def permute(values: list[Array], masks: list[Array]) -> Array:
    """The same bytes of the masks; a replicated sign is undefined where its byte's top bit is."""
    a, b, doubt = masks
    pool = b.astype(np.uint64) << np.uint64(32) | a
    result = np.zeros_like(a)
    for i in range(4):
        selector = values[2] >> np.uint32(4 * i)
        byte = (pool >> (np.uint64(8) * (selector & np.uint32(7)).astype(np.uint64))).astype(np.uint32) & np.uint32(255)
        spread = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
        result |= np.where(selector & np.uint32(8), spread, byte) << np.uint32(8 * i)
    return np.where(doubt != 0, _ones(a), result)
