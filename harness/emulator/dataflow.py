"""Which results of an asm block, or of a kernel, may depend on an approximate instruction."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ptxdiff.emulator.asm_block import AsmBlock, assemble
from ptxdiff.emulator.binding.constraints import REGISTER_WIDTH, parse_constraints
from ptxdiff.emulator.binding.program import Program, Step

Names = frozenset[str]


def approximate_results(asm: str, constraints: str, *, target: str | None = None) -> tuple[tuple[str, ...], ...]:
    """For each operand of a block, in order, the approximate instructions that its final value may depend on.

    May report too many: the order of instructions is ignored, and every result counts as dependent on every branch
    condition.
    Raises PtxError as `emulate` would.
    """
    block = assemble(asm, constraints, target)
    by_slot = _by_slot(block.program)
    return tuple(tuple(sorted(by_slot[slot])) for slot in block.slots)


def approximate_tensors(
    program: Program, tensors: Mapping[str, str], *, ordered: bool = False
) -> dict[str, tuple[str, ...]]:
    """By tensor of a kernel, the approximate instructions that what lies in it may depend on in the end.

    tensors: by name of the parameter that points to it. Errs on the side of yes, as above; further, all of a tensor is
    one place, all of shared memory is one, and so is all of local memory. An access belongs to the tensors whose
    pointers its address is computed from, and to every tensor where there are none. What moves data in another way than
    a load, a store and a shuffle may move anything anywhere.

    ordered: threads know what others store by barriers alone, and a run in which they do otherwise fails as a race. The
    order of instructions then counts where there is no branch: a load gives nothing that is stored further down.
    """
    registers = len(program.registers)
    everywhere = registers
    spaces = {name: registers + 1 + k for k, name in enumerate(("shared", "local"))}
    cells = {name: registers + 3 + k for k, name in enumerate(dict.fromkeys(tensors.values()))}
    memory = [*spaces.values(), *cells.values()]
    flow = _Flow(registers + 3 + len(cells))
    roots = _roots(program, tensors)

    def places(step: Step) -> list[int]:
        """Where an access goes to or comes from."""
        if step.detail.space != "global":
            return [spaces[step.detail.space]] if step.detail.space in spaces else memory
        address = step.sources[0].slot
        names_reaching = roots[address] if address >= 0 else frozenset()
        return [cells[name] for name in names_reaching] or memory

    known = True
    for step in program.steps:
        read, written = _read(step), _written(step)
        if _from_parameters(step):
            flow.add(step, read, written)
        elif step.kind == "ld":
            flow.add(step, [*read, *places(step)], written)
        elif step.kind == "st":
            flow.add(step, read, places(step))
        elif step.facts.registers_only or step.kind == "shfl":
            flow.add(step, read, written)
        elif step.kind in ("exit", "barrier"):
            flow.add(step, read, [everywhere])
        else:
            known = False
            flow.add(step, read if step.kind == "branch" else [*read, *memory], [everywhere])
    by_cell = flow.in_order(everywhere) if ordered and known else flow.settled()
    return {name: tuple(sorted(by_cell[cell] | by_cell[everywhere])) for name, cell in cells.items()}


def _roots(program: Program, tensors: Mapping[str, str]) -> list[Names]:
    """By register slot, the tensors whose pointers its values may be computed from."""
    flow = _Flow(len(program.registers))
    for step in program.steps:
        if step.kind == "ld_param":
            own = tensors.get(step.detail[0])
            flow.move([own] if own else [], (), _written(step))
        elif _from_parameters(step):
            flow.move(tensors.values(), (), _written(step))
        elif step.facts.registers_only or step.kind == "shfl":
            flow.move((), _read(step), _written(step))
    return flow.settled()


def _from_parameters(step: Step) -> bool:
    """Whether a step loads a kernel's parameter through a register, which may be any of them."""
    return step.kind == "ld" and step.detail.space == "param"


class _Flow:
    """Names that places hold, and how they move from places to others, in the order of the steps."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._moves: list[tuple[Names, Sequence[int], Sequence[int]]] = []

    def move(self, names: Iterable[str], read: Sequence[int], written: Sequence[int]) -> None:
        """These names, and those in places that are read, get to those that are written."""
        self._moves.append((frozenset(names), read, written))

    def add(self, step: Step, read: Sequence[int], written: Sequence[int]) -> None:
        """The same for a step, which has a name where it is approximate."""
        self.move([step.bound.name] * step.bound.form.approximate, read, written)

    def in_order(self, everywhere: int) -> list[Names]:
        """By place, the names that reach it in the order of the steps; what was in a place before stays there."""
        reaching: list[Names] = [frozenset()] * self._places
        for names, read, written in self._moves:
            names = names.union(reaching[everywhere], *(reaching[cell] for cell in read))
            for cell in written:
                reaching[cell] |= names
        return reaching

    def settled(self) -> list[Names]:
        """By place, the names that reach it in any order. A place is visited again only when it has gained one."""
        reaching: list[Names] = [frozenset()] * self._places
        flows: list[set[int]] = [set() for _ in reaching]
        for names, read, written in self._moves:
            for cell in written:
                reaching[cell] |= names
            for cell in read:
                flows[cell].update(written)
        pending = deque(cell for cell, names in enumerate(reaching) if names)
        while pending:
            at = pending.popleft()
            for cell in flows[at]:
                if not reaching[at] <= reaching[cell]:
                    reaching[cell] |= reaching[at]
                    pending.append(cell)
        return reaching


def _by_slot(program: Program) -> list[Names]:
    """For each register slot, the names of the instructions that its values may depend on."""
    everywhere = len(program.registers)  # an extra slot after the registers: a name in it counts for every register
    flow = _Flow(everywhere + 1)
    for step in program.steps:
        flow.add(step, _read(step), _written(step) if step.facts.registers_only else [everywhere])
    reaching = flow.settled()
    return [names | reaching[everywhere] for names in reaching[:everywhere]]


def _read(step: Step) -> list[int]:
    return [r.slot for r in step.sources if r.slot >= 0] + ([step.guard] if step.guard >= 0 else [])


def _written(step: Step) -> list[int]:
    return [slot for writer in step.destinations for slot in (writer.slot, writer.upper) if slot >= 0]


# Which operands of an asm block the compiler may put in one register -----------------------------------------------
#
# Which operands of an asm block the compiler may put in one register, and where that changes the result.
#
# LLVM may put an output and an input into one register if the output is no early clobber and the input is not needed
# after the block. The block then loses the input if it writes the output before its last read of the input. Only such
# pairs are hazards. Where every read of the input comes before every write of the output, sharing only renames a
# register and changes no result, whichever other pairs share too.
#
# An output that is tied to an input holds that input when the block begins. Another input can share its register only
# if both inputs have the same value.

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
    matchings = list(itertools.islice(_matchings(pairs), ASSIGNMENTS + 1))
    if len(matchings) <= ASSIGNMENTS and len(hazards) < HAZARDS:
        return Sharing(hazards, (*sorted(matchings, key=len), *tied), True)
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
