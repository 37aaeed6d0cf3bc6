"""The orders in which the blocks of a grid run, and the turns that blocks take while they wait for each other.

A GPU promises no order of blocks. A kernel whose blocks communicate (it has atomics, fences, or volatile or acquiring
accesses) therefore runs in several orders: many blocks together, as all kernels run; and the same with the last blocks
and the last threads first. If a loop of it can wait for other blocks, it also runs with each block alone until it
waits, in order, in reverse order and in random orders. So the block that others wait for comes last in one of them.

Blocks that wait keep their registers, and all blocks get turns until every one has ended. If a whole round of turns
changes neither memory nor any register, the blocks wait forever: a deadlock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeVar

from ptxdiff.emulator.binding.program import Program, Step

ONE_FRAME = 1 << 15
"""Threads of a grid that run as one frame, so that accesses of different blocks can be ordered (`happens_before`)."""
RESIDENT = 1 << 19
"""Threads that wait for each other at most: no GPU holds more at a time (at most 2048 for each of its processors)."""
PIECES = 16
"""How many parts of a grid take turns, where each block would be a part of its own in a smaller grid."""
PATIENCE = 4096
"""Jumps back after which threads rest, in a loop that reads nothing that others may change."""
SEEDS = (1, 2)


@dataclass(frozen=True)
class BlockOrder:
    """An order of blocks. `alone`: each block runs alone until it waits. `reverse`: the last block, and in one atomic
    instruction the last thread, first. `seed`: of random orders, a new one each round; 0: none. `apart`: in how many
    parts lanes of a branch come to activemask; 0: together.
    """

    alone: bool = False
    reverse: bool = False
    seed: int = 0
    apart: int = 0

    @property
    def groups(self) -> str:
        """How lanes of a branch come to activemask, in words, where they come apart."""
        return "in two groups" if self.apart == 2 else "one at a time"

    @property
    def words(self) -> str:
        """The order in words, for messages; "" for the usual one."""
        if self.apart:
            return f"with threads of a branch that come to activemask {self.groups}"
        if self.seed:
            return f"with the blocks one at a time, in a random order (seed {self.seed})"
        if self.alone:
            return f"with the blocks one at a time, the {'last' if self.reverse else 'first'} one first"
        return "with the last blocks and threads first" if self.reverse else ""

    def rounds(self, pieces: int) -> Iterator[list[int]]:
        """The order of so many pieces of a grid in each round of turns."""
        shuffled = random.Random(self.seed)
        usual = list(range(pieces))[:: -1 if self.reverse else 1]
        while True:
            yield shuffled.sample(usual, pieces) if self.seed else usual


TOGETHER = BlockOrder()
"""The usual order, whose bits a launch leaves."""
APART = BlockOrder(apart=2), BlockOrder(apart=32)
"""The orders in which a kernel with activemask runs too: every second lane of a branch together, and each alone."""


def orders(synchronises: bool, waits: bool, blocks: int, threads: int) -> tuple[BlockOrder, ...]:
    """The orders in which a kernel runs. synchronises: whether its blocks can communicate. waits: whether one of its
    loops can wait for others. blocks: of the grid. threads: of a block."""
    if not synchronises or blocks == 1:
        return (TOGETHER,)
    if not waits or blocks * threads > ONE_FRAME:
        return (TOGETHER, BlockOrder(reverse=True))
    shuffled = [BlockOrder(alone=True, seed=seed) for seed in SEEDS]
    return (TOGETHER, BlockOrder(alone=True, reverse=True), BlockOrder(alone=True), *shuffled)


def observes(step: Step) -> bool:
    """Whether a step can see what another thread does meanwhile: an atomic with a result, or a strong load (one that is
    volatile, relaxed or acquiring)."""
    if step.kind == "atom":
        return any(writer.slot >= 0 for writer in step.destinations)
    return step.kind == "mbarrier_test_wait" or (step.kind in ("ld", "ld_acquire") and strong(step))


def settled_by_order(program: Program) -> bool:
    """Whether the order of threads may decide the results of a right program: it sees what others do meanwhile, or it
    updates memory with operations whose order matters (sums of floating-point numbers, exchanges)."""
    return any(
        observes(step)
        or step.node.spelling.startswith("cp.reduce")
        or (step.kind == "atom" and not _ORDERED.isdisjoint(step.node.modifiers))
        for step in program.steps
    )


_ORDERED = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "exch", "cas"))
"""Modifiers of atomic operations whose order matters."""


def strong(step: Step) -> bool:
    """Whether an access is strong in the memory model (ISA 8.3): it may meet those of other threads."""
    return not {"volatile", "relaxed", "acquire", "release", "mmio"}.isdisjoint(step.node.modifiers)


def waits(program: Program) -> bool:
    """Whether a loop may wait for other threads: it has a strong load, or an atomic with a result."""
    return PATIENCE in waiting_loops(program).values()


def waiting_loops(program: Program) -> dict[int, int]:
    """For each branch that closes a loop which may wait for other threads, as how many jumps back one jump counts.

    A loop with a strong load or an atomic waits probably. One that loads plainly should not, but may.
    """
    reading = [0, *accumulate(step.kind == "ld" and step.detail.space in ("", "global") for step in program.steps)]
    observing = [0, *accumulate(map(observes, program.steps))]
    patience = {}
    for at, step in enumerate(program.steps):
        if step.kind == "branch" and step.target <= at:
            if observing[at + 1] > observing[step.target]:
                patience[at] = PATIENCE
            elif reading[at + 1] > reading[step.target]:
                patience[at] = PATIENCE // 64
    return patience


def awaited_loads(program: Program) -> frozenset[int]:
    """The volatile loads (by place in the text) whose value decides whether a loop around them goes on.

    Only such loads wait for another thread. Others that are volatile read what another thread wrote at some time.
    """
    offsets = set()
    for at, step in enumerate(program.steps):
        if step.kind != "branch" or step.target > at:
            continue
        body = program.steps[step.target : at + 1]
        for load in body:
            if load.kind != "ld" or "volatile" not in load.node.modifiers:
                continue
            known = {slot for writer in load.destinations for slot in (writer.slot, writer.upper) if slot >= 0}
            for later in (*body, *body):
                if any(reader.slot in known for reader in later.sources) or later.guard in known:
                    known |= {s for writer in later.destinations for s in (writer.slot, writer.upper) if s >= 0}
            if any(one.kind == "branch" and one.guard in known for one in body):
                offsets.add(load.node.offset)
    return frozenset(offsets)


def data_loads(program: Program) -> frozenset[int]:
    """The relaxed and volatile loads (by place in the text) whose value decides nothing: no branch, no predicate, and
    no atomic operation.

    Such a load waits for nobody, and no later access depends on what it saw. Its value is part of the results.
    """
    offsets = set()
    for load in program.steps:
        if load.kind != "ld" or load.bound.modifiers.get("sem") not in ("relaxed", "volatile"):
            continue
        known = {slot for writer in load.destinations for slot in (writer.slot, writer.upper) if slot >= 0}
        size, decides = 0, False
        while size < len(known) and not decides:
            size = len(known)
            for step in program.steps:
                if step.guard in known:
                    decides = True
                if any(reader.slot in known for reader in step.sources):
                    decides |= step.kind in ("atom", "branch") or any(w.width == 1 for w in step.destinations)
                    known |= {s for writer in step.destinations for s in (writer.slot, writer.upper) if s >= 0}
        if not decides:
            offsets.add(load.node.offset)
    return frozenset(offsets)


class Turns(Protocol):
    """Blocks that take turns with others: a scheduler."""

    def state(self) -> bytes:
        """A digest of all registers and of the places of all threads."""

    def endless(self, left: int) -> Exception:
        """The error for threads that wait forever. left: the pieces of the grid that have not begun."""


T = TypeVar("T", bound=Turns)


def take_turns(
    pieces: Iterable[int],
    begin: Callable[[int], T],
    run: Callable[[int, T], bool],
    end: Callable[[int, T], None],
    resident: int,
    changes: Callable[[], int],
) -> None:
    """Run the pieces of a grid in their order until all have ended; those that wait get a turn in each round.

    begin: makes the scheduler of a piece. run: runs it; returns whether all its threads have ended. end: called with
    one that has ended. resident: how many may wait at a time. changes: how many changes of memory there were. Raises
    PtxError, for a deadlock too.
    """
    left = list(pieces)
    running: dict[int, T] = {}
    states: dict[int, bytes] = {}
    stuck: set[int] = set()
    while left or running:
        before, ended = changes(), False
        for piece in [*running, *left]:
            if piece not in running:
                if len(running) >= resident:
                    continue
                left.remove(piece)
                running[piece] = begin(piece)
            if run(piece, running[piece]):
                end(piece, running.pop(piece))
                ended = True
        if ended or changes() != before:
            states.clear()
            stuck.clear()
            continue
        for piece, blocks in running.items():
            if piece not in stuck:
                state = blocks.state()
                if states.get(piece) != state:
                    states[piece] = state
                    break
                stuck.add(piece)
        else:
            raise next(iter(running.values())).endless(len(left))
