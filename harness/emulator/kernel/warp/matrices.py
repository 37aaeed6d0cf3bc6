"""8 x 8 matrices of 16 bits between shared memory and the registers of a warp: ldmatrix, stmatrix, movmatrix.

Each row of a matrix is 16 bytes, whose address comes from one lane. Thread t holds two neighbours of row t / 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import address, elements
from ptxdiff.emulator.kernel.memory.space import Access
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Instruction
from ptxdiff.emulator.text.types import TYPES


def active_warps(frame: KernelFrame, step: Step, active: Array | None) -> tuple[Array, Array]:
    """The warps that run a step, and their lanes. Raises ExecutionError if only part of a warp runs it."""
    frame.need_whole_warps(step, active)
    if active is None:
        return np.arange(frame.lanes // 32), frame.every
    warps = np.flatnonzero(active.reshape(-1, 32)[:, 0])
    return warps, (warps[:, None] * 32 + np.arange(32)).reshape(-1)


def _count(bound: Bound) -> int:
    return int((bound.modifiers["num"] or "x1")[1:])


def _address(builder: KernelBuilder, node: Instruction, bound: Bound, at: int) -> tuple[ReadSlot, Access]:
    """The operand with the addresses of rows, which are generic if no space is written."""
    space = (bound.modifiers["space"] or "").partition("::")[0]
    base, displacement = address(builder, node.operands[at], space)
    return base, Access(space, displacement, 32, 4)


@binds("ldmatrix")
def _bind_ldmatrix(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    to = elements(builder, node.operands[0], _count(bound))
    writers = tuple(builder.destination(e, TYPES["b32"], bound) for e in to)
    base, access = _address(builder, node, bound, 1)
    return Step("ldmatrix", node, bound, (base,), writers, detail=access)


@binds("stmatrix")
def _bind_stmatrix(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    what = elements(builder, node.operands[1], _count(bound))
    readers = tuple(builder.read(e, TYPES["b32"], False, f"element of {bound.spelling}") for e in what)
    base, access = _address(builder, node, bound, 0)
    return Step("stmatrix", node, bound, (base, *readers), (), detail=access)


def _rows(frame: KernelFrame, step: Step, matrices: range, warps: Array) -> tuple[Array, Any]:
    """The lanes that give the row addresses of matrices: of each warp, 8 for each."""
    lanes = (warps[:, None] * 32 + np.arange(8 * matrices.start, 8 * matrices.stop)).reshape(-1)
    _, found = frame.locate_lanes(step, step.sources[0], step.detail, lanes)
    if any(place.region is not frame.shared for place in found):
        text = f"{frame.who(int(lanes[0]))} or a thread beside it gives the address of a row outside shared memory"
        raise frame.fault(MemoryFault, step, text)
    return lanes, found


@runs("ldmatrix")
def _run_ldmatrix(frame: KernelFrame, step: Step, active: Array | None) -> None:
    warps, lanes = active_warps(frame, step, active)
    count = len(step.destinations)
    if not len(warps):
        return
    givers, place = _rows(frame, step, range(count), warps)
    values, masks = frame.load(step, step.detail, givers, place)
    data, doubts = _fragments(values, count, step), None
    if any(m is not None for m in masks):
        whole = [np.zeros_like(v) if m is None else m for m, v in zip(masks, values, strict=True)]
        doubts = _fragments(whole, count, step)
    for number, writer in enumerate(step.destinations):
        frame.write_lanes(writer, data[number], None if doubts is None else doubts[number], lanes, active)


def _fragments(values: list[Array], count: int, step: Step) -> Array:
    """The registers of `count` matrices, of which each warp has read 8 rows each: registers x lanes."""
    matrices = np.stack(values, 1).view(np.uint16).reshape(-1, count, 8, 8)
    order = (1, 0, 3, 2) if step.bound.modifiers["trans"] else (1, 0, 2, 3)
    return np.ascontiguousarray(matrices.transpose(order)).reshape(count, -1).view(np.uint32)


@runs("stmatrix")
def _run_stmatrix(frame: KernelFrame, step: Step, active: Array | None) -> None:
    warps, lanes = active_warps(frame, step, active)
    for number, reader in enumerate(step.sources[1:]):
        value, mask = frame.read(reader)
        givers, place = _rows(frame, step, range(number, number + 1), warps)
        columns = _quads(np.broadcast_to(value, (frame.lanes,))[lanes], step)
        masks = [None] * 4 if mask is None else _quads(np.broadcast_to(mask, (frame.lanes,))[lanes], step)
        frame.store(step, step.detail, givers, place, columns, masks)


def _quads(value: Array, step: Step) -> list[Any]:
    matrix = np.ascontiguousarray(value).view(np.uint16).reshape(-1, 8, 8)
    if step.bound.modifiers["trans"]:
        matrix = matrix.transpose(0, 2, 1)
    rows = np.ascontiguousarray(matrix).reshape(-1, 8).view(np.uint32)
    return [np.ascontiguousarray(rows[:, i]) for i in range(4)]


@binds("movmatrix")
def _bind_movmatrix(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    writer = builder.destination(node.operands[0], TYPES["b32"], bound)
    reader = builder.read(node.operands[1], TYPES["b32"], False, f"operand of {bound.spelling}")
    return Step("movmatrix", node, bound, (reader,), (writer,))


@runs("movmatrix")
def _run_movmatrix(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Transpose the matrix that a warp holds."""
    frame.need_whole_warps(step, active)
    value, mask = frame.read(step.sources[0])
    doubt = None if mask is None else _transposed(np.broadcast_to(mask, (frame.lanes,)))
    frame.write(step.destinations[0], _transposed(value), doubt, active)


def _transposed(value: Array) -> Array:
    matrix = np.ascontiguousarray(value).view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(matrix).reshape(-1, 64).view(np.uint32).reshape(-1)
