"""Loads and stores of tensor memory by warps, and waits for them (tcgen05.ld, .ld.red, .st, .wait; ISA 9.7.16.8).

A warp can access a quarter of the lanes: warp w of a warpgroup those from 32 w on (ISA 9.7.16.8.4). For each shape a
table (`image`) gives the cell of every register of every thread, from the figures of ISA 9.7.16.2.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import MemoryFault, OperandError
from ptxdiff.emulator.isa.forms import Bound, find
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import address, elements
from ptxdiff.emulator.kernel.tcgen05.allocation import same
from ptxdiff.emulator.kernel.tcgen05.cell_access import Rows
from ptxdiff.emulator.kernel.tcgen05.memory import CELLS, COLUMNS, cell
from ptxdiff.emulator.kernel.warp.matrices import active_warps
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Immediate, Instruction, Operand
from ptxdiff.emulator.text.types import TYPES

PER_COUNT = {"32x32b": 1, "16x64b": 1, "16x32bx2": 1, "16x128b": 2, "16x256b": 4}
"""Registers of a shape for `.x1`; `.xN` repeats it N times in further columns."""
_KEPT = 8
"""Of how many loads and stores a frame keeps what they reach: of each up to 16 MiB."""


@dataclass(frozen=True)
class Image:
    """The cells that a load or a store accesses: lane and column, by register and thread.

    packed: the low halves of two neighbouring columns share a register. `rows`: how many lanes a warp accesses at once.
    `behind`: the displacement of the address.
    """

    lane: Array
    column: Array
    packed: bool
    rows: int
    behind: int


@cache
def image(shape: str, count: int, packed: bool, apart: int) -> tuple[Array, Array]:
    """Lane and column, relative to the address, of every register of every thread. apart: the distance of 16x32bx2's
    halves."""
    register, thread = np.meshgrid(np.arange(PER_COUNT[shape] * count), np.arange(32), indexing="ij")
    lane, column = {
        "32x32b": (thread, register),
        "16x32bx2": (thread % 16, register),
        "16x64b": (thread // 4 + 8 * (thread % 2), thread // 2 % 2 + 2 * register),
        "16x128b": (thread // 4 + 8 * (register % 2), thread % 4 + 4 * (register // 2)),
        "16x256b": (thread // 4 + 8 * (register // 2 % 2), register % 2 + 2 * (thread % 4) + 8 * (register // 4)),
    }[shape]
    column = column * 2 if packed else column
    if shape == "16x32bx2":
        column = column + thread // 16 * apart
    return lane, column


def _bind(builder: KernelBuilder, node: Instruction, bound: Bound, at: int) -> tuple[ReadSlot, Image, list[Operand]]:
    """The address (operand `at`), the accessed cells, and the registers."""
    shape, count = bound.modifiers["shape"] or "", int((bound.modifiers["num"] or "")[1:])
    halves = shape == "16x32bx2"
    expect(builder, node, max(at, 1) + 1 + halves)
    apart = 0
    if halves:
        operand = node.operands[at + 1]
        if not isinstance(operand, Immediate) or not isinstance(operand.value, int):
            raise builder.error(
                OperandError, f"{node.spelling}: the distance of the halves is a constant", operand.offset
            )
        apart = operand.value
    packed = bool(bound.modifiers.get("pack::16b") or bound.modifiers.get("unpack::16b"))
    base, displacement = address(builder, node.operands[at], "tensor")
    lane, column = image(shape, count, packed, apart)
    registers = elements(builder, node.operands[0 if at else -1], PER_COUNT[shape] * count)
    return base, Image(lane, column, packed, 32 if shape == "32x32b" else 16, displacement), registers


@binds("tcgen05_ld")
def _bind_ld(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    base, detail, registers = _bind(builder, node, bound, 1)
    writers = tuple(builder.destination(r, TYPES["b32"], bound) for r in registers)
    return Step("tcgen05_ld", node, bound, (base,), writers, detail=detail)


@binds("tcgen05_ld_red")
def _bind_ld_red(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """`r, redval, [address]{, distance of the halves}`; Triton writes `{%r}` for redval, the last destination."""
    base, detail, registers = _bind(builder, node, bound, 2)
    kind = TYPES[next(name for name in ("u32", "s32", "f32") if name in node.modifiers)]
    writers = [builder.destination(r, TYPES["b32"], bound) for r in registers]
    writers.append(builder.destination(elements(builder, node.operands[1], 1)[0], kind, bound))
    return Step("tcgen05_ld_red", node, bound, (base,), tuple(writers), detail=detail)


@binds("tcgen05_st")
def _bind_st(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    base, detail, registers = _bind(builder, node, bound, 0)
    readers = tuple(builder.read(r, TYPES["b32"], False, f"element of {bound.spelling}") for r in registers)
    return Step("tcgen05_st", node, bound, (base, *readers), (), detail=detail)


@dataclass(frozen=True)
class CellsReached:
    """The cells of an access: by warp, register and thread, and a row for each warp with neighbours in memory one after
    the other.

    `rows`: these for compiled code; None without it.
    """

    cells: Array
    along: Array
    rows: Rows | None


def reached(frame: KernelFrame, step: Step, warps: Array, lanes: Array) -> CellsReached:
    """What an access reaches. Raises MemoryFault. The last ones are kept, for loops."""
    found: Image = step.detail
    given = same(frame, step, step.sources[0], lanes, "the address in tensor memory") + found.behind
    kept, key = frame.tensor.reached, (id(found), given.tobytes(), warps.tobytes())
    if key not in kept:
        cells = _cells(frame, step, given, warps, lanes)
        along = cells.transpose(0, 2, 1).reshape(len(cells), -1)
        both = np.concatenate([along, along + 1], axis=1) if found.packed else along
        while len(kept) >= _KEPT:
            del kept[next(iter(kept))]
        kept[key] = CellsReached(cells, along, Rows.of(both) if frame.tensor.fast else None)
    answer: CellsReached = kept[key]
    return answer


def _cells(frame: KernelFrame, step: Step, given: Array, warps: Array, lanes: Array) -> Array:
    """The cell of every register from the addresses of warps on, by warp, register and thread. Raises MemoryFault."""
    found: Image = step.detail
    row, column = given >> 16, given & 0xFFFF
    thread = frame.thread[warps * 32].astype(np.int64)
    quarter = thread // 32 % 4 * 32
    wrong = (row != quarter) & ((found.rows == 32) | (row != quarter + 16))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        text = f"{frame.who(int(warps[at]) * 32)} begins at lane {int(row[at])} of tensor memory; its warp, number "
        text += f"{int(thread[at]) // 32}, begins at lane {int(quarter[at])}"
        raise frame.fault(MemoryFault, step, text + (f" or {int(quarter[at]) + 16}" if found.rows == 16 else ""))
    columns = found.column + column[:, None, None]
    last = int(columns.max(initial=0)) + found.packed
    if last >= COLUMNS or int(columns.min(initial=0)) < 0:
        text = f"{frame.who(int(lanes[0]))} reaches column {last} of tensor memory, which has {COLUMNS}"
        raise frame.fault(MemoryFault, step, text)
    block = frame.block[warps * 32]
    return np.asarray(block[:, None, None] * CELLS + cell(found.lane + row[:, None, None], columns))


def _touch(frame: KernelFrame, step: Step, found: CellsReached, warps: Array, stores: bool) -> None:
    """Check and record the accesses of each warp."""
    verb = "stores to" if stores else "loads"
    # Warps of one block with the same quarter of the lanes may access the same cells, so each is checked after the
    # accesses of those before it.
    quarters = warps * 32 // frame.grid.threads * 4 + frame.thread[warps * 32] // 32 % 4
    apart = len(np.unique(quarters)) == len(warps)
    rows, flat, along = found.rows, found.cells.reshape(len(warps), -1), found.along
    if step.detail.packed:
        flat, along = (np.concatenate([some, some + 1], axis=1) for some in (flat, along))
    if apart and rows is not None and not frame.tensor.suspect(warps * 32, rows, writes=stores, cores=False):
        frame.tensor_waits.accessed(warps, along, stores, rows)
        return
    for number, warp in enumerate(warps.tolist()):
        frame.tensor.refuse(step, warp * 32, flat[number], verb, writes=stores, cores=False)
        frame.tensor_waits.accessed(warps[number : number + 1], flat[number : number + 1], stores)


@runs("tcgen05_ld")
def _run_ld(frame: KernelFrame, step: Step, active: Array | None) -> None:
    _load(frame, step, active)


@runs("tcgen05_ld_red")
def _run_ld_red(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Also write the least or the greatest number that each thread has loaded, by the instructions min and max.

    The ISA names the operations and gives no more rules for them. A reduction of undefined bits is undefined.
    """
    warps, values, doubts = _load(frame, step, active)
    if not len(warps):
        return
    op = step.bound.modifiers["op"] or ""
    kind = next(name for name in ("u32", "s32", "f32") if name in step.node.modifiers)
    function = find(op, ("NaN", kind) if "NaN" in step.node.modifiers else (kind,))[0].array_function()
    if "abs" in step.node.modifiers:
        values = [value & np.uint32(0x7FFFFFFF) for value in values]
    # The first value meets itself, which makes a single NaN canonical, as all NaNs of results are.
    result = function(len(values[0]), values[0], values[0])
    for value in values[1:]:
        result = function(len(result), result, value)
    bad = np.any(doubts, axis=0)
    doubt = np.where(bad, np.uint32(0xFFFFFFFF), np.uint32(0)) if bad.any() else None
    lanes = (warps[:, None] * 32 + np.arange(32)).reshape(-1)
    frame.write_lanes(step.destinations[-1], np.asarray(result).astype(np.uint32), doubt, lanes, active)


def _load(frame: KernelFrame, step: Step, active: Array | None) -> tuple[Array, list[Array], list[Array]]:
    """Write the registers of a load. The warps, and each register's values and masks of undefined bits, by thread."""
    warps, lanes = active_warps(frame, step, active)
    values: list[Array] = []
    doubts: list[Array] = []
    if not len(warps):
        return warps, values, doubts
    where = reached(frame, step, warps, lanes)
    _touch(frame, step, where, warps, False)
    memory, cells, along = frame.tensor.memory, where.cells, where.along.reshape(-1)
    both = []
    for of in (memory.words, memory.undefined):
        found = of[along] & np.uint32(0xFFFF) | of[along + 1] << np.uint32(16) if step.detail.packed else of.take(along)
        both.append(np.ascontiguousarray(found.reshape(-1, cells.shape[1]).T))
    doubtful = np.asarray(both[1].any(axis=1))
    for number, writer in enumerate(step.destinations[: cells.shape[1]]):
        value, doubt = both[0][number], both[1][number]
        frame.write_lanes(writer, value, doubt if doubtful[number] else None, lanes, active)
        values.append(value)
        doubts.append(doubt)
    return warps, values, doubts


@runs("tcgen05_st")
def _run_st(frame: KernelFrame, step: Step, active: Array | None) -> None:
    warps, lanes = active_warps(frame, step, active)
    if not len(warps):
        return
    where = reached(frame, step, warps, lanes)
    _touch(frame, step, where, warps, True)
    memory = frame.tensor.memory
    half, low = np.uint32(16), np.uint32(0xFFFF)
    whole = np.empty((len(step.sources) - 1, len(lanes)), np.uint32)
    doubts = np.zeros_like(whole)
    for number, reader in enumerate(step.sources[1:]):
        value, mask = frame.read(reader)
        whole[number] = np.broadcast_to(value, (frame.lanes,))[lanes]
        if mask is not None:
            doubts[number] = np.broadcast_to(mask, (frame.lanes,))[lanes]
    some = where.along.reshape(-1)  # no two registers have the same cell
    given, doubt = whole.T.reshape(-1), doubts.T.reshape(-1)
    if step.detail.packed:  # the upper halves become undefined
        memory.words[some], memory.words[some + 1] = given & low, given >> half
        memory.undefined[some], memory.undefined[some + 1] = doubt | ~low, doubt >> half | ~low
    else:
        memory.words[some], memory.undefined[some] = given, doubt


def _waits(what: str) -> None:
    @binds(f"tcgen05_wait_{what}")
    def bind(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
        expect(builder, node, 0)
        return Step(f"tcgen05_wait_{what}", node, bound)

    @runs(f"tcgen05_wait_{what}")
    def run(frame: KernelFrame, step: Step, active: Array | None) -> None:
        warps, _ = active_warps(frame, step, active)
        frame.tensor_waits.waited(warps, what == "st")


for _what in ("ld", "st"):
    _waits(_what)
