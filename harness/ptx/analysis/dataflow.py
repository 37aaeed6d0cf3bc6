"""Which results of an asm block may depend on an approximate instruction."""

from __future__ import annotations

from collections.abc import Sequence

from harness.ptx.api import assemble
from harness.ptx.binding.program import Program, Step

Names = frozenset[str]


def approximate_results(asm: str, constraints: str, *, target: str | None = None) -> tuple[tuple[str, ...], ...]:
    """For each operand of a block, in order, the approximate instructions that its last value may depend on.

    Errs on the side of yes: the order of instructions is ignored, and what decides a branch decides everything.
    Raises PtxError as `emulate` would.
    """
    block = assemble(asm, constraints, target)
    found = _by_slot(block.program)
    return tuple(tuple(sorted(found[slot])) for slot in block.slots)


def _by_slot(program: Program) -> list[Names]:
    """By register slot, what its values may depend on."""
    found: list[Names] = [frozenset()] * len(program.registers)
    while True:
        before = list(found)
        for step in program.steps:
            _flow(step, found)
        if found == before:
            return found


def _flow(step: Step, found: list[Names]) -> None:
    everywhere = step.kind not in _PLAIN
    names: Names = frozenset((step.bound.name,)) if step.bound.form.approximate else frozenset()
    read: Sequence[int] = [r.slot for r in step.sources if r.slot >= 0] + ([step.guard] if step.guard >= 0 else [])
    names = names.union(*(found[slot] for slot in read))
    written = [s for w in step.destinations for s in (w.slot, w.upper) if s >= 0]
    for slot in range(len(found)) if everywhere else written:
        found[slot] |= names


_PLAIN = ("scalar", "mov", "pack", "unpack", "special", "nothing")
"""Kinds of step that do nothing but compute their destinations from their sources. What another one does (a branch,
an exit, a store) may change any result."""
