"""Exchanges between the threads of a warp, and barriers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.builder import Builder, binds, binds_alone, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step, WriteSlot
from ptxdiff.emulator.errors import ExecutionError, OperandError
from ptxdiff.emulator.isa.forms import Bound, find
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.warp.owed import AT_A_BARRIER, Owed
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Immediate, Instruction, Pair, Sink
from ptxdiff.emulator.text.types import TYPES

_EVERY_LANE = 0xFFFFFFFF
Runner = Callable[[KernelFrame, Step, Array | None], None]
_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


def _whole(frame: KernelFrame, values: Any) -> Array:
    """An array over lanes as a table of warps x 32; scalars are broadcast."""
    return np.ascontiguousarray(np.broadcast_to(values, (frame.lanes,))).reshape(-1, 32)


def _members(frame: KernelFrame, step: Step, reader: ReadSlot, active: Array | None, gathers: bool = False) -> Array:
    """The active lanes, which have to be in their own membership mask, as a table of warps x 32.

    gathers: the result depends on all lanes of the mask, so that each of them has to be here or to have ended.

    Raises ExecutionError where the ISA leaves the behaviour undefined (9.7.9 and 9.7.13, of each instruction with
    `.sync`: "undefined if the executing thread is not in the membermask"), and for masks that differ within a warp.
    """
    value, mask = frame.read(reader)
    if mask is not None:
        # A lane that is not here, such as one of a block that has not begun, has no mask yet.
        lanes = frame.every if active is None else np.flatnonzero(active)
        frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, "a membership mask")
    given = _whole(frame, value)
    named = (given >> np.arange(32, dtype=np.uint32) & np.uint32(1)).astype(np.bool_)
    here = np.ones((len(named), 32), np.bool_) if active is None else active.reshape(-1, 32)
    if (outside := here & ~named).any():
        raise _mistaken(frame, step, given, outside, "which leaves this thread out: the ISA defines no behaviour there")
    if len(np.unique(given)) > 1 and (other := _other_mask(given, here)).any():
        raise _mistaken(frame, step, given, other, "and a thread of that mask executes it with another mask")
    if gathers and active is not None and (waits := here & _absent(frame, given, here)).any():
        words = "and a thread of that mask neither executes it now nor has ended: no result would hold its value"
        raise _mistaken(frame, step, given, waits, words)
    if isinstance(frame, KernelFrame) and (active is not None or frame.owed):
        _expect_absent(frame, step, given, here)
    return here


def _expect_absent(frame: KernelFrame, step: Step, given: Array, here: Array) -> None:
    """Note the lanes that have to execute an exchange, too: since sm_70 they may do so at another place, and later.

    A lane for which others wait in an exchange owes them that exchange: the same instruction, with the same mask. The
    lanes that come later pay what they owe, and nobody owes them anything for it.

    Raises ExecutionError if a lane that owes an exchange waits at a barrier, or executes another exchange with those
    that wait for it, so that neither can go on.
    """
    waits = here & _absent(frame, given, here)
    table = here.reshape(-1)
    if not waits.any() and not any(table[lane] for lane in frame.owed):
        return
    held, stuck = frame.at_barriers().reshape(-1, 32), frame.at_warp_barriers().reshape(-1, 32)
    for warp in np.flatnonzero(here.any(axis=1)).tolist():
        for mask in np.unique(given[warp][here[warp]]).tolist():
            lanes = here[warp] & (given[warp] == mask)
            key = f"{step.bound.spelling} 0x{mask:08x}"
            late = _paid(frame, step, key, given, warp, lanes)
            if (early := lanes & ~late).any():
                _owe(frame, step, key, given, warp, early, held[warp], stuck[warp])


def _paid(frame: KernelFrame, step: Step, key: str, given: Array, warp: int, lanes: Array) -> Array:
    """Which of the lanes of a warp owed the exchange that they execute now, with one mask."""
    late = np.zeros(32, np.bool_)
    for lane in np.flatnonzero(lanes).tolist():
        debts = frame.owed.get(warp * 32 + lane, {})
        for other, debt in debts.items():
            if other != key and int(given[warp, lane]) & int(bits_of(debt.waiting)[0]):
                raise debt.error(
                    f"and {frame.who(warp * 32 + lane)} of that mask executes {step.bound.spelling} instead"
                )
        if key in debts:
            late[lane] = True
            debts[key].times -= 1
            if not debts[key].times:
                del debts[key]
            if not debts:
                del frame.owed[warp * 32 + lane]
    return late


def _owe(
    frame: KernelFrame, step: Step, key: str, given: Array, warp: int, early: Array, held: Array, stuck: Array
) -> None:
    """Note that the other lanes of a mask owe an exchange to the lanes of a warp that execute it before them.

    held: the lanes that wait at a barrier of their block. stuck: the masks of those that wait at bar.warp.sync, else 0.
    """
    mask = int(given[warp][early][0])
    named = (mask >> np.arange(32) & 1).astype(np.bool_)
    absent = named & ~early & ~frame.gone.reshape(-1, 32)[warp]
    only = np.zeros_like(given, np.bool_)
    only[warp] = early

    def error(words: str) -> ExecutionError:
        return _mistaken(frame, step, given, only, f"{words}: neither can go on")

    if (absent & (held | (stuck & bits_of(early)[0] != 0))).any():
        raise error(AT_A_BARRIER)
    for lane in np.flatnonzero(absent).tolist():
        debts = frame.owed.setdefault(warp * 32 + lane, {})
        debt = debts.setdefault(key, Owed(error, np.zeros(32, np.bool_)))
        debt.times, debt.waiting = debt.times + 1, debt.waiting | early


def _other_mask(given: Array, here: Array) -> Array:
    """The active lanes whose mask names an active lane that has another mask."""
    names = given[:, :, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    unlike: Array = ((given[:, :, None] != given[:, None, :]) & (names != 0) & here[:, None, :]).any(axis=2)
    return here & unlike


def _absent(frame: KernelFrame, given: Array, here: Array) -> Array:
    """The lanes whose mask names a lane that is neither active nor at its end."""
    missing = (~(here | frame.gone.reshape(-1, 32)) * _BITS).sum(axis=1, dtype=np.uint32)
    absent: Array = (given & missing[:, None]) != 0
    return absent


def _mistaken(frame: KernelFrame, step: Step, given: Array, lanes: Array, words: str) -> ExecutionError:
    lane = int(np.flatnonzero(lanes)[0])
    text = f"{frame.who(lane)} executes {step.bound.spelling} with the membership mask"
    return frame.fault(ExecutionError, step, f"{text} 0x{int(given.reshape(-1)[lane]):08x}, {words}")


def _by_mask(source: int) -> Callable[[Runner], Runner]:
    """Run an exchange once for each of the membership masks that lanes of a warp give: each is one of its own, between
    the threads of its mask. source: the number of the operand with the mask."""

    def decorate(run: Runner) -> Runner:
        def run_each(frame: KernelFrame, step: Step, active: Array | None) -> None:
            parts = [active] if step.sources[source].slot < 0 else _parts(frame, step, step.sources[source], active)
            for part in parts:
                run(frame, step, part)

        return run_each

    return decorate


def _parts(frame: KernelFrame, step: Step, reader: ReadSlot, active: Array | None) -> list[Array | None]:
    """The active lanes by their membership masks: of each warp one mask in each part."""
    value, _ = frame.read(reader)
    given = _whole(frame, value)
    here = np.ones(given.shape, np.bool_) if active is None else active.reshape(-1, 32)
    first = given[np.arange(len(given)), np.argmax(here, axis=1)][:, None]
    if not (here & (given != first)).any():
        return [active]
    if (other := _other_mask(given, here)).any():
        raise _mistaken(frame, step, given, other, "and a thread of that mask executes it with another mask")
    parts: list[Array | None] = []
    left: Array = here
    while left.any():
        first = given[np.arange(len(given)), np.argmax(left, axis=1)][:, None]
        parts.append((left & (given == first)).reshape(-1))
        left = np.asarray(left & (given != first))
    return parts


@binds("shfl")
def _bind_shfl(builder: Builder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 5)
    to = node.operands[0]
    first, second = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    writers = [builder.destination(first, TYPES["b32"], bound, may_discard=second is not None)]
    writers.append(builder.destination(second, TYPES["pred"], bound, True) if second is not None else WriteSlot(-1, 1))
    b32, u32 = TYPES["b32"], TYPES["u32"]
    kinds = (b32, u32, u32, u32)
    readers = [
        builder.read(o, k, False, f"operand of {bound.spelling}") for o, k in zip(node.operands[1:], kinds, strict=True)
    ]
    return Step("shfl", node, bound, tuple(readers), tuple(writers))


@runs("shfl")
@_by_mask(3)
def _run_shfl(frame: KernelFrame, step: Step, active: Array | None) -> None:
    value, mask = frame.read(step.sources[0])
    alike = all(r.slot == -1 for r in step.sources[1:]) and step.sources[3].pattern == _EVERY_LANE
    if active is None and alike and not (isinstance(frame, KernelFrame) and frame.owed):
        _shuffle_alike(frame, step, value, mask)
        return
    distance = _whole(frame, frame.read(step.sources[1])[0]).astype(np.int64) & 31
    control = _whole(frame, frame.read(step.sources[2])[0]).astype(np.int64)
    members = _members(frame, step, step.sources[3], active)
    source, inside = shuffled(step.bound.modifiers["mode"] or "", distance, control)
    rows = np.arange(len(source))[:, None]
    result = _whole(frame, value)[rows, source].reshape(-1)
    # A thread that does not take part provides no value.
    absent = ~members[rows, source]
    doubt = np.where(absent, np.uint32(0xFFFFFFFF), np.uint32(0)).reshape(-1)
    if mask is not None:
        doubt |= _whole(frame, mask)[rows, source].reshape(-1)
    frame.write(step.destinations[0], result, doubt if doubt.any() else None, active)
    frame.write(step.destinations[1], inside.reshape(-1).astype(np.uint8), None, active)


def _shuffle_alike(frame: KernelFrame, step: Step, value: Array, mask: Any) -> None:
    """A shuffle with constant operands by all lanes of all warps: the same lanes in each."""
    distance, control = (np.full((1, 32), r.pattern, np.int64) for r in step.sources[1:3])
    source, inside = shuffled(step.bound.modifiers["mode"] or "", distance & 31, control)
    doubt = None if mask is None else _whole(frame, mask).take(source[0], axis=1).reshape(-1)
    frame.write(step.destinations[0], _whole(frame, value).take(source[0], axis=1).reshape(-1), doubt, None)
    if step.destinations[1].slot >= 0:
        frame.write(step.destinations[1], np.tile(inside[0].astype(np.uint8), frame.lanes // 32), None, None)


def shuffled(mode: str, distance: Array, control: Array) -> tuple[Array, Array]:
    """The lane whose value each lane of a shuffle gets, and whether that lane is in range (ISA 9.7.9.6).

    distance: the second operand modulo 32, control: the third one; all as tables of warps x 32.
    """
    lane = np.arange(32)
    clamp, segment = control & 31, control >> 8 & 31
    low = lane & segment
    high = low | (clamp & ~segment)
    if mode == "up":
        source = lane - distance
        inside = source >= high
    else:
        source = {"down": lane + distance, "bfly": lane ^ distance, "idx": low | (distance & ~segment)}[mode]
        inside = source <= high
    return np.where(inside, source, lane), inside


def _readers(builder: Builder, node: Instruction, bound: Bound, *kinds: str) -> tuple[ReadSlot, ...]:
    expect(builder, node, 1 + len(kinds))
    return tuple(
        builder.read(o, TYPES[k], False, f"operand of {bound.spelling}")
        for o, k in zip(node.operands[1:], kinds, strict=True)
    )


def _predicate(frame: KernelFrame, step: Step, active: Array | None) -> tuple[Array, Array, Any]:
    """The predicate operand and the members, as tables of warps x 32, and which warps have an undefined predicate."""
    value, mask = frame.read(step.sources[0])
    members = _members(frame, step, step.sources[1], active, gathers=True)
    doubt = None
    if mask is not None:
        doubt = np.repeat(((_whole(frame, mask) != 0) & members).any(axis=1), 32)
    return _whole(frame, value).astype(np.bool_), members, doubt


@binds("vote")
def _bind_vote(builder: Builder, node: Instruction, bound: Bound) -> Step:
    readers = _readers(builder, node, bound, "pred", "u32")
    return Step("vote", node, bound, readers, (builder.destination(node.operands[0], TYPES["pred"], bound),))


@runs("vote")
@_by_mask(1)
def _run_vote(frame: KernelFrame, step: Step, active: Array | None) -> None:
    value, members, doubt = _predicate(frame, step, active)
    every, some = (value | ~members).all(axis=1), (value & members).any(axis=1)
    result = {"all": every, "any": some, "uni": every | ~some}[step.bound.modifiers["mode"] or ""]
    mask = None if doubt is None else doubt.astype(np.uint8)
    frame.write(step.destinations[0], np.repeat(result, 32).astype(np.uint8), mask, active)


@binds("ballot")
def _bind_ballot(builder: Builder, node: Instruction, bound: Bound) -> Step:
    readers = _readers(builder, node, bound, "pred", "u32")
    return Step("ballot", node, bound, readers, (builder.destination(node.operands[0], TYPES["b32"], bound),))


@runs("ballot")
@_by_mask(1)
def _run_ballot(frame: KernelFrame, step: Step, active: Array | None) -> None:
    value, members, doubt = _predicate(frame, step, active)
    result = np.repeat(((value & members) * _BITS).sum(axis=1, dtype=np.uint32), 32)
    mask = None if doubt is None else np.where(doubt, np.uint32(0xFFFFFFFF), np.uint32(0))
    frame.write(step.destinations[0], result, mask, active)


@binds("activemask")
def _bind_activemask(builder: Builder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 1)
    return Step("activemask", node, bound, (), (builder.destination(node.operands[0], TYPES["b32"], bound),))


@runs("activemask")
def _run_activemask(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """The lanes that run together here, or, in orders of threads that say so, a part of those of a branch: the ISA
    promises no more than that the executing thread is among them."""
    here = np.ones((frame.lanes // 32, 32), np.bool_) if active is None else active.reshape(-1, 32)
    words = np.repeat((here * _BITS).sum(axis=1, dtype=np.uint32), 32).reshape(-1, 32)
    if isinstance(frame, KernelFrame) and (apart := frame.grid.order.apart):
        part: Array = (np.cumsum(here, axis=1) - 1) % apart
        alike = np.equal(part[:, :, None], part[:, None, :]) & here[:, None, :]
        parts = (alike * _BITS).sum(axis=2, dtype=np.uint32)
        words = np.where(here.all(axis=1, keepdims=True), words, parts)
    frame.write(step.destinations[0], np.ascontiguousarray(words).reshape(-1), None, active)


@binds("match")
def _bind_match(builder: Builder, node: Instruction, bound: Bound) -> Step:
    kind = bound.modifiers["type"] or ""
    readers = _readers(builder, node, bound, kind, "u32")
    to = node.operands[0]
    first, second = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    writers = [builder.destination(first, TYPES["b32"], bound, second is not None)]
    if second is not None:
        if "all" not in node.modifiers and not isinstance(second, Sink):
            raise builder.error(OperandError, "only match.all has a second destination", node.offset)
        writers.append(builder.destination(second, TYPES["pred"], bound, True))
    return Step("match", node, bound, readers, tuple(writers))


@runs("match")
@_by_mask(1)
def _run_match(frame: KernelFrame, step: Step, active: Array | None) -> None:
    value, mask = frame.read(step.sources[0])
    members = _members(frame, step, step.sources[1], active, gathers=True)
    table = _whole(frame, value)
    equal = (table[:, :, None] == table[:, None, :]) & members[:, None, :]
    result = (equal * _BITS).sum(axis=2, dtype=np.uint32)
    if "all" in step.node.modifiers:
        everyone = (members * _BITS).sum(axis=1, dtype=np.uint32)[:, None]
        agreed = (result == everyone) | ~members
        unanimous = np.broadcast_to(agreed.all(axis=1)[:, None], members.shape)
        result = np.where(unanimous, everyone, 0).astype(np.uint32)
        if len(step.destinations) == 2:
            frame.write(step.destinations[1], unanimous.reshape(-1).astype(np.uint8), None, active)
    doubt = None
    if mask is not None:
        torn = ((_whole(frame, mask) != 0) & members).any(axis=1)
        doubt = np.where(np.repeat(torn, 32), np.uint32(0xFFFFFFFF), np.uint32(0))
    frame.write(step.destinations[0], result.reshape(-1), doubt, active)


@binds("redux")
def _bind_redux(builder: Builder, node: Instruction, bound: Bound) -> Step:
    kind = bound.modifiers.get("type") or "f32"
    readers = _readers(builder, node, bound, kind, "u32")
    writer = builder.destination(node.operands[0], TYPES[kind], bound)
    held = [builder.registers[slot].type for slot in (writer.slot, readers[0].slot) if slot >= 0]
    if kind != "f32" and any(register.kind in "fp" for register in held):
        text = f"{bound.spelling} takes no floating-point registers, whatever its type is"
        raise builder.error(OperandError, text, node.offset)
    return Step("redux", node, bound, readers, (writer,))


@runs("redux")
@_by_mask(1)
def _run_redux(frame: KernelFrame, step: Step, active: Array | None) -> None:
    value, mask = frame.read(step.sources[0])
    members = _members(frame, step, step.sources[1], active, gathers=True)
    table = _whole(frame, value)
    result = (
        _float_redux(step, table, members)
        if "f32" in step.node.modifiers
        else integer_redux(step.bound.modifiers["op"] or "", step.bound.modifiers.get("type") == "s32", table, members)
    )
    doubt = None
    if mask is not None:
        torn = ((_whole(frame, mask) != 0) & members).any(axis=1)
        doubt = np.where(np.repeat(torn, 32), np.uint32(0xFFFFFFFF), np.uint32(0))
    frame.write(step.destinations[0], np.repeat(result, 32), doubt, active)


def integer_redux(op: str, signed: bool, table: Array, members: Array) -> Array:
    """A number for each warp: the members' words of a table of warps x 32, joined by an operation of redux."""
    values = table.view(np.int32) if signed else table
    info = np.iinfo(values.dtype)
    neutral = {"add": 0, "or": 0, "xor": 0, "and": -1 if signed else info.max, "min": info.max, "max": info.min}[op]
    filled = np.where(members, values, values.dtype.type(neutral))
    function: Any = {
        "add": np.add, "or": np.bitwise_or, "xor": np.bitwise_xor, "and": np.bitwise_and,
        "min": np.minimum, "max": np.maximum,
    }[op]  # fmt: skip
    reduced: Array = function.reduce(filled, axis=1, dtype=values.dtype)
    return reduced.view(np.uint32)


def _float_redux(step: Step, table: Array, members: Array) -> Array:
    """Minimum or maximum of float32: the two-operand instruction, folded over the members."""
    modifiers = ["f32"] + (["NaN"] if "NaN" in step.node.modifiers else [])
    function = find(step.bound.modifiers["op"] or "", tuple(modifiers))[0].array_function()
    values = table & np.uint32(0x7FFFFFFF) if "abs" in step.node.modifiers else table
    first = np.argmax(members, axis=1)
    result = np.ascontiguousarray(values[np.arange(len(values)), first])
    for lane in range(32):
        column = np.ascontiguousarray(values[:, lane])
        result = np.where(members[:, lane], function(len(result), result, column), result)
    # Combining a value with itself makes a single NaN canonical.
    return function(len(result), result, result)


@binds("elect")
def _bind_elect(builder: Builder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    to = node.operands[0]
    if not isinstance(to, Pair):
        raise builder.error(OperandError, "elect.sync writes d|p", node.offset)
    writers = (
        builder.destination(to.first, TYPES["b32"], bound, True),
        builder.destination(to.second, TYPES["pred"], bound),
    )
    reader = builder.read(node.operands[1], TYPES["u32"], False, f"operand of {bound.spelling}")
    return Step("elect", node, bound, (reader,), writers)


@runs("elect")
@_by_mask(0)
def _run_elect(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """The ISA elects the same leader for the same mask each time. So it is the lowest lane of the mask that has not
    ended, also if that executes this at another place."""
    _members(frame, step, step.sources[0], active)
    words = _whole(frame, frame.read(step.sources[0])[0])
    if isinstance(frame, KernelFrame):
        words = words & (~frame.gone.reshape(-1, 32) * _BITS).sum(axis=1, dtype=np.uint32)[:, None]
    leader = np.argmax(words[:, :, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1), axis=2).reshape(-1)
    lane = np.tile(np.arange(32), len(words))
    frame.write(step.destinations[0], leader.astype(np.uint32), None, active)
    frame.write(step.destinations[1], (leader == lane).astype(np.uint8), None, active)


# barriers ------------------------------------------------------------------------------------------------


_BARRIERS = 16
"""Of a block. ISA 9.7.14.1, bar: "each CTA instance has sixteen barriers numbered 0..15"; ptxas refuses others."""


def _refuse_number(builder: Builder, node: Instruction, at: int = 0) -> None:
    number = node.operands[at]
    if isinstance(number, Immediate) and not 0 <= number.value < _BARRIERS:
        raise builder.error(OperandError, f"barrier {number.value}: a block has 0 to {_BARRIERS - 1}", node.offset)


@binds("barrier")
def _bind_barrier(builder: Builder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 1, 2)
    _refuse_number(builder, node)
    readers = tuple(builder.read(o, TYPES["u32"], False, f"operand of {bound.spelling}") for o in node.operands)
    return Step("barrier", node, bound, readers)


@binds("barrier_red")
def _bind_barrier_red(builder: Builder, node: Instruction, bound: Bound) -> Step:
    """Bind `d, a{, b}, {!}p`: a barrier, and the count, conjunction or disjunction of the predicates of its threads."""
    expect(builder, node, 3, 4)
    _refuse_number(builder, node, 1)
    role, op = f"operand of {bound.spelling}", bound.modifiers.get("op") or "popc"
    numbers = tuple(builder.read(o, TYPES["u32"], False, role) for o in node.operands[1:-1])
    predicate = builder.read(node.operands[-1], TYPES["pred"], False, role)
    writer = builder.destination(node.operands[0], TYPES["u32" if op == "popc" else "pred"], bound)
    return Step("barrier", node, bound, numbers, (writer,), detail=(op, predicate))


@binds("barrier_arrive")
def _bind_barrier_arrive(builder: Builder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    _refuse_number(builder, node)
    readers = tuple(builder.read(o, TYPES["u32"], False, f"operand of {bound.spelling}") for o in node.operands)
    return Step("barrier_arrive", node, bound, readers)


@binds("warp_barrier")
def _bind_warp_barrier(builder: Builder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 1)
    reader = builder.read(node.operands[0], TYPES["u32"], False, f"operand of {bound.spelling}")
    return Step("warp_barrier", node, bound, (reader,))


def membership(frame: KernelFrame, step: Step, reader: ReadSlot, active: Array | None) -> Array:
    """The membership mask of each lane, as a table of warps x 32. Raises ExecutionError as exchanges do."""
    _members(frame, step, reader, active)
    return _whole(frame, frame.read(reader)[0])


def bits_of(lanes: Array) -> Array:
    """A mask of lanes as one word for each warp."""
    words: Array = (lanes.reshape(-1, 32) * _BITS).sum(axis=1, dtype=np.uint32)
    return words


def warp_sync(frame: KernelFrame, lanes: Array, masks: Array) -> None:
    """bar.warp.sync: a barrier, in each warp, of the lanes with equal membership masks."""
    members, given = lanes.reshape(-1, 32), masks.reshape(-1, 32)
    everyone = bits_of(lanes)[:, None]
    whole = members.all(axis=1)  # nothing orders what a thread did that ended before
    whole &= (~members | (given & everyone == everyone)).all(axis=1)
    if whole.any():
        frame.order.warp_barriers((members & whole[:, None]).reshape(-1))
    for warp in np.flatnonzero(members.any(axis=1) & ~whole).tolist():
        for mask in np.unique(given[warp][members[warp]]).tolist():
            frame.order.barrier(warp * 32 + np.flatnonzero(members[warp] & (given[warp] == mask)))


@binds("fence")
def _bind_fence(builder: Builder, node: Instruction, bound: Bound) -> Step:
    orders = node.opcode == "membar" or (node.opcode == "fence" and "proxy" not in node.spelling)
    return Step("fence" if orders else "nothing", node, bound)


_LEVELS = {"cta": "cta", "gl": "gpu", "sys": "sys"}
"""The scopes of membar (ISA 9.7.13.4)."""


@runs("fence")
def _run_fence(frame: KernelFrame, step: Step, active: Array | None) -> None:
    if not isinstance(frame, KernelFrame):
        return  # a block of asm alone
    words = step.bound.modifiers
    scope = words.get("scope") or _LEVELS[words.get("level") or "sys"]
    frame.order.fence(frame.every if active is None else np.flatnonzero(active), scope, words.get("sem") or "acq_rel")


binds_alone("trap")


@runs("trap")
def _run_trap(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lane = 0 if active is None else int(np.flatnonzero(active)[0])
    raise frame.fault(ExecutionError, step, f"{frame.who(lane)} stops the kernel: {step.bound.spelling}")
