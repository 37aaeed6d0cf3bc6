"""Find the elements of a pack that each result depends on, by running the block with one element changed at a time."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxdiff.emulator import (
    AsmOperand,
    PtxError,
    TraceLine,
    bind,
    check_pack,
    dtype_of,
    emulate,
    trace,
    uncompiled,
    width_of,
)
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.trial import SECONDS, Clock, clock_of, special_of, trial_target

PACKS = 12
"""Packs of elements in one run."""
_MOST = 128
"""Blocks with this many elements of arguments or of results, or more, are not examined."""
_WIDTHS = {8: "uint8", 16: "uint16", 32: "uint32", 64: "uint64"}
_READINGS = 4
Element = tuple[int, int]
"""The number of an argument or result, and the position in the pack."""


@dataclass(frozen=True)
class ElementFlow:
    """For each element of a result, the elements of arguments that changed it when they were changed.

    `seen`: by result and argument, one pack of arguments, and the same pack with that element changed.
    """

    operands: tuple[AsmOperand, ...]
    pack: int
    depends: dict[Element, frozenset[Element]]
    seen: dict[tuple[Element, Element], tuple[list[np.ndarray], list[np.ndarray]]] = field(repr=False)

    def register(self, element: Element, output: bool) -> int:
        """The number of the operand that holds an element."""
        return next(
            o.number
            for o in self.operands
            if (o.output, o.tensor) == (output, element[0]) and o.first <= element[1] < o.first + o.count
        )


def flows(block: LintedBlock) -> list[ElementFlow]:
    """The flow of elements through a block, for each possible reading of its operands with which it runs.

    There are several if the dtype of an argument is not known. Empty if pack, dtypes and text do not determine a
    reading, or if the block cannot run.
    """
    if block.program is None or block.has_constants or trial_target(block) is None:
        return []
    clock = clock_of(block)
    found = (_flow(block, *reading, clock) for reading in readings(block))
    return [f for f in found if f is not None]


def _flow(
    block: LintedBlock, operands: tuple[AsmOperand, ...], inputs: list[int], outputs: list[int], pack: int, clock: Clock
) -> ElementFlow | None:
    if pack * max(len(inputs), len(outputs)) > _MOST:
        return None
    seed = zlib.crc32(block.text.encode())
    given = [_patterns(w, pack, (seed, n)) for n, w in enumerate(inputs)]
    base = _results(block, given, outputs, pack, clock)
    if base is None:
        return None
    depends: dict[Element, set[Element]] = {(t, i): set() for t in range(len(outputs)) for i in range(pack)}
    seen: dict[tuple[Element, Element], tuple[list[np.ndarray], list[np.ndarray]]] = {}
    for tensor, position, trial in itertools.product(range(len(inputs)), range(pack), range(2)):
        changed = list(given)
        changed[tensor] = given[tensor].copy()
        changed[tensor].reshape(-1, pack)[:, position] = _patterns(inputs[tensor], 1, (seed, tensor, position, trial))
        results = _results(block, changed, outputs, pack, clock)
        if results is None:
            return None
        for number, (before, after) in enumerate(zip(base, results, strict=True)):
            for lane, at in np.argwhere((before != after).reshape(-1, pack)):
                result = number, int(at)
                if (tensor, position) not in depends[result]:
                    depends[result].add((tensor, position))
                    part = slice(lane * pack, (lane + 1) * pack)
                    seen[result, (tensor, position)] = [g[part] for g in given], [c[part] for c in changed]
    return ElementFlow(operands, pack, {k: frozenset(v) for k, v in depends.items()}, seen)


def _patterns(width: int, pack: int, seed: Sequence[int]) -> np.ndarray:
    """Elements of PACKS packs: ordinary floats and small integers, then random bits."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(_WIDTHS[width])
    count = PACKS * pack
    bits = rng.integers(0, np.iinfo(kind).max, count, kind, endpoint=True)
    if width == 8:
        return bits
    floats = np.ldexp(rng.integers(1, 64, count), -3) * rng.choice((-1, 1), count)
    ordinary = floats.astype(f"float{width}").view(kind)
    small = rng.integers(1, 200, count).astype(kind)
    which = np.repeat(np.arange(PACKS) % 3, pack)
    return np.select([which == 0, which == 1], [ordinary, small], bits)


def _results(
    block: LintedBlock, given: Sequence[np.ndarray], outputs: Sequence[int], pack: int, clock: Clock
) -> list[np.ndarray] | None:
    if clock.left <= 0 or block.program is None:
        return None
    options: dict[str, Any] = {
        "pack": pack,
        "target": trial_target(block) or "",
        "limit": clock.limit,
        "special": special_of(block),
    }
    try:
        with uncompiled():
            found = emulate(block.text, block.constraints, list(given), [_WIDTHS[w] for w in outputs], **options)
    except PtxError:
        return None
    return list(found)


def readings(block: LintedBlock) -> list[tuple[tuple[AsmOperand, ...], list[int], list[int], int]]:
    """The operands with their elements, the widths of arguments and results, and the pack: a few ways at most."""
    snippet = block.snippet
    pack = snippet.pack
    if snippet.convention != "triton" or block.parsed is None or snippet.outputs is None or not snippet.inputs:
        return []
    try:
        check_pack(pack)
    except PtxError:
        return []
    if pack is None or pack == 1:
        return []
    fits = []
    for widths in itertools.islice(itertools.product(*map(_possible, (*snippet.outputs, *snippet.inputs))), 256):
        outputs, inputs = list(widths[: len(snippet.outputs)]), list(widths[len(snippet.outputs) :])
        try:
            fits.append((bind(block.parsed, inputs, outputs, pack), inputs, outputs, pack))
        except PtxError:
            continue
    return fits if len(fits) <= _READINGS else []


def _possible(name: str | None) -> tuple[int, ...]:
    """The possible widths of a dtype: its own, or all if it is not known."""
    if name is None:
        return tuple(_WIDTHS)
    width = width_of(dtype_of(name))
    return (width,) if width in _WIDTHS else ()


# the path ----------------------------------------------------------------------------------------------------


def path(block: LintedBlock, flows: ElementFlow, source: Element, result: Element) -> list[int]:
    """The offsets of the instructions through which a changed argument element reaches a result element.

    Both runs are traced. If they branch differently, the path is unknown and the list is empty.
    """
    before, after = (_traced(block, flows, args) for args in flows.seen[result, source])
    if before is None or after is None or [a.offset for a in before] != [b.offset for b in after]:
        return []
    steps: list[int] = []
    wanted = {f"${flows.register(result, True)}"}
    for one, other in reversed(list(zip(before, after, strict=True))):
        changed = {n for n in wanted & one.writes.keys() if one.writes[n] != other.writes.get(n)}
        if changed:
            steps.append(one.offset)
            wanted = (wanted - changed) | {n for n in one.reads if one.reads[n] != other.reads.get(n)}
    return list(dict.fromkeys(reversed(steps)))


def _traced(block: LintedBlock, flows: ElementFlow, args: Sequence[np.ndarray]) -> tuple[TraceLine, ...] | None:
    outputs = {o.tensor: o.element_width for o in flows.operands if o.output}
    try:
        found = trace(
            block.text,
            block.constraints,
            list(args),
            [_WIDTHS[outputs[n]] for n in sorted(outputs)],
            pack=flows.pack,
            target=trial_target(block) or "",
            special=special_of(block),
            limit=SECONDS,
        )
    except PtxError:
        return None
    return found.lines
