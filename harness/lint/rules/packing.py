"""The order in which arguments are packed into registers, for blocks without a pack of Triton's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from harness.lint import trial
from harness.lint.block import LintedBlock
from harness.lint.rules import rule
from harness.lint.rules.packs import packing_conversion
from harness.lint.snippet import Found
from harness.ptx.errors import UndefinedBits

FEWEST = 4
"""Of two arguments each may come first: the order shows from four on."""

Place = tuple[int, int]
"""The first and the last bit that an argument changes, in all outputs one after another, the lowest bit first."""


@rule(
    "packing-order",
    "Arguments are packed neither in ascending nor in descending order.",
    why="The first source of a conversion to two elements goes to the upper half (PTX ISA, cvt): an order that changes "
    "from pair to pair is most often one pair of operands that nobody turned round.",
    severity="warning",
)
def packing_order(block: LintedBlock) -> Iterator[Found]:
    """The block is run with one argument changed at a time; a permutation that is no plain order is a finding.

    For blocks with a conversion to two elements, of which every argument has bits of its own. Packs of Triton's have a
    rule that knows the order, `pack-order`.
    """
    node = packing_conversion(block)
    if node is None or (block.snippet.convention == "triton" and block.snippet.pack != 1):
        return
    places = _places(block)
    if places is None or len(places) < FEWEST:
        return
    order = sorted(places, key=lambda n: places[n])
    if order in (sorted(order), sorted(order, reverse=True)):
        return
    words = ", ".join(block.spelled(n) for n in order)
    yield Found(
        block.place(node.offset),
        f"from the lowest bits of {block.spelled(0)} up the arguments are {words}",
        "give every conversion its operands in the same order: the upper element first",
    )


def _places(block: LintedBlock) -> dict[int, Place] | None:
    """By argument the bits that it changes; None where it cannot be run, or two arguments change the same bits."""
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
