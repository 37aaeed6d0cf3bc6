"""Which elements of a pack each result depends on, found by running the block with one element changed at a time."""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.lint.block import Block
from harness.lint.trial import Clock, home_of
from harness.ptx.api import emulate
from harness.ptx.binding.constraints import AsmOperand, bind, check_pack
from harness.ptx.binding.program import Program, Step
from harness.ptx.errors import PtxError
from harness.ptx.machine.data import dtype_of, width_of
from harness.ptx.machine.standins import unknown_registers

PACKS = 12
"""Packs of elements in one run."""
_MOST = 128
"""Elements of all arguments, and of all results, from which on a block is not looked at."""
_WIDTHS = {8: "uint8", 16: "uint16", 32: "uint32", 64: "uint64"}
Element = tuple[int, int]
"""Number of an argument or of a result, and the position in the pack."""


@dataclass(frozen=True)
class Flow:
    """By element of a result the elements of arguments that change it: what was seen, never a guess."""

    operands: tuple[AsmOperand, ...]
    pack: int
    depends: dict[Element, frozenset[Element]]

    def register(self, element: Element, output: bool) -> int:
        """The number of the operand that holds an element."""
        return next(
            o.number
            for o in self.operands
            if (o.output, o.tensor) == (output, element[0]) and o.first <= element[1] < o.first + o.count
        )


def flow(block: Block) -> Flow | None:
    """The flow of elements through a block; None where pack, dtypes or the text do not tell, or it cannot be run."""
    known = _operands(block)
    if known is None or block.program is None or block.has_constants or home_of(block) is None:
        return None
    operands, inputs, outputs, pack = known
    if pack * max(len(inputs), len(outputs)) > _MOST:
        return None
    seed = zlib.crc32(block.text.encode())
    given = [_patterns(w, pack, (seed, n)) for n, w in enumerate(inputs)]
    clock = Clock()
    base = _results(block, given, outputs, pack, clock)
    if base is None:
        return None
    depends: dict[Element, set[Element]] = {(t, i): set() for t in range(len(outputs)) for i in range(pack)}
    for tensor, position, trial in itertools.product(range(len(inputs)), range(pack), range(2)):
        changed = list(given)
        changed[tensor] = given[tensor].copy()
        column = changed[tensor].reshape(-1, pack)
        column[:, position] = _patterns(inputs[tensor], 1, (seed, tensor, position, trial))
        results = _results(block, changed, outputs, pack, clock)
        if results is None:
            return None
        for number, (before, after) in enumerate(zip(base, results, strict=True)):
            differs = (before != after).reshape(-1, pack).any(axis=0)
            for at in np.flatnonzero(differs):
                depends[number, int(at)].add((tensor, position))
    return Flow(operands, pack, {k: frozenset(v) for k, v in depends.items()})


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
    block: Block, given: Sequence[np.ndarray], outputs: Sequence[int], pack: int, clock: Clock
) -> list[np.ndarray] | None:
    if clock.left <= 0 or block.program is None:
        return None
    unknown = unknown_registers(block.program.program, lambda name, component: False)
    try:
        found = emulate(
            block.text,
            block.constraints,
            list(given),
            [_WIDTHS[w] for w in outputs],
            pack=pack,
            target=home_of(block) or "",
            limit=clock.left,
            special={name: 3 + k for k, name in enumerate(unknown)},
        )
    except PtxError:
        return None
    return list(found)


def _operands(block: Block) -> tuple[tuple[AsmOperand, ...], list[int], list[int], int] | None:
    """The operands with their elements, the widths of arguments and results, and the pack."""
    snippet = block.snippet
    if snippet.convention != "triton" or block.parsed is None or snippet.outputs is None or snippet.inputs is None:
        return None
    pack = snippet.pack
    try:
        check_pack(pack)
        assert pack is not None
        if pack == 1 or not snippet.inputs:
            return None
        fits = []
        for widths in itertools.islice(itertools.product(*map(_possible, (*snippet.outputs, *snippet.inputs))), 256):
            outputs, inputs = list(widths[: len(snippet.outputs)]), list(widths[len(snippet.outputs) :])
            try:
                fits.append((bind(block.parsed, inputs, outputs, pack), inputs, outputs, pack))
            except PtxError:
                continue
    except PtxError:
        return None
    return fits[0] if len(fits) == 1 else None


def _possible(name: str | None) -> tuple[int, ...]:
    """The widths that a dtype may have: its own, or any where it is not known."""
    if name is None:
        return tuple(_WIDTHS)
    width = width_of(dtype_of(name))
    return (width,) if width in _WIDTHS else ()


# the path ----------------------------------------------------------------------------------------------------


def path(block: Block, source: int, output: int) -> list[int]:
    """The offsets of instructions on a shortest way from an input operand to an output operand."""
    assert block.program is not None
    program: Program = block.program.program
    start, end = block.program.slots[source], block.program.slots[output]
    before: dict[int, tuple[int, int]] = {}
    pending = deque([start])
    seen = {start}
    while pending:
        slot = pending.popleft()
        for at, step in enumerate(program.steps):
            if slot not in _read(step):
                continue
            for written in _written(step):
                if written not in seen:
                    seen.add(written)
                    before[written] = slot, at
                    pending.append(written)
    steps = []
    while end in before:
        end, at = before[end]
        steps.append(program.steps[at].node.offset)
    return list(dict.fromkeys(reversed(steps)))


def _read(step: Step) -> set[int]:
    return {r.slot for r in step.sources} | {step.guard}


def _written(step: Step) -> list[int]:
    return [slot for writer in step.destinations for slot in (writer.slot, writer.upper) if slot >= 0]
