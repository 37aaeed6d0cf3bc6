"""Inline asm in Triton's dialect: each call of a kernel, with its constraints, pack, types and place.

A call is one `tt.elementwise_inline_asm` of the text that Triton's stages print. Nothing here imports Triton.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class AsmCall:
    """A block of inline asm in a kernel, as Triton got it.

    pack: elements of an invocation. pure: what its author declared. inputs, outputs: Triton's names of the element
    types ("i8", "f32", "ptr"). place: `file:line` of the call; "" if the text does not have it. filled: the most places
    of a pack that hold elements of their own; the others hold padding or copies. It equals `pack` where that is not
    known.
    """

    text: str
    constraints: str
    pack: int = 1
    pure: bool = True
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    place: str = ""
    filled: int = 1


_STRING = r'"(?:[^"\\]|\\.)*"'
_CALL = re.compile(
    rf"tt\.elementwise_inline_asm (?P<text>{_STRING}) \{{(?P<fields>(?:[^\"{{}}]|{_STRING})*)\}}"
    r"(?P<operands>[^:\n]*):(?P<types>[^\n]*)"
)
_CONSTRAINTS = re.compile(rf"\bconstraints = ({_STRING})")
_PACK = re.compile(r"\bpacked_element = (\d+)")
_ESCAPE = re.compile(r"\\(?:(\\)|([0-9A-Fa-f]{2}))")
_PLACE_AT_END = re.compile(r"\s*loc\((.*)\)\s*$")
_ALIAS = re.compile(r"^(#\w+) = (.*)$", re.M)
_PLACE = re.compile(rf"({_STRING}):(\d+):\d+|(#\w+)")


def asm_calls(dialect: str, with_layouts: str = "") -> tuple[AsmCall, ...]:
    """The inline asm of a kernel, each block with the same text, constraints and pack once.

    dialect: the kernel in Triton's dialect, with the asm as written. with_layouts: the same kernel once its tensors
    have layouts, which decide how many places of a pack are filled; "" if that does not matter.
    """
    by_block: dict[tuple[str, str, int], AsmCall] = {}
    for call in _calls(dialect):
        by_block.setdefault((call.text, call.constraints, call.pack), replace(call, filled=call.pack))
    most: dict[tuple[str, str, int], int] = {}
    for call in _calls(with_layouts):
        key = call.text, call.constraints, call.pack
        most[key] = max(most.get(key, 0), call.filled)
    return tuple(replace(call, filled=most.get(key, call.pack)) for key, call in by_block.items())


def has_packs(dialect: str) -> bool:
    """Whether some inline asm computes several elements at once."""
    return any(int(pack) > 1 for pack in _PACK.findall(dialect))


def _calls(dialect: str) -> Iterator[AsmCall]:
    aliases = dict(_ALIAS.findall(dialect)) if "elementwise_inline_asm" in dialect else {}
    for match in _CALL.finditer(dialect):
        constraints, pack = _CONSTRAINTS.search(match["fields"]), _PACK.search(match["fields"])
        types, location = match["types"], ""
        if at_end := _PLACE_AT_END.search(types):
            types, location = types[: at_end.start()], _place(at_end[1], aliases)
        given, _, made = types.partition("->")
        many = int(pack[1]) if pack else 1
        outputs = _split(made)
        yield AsmCall(
            _plain(match["text"]),
            _plain(constraints[1]) if constraints else "",
            many,
            "pure = false" not in match["fields"],
            tuple(map(_element, _split(given))),
            tuple(map(_element, outputs)),
            location,
            min(many, _own_elements(outputs[0], aliases) or many) if outputs else many,
        )


def _plain(quoted: str) -> str:
    return _ESCAPE.sub(lambda found: found[1] or chr(int(found[2], 16)), quoted[1:-1])


def _split(types: str) -> list[str]:
    """The types of a list, split at commas outside brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(types):
        depth += (letter in "<({[") - (letter in ">)}]" and types[at - 1] != "-")
        if letter == "," and depth == 0:
            parts.append(types[begin:at])
            begin = at + 1
    return [part.strip() for part in (*parts, types[begin:]) if part.strip()]


_TENSOR = re.compile(r"tensor<(?P<shape>(?:\d+x)*)(?P<element>![\w.]+(?:<.*?>)?|\w+)(?:, (?P<layout>.*))?>$")


def _element(text: str) -> str:
    """The name of a type's elements; "ptr" for addresses."""
    match = _TENSOR.match(text)
    name = match["element"] if match else text
    return "ptr" if name.startswith("!") else name


def _place(text: str, aliases: Mapping[str, str]) -> str:
    """`file:line` of a location; of an inlined call that within the function which has the asm."""
    for _ in range(len(aliases) + 1):
        match = _PLACE.search(text)
        if match is None:
            return ""
        if match[1]:
            return f"{_plain(match[1])}:{match[2]}"
        text = aliases.get(match[3], "")
    return ""


# how many elements each thread has ---------------------------------------------------------------------------


def _own_elements(text: str, aliases: Mapping[str, str]) -> int | None:
    """How many different elements of a tensor each thread has; None if that is not known. 1 for a scalar."""
    match = _TENSOR.match(text)
    if match is None:
        return 1
    if match["layout"] is None:
        return None
    shape = [int(size) for size in match["shape"].split("x") if size]
    return _of_layout(match["layout"], shape, aliases)


def _of_layout(layout: str, shape: list[int], aliases: Mapping[str, str]) -> int | None:
    """See `_own_elements`. Layouts of products have at least four elements for each thread."""
    layout = aliases.get(layout, layout)
    sides = _blocked(layout, aliases)
    if sides is not None and len(sides[0]) == len(shape):
        return math.prod(_of_side(size, side) for size, side in zip(shape, zip(*sides, strict=True), strict=True))
    if layout.startswith("#ttg.linear<"):
        registers = re.search(r"register = \[(.*?)\](?:, lane|\})", layout)
        steps = re.findall(r"\[([-\d, ]+)\]", registers[1]) if registers else []
        return 1 << sum(any(int(n) for n in step.split(",")) for step in steps)
    return None


Sides = tuple[list[int], list[int], list[int]]


def _blocked(layout: str, aliases: Mapping[str, str]) -> Sides | None:
    """By dimension: elements of a thread, threads of a warp, and warps, of a blocked layout or a slice of one."""
    layout = aliases.get(layout, layout)
    if match := re.match(r"#ttg\.slice<\{dim = (\d+), parent = (.*)\}>$", layout):
        parent = _blocked(match[2], aliases)
        if parent is None:
            return None
        dim = int(match[1])
        sides = [side[:dim] + side[dim + 1 :] for side in parent]
        return sides[0], sides[1], sides[2]
    if not layout.startswith("#ttg.blocked<") or "CGA" in layout:
        return None
    fields = [
        re.search(rf"{name} = \[([\d, ]*)\]", layout) for name in ("sizePerThread", "threadsPerWarp", "warpsPerCTA")
    ]
    one, two, three = ([int(n) for n in f[1].split(",") if n.strip()] if f else [] for f in fields)
    return (one, two, three) if one and len(one) == len(two) == len(three) else None


def _of_side(size: int, each: tuple[int, int, int]) -> int:
    """The different elements of a thread along one dimension."""
    elements, threads, warps = each
    tile = elements * threads * warps
    return elements * (size // tile) if size >= tile else min(elements, size)
