"""Products of block-scaled matrices (mma with .block_scale): the layout of the scales, and the arithmetic.

Each thread has a word with four scales. A group of four threads holds a row of a and the row 8 below it. A pair of its
threads gives the scales of these two rows, and one thread those of the group's column of b. `thread-id` selects the
pair or the thread, `byte-id` the first byte of the word. Each byte scales one block of k, the lowest first (ISA
9.7.14.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step, WriteSlot
from ptxdiff.emulator.errors import ExecutionError, OperandError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel import products_in_vectors
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.warp.matrices import active_warps
from ptxdiff.emulator.kernel.warp.mma import (
    Tiles,
    bind_tiles,
    expect_row_col,
    factors,
    scattered,
    shape_of,
    spread,
    tables_of,
)
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric import scaledproducts
from ptxdiff.emulator.numeric.scaledproducts import ScaledModel
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Immediate, Instruction, Operand
from ptxdiff.emulator.text.types import TYPES

_BLOCKS = {"mxf8f6f4": 1, "mxf4": 2}


@dataclass(frozen=True)
class BlockScaled(Tiles):
    """A block-scaled mma. `types`: those of a, b and the scales. `blocks`: how many blocks of k have a scale."""

    types: tuple[str, str, str]
    model: ScaledModel
    blocks: int

    @property
    def elsewhere(self) -> str:
        """The GPU generation whose model gives the bits."""
        return "RTX Blackwell"


def kind_of(bound: Bound) -> str:
    """The word behind `.kind::`."""
    return next(w.partition("::")[2] for w in bound.chosen if w and w.startswith("kind::"))


def blocks_of(bound: Bound) -> int:
    """Scales of a row of a, and of a column of b."""
    word = next((w for w in bound.chosen if w and w.startswith("scale_vec::")), "")
    return int(word.removeprefix("scale_vec::")[0]) if word else _BLOCKS[kind_of(bound)]


@binds("mma_scaled")
def _bind_scaled(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """Bind `d, a, b, c, scales-of-a, {byte, thread}, scales-of-b, {byte, thread}`."""
    expect(builder, node, 8)
    k = shape_of(bound)[2]
    packed = k == 64  # two 4-bit elements in a byte; in products with 8-bit types each has its own byte
    tiles, types, writers, readers = bind_scaled_tiles(builder, node, bound, packed, k)
    readers += scale_operands(builder, node, bound, 4)
    model, blocks = scaledproducts.BLACKWELL[kind_of(bound)], blocks_of(bound)
    detail = BlockScaled(tiles.tables, tiles.widths, tiles.counts, types, model, blocks)
    return Step("mma_scaled", node, bound, tuple(readers), writers, detail=detail)


def bind_scaled_tiles(
    builder: KernelBuilder, node: Instruction, bound: Bound, packed: bool, stored: int
) -> tuple[Tiles, tuple[str, str, str], tuple[WriteSlot, ...], list[ReadSlot]]:
    """`bind_tiles` for a block-scaled product, with the types of a, b and the scales.

    packed: whether two 4-bit elements share a byte. stored: how many columns of a are stored.
    """
    expect_row_col(builder, node)
    chosen, (m, n, k) = bound.modifiers, shape_of(bound)
    types = (chosen["atype"] or "", chosen["btype"] or "", chosen["stype"] or "")
    widths = (32, *(4 if packed else BITS[t] for t in types[:2]), 32)
    tables = tables_of(m, n, k, stored, widths)
    tiles, writers, readers = bind_tiles(builder, node, bound, ("f32", *types[:2], "f32"), widths, tables)
    return tiles, types, writers, readers


def scale_operands(builder: KernelBuilder, node: Instruction, bound: Bound, first: int) -> list[ReadSlot]:
    """`scales-of-a, {byte, thread}, scales-of-b, {byte, thread}`, from operand number `first` on."""
    blocks, readers = blocks_of(bound), []
    for number, threads in ((first, 2), (first + 2, 4)):
        readers.append(builder.read(node.operands[number], TYPES["b32"], False, f"scales of {bound.spelling}"))
        pair = builder.elements(node.operands[number + 1], 2)
        readers.append(_selector(builder, node, pair[0], range(0, 4, blocks), "byte"))
        readers.append(_selector(builder, node, pair[1], range(threads), "thread"))
    return readers


def _selector(builder: KernelBuilder, node: Instruction, operand: Operand, legal: range, what: str) -> ReadSlot:
    if isinstance(operand, Immediate) and operand.value not in legal:
        message = f"{node.spelling}: the {what} of a scale is one of {', '.join(map(str, legal))}, not {operand.value}"
        raise builder.error(OperandError, message, operand.offset)
    return builder.read(operand, TYPES["u16"], False, f"the {what} of a scale")


@runs("mma_scaled")
def _run_scaled(frame: KernelFrame, step: Step, active: Array | None) -> None:
    product: BlockScaled = step.detail
    warps, lanes = active_warps(frame, step, active)
    operands, doubts = factors(frame, step, warps, product.tables, product.widths, product.counts)
    scales_of_a, scales_of_b = scales_of(frame, step, warps, sum(product.counts[1:]))
    a, b, c = (np.ascontiguousarray(x, np.uint32) for x in operands)
    if product.widths[1] == 4:
        a, b = a << np.uint32(2), b << np.uint32(2)  # the place of a 4-bit code in a byte
    columns = np.ascontiguousarray(b.transpose(0, 2, 1))
    result = products_in_vectors.scaled_tiles(
        a, columns, c, [scales_of_a, scales_of_b], product.types, product.model, multiplied
    )
    doubt = spread(doubts, result, 32) if any(d is not None for d in doubts) else None
    scattered(frame, step.destinations, lanes, product.tables[0], 32, result, doubt, active)


def multiplied(
    a: Array, b: Array, c: Array, factors: list[Array], types: tuple[str, str, str], model: ScaledModel
) -> Array:  # fmt: skip
    """The definition: d of tiles of codes, t x m x k, t x n x k and t x m x n.

    factors: t x m x blocks and t x n x blocks.
    """
    result = np.empty_like(c)
    for tile in range(len(a)):
        result[tile] = scaledproducts.dot(a[tile], b[tile], c[tile], factors[0][tile], factors[1][tile], types, model)
    return result


def scales_of(frame: KernelFrame, step: Step, warps: Array, at: int) -> tuple[Array, Array]:
    """The scales of rows of a and of columns of b, whose operands are sources number `at` and following."""
    rows = np.arange(16)
    of_a = _scales(frame, step, at, warps, 2, rows % 8 * 4 + rows // 8)
    return of_a, _scales(frame, step, at + 3, warps, 1, np.arange(8) * 4)


def _scales(frame: KernelFrame, step: Step, at: int, warps: Array, step_of: int, lanes: Array) -> Array:
    """The scales of rows or columns, tiles x rows x blocks. Raises UndefinedBits and ExecutionError.

    lanes: for each row, the lane of thread 0. step_of: how many threads lie between one thread-id and the next.
    """
    blocks: int = step.detail.blocks
    byte, thread = (_same(frame, step, step.sources[at + i], warps) for i in (1, 2))
    if byte % blocks or byte > 3 or thread > 4 // step_of - 1:
        text = f"{frame.who(int(warps[0]) * 32)} picks the scales of byte {byte} and thread {thread}, which are none"
        raise frame.fault(ExecutionError, step, text)
    value, mask = frame.read(step.sources[at])
    giving = lanes + thread * step_of
    shift = (8 * (byte + np.arange(blocks))).astype(np.uint32)
    if mask is not None:
        whole = (warps[:, None] * 32 + giving).reshape(-1)
        doubt = np.broadcast_to(mask, (frame.lanes,))[whole][:, None] >> shift & np.uint32(255)
        frame.refuse_undefined(step, doubt.any(axis=1), whole, "the scales of a matrix")
    words = np.broadcast_to(value, (frame.lanes,)).reshape(-1, 32)[warps][:, giving]
    return np.ascontiguousarray(words[:, :, None] >> shift & np.uint32(255))


def _same(frame: KernelFrame, step: Step, reader: ReadSlot, warps: Array) -> int:
    """A selector. Raises ExecutionError unless all threads give the same."""
    value, mask = frame.read(reader)
    lanes = (warps[:, None] * 32 + np.arange(32)).reshape(-1)
    if mask is not None:
        frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, "which scales are taken")
    found = np.unique(np.broadcast_to(value, (frame.lanes,))[lanes])
    if len(found) > 1:
        text = f"{frame.who(int(lanes[0]))} and others pick different scales: all threads name the same"
        raise frame.fault(ExecutionError, step, text)
    return int(found[0])
