"""Instructions on the blocks of a cluster: addresses, barriers, and asynchronous stores to their shared memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxdiff.emulator.binding.builder import binds, binds_alone, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.async_copy.bulk_in_flight import Coming
from ptxdiff.emulator.kernel.async_copy.mbarrier import barrier_at, places
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.cluster.blocks import ClusterFrame
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import address, elements, update_of
from ptxdiff.emulator.kernel.memory.space import LOCAL_WINDOW, PARAMETER_WINDOW, RANK_BITS, SHARED_WINDOW, Access
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.text.nodes import Instruction, Name, Operand
from ptxdiff.emulator.text.types import TYPES

_LOW = 0xFFFFFF
_RANKS = 0xFF << RANK_BITS


def _lanes(frame: KernelFrame, active: Array | None) -> Array:
    return frame.every if active is None else np.flatnonzero(active)


def _in_cluster(frame: KernelFrame) -> ClusterFrame:
    assert isinstance(frame, ClusterFrame), "programs that name clusters run in frames of clusters"
    return frame


# addresses --------------------------------------------------------------------------------------------------------


def _place(builder: KernelBuilder, node: Operand, bound: Bound) -> ReadSlot:
    """The address in a register, or the address of a shared variable."""
    kind = TYPES[(bound.modifiers["type"] or "").replace("s", "u")]
    variable = builder.address_of(node) if isinstance(node, Name) else None
    if variable is not None:
        return replace(variable, width=kind.width, pattern=variable.pattern & ((1 << kind.width) - 1))
    return builder.read(node, kind, False, f"operand of {bound.spelling}")


@binds("cluster_mapa")
def _bind_mapa(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 3)
    kind = TYPES[(bound.modifiers["type"] or "").replace("s", "u")]
    rank = builder.read(node.operands[2], TYPES["u32"], False, f"operand of {bound.spelling}")
    writer = builder.destination(node.operands[0], kind, bound)
    return Step("cluster_mapa", node, bound, (_place(builder, node.operands[1], bound), rank), (writer,))


@runs("cluster_mapa")
def _run_mapa(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Replace the rank in an address. A rank that no block has is refused at the memory access."""
    (value, mask), (rank, doubt) = frame.read(step.sources[0]), frame.read(step.sources[1])
    moved = (value & ~value.dtype.type(_RANKS)) | ((rank.astype(value.dtype) << RANK_BITS) & _RANKS)
    if doubt is not None:
        bits = (np.broadcast_to(doubt, rank.shape) != 0) * value.dtype.type(_RANKS)
        mask = bits if mask is None else mask | bits
    frame.write(step.destinations[0], moved.astype(value.dtype), mask, active)


@binds("cluster_rank")
def _bind_rank(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    writer = builder.destination(node.operands[0], TYPES["u32"], bound)
    return Step("cluster_rank", node, bound, (_place(builder, node.operands[1], bound),), (writer,))


@runs("cluster_rank")
def _run_rank(frame: KernelFrame, step: Step, active: Array | None) -> None:
    value, mask = frame.read(step.sources[0])
    doubt = None if mask is None else np.where(mask != 0, np.uint32(0xFFFFFFFF), np.uint32(0))
    frame.write(step.destinations[0], ((value >> RANK_BITS) & 0xFF).astype(np.uint32), doubt, active)


@binds("isspacep")
def _bind_isspacep(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    reader = builder.read(node.operands[1], TYPES["u64"], False, f"operand of {bound.spelling}")
    writer = builder.destination(node.operands[0], TYPES["pred"], bound)
    return Step("isspacep", node, bound, (reader,), (writer,))


@runs("isspacep")
def _run_isspacep(frame: KernelFrame, step: Step, active: Array | None) -> None:
    value, mask = frame.read(step.sources[0])
    kinds = np.searchsorted(np.array([PARAMETER_WINDOW, SHARED_WINDOW, LOCAL_WINDOW], np.uint64), value, "right")
    space = step.bound.modifiers["space"] or ""
    wanted = {"global": 0, "const": 0, "param": 1, "shared": 2, "local": 3}[space.partition("::")[0]]
    inside = kinds == wanted
    if space in ("global", "const"):
        variables = frame.grid.memory.buffers[0]
        constant = (value >= variables.base) & (value < variables.base + max(variables.size, 1))
        inside &= constant if space == "const" else np.True_
    if space in ("shared", "shared::cta") and isinstance(frame, ClusterFrame):
        inside &= (value >> np.uint64(RANK_BITS) & np.uint64(0xFF)) == frame.rank
    doubt = None if mask is None else (np.broadcast_to(mask, value.shape) != 0).astype(np.uint8)
    frame.write(step.destinations[0], inside.astype(np.uint8), doubt, active)


# barriers ---------------------------------------------------------------------------------------------------------


binds_alone("cluster_arrive", "cluster_wait", "mbarrier_fence")


@runs("cluster_arrive")
def _run_arrive(frame: KernelFrame, step: Step, active: Array | None) -> None:
    if "aligned" in step.node.modifiers:
        frame.need_whole_warps(step, active)
    lanes = _lanes(frame, active)
    if len(lanes):
        _in_cluster(frame).arrive(step, lanes)


@runs("mbarrier_fence")
def _run_fence(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Make mbarriers that the threads have initialised visible to the cluster after its next barrier."""
    makers = set(_lanes(frame, active).tolist())
    for barrier in frame.barriers.values():
        barrier.fenced |= barrier.init_lane in makers


# asynchronous stores ----------------------------------------------------------------------------------------------


def _bind_async(kind: str) -> None:
    @binds(kind)
    def bind(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
        """Bind `[to], value, [mbarrier]`."""
        expect(builder, node, 3)
        space = (bound.modifiers["space"] or "").partition("::")[0]
        count = int((bound.modifiers.get("vec") or "v1")[1:])
        element = TYPES[bound.modifiers["type"] or ""]
        base, displacement = address(builder, node.operands[0], space)
        barrier, barrier_displacement = address(builder, node.operands[2], space)
        parts = elements(builder, node.operands[1], count)
        readers = tuple(builder.read(p, element, True, f"value of {bound.spelling}") for p in parts)
        detail = (
            Access(space, displacement, element.width, count),
            Access(space, barrier_displacement, 64, 1),
            update_of(bound) if kind == "bulk_red" else None,
        )
        return Step(kind, node, bound, (base, barrier, *readers), detail=detail)


for _kind in ("bulk_st", "bulk_red"):
    _bind_async(_kind)


def _run_async(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = _lanes(frame, active)
    if not len(lanes):
        return
    access, at_barrier, update = step.detail
    if update is None and frame.grid.cluster_size == 1:
        text = f"{frame.who(int(lanes[0]))} is alone in its cluster, where st.async is undefined (ISA 9.7.9.12)"
        raise frame.fault(ExecutionError, step, text)
    offsets = places(frame, step, step.sources[0], access, lanes)
    barriers = places(frame, step, step.sources[1], at_barrier, lanes).tolist()
    values, doubts = [], []
    for reader in step.sources[2:]:
        value, mask = frame.read(reader)
        values.append(np.broadcast_to(value, (frame.lanes,))[lanes])
        doubts.append(
            np.zeros(len(lanes), UNSIGNED[reader.width])
            if mask is None
            else np.broadcast_to(mask, (frame.lanes,))[lanes]
        )
    data = np.ascontiguousarray(np.stack(values, 1)).view(np.uint8).reshape(len(lanes), access.size)
    doubt = np.ascontiguousarray(np.stack(doubts, 1)).view(np.uint8).reshape(len(lanes), access.size)
    for number, (lane, barrier) in enumerate(zip(lanes.tolist(), barriers, strict=True)):
        where = offsets[number : number + 1]
        if int(where[0]) // frame.shared.size != barrier // frame.shared.size:
            text = f"{frame.who(lane)} stores to the shared memory of one block and names an mbarrier of another"
            raise frame.fault(ExecutionError, step, text)
        barrier_at(frame, step, barrier, lane)
        row = slice(number, number + 1)
        undefined = doubt[row] if doubt[row].any() else None
        if update is not None and undefined is not None:
            frame.refuse_undefined(step, np.ones(1, np.uint8), lanes[row], "an atomic operation")
        frame.bulk.issue(
            Coming(
                step, lane, where, data[row], undefined, barrier, size=access.size, update=update, width=access.width
            )
        )


for _kind in ("bulk_st", "bulk_red"):
    runs(_kind)(_run_async)
