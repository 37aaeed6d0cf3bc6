"""Which operands of an asm block the compiler may put in one register, and where that changes the result.

LLVM may put an output and an input into one register if the output is no early clobber and the input is not needed
after the block. The block then loses the input if it writes the output before its last read of the input. Only such
pairs are hazards. Where every read of the input comes before every write of the output, sharing only renames a
register and changes no result, whichever other pairs share too.

An output that is tied to an input holds that input when the block begins. Another input can share its register only if
both inputs have the same value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ptxdiff.emulator.asm_block import AsmBlock, assemble
from ptxdiff.emulator.binding.constraints import REGISTER_WIDTH, parse_constraints
from ptxdiff.emulator.binding.program import Program

ASSIGNMENTS = 64
"""The most assignments of registers that are tried, besides those that cover every hazard."""
HAZARDS = 1 << 14
"""The most hazards that are collected; asm written by hand has some dozens."""
SINGLES = 512
"""Up to this number, each hazard is also tried alone; beyond it, only largest assignments that together cover all."""


@dataclass(frozen=True)
class Hazard:
    """An output and an input that may share a register, with the output written before the input is read.

    written, read: the lines of the two instructions. tied: the input that is tied to the output, or -1 for none. write,
    reading: the offsets of the two instructions in the text.
    """

    output: int
    input: int
    written: int
    read: int
    tied: int = -1
    write: int = field(default=0, compare=False)
    reading: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Sharing:
    """The hazards of a block, and the assignments (output to input) to try: all possible ones, unless `complete` is
    False.

    Every hazard is in some assignment; if there are few hazards, each also has one of its own. A hazard with a tied
    input is in no other.
    """

    hazards: tuple[Hazard, ...]
    assignments: tuple[dict[int, int], ...]
    complete: bool


def sharing(
    asm: str, constraints: str, target: str | None = None, constants: tuple[tuple[int, int], ...] = ()
) -> Sharing:
    """The hazards of a block and the assignments that expose them. Raises PtxError as `emulate` would.

    constants: number and value of each operand under constraint `n` or `i`.
    """
    block = assemble(asm, constraints, target, (), False, constants)
    hazards = tuple(itertools.islice(_hazards(block, constraints), HAZARDS))
    pairs = [(h.output, h.input) for h in hazards if h.tied < 0]
    tied = [{h.output: h.input} for h in hazards if h.tied >= 0]
    found = list(itertools.islice(_matchings(pairs), ASSIGNMENTS + 1))
    if len(found) <= ASSIGNMENTS and len(hazards) < HAZARDS:
        return Sharing(hazards, (*sorted(found, key=len), *tied), True)
    singles = [{o: i} for o, i in pairs] if len(pairs) <= SINGLES else []
    return Sharing(hazards, (*singles, *_covering(pairs), *tied), False)


def _hazards(block: AsmBlock, constraints: str) -> Iterator[Hazard]:
    parsed = parse_constraints(constraints)
    tied = {c.tied: number for number, c in enumerate(parsed) if c.tied is not None}
    program = block.program
    reads: dict[int, list[int]] = {}
    for at, step in enumerate(program.steps):
        for slot in {step.guard, *(r.slot for r in step.sources)}:
            reads.setdefault(slot, []).append(at)
    for output, constraint in enumerate(parsed):
        if not constraint.output or constraint.early:
            continue
        first = _first_write_before(program, block.slots[output])
        for number, other in enumerate(parsed):
            if other.output or other.tied is not None or other.immediate:
                continue
            if REGISTER_WIDTH[other.letter] != REGISTER_WIDTH[constraint.letter]:
                continue
            read = next((at for at in reads.get(block.slots[number], ()) if at in first), None)
            if read is not None:
                places = program.steps[first[read]].node.offset, program.steps[read].node.offset
                written, reading = (program.source.position(at)[0] for at in places)
                yield Hazard(output, number, written, reading, tied.get(output, -1), *places)


def _first_write_before(program: Program, slot: int) -> dict[int, int]:
    """For each step that may run after a write of a register: one such write."""
    after: dict[int, int] = {}
    for write, step in enumerate(program.steps):
        if all(w.slot != slot for w in step.destinations):
            continue
        pending = list(following(program, write))
        while pending:
            at = pending.pop()
            if at not in after:
                after[at] = write
                pending += following(program, at)
    return after


def following(program: Program, at: int) -> Iterator[int]:
    """The steps that may run directly after one."""
    step = program.steps[at]
    if step.kind == "branch" and step.target < len(program.steps):
        yield step.target
    leaves = step.kind in ("branch", "exit") and step.guard < 0
    if not leaves and at + 1 < len(program.steps):
        yield at + 1


def _matchings(pairs: Sequence[tuple[int, int]]) -> Iterator[dict[int, int]]:
    """Every nonempty choice of pairs in which no output and no input occurs twice."""
    for at, (output, source) in enumerate(pairs):
        yield {output: source}
        rest = [(o, i) for o, i in pairs[at + 1 :] if o != output and i != source]
        for more in _matchings(rest):
            yield {output: source} | more


def _covering(pairs: Sequence[tuple[int, int]]) -> Iterator[dict[int, int]]:
    """Enough largest choices that each pair is in at least one."""
    uncovered = dict.fromkeys(pairs)
    while uncovered:
        chosen: dict[int, int] = {}
        taken: set[int] = set()
        for output, source in itertools.chain(list(uncovered), pairs):
            if output not in chosen and source not in taken:
                chosen[output] = source
                taken.add(source)
                uncovered.pop((output, source), None)
        yield chosen


__all__ = ["ASSIGNMENTS", "Hazard", "Sharing", "following", "sharing"]
