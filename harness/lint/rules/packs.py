"""Rules about packs: the number of elements, and the order of elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator import PtxError, UndefinedBits, check_pack
from ptxdiff.emulator.text import Instruction
from ptxdiff.lint import trial
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Found
from ptxdiff.lint.trial import Element, ElementFlow, flows, path

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
    order_text = ", ".join(block.spelled(n) for n in order)
    yield Found(
        block.place(node.offset),
        f"from the lowest bits of {block.spelled(0)} up the arguments are {order_text}",
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


LARGEST = 128
"""The most elements of a pack that a thread can have."""


@rule(
    "pack-size",
    "`pack` is no power of two, or larger than what a thread has.",
    why="A tensor has a power of two elements. Triton refuses other packs, and pads a pack that is too large.",
)
def pack_size(block: LintedBlock) -> Iterator[Found]:
    """The rule of Triton's lowering."""
    pack = block.snippet.pack
    if block.snippet.convention != "triton" or pack is None:
        return
    try:
        check_pack(pack)
    except PtxError as error:
        yield Found(None, error.message, "use 1, 2, 4 or 8")
        return
    if pack > LARGEST:
        message = f"pack={pack}: every thread computes this many elements, and most of them are discarded"
        yield Found(None, message, "use 1, 2, 4 or 8")


@rule(
    "pack-order",
    "Elements leave the pack in another order than they enter it.",
    why="Element i of a result must be computed from elements i of the arguments: the other elements of a "
    "pack are unspecified.",
)
def pack_order(block: LintedBlock) -> Iterator[Found]:
    """Every element of a result depends on one element, and two are exchanged."""
    way = _way(block, _is_permutation)
    if way is None:
        return
    message = f"{_moved(way.result, way.source)}: {way.words}"
    node = packing_conversion(block)
    packing = f"`{block.statement(node.offset)}`" if node else ""
    instead = (
        f"exchange the operands of {packing}" if packing else "take the elements in order, the first in the low bits"
    )
    yield Found(way.place, message, instead, why=_PACKING_WHY if packing else "")


@rule(
    "pack-one-source",
    "Several elements of a packed result are made from one element of an argument.",
    why="The other elements of the argument are lost, and their results are wrong.",
)
def pack_one_source(block: LintedBlock) -> Iterator[Found]:
    """Two elements of one result depend on the same element of an argument, and on no other of it."""
    way = _way(block, _is_duplicate)
    if way is not None:
        (tensor, position), (result, at) = way.source, way.result
        message = f"elements {position} and {at} of result {result} are both made from element {position} of "
        message += f"argument {tensor}: {way.words}"
        yield Found(way.place, message, f"take element {at} from its own place in the register")


@rule(
    "cross-element",
    "An element of a result depends on another element of the pack.",
    why="Which elements share a pack is not specified, and padding fills the last one.",
)
def cross_element(block: LintedBlock) -> Iterator[Found]:
    """All other cases: results that depend on elements at several positions."""
    way = _way(block, lambda found: not _is_permutation(found) and not _is_duplicate(found))
    if way is None:
        return
    places = sorted({at for _, at in way.wrong})
    more = f" (so do elements {', '.join(map(str, places))})" if len(way.wrong) > 1 else ""
    message = f"{_moved(way.result, way.source)}{more}: {way.words}"
    instead = "compute every element from its own, or use pack=1 and exchange elements with Triton's operations"
    yield Found(way.place, message, instead)


_PACKING_WHY = (
    "The first source of a conversion to two elements goes to the upper half (PTX ISA, cvt). Triton's first element is "
    "in the lower half."
)
_Mistaken = tuple[ElementFlow, frozenset[Element]]


def _mistaken(block: LintedBlock) -> _Mistaken | None:
    """The flow, and the result elements that depend on an element at another position; None if there are none."""
    if "flow" not in block.kept:
        block.kept["flow"] = _judged(block)
    mistaken: _Mistaken | None = block.kept["flow"]
    return mistaken


def _judged(block: LintedBlock) -> _Mistaken | None:
    if any("rs" in node.modifiers for node in block.instructions):
        return None  # in stochastic rounding one word of random bits serves several elements
    judged = [(each, _wrong(each)) for each in flows(block)]
    return judged[0] if judged and all(wrong for _, wrong in judged) else None


def _wrong(flow: ElementFlow) -> frozenset[Element]:
    return frozenset(r for r, sources in flow.depends.items() if any(at != r[1] for _, at in sources))


def _is_permutation(found: _Mistaken) -> bool:
    flow, _ = found
    places: dict[int, list[int]] = {}
    for (tensor, _), sources in flow.depends.items():
        if len({at for _, at in sources}) > 1:
            return False
        places.setdefault(tensor, []).extend({at for _, at in sources})
    return all(len(p) == len(set(p)) for p in places.values())


def _is_duplicate(found: _Mistaken) -> bool:
    flow, wrong = found
    if any(len({at for _, at in flow.depends[r]}) != 1 for r in wrong):
        return False
    return not _is_permutation(found)


def _foreign(result: Element, flow: ElementFlow) -> Element:
    return min(source for source in flow.depends[result] if source[1] != result[1])


def _moved(result: Element, source: Element) -> str:
    return f"element {result[1]} of result {result[0]} depends on element {source[1]} of argument {source[0]}"


@dataclass(frozen=True)
class _Way:
    """The first wrong result element, the element on which it depends, and its path, in words and as an offset."""

    wrong: frozenset[Element]
    source: Element
    result: Element
    words: str
    place: int | None


def _way(block: LintedBlock, kind: Callable[[_Mistaken], bool]) -> _Way | None:
    """The path of an element to a wrong position, if the block makes a mistake of this kind."""
    mistaken = _mistaken(block)
    if mistaken is None or not kind(mistaken):
        return None
    flow, wrong = mistaken
    result = min(wrong)
    source = _foreign(result, flow)
    places = path(block, flow, source, result)
    steps = [f"`{block.statement(at)}`" for at in places]
    if len(steps) > 5:
        steps = [*steps[:2], "...", *steps[-2:]]
    start, end = flow.register(source, False), flow.register(result, True)
    route = " -> ".join([block.spelled(start), *([", ".join(steps)] if steps else []), block.spelled(end)])
    return _Way(wrong, source, result, route, block.place(places[-1]) if places else None)


def packing_conversion(block: LintedBlock) -> Instruction | None:
    """The first conversion of two sources to the two elements of one register."""
    return next(
        (
            n
            for n in block.instructions
            if n.opcode == "cvt" and len(n.operands) == 3 and any("x2" in m for m in n.modifiers)
        ),
        None,
    )
