"""Requests to cancel the launch of a cluster, and what their responses say (clusterlaunchcontrol; ISA 9.7.13.17, .18).

The cluster is chosen when the request is issued. The response lands like a bulk copy: when no thread can go on, or a
thread tests an mbarrier. So a response that is read without a wait is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.async_copy.bulk_in_flight import Coming
from ptxdiff.emulator.kernel.async_copy.mbarrier import barrier_at, places
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.grid import answers, response
from ptxdiff.emulator.kernel.memory.access import address
from ptxdiff.emulator.kernel.memory.space import Access
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Instruction
from ptxdiff.emulator.text.types import TYPES


@dataclass(frozen=True)
class Request:
    """The places of the response and of the mbarrier; `several`: every block of the cluster gets the response."""

    to: Access
    barrier: Access
    several: bool


@binds("launch_cancel")
def _bind_cancel(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """`[response], [mbarrier]`."""
    expect(builder, node, 2)
    space = (bound.modifiers.get("space") or "").partition("::")[0]
    (to, at_to), (barrier, at_barrier) = (address(builder, operand, space) for operand in node.operands)
    several = "multicast::cluster::all" in node.modifiers
    detail = Request(Access(space, at_to, 32, 4), Access(space, at_barrier, 64, 1), several)
    return Step("launch_cancel", node, bound, (to, barrier), (), detail=detail)


@runs("launch_cancel")
def _run_cancel(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = frame.every if active is None else np.flatnonzero(active)
    if not len(lanes):
        return
    request: Request = step.detail
    _, locations = frame.locate_lanes(step, step.sources[0], request.to, lanes)
    if len(locations) != 1 or locations[0].region is not frame.shared:
        text = f"{frame.who(int(lanes[0]))}: the response of a request lies in shared memory"
        raise frame.fault(MemoryFault, step, text)
    barriers = places(frame, step, step.sources[1], request.barrier, lanes)
    for lane, to, barrier in zip(lanes.tolist(), locations[0].offsets.tolist(), barriers.tolist(), strict=True):
        _cancel(frame, step, lane, to, barrier)


def _cancel(frame: KernelFrame, step: Step, lane: int, to: int, barrier: int) -> None:
    """Cancel a cluster for one thread, and issue the response to its block, or to all blocks of its cluster."""
    size, own, launches = frame.shared.size, int(frame.block[lane]), frame.grid.launches
    assert launches is not None, "a grid has them if its program has requests"
    for offset, what in ((to, "the response"), (barrier, "the mbarrier")):
        if offset // size != own:
            text = f"{frame.who(lane)}: {what} of a request lies in the shared memory of its own block (.shared::cta)"
            raise frame.fault(MemoryFault, step, text)
    if own in frame.refused:
        text = f"{frame.who(lane)} requests a further cluster, and its block has seen a request fail: what a request "
        raise frame.fault(ExecutionError, step, text + "does after that is undefined; leave the loop when one fails")
    several = step.detail.several
    blocks = frame.receivers(step, lane, (1 << frame.grid.cluster_size) - 1) if several else [own]
    for block in blocks:
        barrier_at(frame, step, barrier % size + block * size, lane)
    number = launches.cancel()
    first = None
    if number is not None:
        x, y, z = (int(coordinate[0]) for coordinate in frame.grid.places(np.array([number * frame.grid.cluster_size])))
        first = x, y, z
        launches.unqueried[first] = (frame.who(lane), step)
    data = response(first).reshape(1, 16)
    for block in blocks:
        arrives_at = barrier % size + block * size
        frame.bulk.issue(Coming(step, lane, np.array([to % size + block * size]), data, None, arrives_at))


# what a response says ---------------------------------------------------------------------------------------------


@binds("launch_query")
def _bind_query(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """`predicate, response` or `register, response` or `{x, y, z, _}, response`. detail: coordinates, or None."""
    expect(builder, node, 2)
    given = builder.read(node.operands[1], TYPES["b128"], False, f"the response of {bound.spelling}")
    if given.slot < 0:
        raise builder.error(OperandError, f"{node.spelling} takes a register of 128 bits", node.operands[1].offset)
    halves = ReadSlot(given.slot, 64), ReadSlot(given.slot + 1, 64)
    asks = "is_canceled" in node.modifiers
    if "v4" in node.modifiers:
        parts, wanted = builder.elements(node.operands[0], 4), [0, 1, 2, -1]
    else:
        parts = [node.operands[0]]
        wanted = [] if asks else ["xyz".index((bound.modifiers["first"] or "")[-1])]
    kind = TYPES["pred" if asks else "b32"]
    writers = tuple(builder.destination(part, kind, bound, len(parts) > 1) for part in parts)
    return Step("launch_query", node, bound, halves, writers, detail=wanted)


@runs("launch_query")
def _run_query(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """The coordinates of a failed request are undefined, and so is a fourth element."""
    (low, doubt_low), (high, doubt_high) = (frame.read(half) for half in step.sources)
    doubt = np.zeros(frame.lanes, np.bool_)
    for mask in (doubt_low, doubt_high):
        if mask is not None:
            doubt |= np.broadcast_to(mask, (frame.lanes,)) != 0
    known, cancelled, first = answers(*(np.broadcast_to(half, (frame.lanes,)) for half in (low, high)))
    asking = (np.ones(frame.lanes, np.bool_) if active is None else active) & ~doubt
    if (asking & ~known).any():
        who = frame.who(int(np.flatnonzero(asking & ~known)[0]))
        text = f"{who} queries 16 bytes that no clusterlaunchcontrol.try_cancel has written"
        raise frame.fault(ExecutionError, step, text)
    frame.refused.update(frame.block[asking & ~cancelled].tolist())
    launches = frame.grid.launches
    if launches is not None and launches.unqueried:
        for x, y, z in {tuple(coordinates) for coordinates in first[:, asking & cancelled].T.tolist()}:
            launches.unqueried.pop((x, y, z), None)
    if not step.detail:
        frame.write(step.destinations[0], cancelled.astype(np.uint8), doubt.astype(np.uint8), active)
    for writer, axis in zip(step.destinations, step.detail, strict=False):
        bad = doubt | ~cancelled if axis >= 0 else np.ones(frame.lanes, np.bool_)
        value = first[max(axis, 0)].astype(np.uint32)
        frame.write(writer, value, np.where(bad, np.uint32(0xFFFFFFFF), np.uint32(0)), active)
