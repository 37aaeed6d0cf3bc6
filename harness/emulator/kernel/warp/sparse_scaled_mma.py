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
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import elements
from ptxdiff.emulator.kernel.warp import fragments
from ptxdiff.emulator.kernel.warp import scaled_mma as scaled
from ptxdiff.emulator.kernel.warp import sparse_mma as sparse
from ptxdiff.emulator.kernel.warp.matrices import active_warps
from ptxdiff.emulator.kernel.warp.mma import factors, scattered
from ptxdiff.emulator.kernel.warp.sparse_mma import Storage
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric import scaledproducts
from ptxdiff.emulator.numeric.scaledproducts import ScaledModel
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Immediate, Instruction
from ptxdiff.emulator.text.types import TYPES


@dataclass(frozen=True)
class SparseScaled:
    """One such mma. tables, widths, counts: for d, a, b and c, tables of positions, bits of an element, registers of a
    lane.

    types: of a, b and the scales. blocks: of k, each with a scale. storage: where the metadata lies.
    """

    tables: tuple[Array, Array, Array, Array]
    widths: tuple[int, int, int, int]
    counts: tuple[int, int, int, int]
    types: tuple[str, str, str]
    model: ScaledModel
    blocks: int
    storage: Storage

    @property
    def elsewhere(self) -> str:
        """The GPU generation on whose model the bits rest."""
        return "RTX Blackwell"


@binds("mma_sp_scaled")
def _bind(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """`d, a, b, c, metadata, selector, scales-of-a, {byte, thread}, scales-of-b, {byte, thread}`."""
    expect(builder, node, 10)
    if [x for x in node.modifiers if x in ("row", "col")] != ["row", "col"]:
        raise builder.error(OperandError, f"{node.spelling}: a is .row and b is .col, in this order", node.offset)
    selector = node.operands[5]
    if not isinstance(selector, Immediate) or selector.value != 0:
        message = f"{node.spelling}: the sparsity selector is the constant 0 (all threads of a group give metadata)"
        raise builder.error(OperandError, message, selector.offset)
    chosen = bound.modifiers
    k = int((chosen["shape"] or "").rpartition("k")[2])
    types = (chosen["atype"] or "", chosen["btype"] or "", chosen["stype"] or "")
    packed = k == 128  # two elements of 4 bits a byte; beside 8-bit ones each has a byte
    widths = (32, *(4 if packed else BITS[t] for t in types[:2]), 32)
    tables = (
        fragments.of_c(16, 8, 32), fragments.of_a(16, k // 2, widths[1]), fragments.of_b(k, 8, widths[2]),
        fragments.of_c(16, 8, 32),
    )  # fmt: skip
    counts = tuple(t.size // (32 * fragments.per_register(w)) for t, w in zip(tables, widths, strict=True))
    slots = [elements(builder, o, c) for o, c in zip(node.operands[:4], counts, strict=True)]
    kinds = [TYPES[t] for t in ("f32", "b32", "b32", "f32")]
    writers = tuple(builder.destination(e, kinds[0], bound) for e in slots[0])
    readers = [builder.read(e, kinds[i], False, f"element of {bound.spelling}") for i in (1, 2, 3) for e in slots[i]]
    readers.append(builder.read(node.operands[4], TYPES["b32"], False, f"metadata of {bound.spelling}"))
    readers += scaled.scale_operands(builder, node, bound, 6)
    place = sparse.storage("s4" if packed else types[0], k, 0)
    model = scaledproducts.BLACKWELL[scaled.kind_of(bound)]
    detail = SparseScaled(tables, widths, counts, types, model, scaled.blocks_of(bound), place)  # type: ignore[arg-type]
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
    result = np.empty_like(c)
    for tile, row in np.ndindex(*a.shape[:2]):
        result[tile, row] = multiplied(product, a[tile, row], b[tile, where[tile, row]], c[tile, row],
                                       of_rows[tile, row], of_columns[tile])  # fmt: skip
    doubt = sparse.doubted(doubts, where, result, 32) if any(d is not None for d in doubts) else None
    scattered(frame, step.destinations, lanes, product.tables[0], 32, result, doubt, active)


def multiplied(product: SparseScaled, a: Array, b: Array, c: Array, x: Array, y: Array) -> Array:
    """A row of d: of k/2 stored elements, the k/2 x n of b that they meet, and n of c; x: blocks, y: n x blocks."""
    rows = [np.ascontiguousarray(v) for v in (a[None], b.T, c[None], x[None], y)]
    found = scaledproducts.dot(rows[0], rows[1], rows[2], rows[3], rows[4], product.types, product.model)
    return np.asarray(found[0])
