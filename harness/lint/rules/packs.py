"""Packs: the number of elements, and which element of a result comes from which element of an argument."""

from __future__ import annotations

from collections.abc import Iterator

from harness.lint.block import LintedBlock
from harness.lint.elements import Element, ElementFlow, flows, path
from harness.lint.rules import rule
from harness.lint.snippet import Found
from harness.ptx.binding.constraints import check_pack
from harness.ptx.errors import PtxError
from harness.ptx.text.nodes import Instruction

LARGEST = 128
"""Elements of a pack beyond which no tile gives a thread as many."""


@rule(
    "pack-size",
    "`pack` is no power of two, or larger than what a thread has.",
    why="A tensor has a power of two elements. Triton refuses other packs, and fills up a pack that is too large.",
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
        words = f"pack={pack}: every thread computes so many elements, and most of them are thrown away"
        yield Found(None, words, "use 1, 2, 4 or 8")


@rule(
    "pack-order",
    "Elements leave the pack in another order than they enter it.",
    why="Element i of a result has to be computed from elements i of the arguments: the others are anybody's.",
)
def pack_order(block: LintedBlock) -> Iterator[Found]:
    """Every element of a result depends on one element, and two are exchanged."""
    found = _mistaken(block)
    if found is None or not _is_permutation(found):
        return
    flow, wrong = found
    result = min(wrong)
    source = _foreign(result, flow)
    words = f"{_moved(result, source)}: {_way(block, flow, source, result)}"
    packing = _packing(block)
    instead = (
        f"exchange the operands of {packing}" if packing else "take the elements in order, the first in the low bits"
    )
    yield Found(_place(block, flow, source, result), words, instead, why=_PACKING_WHY if packing else "")


@rule(
    "pack-one-source",
    "Several elements of a packed result are made from one element of an argument.",
    why="The other elements of the argument are lost, and their results are wrong.",
)
def pack_one_source(block: LintedBlock) -> Iterator[Found]:
    """Two elements of one result depend on the same element of an argument, and on no other of it."""
    found = _mistaken(block)
    if found is None or not _is_duplicate(found):
        return
    flow, wrong = found
    result = min(wrong)
    source = _foreign(result, flow)
    words = f"elements {source[1]} and {result[1]} of result {result[0]} are both made from element {source[1]} of "
    words += f"argument {source[0]}: {_way(block, flow, source, result)}"
    yield Found(
        _place(block, flow, source, result), words, f"take element {result[1]} from its own place in the register"
    )


@rule(
    "cross-element",
    "An element of a result depends on another element of the pack.",
    why="Which elements share a pack is not specified, and padding fills the last one.",
)
def cross_element(block: LintedBlock) -> Iterator[Found]:
    """What is left: results that depend on elements of several places."""
    found = _mistaken(block)
    if found is None or _is_permutation(found) or _is_duplicate(found):
        return
    flow, wrong = found
    result = min(wrong)
    source = _foreign(result, flow)
    places = sorted({at for _, at in wrong})
    more = f" (so do elements {', '.join(map(str, places))})" if len(wrong) > 1 else ""
    words = f"{_moved(result, source)}{more}: {_way(block, flow, source, result)}"
    instead = "compute every element from its own, or use pack=1 and exchange elements with Triton's operations"
    yield Found(_place(block, flow, source, result), words, instead)


_PACKING_WHY = (
    "The first source of a conversion to two elements goes to the upper half (PTX ISA, cvt). Triton's first element is "
    "in the lower half."
)
_Mistaken = tuple[ElementFlow, frozenset[Element]]


def _mistaken(block: LintedBlock) -> _Mistaken | None:
    """The flow and those elements of results that depend on an element of another place; None for none."""
    if "flow" not in block.kept:
        block.kept["flow"] = _judged(block)
    found: _Mistaken | None = block.kept["flow"]
    return found


def _judged(block: LintedBlock) -> _Mistaken | None:
    if any("rs" in node.modifiers for node in block.instructions):
        return None  # stochastic rounding takes one word of random bits for several elements, and any word will do
    found = [(each, _wrong(each)) for each in flows(block)]
    return found[0] if found and all(wrong for _, wrong in found) else None


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


def _way(block: LintedBlock, flow: ElementFlow, source: Element, result: Element) -> str:
    start, end = flow.register(source, False), flow.register(result, True)
    steps = [f"`{block.statement(at)}`" for at in path(block, flow, source, result)]
    if len(steps) > 5:
        steps = [*steps[:2], "...", *steps[-2:]]
    return " -> ".join([block.spelled(start), *([", ".join(steps)] if steps else []), block.spelled(end)])


def _place(block: LintedBlock, flow: ElementFlow, source: Element, result: Element) -> int | None:
    steps = path(block, flow, source, result)
    return block.place(steps[-1]) if steps else None


def _packing(block: LintedBlock) -> str:
    """The conversion to two elements, or packing, that a block has; "" where it has none."""
    node = next((n for n in block.instructions if _takes_two(n)), None)
    return f"`{block.statement(node.offset)}`" if node else ""


def _takes_two(node: Instruction) -> bool:
    return node.opcode == "cvt" and len(node.operands) == 3 and any("x2" in m for m in node.modifiers)
