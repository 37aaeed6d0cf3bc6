"""Copies from shared to tensor memory, and shifts within it (tcgen05.cp, tcgen05.shift; ISA 9.7.16.9).

A copy moves rows of 16 or 32 bytes, in the layout of a descriptor's K-major matrix, to lanes of tensor memory; some
shapes copy a row to several lanes. It can unpack 16 elements of 4 or 6 bits, padded to 16 bytes, into one byte each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import ExecutionError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import address
from ptxdiff.emulator.kernel.tcgen05 import operands
from ptxdiff.emulator.kernel.tcgen05.operands import TensorOperand, values
from ptxdiff.emulator.kernel.tcgen05.pairs import members, of_a_pair
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Instruction
from ptxdiff.emulator.text.types import TYPES

_COPIES = {None: (0,), "warpx2::02_13": (0, 64), "warpx2::01_23": (0, 32), "warpx4": (0, 32, 64, 96)}
"""For each modifier, the distance of the lanes to which it copies a row."""


@dataclass(frozen=True)
class TensorCopy:
    """A copy: its rows, the 32-bit words in each, and the destination lanes (copies x rows). `packed`: its format.

    `pair`: each of two blocks copies from its own shared memory to its own tensor memory.
    """

    lanes: Array
    words: int
    packed: str | None
    behind: int
    pair: bool = False


@cache
def lanes_of(rows: int, copies: str | None) -> Array:
    """The lanes, relative to the first, to which each row goes: copies x rows."""
    row = np.arange(rows)
    if rows == 4:
        row = row * 32
    elif copies == "warpx2::01_23":
        row = row // 32 * 64 + row % 32
    return np.asarray(np.array(_COPIES[copies])[:, None] + row)


@binds("tcgen05_cp")
def _bind_cp(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    pair = of_a_pair(builder, node, bound)
    rows, bits = map(int, (bound.modifiers["shape"] or "").removesuffix("b").split("x"))
    base, displacement = address(builder, node.operands[0], "tensor")
    what = builder.read(node.operands[1], TYPES["b64"], False, f"a descriptor of {bound.spelling}")
    lanes = lanes_of(rows, bound.modifiers.get("copies"))
    detail = TensorCopy(lanes, bits // 32, bound.modifiers.get("packed"), displacement, pair)
    return Step("tcgen05_cp", node, bound, (base, what), (), detail=detail)


@runs("tcgen05_cp")
def run_cp(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Copy what the descriptor of each issuing thread names from shared to tensor memory."""
    lanes = frame.every if active is None else np.flatnonzero(active)
    found: TensorCopy = step.detail
    for lane, (given, code) in zip(lanes.tolist(), values(frame, step, step.sources, lanes), strict=True):
        blocks = members(frame, step, lane, found.pair)
        to = np.concatenate([_cells(frame, step, lane, given + found.behind, found, b) for b in blocks], axis=1)
        source = TensorOperand("the source", found.lanes.shape[1], 4 * found.words, "u8")
        offsets = np.concatenate([operands.shared_offsets(frame, step, lane, code, source, b) for b in blocks], axis=0)
        work = frame.tensor.issue(step, lane, to.reshape(-1))
        frame.tensor.read_shared(work, offsets)
        shared = frame.shared
        for of, into in (
            (shared.bytes, frame.tensor.memory.words), (shared.undefined, frame.tensor.memory.undefined),
        ):  # fmt: skip
            chunks = _unpacked(of.reshape(-1, 16)[offsets // 16], found.packed, of is shared.undefined)
            rows = np.ascontiguousarray(chunks).view(np.uint32).reshape(-1, found.words)
            into[to] = rows


def _cells(frame: KernelFrame, step: Step, lane: int, given: int, found: TensorCopy, block: int) -> Array:
    """The cells that a copy writes in a block: copies x rows x words."""
    if given >> 16:
        text = f"{frame.who(lane)} copies to lane {given >> 16} of tensor memory; a copy of this shape begins at lane 0"
        raise frame.fault(ExecutionError, step, text)
    lanes = np.broadcast_to(found.lanes[..., None], (*found.lanes.shape, found.words))
    columns = np.broadcast_to(np.arange(found.words), lanes.shape)
    return operands.cells(frame, step, lane, given, lanes, columns, "the destination", block)


def _unpacked(chunks: Array, packed: str | None, masks: bool) -> Array:
    """Unpack chunks of 16 bytes to one element in each byte: e2m1 in bits 2 to 5, 6-bit formats from bit 0."""
    if packed is None:
        return chunks
    found = TensorOperand("", 0, 0, "e2m1" if packed == "b4x16_p64" else "e3m2")
    elements = operands.unpacked(chunks, found)
    return np.asarray((elements != 0) * np.uint8(0xFF) if masks else elements.astype(np.uint8))


@binds("tcgen05_shift")
def _bind_shift(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 1)
    pair = of_a_pair(builder, node, bound)
    base, displacement = address(builder, node.operands[0], "tensor")
    return Step("tcgen05_shift", node, bound, (base,), (), detail=(displacement, pair))


@runs("tcgen05_shift")
def _run_shift(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Move 32 bytes of each of the first 31 of 32 lanes to the next lane."""
    lanes = frame.every if active is None else np.flatnonzero(active)
    memory = frame.tensor.memory
    displacement, pair = step.detail
    for lane, (given,) in zip(lanes.tolist(), values(frame, step, step.sources, lanes), strict=True):
        at = given + displacement
        if at >> 16 & 31:
            text = f"{frame.who(lane)} shifts from lane {at >> 16} of tensor memory on; the first is a multiple of 32"
            raise frame.fault(ExecutionError, step, text)
        row, column = np.meshgrid(np.arange(32), np.arange(8), indexing="ij")
        blocks = members(frame, step, lane, pair)
        parts = [operands.cells(frame, step, lane, at, row, column, "the matrix to shift", b) for b in blocks]
        cells = np.concatenate(parts, axis=1)
        frame.tensor.issue(step, lane, cells[1:].reshape(-1), cells[:-1].reshape(-1))
        for of in (memory.words, memory.undefined):
            of[cells[1:]] = of[cells[:-1]]
