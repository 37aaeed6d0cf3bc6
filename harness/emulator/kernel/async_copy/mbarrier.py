"""Barriers in shared memory (mbarrier): arrivals, expected bytes of copies, phases, and waiting threads.

A phase is complete when all arrivals and all expected bytes have come. `try_wait` gives false once to a thread that
asks early, or might have, because the ISA ends a try after a time of the system's choice; the next `try_wait` suspends
the thread until the phase is complete. `test_wait` gives the current state. Copies land only when no other thread can
run or when `test_wait` runs, so a read without a wait meets a copy under way, which is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, OperandError, UnsupportedOnTarget
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.async_copy.mbarrier_phases import Barrier, Completed
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import address
from ptxdiff.emulator.kernel.memory.space import Access
from ptxdiff.emulator.kernel.threads import run_starts
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Instruction, Sink
from ptxdiff.emulator.text.types import TYPES

_WORD = 64
COUNT = (1 << 20) - 1
"""The most arrivals of a phase (ISA 9.7.13.15.4)."""


def _bind(builder: KernelBuilder, node: Instruction, bound: Bound, at: int, more: int = 0) -> ReadSlot:
    """The address of the barrier, operand `at`, without its displacement, which `places` adds."""
    expect(builder, node, at + 1 + more)
    return address(builder, node.operands[at], _space(bound))[0]


def _space(bound: Bound) -> str:
    return (bound.modifiers.get("space") or "").partition("::")[0]


def _access(builder: KernelBuilder, node: Instruction, bound: Bound, at: int) -> Access:
    return Access(_space(bound), address(builder, node.operands[at], _space(bound))[1], _WORD, 1)


def places(frame: KernelFrame, step: Step, reader: ReadSlot, access: Access, lanes: Array) -> Array:
    """The offset of each lane's barrier in the shared memory of all blocks of the frame."""
    _, locations = frame.locate_lanes(step, reader, access, lanes)
    if len(locations) != 1 or locations[0].region is not frame.shared:
        raise frame.fault(ExecutionError, step, f"{frame.who(int(lanes[0]))}: an mbarrier lies in shared memory")
    return locations[0].offsets


def barrier_at(frame: KernelFrame, step: Step, offset: int, lane: int) -> Barrier:
    """The barrier at an offset of shared memory. Raises ExecutionError if none was initialised there."""
    barrier = frame.barriers.get(offset)
    if barrier is None:
        text = f"{frame.who(lane)}: no mbarrier.init has made an mbarrier at offset {offset % frame.shared.size}"
        raise frame.fault(ExecutionError, step, text)
    return barrier


def _lanes(frame: KernelFrame, active: Array | None) -> Array:
    return frame.every if active is None else np.flatnonzero(active)


def _values(frame: KernelFrame, step: Step, reader: ReadSlot, lanes: Array) -> list[int]:
    value, mask = frame.read(reader)
    if mask is not None:
        frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, "an operand of an mbarrier")
    return [int(x) for x in np.broadcast_to(value, (frame.lanes,))[lanes].tolist()]


# making and changing --------------------------------------------------------------------------------------------


def _binds_with_number(operation: str, what: str) -> None:
    """Register the binder of an operation on an mbarrier and a number. what: the number's name in errors."""

    @binds(operation)
    def bound_with_number(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
        base = _bind(builder, node, bound, 0, 1)
        number = builder.read(node.operands[1], TYPES["u32"], False, what)
        return Step(operation, node, bound, (base, number), detail=_access(builder, node, bound, 0))


_binds_with_number("mbarrier_init", "the count of an mbarrier")
_binds_with_number("mbarrier_expect", "the bytes that an mbarrier expects")
_binds_with_number("mbarrier_complete", "the bytes that an mbarrier counts as arrived")


@runs("mbarrier_init")
def _run_init(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = _lanes(frame, active)
    if not len(lanes):
        return
    counts = _values(frame, step, step.sources[1], lanes)
    for offset, count, lane in zip(
        places(frame, step, step.sources[0], step.detail, lanes).tolist(), counts, lanes.tolist(), strict=True
    ):
        if not 0 < count <= COUNT:
            raise frame.fault(ExecutionError, step, f"{frame.who(lane)} makes an mbarrier of {count} arrivals")
        old = frame.barriers.get(offset)
        if old is not None and (old.pending != old.expected or old.bytes):  # Triton 3.6 initialises idle barriers again
            text = f"{frame.who(lane)} makes an mbarrier where one is in use, and no mbarrier.inval lies between"
            raise frame.fault(ExecutionError, step, text)
        agent = frame.order.agent(("mbarrier", offset % frame.team_bytes))
        frame.barriers[offset] = Barrier(count, count, init_time=frame.order.clock, init_lane=lane, agent=agent)
        frame.shared.undefined[offset : offset + 8] = 0xFF  # the bits of a barrier are opaque


@binds("mbarrier_inval")
def _bind_inval(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    return Step(
        "mbarrier_inval", node, bound, (_bind(builder, node, bound, 0),), detail=_access(builder, node, bound, 0)
    )


@runs("mbarrier_inval")
def _run_inval(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = _lanes(frame, active)
    if len(lanes):
        offsets = places(frame, step, step.sources[0], step.detail, lanes).tolist()
        for offset, lane in zip(offsets, lanes.tolist(), strict=True):
            barrier_at(frame, step, offset, lane)
            frame.bulk.refuse_bound_for(step, offset, lane)
            frame.tensor.refuse_bound_for(step, offset, lane)
            del frame.barriers[offset]


@runs("mbarrier_expect")
def _run_expect(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = _lanes(frame, active)
    if len(lanes):
        counts = _values(frame, step, step.sources[1], lanes)
        offsets = places(frame, step, step.sources[0], step.detail, lanes).tolist()
        frame.refuse_unmade(step, offsets, lanes)
        for offset, count, lane in zip(offsets, counts, lanes.tolist(), strict=True):
            barrier_at(frame, step, offset, lane).bytes += count


@runs("mbarrier_complete")
def _run_complete(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """mbarrier.complete_tx: count bytes as arrived, as a copy does. It is relaxed: nobody is ordered after the lane."""
    lanes = _lanes(frame, active)
    if len(lanes):
        counts = _values(frame, step, step.sources[1], lanes)
        offsets = places(frame, step, step.sources[0], step.detail, lanes).tolist()
        frame.refuse_unmade(step, offsets, lanes)
        for offset, count, lane in zip(offsets, counts, lanes.tolist(), strict=True):
            barrier = barrier_at(frame, step, offset, lane)
            barrier.bytes -= count
            barrier.copies = True
            barrier.settle(frame.order)


@binds("mbarrier_copies")
def _bind_copies(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    return Step(
        "mbarrier_copies", node, bound, (_bind(builder, node, bound, 0),), detail=_access(builder, node, bound, 0)
    )


@runs("mbarrier_copies")
def _run_copies(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """cp.async.mbarrier.arrive: an arrival as soon as the copies that each lane has issued are complete.

    Without `.noinc` the arrival is one more than the phase otherwise takes (ISA: the pending count is incremented).
    """
    lanes = _lanes(frame, active)
    if not len(lanes):
        return
    offsets = places(frame, step, step.sources[0], step.detail, lanes)
    frame.refuse_unmade(step, offsets, lanes)
    for offset, lane in zip(offsets.tolist(), lanes.tolist(), strict=True):
        barrier = barrier_at(frame, step, offset, lane)
        barrier.owed += 1
        if "noinc" not in step.node.modifiers:
            barrier.pending += 1
        elif barrier.owed > barrier.pending:
            text = f"{frame.who(lane)} lets its copies arrive at the mbarrier at offset {offset % frame.shared.size}, "
            raise frame.fault(ExecutionError, step, f"{text}whose phase takes {barrier.pending} arrivals in all")
    frame.copies.arrive_later(step, lanes, offsets)


@binds("mbarrier_pending")
def _bind_pending(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    state = builder.read(node.operands[1], TYPES["b64"], False, f"state of {bound.spelling}")
    writer = builder.destination(node.operands[0], TYPES["u32"], bound)
    return Step("mbarrier_pending", node, bound, (state,), (writer,))


_INCOMPLETE = 1 << 63
"""In the state that an arrival without completion gives: its bits 32 to 62 are the pending count before it."""


@runs("mbarrier_pending")
def _run_pending(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = _lanes(frame, active)
    if not len(lanes):
        return
    states = np.array(_values(frame, step, step.sources[0], lanes), np.uint64)
    bad = (states & np.uint64(_INCOMPLETE)) == 0
    if bad.any():
        text = f"{frame.who(int(lanes[np.flatnonzero(bad)[0]]))} asks for the pending count of a state that no arrival "
        raise frame.fault(ExecutionError, step, text + "with .noComplete gave")
    counts = (states >> np.uint64(32) & np.uint64(0x7FFFFFFF)).astype(np.uint32)
    frame.write_lanes(step.destinations[0], counts, None, lanes, active)


@binds("mbarrier_arrive")
def _bind_arrive(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """Bind `state, [addr]{, count}`, or with expect_tx `state, [addr], bytes`; `state` is `_` or a register."""
    counted = not {"expect_tx", "noComplete"}.isdisjoint(node.modifiers)
    expect(builder, node, *((3,) if counted else (2, 3)))
    if len(node.operands) == 3 and not counted and builder.target is not None and builder.target.older_than(90):
        raise builder.error(UnsupportedOnTarget, f"a count for {bound.spelling} needs sm_90 and later", node.offset)
    base, displacement = address(builder, node.operands[1], _space(bound))
    if bound.modifiers["space"] == "shared::cluster" and not isinstance(node.operands[0], Sink):
        raise builder.error(OperandError, f"{bound.spelling} gives no state: its destination is '_'", node.offset)
    writer = builder.destination(node.operands[0], TYPES["b64"], bound, True)
    readers = [base]
    if len(node.operands) == 3:
        readers.append(builder.read(node.operands[2], TYPES["u32"], False, f"operand of {bound.spelling}"))
    detail = Access(_space(bound), displacement, _WORD, 1)
    return Step("mbarrier_arrive", node, bound, tuple(readers), (writer,), detail=detail)


@runs("mbarrier_arrive")
def _run_arrive(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = _lanes(frame, active)
    if not len(lanes):
        return
    counts = _values(frame, step, step.sources[1], lanes) if len(step.sources) > 1 else [1] * len(lanes)
    expecting, drops = "expect_tx" in step.node.modifiers, "arrive_drop" in step.node.modifiers
    incomplete = "noComplete" in step.node.modifiers
    tokens = np.zeros(len(lanes), np.uint64)
    offsets = places(frame, step, step.sources[0], step.detail, lanes).tolist()
    frame.refuse_unmade(step, offsets, lanes)
    frame.order.tick()
    arrived: dict[int, list[int]] = {}
    for number, (offset, count, lane) in enumerate(zip(offsets, counts, lanes.tolist(), strict=True)):
        barrier = barrier_at(frame, step, offset, lane)
        tokens[number] = barrier.phase | (_INCOMPLETE | barrier.pending << 32 if incomplete else 0)
        arrivals = 1 if expecting else count
        if expecting:
            barrier.bytes += count
        if not 0 < arrivals <= barrier.pending:
            text = (
                f"{frame.who(lane)} arrives {arrivals} times at the mbarrier at offset {offset % frame.shared.size}, "
            )
            raise frame.fault(ExecutionError, step, f"{text}whose phase takes {barrier.pending} more")
        barrier.pending -= arrivals
        if drops:  # later phases take fewer
            barrier.expected -= arrivals
        if incomplete and not (barrier.pending or barrier.bytes):
            text = f"{frame.who(lane)} arrives at the mbarrier at offset {offset % frame.shared.size} with .noComplete,"
            raise frame.fault(ExecutionError, step, f"{text} and its phase is complete with this arrival")
        arrived.setdefault(offset, []).append(lane)
        if not barrier.pending:
            _release(frame, step, barrier, arrived.pop(offset))
            barrier.settle(frame.order)
    for offset, some in arrived.items():
        _release(frame, step, frame.barriers[offset], some)
    for writer in step.destinations:
        if writer.slot >= 0:
            frame.write_lanes(writer, tokens, None, lanes, active)


def _release(frame: KernelFrame, step: Step, barrier: Barrier, lanes: list[int]) -> None:
    """Record what lanes release as they arrive; a relaxed arrival releases what a fence before it released."""
    order = frame.order
    if "relaxed" not in step.node.modifiers:
        barrier.arrive(order, order.release(np.array(lanes)))
        return
    for lane in lanes:
        for one in order.released_by(lane, "relaxed", step.bound.modifiers.get("scope") or "cta"):
            barrier.arrive(order, one.vector)


# waiting ----------------------------------------------------------------------------------------------------------


def _bind_wait(kind: str) -> None:
    @binds(f"mbarrier_{kind}")
    def bind(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
        expect(builder, node, 3, 4)
        if len(node.operands) == 4 and kind != "try_wait":
            raise builder.error(OperandError, f"{node.spelling} takes no time to wait", node.offset)
        base, displacement = address(builder, node.operands[1], _space(bound))
        parity = "parity" in node.modifiers
        what = builder.read(node.operands[2], TYPES["u32" if parity else "b64"], False, "the phase to wait for")
        writer = builder.destination(node.operands[0], TYPES["pred"], bound)
        detail = Access(_space(bound), displacement, _WORD, 1)
        return Step(f"mbarrier_{kind}", node, bound, (base, what), (writer,), detail=detail)


for _kind in ("test_wait", "try_wait"):
    _bind_wait(_kind)


def groups(*columns: Array) -> tuple[list[int], Array]:
    """The index of the first of each set of equal rows of some columns, and for each row the number of its set."""
    starts = run_starts(*columns)
    if len(starts) == 1:
        return [0], np.zeros(len(columns[0]), np.int64)
    # The threads of a block are neighbours and mostly alike: one row for each run of equal rows is enough.
    first, number = _groups(*(column[starts] for column in columns))
    return starts[first].tolist(), np.repeat(number, np.diff(starts, append=len(columns[0])))


def _groups(*columns: Array) -> tuple[Array, Array]:
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if (column != column[0]).any():
            distinct, number = np.unique(column, return_inverse=True)
            code = code * len(distinct) + number
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    return first, number


def _asked(frame: KernelFrame, step: Step, lanes: Array) -> tuple[Array, Array]:
    """The offset of each lane's barrier, and the phase or the parity of which it asks."""
    value, mask = frame.read(step.sources[1])
    if mask is not None:
        frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, "an operand of an mbarrier")
    asked = np.broadcast_to(value, (frame.lanes,))[lanes]
    # Triton gives a parity as 0 or -1; only the lowest bit counts. The upper half of a state is its pending count.
    named = 1 if "parity" in step.node.modifiers else 0xFFFFFFFF
    return places(frame, step, step.sources[0], step.detail, lanes), asked.astype(np.uint64) & np.uint64(named)


def complete(frame: KernelFrame, step: Step, lanes: Array) -> Array:
    """For each lane that tests a barrier, whether the phase that it names is complete."""
    if not len(lanes):
        return np.zeros(0, np.bool_)
    offsets, asked = _asked(frame, step, lanes)
    parity = "parity" in step.node.modifiers
    frame.refuse_unmade(step, offsets, lanes)
    apart = offsets // frame.shared.size != frame.block[lanes]
    first, number = groups(offsets, asked)
    completed = np.zeros(len(first), np.bool_)
    for at, one in enumerate(first):
        barrier = barrier_at(frame, step, int(offsets[one]), int(lanes[one]))
        phase = int(asked[one])
        completed[at] = barrier.phase & 1 != phase if parity else barrier.phase > phase
    if apart.any():
        text = f"{frame.who(int(lanes[np.flatnonzero(apart)[0]]))} asks an mbarrier of another block: only threads of "
        raise frame.fault(ExecutionError, step, text + "its own may wait for it")
    return np.asarray(completed[number])


@dataclass(frozen=True)
class Awaited:
    """Complete phases, and for each of some lanes the number of the one whose release it may acquire; -1: none."""

    phases: list[Completed]
    number: Array

    def of(self, some: Array) -> Awaited:
        """The same of some of the lanes (a mask)."""
        return Awaited(self.phases, self.number[some])


def awaited_phases(frame: KernelFrame, step: Step, lanes: Array) -> Awaited:
    """The complete phases for which lanes waited; none if one happens before a lane already, or precedes the first.

    A thread may have tested as soon as the phase that it named was complete, whichever phase is complete now. A parity
    names the first phase that does not happen before the thread, if this has the parity, and else the one before.
    """
    offsets, asked = _asked(frame, step, lanes)
    parity = "parity" in step.node.modifiers
    order = frame.order
    # The vector clocks of the lanes of one group differ only in the lanes themselves.
    warp_times = np.where(order.warp_time[lanes] > order.block_time[lanes], order.warp_time[lanes], 0)
    warps = np.where(warp_times > 0, lanes >> 5, lanes // frame.grid.threads)
    first, group = groups(offsets, asked, order.vector[lanes], order.block_time[lanes], warp_times, warps)
    members = order.member[lanes]
    phases: list[Completed] = []
    number = np.full(len(lanes), -1, np.int64)

    def awaited(left: list[Completed], phase: int) -> int:
        if parity:
            one = left[0] if left and left[0].phase & 1 == phase else None
        else:
            one = next((one for one in left if one.phase >= phase), None)
        if one is None:
            return -1
        phases.append(one)
        return len(phases) - 1

    for at, lane in enumerate(first):
        barrier = frame.barriers[int(offsets[lane])]
        unordered = barrier.unordered(order.join_of(lanes[lane : lane + 1]))
        if not unordered:
            continue
        here, phase = group == at, int(asked[lane])
        number[here] = awaited([one for one, _ in unordered], phase)
        for member in {only for _, only in unordered if only >= 0}:
            alone = here & (members == member)
            if alone.any():
                number[alone] = awaited([one for one, only in unordered if only != member], phase)
    return Awaited(phases, number)


def give(frame: KernelFrame, step: Step, lanes: Array, answers: Array, awaited: Awaited) -> None:
    """Write the predicates of lanes that tested a phase, and order lanes whose phase is complete after it.

    awaited: for each lane, the complete phase whose release it may acquire (see `awaited_phases`).
    """
    whole = np.zeros(frame.lanes, np.bool_)
    whole[lanes] = True
    frame.write_lanes(step.destinations[0], answers.astype(np.uint8), None, lanes, whole)
    acquiring = answers & (awaited.number >= 0)
    if not acquiring.any():
        return
    offsets = places(frame, step, step.sources[0], step.detail, lanes)
    acquired: dict[int, tuple[Completed, list[Array]]] = {}
    for number in np.unique(awaited.number[acquiring]).tolist():
        waiting, one = acquiring & (awaited.number == number), awaited.phases[number]
        acquired.setdefault(id(one), (one, []))[1].append(lanes[waiting])
        barrier = frame.barriers[int(offsets[np.flatnonzero(waiting)[0]])]
        barrier.observed = max(barrier.observed, one.phase)
    for one, parts in acquired.values():
        some = np.sort(np.concatenate(parts))
        if "relaxed" in step.node.modifiers:
            frame.order.acquire_at_fence(some.tolist(), one.released)
        else:
            frame.order.acquire(some, one.released)


@runs("mbarrier_test_wait")
def _run_test_wait(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = _lanes(frame, active)
    if not len(lanes):
        return
    answers = complete(frame, step, lanes)
    if not answers.all() and frame.asynchronous():
        answers = complete(frame, step, lanes)
    # A thread that does not know the end of the phase might have tested before it: it gets a no first.
    before = frame.tested.setdefault(step.node.offset, np.zeros(frame.lanes, np.bool_))
    phases = awaited_phases(frame, step, lanes)
    early = answers & (phases.number >= 0) & ~before[lanes]
    before[lanes] = early
    answers = answers & ~early
    give(frame, step, lanes, answers, phases)


def awaited(frame: KernelFrame, step: Step, lane: int) -> str:
    """A description of the phase for which a suspended thread waits."""
    offset = int(places(frame, step, step.sources[0], step.detail, np.array([lane]))[0])
    phase = _values(frame, step, step.sources[1], np.array([lane]))[0] & 0xFFFFFFFF
    named = f"the phase of parity {phase & 1}" if "parity" in step.node.modifiers else f"phase {phase}"
    at = offset % frame.shared.size
    return f"for {named} of the mbarrier at offset {at}; {barrier_at(frame, step, offset, lane).words}"
