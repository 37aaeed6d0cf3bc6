"""Sparse products in tensor memory (tcgen05.mma.sp): the layout of metadata, and the products (ISA 9.7.16.10.8).

Four bits of metadata for each chunk of a's row say which of its elements are stored, as in mma.sp. Rows are in the same
lanes as those of a. For formats of at most 8 bits, the chunks of a row are consecutive in two columns. For f16, bf16
and tf32, they are in one of the two columns from an even address on, which the sparsity selector chooses. A word there
holds four chunks of a row and, in its upper half, four of the row 8 below; the lane 8 below holds the next four chunks.

With `.ws` the rows take as many lanes, and every other group of that many lanes has a copy of the metadata.

A scale applies to as many stored elements as in a dense product, and so to twice as many columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxdiff.ptx.binding.program import Step
from ptxdiff.ptx.errors import ExecutionError
from ptxdiff.ptx.kernel import sparse, tensoroperands
from ptxdiff.ptx.kernel.frame import KernelFrame
from ptxdiff.ptx.kernel.multiply import Arithmetic
from ptxdiff.ptx.kernel.tensormemory import CELLS, COLUMNS
from ptxdiff.ptx.numeric import scaledproducts
from ptxdiff.ptx.numeric.scaledproducts import ScaledModel
from ptxdiff.ptx.numeric.vectorise import Array

_CHUNK = {"tf32": 2, "mxf4": 8, "mxf4nvf4": 8}
"""Columns of a chunk, by kind; 4 for kinds not listed."""
LEGAL = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110)
"""The valid values of four metadata bits; for tf32 only the first and the last."""


@dataclass(frozen=True)
class Shape:
    """The shape of a product in one block: kind, rows of a, k, and whether it is weight stationary (.ws)."""

    kind: str
    rows: int
    k: int
    ws: bool = False


@cache
def places(of: Shape) -> tuple[Array, Array, Array]:
    """Lane, column and lowest bit of every chunk's metadata, rows x chunks, relative to the first; see the module."""
    kind, rows, k = of.kind, of.rows, of.k
    row, chunk = np.meshgrid(np.arange(rows), np.arange(k // _CHUNK.get(kind, 4)), indexing="ij")
    spread = row // 16 * (16 if rows == 128 or of.ws else 32)
    if kind in ("f16", "tf32"):
        return spread + row % 8 + chunk // 4 * 8, 0 * row, row // 8 % 2 * 16 + chunk % 4 * 4
    return spread + row % 16, chunk // 8, chunk % 8 * 4


def cells_of(frame: KernelFrame, step: Step, lane: int, given: int, shape: Shape, selector: int, block: int) -> Array:
    """The cells of every chunk's metadata, copies x rows x chunks. Raises ExecutionError, MemoryFault."""
    if given & 1:
        text = f"the metadata of {frame.who(lane)} begins at column {given & 0xFFFF} of tensor memory, an odd one: "
        raise frame.fault(ExecutionError, step, text + "two columns are chosen from, or taken")
    lanes, columns, _ = places(shape)
    columns = columns + (selector if shape.kind in ("f16", "tf32") else 0)
    copies = np.arange(0, 128, shape.rows if shape.ws else 128)[:, None, None]
    columns = np.broadcast_to(columns, (len(copies), *columns.shape))
    some = tensoroperands.cells(frame, step, lane, given, lanes + copies, columns, "the metadata", block)
    tensoroperands.refuse_unwritten(frame, step, lane, some, "metadata")
    return some


def columns_of(frame: KernelFrame, step: Step, lane: int, some: Array, shape: Shape) -> Array:
    """The column of each stored element, rows x k/2, from cells of metadata. Raises ExecutionError, UndefinedBits."""
    kind = shape.kind
    memory, bits = frame.tensor.memory, places(shape)[2].astype(np.uint32)
    if (memory.undefined[some] >> bits & np.uint32(15)).any():
        frame.refuse_undefined(step, np.ones(1, np.uint32), np.array([lane]), "the metadata of a sparse matrix")
    copies = (memory.words[some] >> bits & np.uint32(15)).astype(np.int64)
    torn = copies != copies[0]
    if torn.any():
        copy, row, chunk = (int(x[0]) for x in np.nonzero(torn))
        text = f"metadata of row {row} differs between {frame.tensor.place(int(some[0, row, chunk]))} and lane "
        text += f"{int(some[copy, row, chunk]) % CELLS // COLUMNS}: with .ws each {shape.rows} lanes have the same"
        raise frame.fault(ExecutionError, step, text)
    chunks, some = copies[0], some[0]
    legal = (LEGAL[0], LEGAL[-1]) if kind == "tf32" else LEGAL
    bad = ~np.isin(chunks, legal)
    if bad.any():
        row, chunk = (int(x[0]) for x in np.nonzero(bad))
        text = f"{frame.tensor.place(int(some[row, chunk]))} has metadata 0b{int(chunks[row, chunk]):04b} for columns "
        text += (
            f"from {chunk * _CHUNK.get(kind, 4)} of row {row} of the a of {frame.who(lane)}: it means nothing, only "
        )
        raise frame.fault(ExecutionError, step, f"{text}{', '.join(f'0b{x:04b}' for x in legal)} do")
    run = 2 if kind.startswith("mxf4") else 1
    place = sparse.Storage(chunks, chunks, _CHUNK.get(kind, 4), run, kind == "tf32")
    return np.asarray(sparse.kept(chunks[None], place)[0])


def product(how: Arithmetic, a: Array, b: Array, c: Array, where: Array) -> Array:
    """The codes of d, m x n, from stored elements, m x k/2, at columns `where`, and b, n x k."""
    return np.asarray(sparse.multiplied(how, a[None], np.ascontiguousarray(b.T)[None], c[None], where[None])[0])


def doubts(
    a: Array | None, b: Array | None, c: Array | None, of_scales: list[Array | None], where: Array, result: Array
) -> Array:
    """The masks of undefined bits of the results: a result that depends on an undefined element or scale is
    undefined."""
    parts = [None if x is None else x[None] for x in (a, None if b is None else b.T, c)]
    found = sparse.doubted(parts, where[None], result[None], 32)[0]
    for number, scales in enumerate(of_scales):
        if scales is not None:
            bad = np.where(scales.any(axis=1), np.uint32(0xFFFFFFFF), np.uint32(0))
            found = found | (bad[None] if number else bad[:, None])
    return np.asarray(found)


def scaled(
    a: Array, b: Array, c: Array, factors: list[Array], types: tuple[str, str, str], model: ScaledModel, where: Array
) -> Array:
    """Like `product`, with scales m x blocks and n x blocks. Each row of a uses different rows of b."""
    found = [
        scaledproducts.dot(
            a[i : i + 1],
            np.ascontiguousarray(b[:, where[i]]),
            c[i : i + 1],
            factors[0][i : i + 1],
            factors[1],
            types,
            model,
        )
        for i in range(len(a))
    ]
    return np.concatenate(found)
