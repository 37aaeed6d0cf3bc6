"""Products of a sparse matrix and a dense one (mma.sp, wgmma.sp): the layout of elements and metadata, and the
arithmetic.

A row of a is divided into chunks: four neighbours of which two are stored, two of tf32 of which one is stored, or eight
4-bit integers of which two pairs are stored. Four bits of metadata for each chunk say which (ISA 9.7.14.6.1). The
stored elements have the register layout of a dense tile with half as many columns. How many terms tensor cores sum at
once is published only for dense products; the model here sums that many stored elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, OperandError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel import products_in_vectors
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.tensor_cores import Arithmetic, arithmetic
from ptxdiff.emulator.kernel.warp.matrices import active_warps
from ptxdiff.emulator.kernel.warp.mma import (
    Tiles,
    bind_tiles,
    expect_arithmetic,
    expect_row_col,
    factors,
    generation,
    scattered,
    shape_of,
    tables_of,
    types_of,
)
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.targets import AnyTarget
from ptxdiff.emulator.text.nodes import Immediate, Instruction, Operand
from ptxdiff.emulator.text.types import TYPES


@dataclass(frozen=True)
class SparseProduct(Tiles):
    """An mma.sp. `storage`: the layout of the metadata. `ordered`: the two indices of a chunk must ascend."""

    arithmetic: Arithmetic
    storage: Storage
    ordered: bool

    @property
    def elsewhere(self) -> str:
        """The GPU generation whose model gives the bits, if hardware has confirmed only another generation."""
        return "" if self.arithmetic.confirmable else self.arithmetic.generation


@dataclass(frozen=True)
class Storage:
    """The layout of a tile's metadata. For each row and chunk: the thread of the group of four that holds it, and its
    lowest bit.

    `columns`: how many columns of a a chunk spans. `run`: how many neighbours an index selects. `single`: the chunk
    stores only one element.
    """

    thread: Array
    bit: Array
    columns: int
    run: int
    single: bool


@cache
def storage(kind: str, k: int, selector: int) -> Storage:
    """The layout of metadata (ISA 9.7.14.6.2) for a's type, the shape's k and the sparsity selector.

    For types of 16 bits and more, a word holds both rows of a lane, 16 bits each; for narrower types, one row.
    """
    bits = BITS[kind]
    columns = {32: 2, 16: 4, 8: 4, 4: 8}[bits]
    row, chunk = np.meshgrid(np.arange(16), np.arange(k // columns), indexing="ij")
    if bits >= 16:
        thread, bit, contributing = chunk // 4, row // 8 * 16 + chunk % 4 * 4, k // columns // 4
    else:
        thread, bit, contributing = chunk // 8 * 2 + row // 8, chunk % 8 * 4, k // columns // 8 * 2
    return Storage(thread + selector * contributing, bit, columns, 2 if bits == 4 else 1, bits == 32)


def selectors(kind: str, k: int) -> int:
    """How many selectors a shape has: the number of groups of threads that can provide the metadata."""
    return 4 // (int(storage(kind, k, 0).thread.max()) + 1)


def arithmetic_of_sparse(bound: Bound, target: AnyTarget | None) -> Arithmetic | None:
    """How a target computes a form; None if that is not known.

    If the tensor cores do not take 8-bit floats, these are widened as in dense products: ptxas (13.4, sm_90a and
    sm_100a) writes one HMMA.SP.16832 that starts at zero with every other chunk, a second that continues with the rest,
    and adds c. The first takes the first two of each register's four stored elements, so the dense rule applies to the
    stored elements.
    """
    return arithmetic(types_of(bound), generation(target), False, bound.modifiers.get("satfinite") or "")


def selector_of(builder: KernelBuilder, node: Instruction, operand: Operand, kind: str, k: int) -> int:
    """The sparsity selector of an instruction, for a's type and the shape's k. Raises OperandError for others."""
    most = selectors(kind, k)
    if not isinstance(operand, Immediate) or operand.value not in range(most):
        message = f"{node.spelling}: the sparsity selector is a constant from 0 to {most - 1} (others are undefined)"
        raise builder.error(OperandError, message, operand.offset)
    return int(operand.value)


@binds("mma_sp")
def _bind_mma_sp(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """Bind `d, a, b, c, metadata, selector`."""
    expect(builder, node, 6)
    expect_row_col(builder, node)
    m, n, k = shape_of(bound)
    types = types_of(bound)
    how = expect_arithmetic(builder, node, bound, arithmetic_of_sparse(bound, builder.target))
    selector = selector_of(builder, node, node.operands[5], types[1], k)
    widths = tuple(BITS[t] for t in types)
    tiles, writers, readers = bind_tiles(builder, node, bound, types, widths, tables_of(m, n, k, k // 2, widths))
    readers.append(builder.read(node.operands[4], TYPES["b32"], False, f"metadata of {bound.spelling}"))
    place = storage(types[1], k, selector)
    ordered = "sp" not in node.modifiers
    detail = SparseProduct(tiles.tables, tiles.widths, tiles.counts, how, place, ordered)
    return Step("mma_sp", node, bound, tuple(readers), writers, detail=detail)


@runs("mma_sp")
def _run_mma_sp(frame: KernelFrame, step: Step, active: Array | None) -> None:
    product: SparseProduct = step.detail
    warps, lanes = active_warps(frame, step, active)
    operands, doubts = factors(frame, step, warps, product.tables, product.widths, product.counts)
    a, b, c = operands
    where = columns(frame, step, step.sources[-1], warps, product.storage, product.ordered)
    result = products_in_vectors.sparse(product.arithmetic, a, b, c, where, multiplied)
    width = product.widths[0]
    doubt = doubted(doubts, where, result, width) if any(d is not None for d in doubts) else None
    scattered(frame, step.destinations, lanes, product.tables[0], width, result, doubt, active)


def multiplied(how: Arithmetic, a: Array, b: Array, c: Array, where: Array) -> Array:
    """d (t x m x n) from stored elements a (t x m x k/2) at columns `where` of the full matrix, b (t x k x n), and c
    (as d).

    Each row uses different rows of b, so each row is computed as a separate tile.
    """
    tiles, rows, stored = a.shape
    picked = b[np.arange(tiles)[:, None, None], where].reshape(tiles * rows, stored, -1)
    found = how(
        np.ascontiguousarray(a.reshape(tiles * rows, 1, stored)),
        np.ascontiguousarray(picked),
        np.ascontiguousarray(c.reshape(tiles * rows, 1, -1)),
    )
    return np.asarray(found.reshape(c.shape))


def columns(
    frame: KernelFrame, step: Step, reader: ReadSlot, warps: Array, place: Storage, ordered: bool, tiles: int = 1
) -> Array:
    """The column of each stored element, warps x 16 x k/2. Raises ExecutionError for invalid metadata.

    reader: the operand with metadata. tiles: how many warps, one below the other, hold the rows of a matrix.
    """
    value, mask = frame.read(reader)
    threads = np.unique(place.thread)
    giving = (warps[:, None, None] * 32 + 4 * np.arange(8)[:, None] + threads).reshape(-1)
    if mask is not None:
        doubt = np.broadcast_to(mask, (frame.lanes,))[giving]
        frame.refuse_undefined(step, doubt, giving, "the metadata of a sparse matrix")
    chunks = chunks_of(np.broadcast_to(value, (frame.lanes,)).reshape(-1, 32)[warps], place)
    first, second = chunks & 3, chunks >> 2
    if place.single:
        bad = (chunks != 0b0100) & (chunks != 0b1110)
        meaning = "0b0100 and 0b1110"
    else:
        bad = first >= second if ordered else first == second
        meaning = "two indices that rise" if ordered else "two different indices"
    if bad.any():
        tile, row, chunk = (int(x[0]) for x in np.nonzero(bad))
        who = frame.who(int(warps[tile]) * 32 + row % 8 * 4 + int(place.thread[row, chunk]))
        text = f"{who} gives metadata 0b{int(chunks[tile, row, chunk]):04b} for columns from {chunk * place.columns} "
        text += f"of row {row + 16 * (int(warps[tile]) % tiles)}"
        raise frame.fault(ExecutionError, step, f"{text}: it means nothing, only {meaning} do")
    return kept(chunks, place)


def chunks_of(words: Array, place: Storage) -> Array:
    """The four bits for each chunk, warps x 16 x chunks, from the metadata words, warps x 32."""
    lane = np.arange(16)[:, None] % 8 * 4 + place.thread
    return (words[:, lane] >> place.bit.astype(np.uint32) & np.uint32(15)).astype(np.int64)


def kept(chunks: Array, place: Storage) -> Array:
    """The column of each stored element, warps x 16 x k/2, from four bits for each chunk."""
    first, second = chunks & 3, chunks >> 2
    start = np.arange(chunks.shape[2]) * place.columns
    if place.single:
        return np.asarray(start + (first >> 1))
    found = np.stack([start + index * place.run + i for index in (first, second) for i in range(place.run)], -1)
    return np.asarray(found.reshape(*chunks.shape[:2], -1))


def doubted(doubts: list[Array | None], where: Array, result: Array, width: int) -> Array:
    """The masks of undefined bits of the results: a result that depends on an element with undefined bits is
    undefined."""
    a, b, c = doubts
    bad = np.zeros(result.shape, np.bool_)
    if a is not None:
        bad |= np.any(a, axis=2, keepdims=True)
    if b is not None:
        bad |= b[np.arange(len(b))[:, None, None], where].any(axis=2)
    if c is not None:
        bad |= c
    kind: Any = UNSIGNED[width]
    found: Array = np.where(bad, kind((1 << width) - 1), kind(0))
    return found
