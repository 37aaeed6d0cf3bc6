"""Allocate and free columns of tensor memory (ISA 9.7.16.7), and fences of tensor memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import address
from ptxdiff.emulator.kernel.memory.space import Access
from ptxdiff.emulator.kernel.tcgen05 import pairs
from ptxdiff.emulator.kernel.tcgen05.memory import COLUMNS
from ptxdiff.emulator.kernel.tcgen05.pairs import of_a_pair
from ptxdiff.emulator.kernel.warp.matrices import active_warps
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Instruction
from ptxdiff.emulator.text.types import TYPES

COUNTS = (32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Allocation:
    """Whether columns are allocated for a pair of blocks, and how the address is stored."""

    pair: bool
    access: Access


def same(frame: KernelFrame, step: Step, reader: ReadSlot, lanes: Array, what: str) -> Array:
    """The operand of each warp, one number. Raises ExecutionError if its 32 threads differ."""
    value, mask = frame.read(reader)
    if mask is not None:
        frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, what)
    found = np.broadcast_to(value, (frame.lanes,))[lanes].reshape(-1, 32).astype(np.int64)
    torn = (found != found[:, :1]).any(axis=1)
    if torn.any():
        lane = int(lanes[32 * int(np.flatnonzero(torn)[0])])
        text = f"{what} is to be the same in all threads of a warp, and is not in that of {frame.who(lane)}"
        raise frame.fault(ExecutionError, step, text)
    return np.asarray(found[:, 0])


@binds("tcgen05_alloc")
def _bind_alloc(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    pair = of_a_pair(builder, node, bound)
    space = (bound.modifiers["space"] or "").partition("::")[0]
    base, displacement = address(builder, node.operands[0], space)
    count = builder.read(node.operands[1], TYPES["u32"], False, "the number of columns")
    detail = Allocation(pair, Access(space, displacement, 32, 1))
    return Step("tcgen05_alloc", node, bound, (base, count), detail=detail)


@binds("tcgen05_dealloc")
def _bind_dealloc(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    of_a_pair(builder, node, bound)
    readers = [
        builder.read(o, TYPES["u32"], False, w)
        for o, w in zip(node.operands, ("the first column", "the number of columns"), strict=True)
    ]
    return Step("tcgen05_dealloc", node, bound, tuple(readers))


@binds("tcgen05_relinquish")
def _bind_relinquish(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 0)
    of_a_pair(builder, node, bound)
    return Step("tcgen05_relinquish", node, bound)


def _counted(frame: KernelFrame, step: Step, lane: int, count: int) -> None:
    if count not in COUNTS:
        text = f"{frame.who(lane)}: columns come in 32, 64, 128, 256 or 512, not in {count}"
        raise frame.fault(ExecutionError, step, text)


@runs("tcgen05_alloc")
def _run_alloc(frame: KernelFrame, step: Step, active: Array | None) -> None:
    warps, lanes = active_warps(frame, step, active)
    if not len(warps):
        return
    found = []
    for count, warp in zip(
        same(frame, step, step.sources[1], lanes, "the number of columns").tolist(), warps, strict=True
    ):
        lane = int(warp) * 32
        block = int(frame.block[lane])
        _counted(frame, step, lane, count)
        found.append(_allocated(frame, step, lane, block, count))
    first_lanes = warps * 32
    _, places = frame.locate_lanes(step, step.sources[0], step.detail.access, first_lanes)
    if any(place.region is not frame.shared for place in places):
        text = f"{frame.who(int(first_lanes[0]))}: the address of columns goes to shared memory"
        raise frame.fault(MemoryFault, step, text)
    frame.store(step, step.detail.access, first_lanes, places, [np.array(found, np.uint32)], [None])
    if frame.grid.races:
        for place in places:
            frame.shared.note_addresses(place.offsets, step.detail.access.size)


def _allocated(frame: KernelFrame, step: Step, lane: int, block: int, count: int) -> int:
    """Allocate columns for a block, or for both blocks of a pair, and return the first column. The pair's other warp
    gets the same.

    On hardware the first warp of a pair waits for the other. Here it goes on, and the columns are reserved for the
    other.
    """
    memory, blocks = frame.tensor.memory, [block]
    if step.detail.pair:
        other = pairs.peer(frame, step, lane)
        blocks = sorted([block, other])
        if memory.promised[block]:
            given = memory.promised[block].pop(0)
            if given.count != count:
                text = (
                    f"{frame.who(lane)} allocates {count} columns for a pair of blocks, whose other warp has asked for "
                )
                raise frame.fault(ExecutionError, step, f"{text}{given.count} in line {frame.tensor.line(given.step)}")
            return given.first
    for one in blocks:
        given_up = memory.may_allocate[one]
        if given_up is not None:
            text = f"{frame.who(lane)} allocates columns behind the tcgen05.relinquish_alloc_permit in line "
            raise frame.fault(ExecutionError, step, f"{text}{frame.tensor.line(given_up)}")
        latest = memory.latest[one]
        if latest is not None and count > latest.count:
            text = f"{frame.who(lane)} allocates {count} columns, and its block has allocated {latest.count} in line "
            text += f"{frame.tensor.line(latest.step)}: allocations of a block must not grow (ISA 9.7.16.7.1)"
            raise frame.fault(ExecutionError, step, text)
    first = memory.allocate(step, blocks, count)
    if first is None:
        held = ", ".join(f"{h.count} by line {frame.tensor.line(h.step)}" for h in memory.held[block])
        text = f"{frame.who(lane)} waits for {count} columns of tensor memory; of {COLUMNS} are held {held}"
        raise frame.fault(ExecutionError, step, f"{text}. The emulator does not wait for another warp to free some")
    if step.detail.pair:
        memory.promised[other].append(next(h for h in memory.held[other] if h.first == first))
    return first


@runs("tcgen05_dealloc")
def _run_dealloc(frame: KernelFrame, step: Step, active: Array | None) -> None:
    warps, lanes = active_warps(frame, step, active)
    if not len(warps):
        return
    memory = frame.tensor.memory
    firsts = same(frame, step, step.sources[0], lanes, "the first column").tolist()
    counts = same(frame, step, step.sources[1], lanes, "the number of columns").tolist()
    for first, count, warp in zip(firsts, counts, warps.tolist(), strict=True):
        lane, block = warp * 32, int(frame.block[warp * 32])
        _counted(frame, step, lane, count)
        held = next((h for h in memory.held[block] if h.first == first), None)
        if held is None or held.count != count:
            freed = memory.freed[block].get(first)
            why = f"{held.count} are held there" if held else "none are held there"
            why += f" since the tcgen05.dealloc in line {frame.tensor.line(freed)}" if freed and not held else ""
            text = f"{frame.who(lane)} frees {count} columns of tensor memory at address 0x{first:x}: {why}"
            raise frame.fault(ExecutionError, step, text)
        frame.tensor.refuse(step, lane, memory.cells_of(block, held), "frees", writes=True, cores=False)
        memory.free(step, block, held)


@runs("tcgen05_relinquish")
def _run_relinquish(frame: KernelFrame, step: Step, active: Array | None) -> None:
    warps, _ = active_warps(frame, step, active)
    for warp in warps.tolist():
        frame.tensor.memory.may_allocate[int(frame.block[warp * 32])] = step


def _fences(name: str) -> None:
    @binds(f"tcgen05_{name}")
    def bind(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
        expect(builder, node, 0)
        return Step(f"tcgen05_{name}", node, bound)


for _name in ("before", "after"):
    _fences(_name)


@runs("tcgen05_before")
def _run_before(frame: KernelFrame, step: Step, active: Array | None) -> None:
    frame.tensor.before(frame.every if active is None else np.flatnonzero(active))


@runs("tcgen05_after")
def _run_after(frame: KernelFrame, step: Step, active: Array | None) -> None:
    frame.tensor.behind(frame.every if active is None else np.flatnonzero(active))
