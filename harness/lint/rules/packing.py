"""The order in which arguments are packed into registers, for blocks without a pack of Triton's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from ptxdiff.lint import trial
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.rules.packs import packing_conversion
from ptxdiff.lint.snippet import Found
from ptxdiff.ptx.errors import UndefinedBits

FEWEST = 4
"""Fewer arguments are not checked: of two, either may come first."""

Place = tuple[int, int]
"""The lowest and highest bit that an argument changes, in the concatenation of all outputs."""


@rule(
    "packing-order",
    "Arguments are packed neither in ascending nor in descending order.",
    why="The first source of a conversion to two elements goes to the upper half (PTX ISA, cvt). If the order differs "
    "between pairs, one pair of operands was usually not exchanged.",
    severity="warning",
)
def packing_order(block: LintedBlock) -> Iterator[Found]:
    """Run the block with one argument changed at a time; an order that is neither ascending nor descending is a
    finding.

    For blocks with a conversion to two elements in which every argument changes different bits. For Triton's packs the
    rule `pack-order` knows the right order.
    """
    node = packing_conversion(block)
    if node is None or (block.snippet.convention == "triton" and block.snippet.pack != 1):
        return
    places = _places(block)
    if places is None or len(places) < FEWEST:
        return
    order = sorted(places, key=lambda n: places[n])
    if _regular(order) or _regular(order[::-1]):
        return
    words = ", ".join(block.spelled(n) for n in order)
    yield Found(
        block.place(node.offset),
        f"from the lowest bits of {block.spelled(0)} up the arguments are {words}",
        "give every conversion its operands in the same order: the upper element first",
    )


def _regular(order: list[int]) -> bool:
    """Whether the arguments are in ascending order, or interleaved from groups of equal size, each ascending."""
    ascending = sorted(order)
    sizes = [size for size in range(1, len(order)) if len(order) % size == 0]
    return any(order == [n for first in range(size) for n in ascending[first::size]] for size in sizes)


def _places(block: LintedBlock) -> dict[int, Place] | None:
    """By argument, the bits that it changes; None if the block cannot run, or if two arguments change the same bits."""
    clock = trial.clock_of(block)
    plain = trial.defined(block, trial.ordinary(block), clock) if block.program and block.outputs else None
    if plain is None:
        return None
    given, expected = plain
    places: dict[int, Place] = {}
    for number, units in given.items():
        try:
            changed = trial.run(block, given | {number: np.roll(units, 1)}, clock, most=trial.bits_of(expected))
        except UndefinedBits:
            return None
        if changed is None:
            return None
        bits, start = 0, 0
        for output, pattern in expected.items():
            bits |= int(np.bitwise_or.reduce(pattern ^ changed[output])) << start
            start += 8 * pattern.dtype.itemsize
        if not bits:
            return None
        places[number] = (bits & -bits).bit_length() - 1, bits.bit_length() - 1
    ends = sorted(places.values())
    apart = all(last < first for (_, last), (first, _) in itertools.pairwise(ends))
    return places if apart else None
