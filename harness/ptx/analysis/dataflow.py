"""Which results of an asm block may depend on an approximate instruction."""

from __future__ import annotations

from collections import deque

from harness.ptx.api import assemble
from harness.ptx.binding.program import Program, Step

Names = frozenset[str]


def approximate_results(asm: str, constraints: str, *, target: str | None = None) -> tuple[tuple[str, ...], ...]:
    """For each operand of a block, in order, the approximate instructions that its final value may depend on.

    May report too many: the order of instructions is ignored, and every result counts as dependent on every branch
    condition.
    Raises PtxError as `emulate` would.
    """
    block = assemble(asm, constraints, target)
    found = _by_slot(block.program)
    return tuple(tuple(sorted(found[slot])) for slot in block.slots)


def _by_slot(program: Program) -> list[Names]:
    """For each register slot, the names of the instructions that its values may depend on."""
    everywhere = len(program.registers)  # an extra slot after the registers: a name in it counts for every register
    found: list[Names] = [frozenset()] * (everywhere + 1)
    flows: list[set[int]] = [set() for _ in found]
    for step in program.steps:
        places = _written(step) if step.kind in _PLAIN else [everywhere]
        read = [r.slot for r in step.sources if r.slot >= 0] + ([step.guard] if step.guard >= 0 else [])
        for place in places:
            if step.bound.form.approximate:
                found[place] |= {step.bound.name}
            for slot in read:
                flows[slot].add(place)
    # A register is visited again only when it has gained a name, so the number of visits is bounded by the names.
    pending = deque(place for place, names in enumerate(found) if names)
    while pending:
        at = pending.popleft()
        for place in flows[at]:
            if not found[at] <= found[place]:
                found[place] |= found[at]
                pending.append(place)
    return [names | found[everywhere] for names in found[:everywhere]]


def _written(step: Step) -> list[int]:
    return [slot for writer in step.destinations for slot in (writer.slot, writer.upper) if slot >= 0]


_PLAIN = ("scalar", "mov", "pack", "unpack", "special", "nothing")
"""Kinds of step that only compute their destinations from their sources. Any other kind (a branch, an exit, a store)
may change every result."""
