"""Bulk copies of bytes between global and shared memory, and reductions with them (ISA 9.7.9.25.4, 9.7.9.25.5).

They follow the rules of `bulk`: a copy to shared memory lands when a thread waits for its mbarrier. A copy from shared
memory writes its destination at once, and counts as reading its source until its thread waits for its group. Addresses
and sizes are multiples of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.builder import binds, binds_alone, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.async_copy import tensor_maps
from ptxdiff.emulator.kernel.async_copy.bulk_in_flight import Coming, reduced
from ptxdiff.emulator.kernel.async_copy.mbarrier import barrier_at, places
from ptxdiff.emulator.kernel.async_copy.tensor_maps import BYTES, COUNTS, TensorMap
from ptxdiff.emulator.kernel.async_copy.tensor_reductions import reduction
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import address, update_of
from ptxdiff.emulator.kernel.memory.space import PARAMETER_WINDOW, SHARED_WINDOW, Access, Buffer
from ptxdiff.emulator.kernel.warp.matrices import active_warps
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.text.nodes import Address, Immediate, Instruction, Operand
from ptxdiff.emulator.text.types import TYPES

_PIECE = 16


@dataclass(frozen=True)
class BoxCopy:
    """The parts of a copy of a box: displacements of its address in shared memory and of its map, its mode, and the
    numbers of coordinates and of im2col offsets.

    For a load: its `barrier`; `several`: the destination is the blocks in a mask; `group`: the modifier .cta_group.
    Sources of the step: both addresses, the coordinates, the offsets; for a load the mbarrier, and the mask.
    """

    here: int
    map: int
    mode: str
    coordinates: int
    informed: int = 0
    barrier: Access | None = None
    several: bool = False
    group: str = ""


@dataclass(frozen=True)
class Transfer:
    """The parts of a bulk copy of bytes: displacements of its two addresses, its mbarrier, and its reduction.

    `several`: the destination is the blocks in a mask. `masked`: a mask selects bytes of every 16. `width`: bits of an
    element.
    """

    to: int
    what: int
    barrier: Access | None = None
    several: bool = False
    masked: bool = False
    update: Callable[..., int] | None = None
    width: int = 32


def _size(builder: KernelBuilder, node: Instruction, operand: Operand) -> ReadSlot:
    if isinstance(operand, Immediate) and isinstance(operand.value, int) and (operand.value % 16 or operand.value < 0):
        message = f"{node.spelling} copies a multiple of 16 bytes, not {operand.value}"
        raise builder.error(OperandError, message, operand.offset)
    return builder.read(operand, TYPES["u32"], False, "the bytes of a bulk copy")


def _bind_to_shared(kind: str, space: str) -> None:
    @binds(kind)
    def bind(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
        """Bind `[to], [from], bytes, [mbarrier]{, mask}{, policy}`."""
        several = "multicast::cluster" in node.modifiers
        expect(builder, node, 4 + several + (bound.modifiers.get("hint") is not None))
        to, at_to = address(builder, node.operands[0], "shared")
        what, at_what = address(builder, node.operands[1], space)
        size = _size(builder, node, node.operands[2])
        barrier, at_barrier = address(builder, node.operands[3], "shared")
        ranks = (builder.read(node.operands[4], TYPES["u16"], False, "the mask of a multicast"),) if several else ()
        update, width = _reduction(bound)
        detail = Transfer(at_to, at_what, Access("shared", at_barrier, 64, 1), several, update=update, width=width)
        return Step(kind, node, bound, (to, what, size, barrier, *ranks), detail=detail)


def _reduction(bound: Bound) -> tuple[Callable[..., int] | None, int]:
    if bound.modifiers.get("op") is None:
        return None, 32
    return update_of(bound), TYPES[bound.modifiers["type"] or ""].width


_bind_to_shared("bulk_load", "global")
_bind_to_shared("bulk_move", "shared")


@binds("bulk_store")
def _bind_store(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """Bind `[to], [from], bytes{, policy}{, mask}`."""
    masked = "cp_mask" in node.modifiers
    expect(builder, node, 3 + masked + (bound.modifiers["hint"] is not None))
    to, at_to = address(builder, node.operands[0], "global")
    what, at_what = address(builder, node.operands[1], "shared")
    size = _size(builder, node, node.operands[2])
    mask = (builder.read(node.operands[-1], TYPES["u16"], False, "a mask of bytes"),) if masked else ()
    update, width = _reduction(bound)
    detail = Transfer(at_to, at_what, masked=masked, update=update, width=width)
    return Step("bulk_store", node, bound, (to, what, size, *mask), detail=detail)


# running ----------------------------------------------------------------------------------------------------------


def _numbers(frame: KernelFrame, step: Step, reader: ReadSlot, lanes: Array, what: str) -> list[int]:
    value, mask = frame.read(reader)
    if mask is not None:
        frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, what)
    return [int(x) for x in np.broadcast_to(value, (frame.lanes,))[lanes].tolist()]


def _copies(frame: KernelFrame, step: Step, active: Array | None) -> tuple[Array, list[tuple[int, int, int, int]]]:
    """The lanes; for each its number, both addresses, and the number of bytes.

    Raises ExecutionError and MemoryFault.
    """
    lanes = frame.every if active is None else np.flatnonzero(active)
    if not len(lanes):
        return lanes, []
    to, what = (_numbers(frame, step, r, lanes, "an address") for r in step.sources[:2])
    sizes = _numbers(frame, step, step.sources[2], lanes, "the bytes of a bulk copy")
    copies = []
    for lane, first, second, size in zip(lanes.tolist(), to, what, sizes, strict=True):
        first, second = first + step.detail.to, second + step.detail.what
        if size % _PIECE:
            text = f"{frame.who(lane)} copies {size} bytes; a bulk copy has a multiple of 16"
            raise frame.fault(ExecutionError, step, text)
        for first_byte in (first, second):
            if first_byte % _PIECE:
                text = (
                    f"{frame.who(lane)}: a bulk copy begins at multiples of 16 bytes, not at address 0x{first_byte:x}"
                )
                raise frame.fault(MemoryFault, step, f"misaligned: {text}")
        if size:
            copies.append((lane, first, second, size))
    return lanes, copies


def _shared(frame: KernelFrame, step: Step, lane: int, start: int, size: int, own: bool) -> Array:
    """The 16-byte pieces from an address on, in the shared memory of all blocks of the frame. own: only the lane's
    block is allowed."""
    block, offset = frame.destination(step, lane, start)
    if own and block != frame.block[lane]:
        text = f"{frame.who(lane)} copies from the shared memory of another block; .shared::cta is its own"
        raise frame.fault(MemoryFault, step, text)
    if offset < 0 or offset + size > frame.shared.limit:
        text = f"{size} bytes at offset {offset} lie outside the {frame.shared.limit} bytes of shared memory"
        raise frame.fault(MemoryFault, step, f"{text}, copied by {frame.who(lane)}")
    return np.asarray(block * frame.shared.size + offset + _PIECE * np.arange(size // _PIECE, dtype=np.int64))


def _global(frame: KernelFrame, step: Step, lane: int, start: int, size: int) -> tuple[Buffer, slice]:
    memory = frame.grid.memory
    buffer = memory.find(start)
    if buffer is None or start < buffer.address or start + size > buffer.address + buffer.size:
        text = f"out of bounds: {memory.describe(start, size)}, copied by {frame.who(lane)}"
        raise frame.fault(MemoryFault, step, text)
    return buffer, slice(start - buffer.base, start - buffer.base + size)


def _run_to_shared(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes, copies = _copies(frame, step, active)
    if not copies:
        return
    detail: Transfer = step.detail
    assert detail.barrier is not None
    masks = dict(zip(lanes.tolist(), ranks_of(frame, step, lanes), strict=True)) if detail.several else {}
    barriers = dict(
        zip(lanes.tolist(), places(frame, step, step.sources[3], detail.barrier, lanes).tolist(), strict=True)
    )
    size_of = frame.shared.size
    for lane, to, what, size in copies:
        source = None
        if step.kind == "bulk_move":
            source = _shared(frame, step, lane, what, size, own=True)
            frame.bulk.refuse_source(step, lane, source)
            data = frame.shared.bytes.reshape(-1, _PIECE)[source // _PIECE]
            doubt: Array | None = frame.shared.undefined.reshape(-1, _PIECE)[source // _PIECE]
        else:
            buffer, where = _global(frame, step, lane, what, size)
            frame.bulk.writes.read(step, lane, buffer, np.array([where.start]), where.stop - where.start)
            data = buffer.bytes[where].reshape(-1, _PIECE).copy()
            doubt = None if buffer.undefined is None else buffer.undefined[where].reshape(-1, _PIECE).copy()
        places_of = _shared(frame, step, lane, to, size, own=False)
        barrier, block = barriers[lane], int(places_of[0]) // size_of
        blocks = frame.receivers(step, lane, masks[lane]) if detail.several else [block]
        for number in blocks:
            arrives_at = barrier % size_of + number * size_of if detail.several else barrier
            barrier_at(frame, step, arrives_at, lane)
            if source is not None and detail.update is None and number == frame.block[lane]:
                text = f"{frame.who(lane)} copies from the shared memory of its block to the same block's: the "
                text += "destination of .shared::cluster.shared::cta lies in another block of the cluster"
                raise frame.fault(ExecutionError, step, text)
            if source is not None and arrives_at // size_of != number:
                text = f"{frame.who(lane)} copies to the shared memory of one block and names an mbarrier of another"
                raise frame.fault(ExecutionError, step, text)
            there = places_of + (number - block) * size_of
            coming = Coming(
                step, lane, there, data, doubt, arrives_at, source=source, update=detail.update, width=detail.width
            )
            frame.bulk.issue(coming)


for _kind in ("bulk_load", "bulk_move"):
    runs(_kind)(_run_to_shared)


@runs("bulk_store")
def _run_store(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes, copies = _copies(frame, step, active)
    detail: Transfer = step.detail
    masks = (
        dict(zip(lanes.tolist(), _numbers(frame, step, step.sources[3], lanes, "a mask of bytes"), strict=True))
        if detail.masked
        else {}
    )
    for lane, to, what, size in copies:
        source = _shared(frame, step, lane, what, size, own=True)
        frame.bulk.refuse_source(step, lane, source)
        buffer, where = _global(frame, step, lane, to, size)
        frame.refuse_read_only(step, buffer, np.array([lane]))
        chosen = np.tile((masks.get(lane, 0xFFFF) >> np.arange(_PIECE)) & 1, size // _PIECE) != 0
        data = frame.shared.bytes.reshape(-1, _PIECE)[source // _PIECE].reshape(-1)
        doubt = frame.shared.undefined.reshape(-1, _PIECE)[source // _PIECE].reshape(-1)
        if doubt[chosen].any():
            name = f"a bulk copy to {buffer.name or 'global memory'}"
            frame.refuse_undefined(step, np.ones(1, np.uint8), np.array([lane]), name)
        if detail.update is not None:
            data = reduced(
                frame, step, lane, buffer, np.arange(where.start, where.stop), data, detail.update, detail.width
            )
        frame.bulk.writes.begin(
            step, lane, buffer, np.array([where.start]), data[None], detail.update is not None,
            None if chosen.all() else chosen,
        )  # fmt: skip
        frame.bulk.leave(step, lane, source)


# Bind and execute bulk copies of boxes and changes of tensor maps (ISA 9.7.9.25 to 9.7.9.28) -----------------------


def _lanes(frame: KernelFrame, active: Array | None) -> Array:
    return frame.every if active is None else np.flatnonzero(active)


def _tensor_numbers(frame: KernelFrame, step: Step, reader: ReadSlot, lanes: Array, what: str) -> Array:
    """An operand's values in lanes, as signed integers. Raises UndefinedBits."""
    value, mask = frame.read(reader)
    if mask is not None:
        frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, what)
    whole = np.broadcast_to(value, (frame.lanes,))[lanes]
    return whole.view(np.int32).astype(np.int64) if whole.dtype == np.uint32 else whole.astype(np.int64)


# maps -------------------------------------------------------------------------------------------------------------


@binds("tensormap_replace")
def _bind_replace(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    field = bound.modifiers["field"] or ""
    several = field in COUNTS
    expect(builder, node, 3 if several else 2)
    number = 0
    if several:
        ordinal = node.operands[1]
        if not isinstance(ordinal, Immediate) or ordinal.value not in range(COUNTS[field]):
            message = f"{node.spelling} takes the number of a dimension, a constant below {COUNTS[field]}"
            raise builder.error(OperandError, message, ordinal.offset)
        number = int(ordinal.value)
    space = (bound.modifiers["space"] or "").partition("::")[0]
    base, displacement = address(builder, node.operands[0], space)
    kind = TYPES[bound.modifiers["type"] or ""]
    value = builder.read(node.operands[-1], kind, False, f"value of {bound.spelling}")
    start, size = tensor_maps.place(field, number)
    detail = Access(space, displacement + start, 8 * size, 1)
    return Step("tensormap_replace", node, bound, (base, value), detail=detail)


@runs("tensormap_replace")
def _run_replace(frame: KernelFrame, step: Step, active: Array | None) -> None:
    access: Access = step.detail
    lanes, locations = frame.locate(step, step.sources[0], access, active)
    if len(lanes):
        value = _tensor_numbers(frame, step, step.sources[1], lanes, "a field of a tensor map")
        frame.store(step, access, lanes, locations, [value.astype(UNSIGNED[access.width])], [None])


@binds("tensormap_copy")
def _bind_copy(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 3)
    if not isinstance(node.operands[2], Immediate) or node.operands[2].value != BYTES:
        raise builder.error(OperandError, f"{node.spelling} copies {BYTES} bytes", node.offset)
    to, to_displacement = address(builder, node.operands[0], "global")
    what, displacement = address(builder, node.operands[1], "shared")
    detail = (Access("global", to_displacement, 32, 4), Access("shared", displacement, 32, 4))
    return Step("tensormap_copy", node, bound, (to, what), detail=detail)


@runs("tensormap_copy")
def _run_copy(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Copy one map for a warp; its first thread's addresses count."""
    warps, _ = active_warps(frame, step, active)
    first = warps * 32
    to, what = step.detail
    for at in range(0, BYTES, 16):
        source = Access("shared", what.displacement + at, 32, 4)
        target = Access("global", to.displacement + at, 32, 4)
        _, locations = frame.locate_lanes(step, step.sources[1], source, first)
        values, masks = frame.load(step, source, first, locations)
        _, locations = frame.locate_lanes(step, step.sources[0], target, first)
        if locations:
            frame.store(step, target, first, locations, values, masks)


def _map(frame: KernelFrame, step: Step, lane: int, address: int) -> TensorMap:
    """The map at a generic address. Raises ExecutionError, MemoryFault and UndefinedBits."""
    data: bytes | None = None
    if address % 64:
        text = f"{frame.who(lane)}: a tensor map lies at a multiple of 64 bytes, not at 0x{address:x}"
        raise frame.fault(MemoryFault, step, text)
    if PARAMETER_WINDOW <= address < SHARED_WINDOW:
        data = frame.grid.parameter_bytes(address - PARAMETER_WINDOW, BYTES)
    else:
        buffer = frame.grid.memory.find(address)
        if buffer is not None and buffer.address <= address <= buffer.address + buffer.size - BYTES:
            first = address - buffer.base
            if buffer.undefined is not None:
                doubt = np.asarray(buffer.undefined[first : first + BYTES])
                frame.refuse_undefined(step, doubt, np.full(BYTES, lane), "a tensor map")
            data = buffer.bytes[first : first + BYTES].tobytes()
    if data is None:
        text = f"out of bounds: {frame.who(lane)} takes a tensor map from {frame.grid.memory.describe(address, BYTES)}"
        raise frame.fault(MemoryFault, step, text)
    decoded_map = tensor_maps.decoded(data)
    if isinstance(decoded_map, str):
        raise frame.fault(ExecutionError, step, f"the tensor map of {frame.who(lane)}: {decoded_map}")
    return decoded_map


# copies -----------------------------------------------------------------------------------------------------------

_OF_ROWS = ("tile::gather4", "tile::scatter4")


def _corner(
    builder: KernelBuilder, node: Instruction, bound: Bound, operand: Operand
) -> tuple[ReadSlot, int, list[ReadSlot]]:
    """`[map, {c0, c1}]`: readers of the map's address, its displacement, and readers of the coordinates."""
    rank = 5 if bound.modifiers.get("mode") in _OF_ROWS else int((bound.modifiers["rank"] or "1d")[0])
    if not isinstance(operand, Address) or len(operand.extra) != 1:
        raise builder.error(OperandError, f"{node.spelling} takes [map, {{coordinates}}]", operand.offset)
    plain = Address(operand.base, operand.displacement, operand.offset)
    base, displacement = address(builder, plain, "", parameters=True)
    vector = builder.elements(operand.extra[0], rank)
    return base, displacement, [builder.read(c, TYPES["s32"], False, "a coordinate") for c in vector]


def _info(builder: KernelBuilder, node: Instruction, bound: Bound, operands: Sequence[Operand]) -> tuple[ReadSlot, ...]:
    """The im2col offsets, or the halo and the offset along W: a vector behind the other operands in some modes."""
    mode = bound.modifiers.get("mode") or ""
    if not mode.startswith("im2col") or mode.endswith("no_offs"):
        return ()
    count = int((bound.modifiers["rank"] or "")[0]) - 2 if mode == "im2col" else 2
    elements = builder.elements(operands[0], count)
    return tuple(builder.read(e, TYPES["u16"], False, "an im2col offset") for e in elements)


@binds("bulk_tensor_load")
def _bind_load(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    several = "multicast::cluster" in node.modifiers
    mode = bound.modifiers["mode"] or ""
    informed = mode.startswith("im2col")
    expect(builder, node, 3 + informed + several + (bound.modifiers["hint"] is not None))
    to, to_displacement = address(builder, node.operands[0], "shared")
    base, displacement, corner = _corner(builder, node, bound, node.operands[1])
    barrier, barrier_displacement = address(builder, node.operands[2], "shared")
    info = _info(builder, node, bound, node.operands[3:])
    rest = node.operands[3 + informed :]
    ranks = (builder.read(rest[0], TYPES["u16"], False, "the mask of a multicast"),) if several else ()
    group = bound.modifiers.get("group") or ""
    detail = BoxCopy(
        to_displacement, displacement, mode, len(corner), len(info), Access("shared", barrier_displacement, 64, 1),
        several, group,
    )  # fmt: skip
    return Step("bulk_tensor_load", node, bound, (to, base, *corner, *info, barrier, *ranks), detail=detail)


@binds("bulk_tensor_store")
def _bind_tensor_store(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2 + (bound.modifiers["hint"] is not None))
    base, displacement, corner = _corner(builder, node, bound, node.operands[0])
    what, what_displacement = address(builder, node.operands[1], "shared")
    detail = BoxCopy(what_displacement, displacement, bound.modifiers["mode"] or "", len(corner))
    return Step("bulk_tensor_store", node, bound, (what, base, *corner), detail=detail)


def _boxes(frame: KernelFrame, step: Step, lanes: Array) -> list[tuple[int, TensorMap, list[int], int]]:
    """For each lane: its number, the map and the box's corner as the mode takes them, and the address in shared memory.

    Raises ExecutionError for a map that does not fit, and MemoryFault.
    """
    detail: BoxCopy = step.detail
    here = _tensor_numbers(frame, step, step.sources[0], lanes, "an address") + detail.here
    maps = _tensor_numbers(frame, step, step.sources[1], lanes, "an address") + detail.map
    end = 2 + detail.coordinates
    corners = np.stack([_tensor_numbers(frame, step, r, lanes, "a coordinate") for r in step.sources[2:end]], 1)
    informed = step.sources[end : end + detail.informed]
    offsets_of = [_tensor_numbers(frame, step, r, lanes, "an im2col offset") for r in informed]
    info = np.array(offsets_of, np.int64).reshape(len(informed), len(lanes)).T
    boxes = []
    table = zip(lanes.tolist(), here.tolist(), maps.tolist(), corners.tolist(), info.tolist(), strict=True)
    for lane, start, map_address, corner, offsets in table:
        tensor = _map(frame, step, lane, map_address)
        chosen = tensor_maps.aimed(tensor, detail.mode, corner, offsets, stores=detail.barrier is None)
        if isinstance(chosen, str):
            raise frame.fault(ExecutionError, step, f"{frame.who(lane)}: {chosen}")
        boxes.append((lane, *chosen, start))
    return boxes


@runs("bulk_tensor_load")
def _run_load(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = _lanes(frame, active)
    if not len(lanes):
        return
    detail: BoxCopy = step.detail
    assert detail.barrier is not None
    barriers = places(frame, step, step.sources[-2 if detail.several else -1], detail.barrier, lanes).tolist()
    boxes = _boxes(frame, step, lanes)
    masks = ranks_of(frame, step, lanes) if detail.several else [0] * len(lanes)
    for (lane, tensor, corner, start), barrier, ranks in zip(boxes, barriers, masks, strict=True):
        if not detail.several:
            barrier_at(frame, step, barrier, lane)
        frame.bulk.load(step, tensor, lane, corner, start, barrier, ranks, detail.group)


def ranks_of(frame: KernelFrame, step: Step, lanes: Array) -> list[int]:
    """The multicast mask (the last source) of each lane. Raises ExecutionError if a mask names no block."""
    masks = [int(m) for m in _tensor_numbers(frame, step, step.sources[-1], lanes, "the mask of a multicast")]
    if 0 in masks:
        text = f"{frame.who(int(lanes[masks.index(0)]))} copies to the blocks of mask 0x0, which names none"
        raise frame.fault(ExecutionError, step, text)
    return masks


@runs("bulk_tensor_store")
def _run_tensor_store(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = _lanes(frame, active)
    operation = step.bound.modifiers.get("op")
    if len(lanes):
        for lane, tensor, corner, start in _boxes(frame, step, lanes):
            if tensor.padded:
                text = f"{frame.who(lane)}: the emulator copies padded 4-bit elements to shared memory only"
                raise frame.fault(ExecutionError, step, text)
            update = reduction(operation, tensor.element) if operation else None
            if isinstance(update, str):
                raise frame.fault(ExecutionError, step, f"{frame.who(lane)}: {update}")
            frame.bulk.store(step, tensor, lane, corner, start, update)


binds_alone("bulk_commit")


@runs("bulk_commit")
def _run_commit(frame: KernelFrame, step: Step, active: Array | None) -> None:
    frame.bulk.commit(_lanes(frame, active))


@binds("bulk_wait")
def _bind_wait(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 1)
    operand = node.operands[0]
    if not isinstance(operand, Immediate) or not isinstance(operand.value, int) or operand.value < 0:
        raise builder.error(OperandError, f"{node.spelling} takes a constant number of groups", operand.offset)
    return Step("bulk_wait", node, bound, detail=operand.value)


@runs("bulk_wait")
def _run_wait(frame: KernelFrame, step: Step, active: Array | None) -> None:
    frame.bulk.wait(step.detail, _lanes(frame, active), reads="read" in step.node.modifiers)


@binds("proxy_nothing")
def _bind_proxy_nothing(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """Bind fences that have no effect here: changes of maps and barriers are visible to all threads at once."""
    expect(builder, node, 0, 2)
    return Step("nothing", node, bound)
