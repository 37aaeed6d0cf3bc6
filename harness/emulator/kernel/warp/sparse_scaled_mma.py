"""Products of a sparse, block-scaled matrix by a dense one (mma.sp with .block_scale).

As `sparse`, with the scales of `scaled`: each of a row's scales is for its share of all k columns, stored or not (ISA
9.7.14.3), so for so many stored elements half as many. e2m1 two to a byte is chosen in pairs, as integers of 4 bits
are; with one to a byte any two of four. Sixteen stored products of e2m1 alone are summed before they are scaled: how
many tensor cores take at once is published for dense products alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import OperandError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel import products_in_vectors
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.warp import scaled_mma as scaled
from ptxdiff.emulator.kernel.warp import sparse_mma as sparse
from ptxdiff.emulator.kernel.warp.matrices import active_warps
from ptxdiff.emulator.kernel.warp.mma import factors, scattered, shape_of
from ptxdiff.emulator.kernel.warp.scaled_mma import BlockScaled
from ptxdiff.emulator.kernel.warp.sparse_mma import Storage
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric import scaledproducts
from ptxdiff.emulator.numeric.scaledproducts import ScaledModel
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Immediate, Instruction
from ptxdiff.emulator.text.types import TYPES


@dataclass(frozen=True)
class SparseScaled(BlockScaled):
    """One such mma. storage: where the metadata lies."""

    storage: Storage


@binds("mma_sp_scaled")
def _bind(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """`d, a, b, c, metadata, selector, scales-of-a, {byte, thread}, scales-of-b, {byte, thread}`."""
    expect(builder, node, 10)
    selector = node.operands[5]
    if not isinstance(selector, Immediate) or selector.value != 0:
        message = f"{node.spelling}: the sparsity selector is the constant 0 (all threads of a group give metadata)"
        raise builder.error(OperandError, message, selector.offset)
    k = shape_of(bound)[2]
    packed = k == 128  # two elements of 4 bits a byte; beside 8-bit ones each has a byte
    tiles, types, writers, readers = scaled.bind_scaled_tiles(builder, node, bound, packed, k // 2)
    readers.append(builder.read(node.operands[4], TYPES["b32"], False, f"metadata of {bound.spelling}"))
    readers += scaled.scale_operands(builder, node, bound, 6)
    place = sparse.storage("s4" if packed else types[0], k, 0)
    model = scaledproducts.BLACKWELL[scaled.kind_of(bound)]
    blocks = scaled.blocks_of(bound)
    detail = SparseScaled(tiles.tables, tiles.widths, tiles.counts, types, model, blocks, place)
    return Step("mma_sp_scaled", node, bound, tuple(readers), writers, detail=detail)


@runs("mma_sp_scaled")
def _run(frame: KernelFrame, step: Step, active: Array | None) -> None:
    product: SparseScaled = step.detail
    warps, lanes = active_warps(frame, step, active)
    operands, doubts = factors(frame, step, warps, product.tables, product.widths, product.counts)
    at = sum(product.counts[1:])
    where = sparse.columns(frame, step, step.sources[at], warps, product.storage, True)
    of_rows, of_columns = scaled.scales_of(frame, step, warps, at + 1)
    a, b, c = (np.ascontiguousarray(x, np.uint32) for x in operands)
    if product.widths[1] == 4:
        a, b = a << np.uint32(2), b << np.uint32(2)  # where codes of 4 bits stand in a byte
    columns = np.ascontiguousarray(b.transpose(0, 2, 1))
    result = products_in_vectors.sparse_scaled_tiles(
        a, columns, c, [of_rows, of_columns], product.types, product.model, where, multiplied
    )
    doubt = sparse.doubted(doubts, where, result, 32) if any(d is not None for d in doubts) else None
    scattered(frame, step.destinations, lanes, product.tables[0], 32, result, doubt, active)


def multiplied(
    a: Array, b: Array, c: Array, factors: list[Array], types: tuple[str, str, str], model: ScaledModel, where: Array
) -> Array:  # fmt: skip
    """The definition: d of stored elements, t x m x k/2, at columns `where`, of t x n x k, and of t x m x n.

    factors: t x m x blocks, t x n x blocks. Each row of a meets other rows of b.
    """
    result = np.empty_like(c)
    for tile, row in np.ndindex(*a.shape[:2]):
        one, met = a[tile, row][None], np.ascontiguousarray(b[tile][:, where[tile, row]])
        scales = factors[0][tile, row][None]
        result[tile, row] = scaledproducts.dot(one, met, c[tile, row][None], scales, factors[1][tile], types, model)[0]
    return result
