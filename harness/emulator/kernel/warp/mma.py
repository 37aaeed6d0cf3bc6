"""Products of small matrices with fragments in the registers of a warp (mma)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step, WriteSlot
from ptxdiff.emulator.errors import NotElementwise, OperandError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import elements
from ptxdiff.emulator.kernel.tensor_cores import Arithmetic, arithmetic
from ptxdiff.emulator.kernel.warp import fragments
from ptxdiff.emulator.kernel.warp.laid_out import TILES, FragmentLayout
from ptxdiff.emulator.kernel.warp.matrices import active_warps
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric import tensorcore
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.targets import AnyTarget
from ptxdiff.emulator.text.nodes import Instruction
from ptxdiff.emulator.text.types import TYPES
from ptxdiff.extras import installed


@dataclass(frozen=True)
class Tiles:
    """The tiles of any mma, in fragments. For d, a, b and c: tables of positions, bits of an element, registers of a
    lane."""

    tables: tuple[Array, Array, Array, Array]
    widths: tuple[int, int, int, int]
    counts: tuple[int, int, int, int]


@dataclass(frozen=True)
class Product(Tiles):
    """An mma. `layouts`: see `_layouts`."""

    arithmetic: Arithmetic
    layouts: tuple[FragmentLayout, ...] = ()

    @property
    def elsewhere(self) -> str:
        """The GPU generation whose model gives the bits, if hardware has confirmed only another generation."""
        return "" if self.arithmetic.confirmable else self.arithmetic.generation


def generation(target: AnyTarget | None) -> str:
    """The name of a target's GPU generation."""
    if target is None:
        return tensorcore.MEASURED
    return next((name for name, number in tensorcore.SINCE if not target.older_than(number)), "Volta")


def types_of(bound: Bound) -> tuple[str, str, str, str]:
    """The types of d, a, b and c."""
    chosen = bound.modifiers
    if "atype" not in chosen:
        return "s32", "b1", "b1", "s32"
    return chosen["dtype"] or "", chosen["atype"] or "", chosen["btype"] or "", chosen["ctype"] or ""


def _quads(bound: Bound) -> bool:
    """Whether it is m8n8k4 of float16, the only shape with a choice of layouts."""
    return "alayout" in bound.modifiers


def arithmetic_of(bound: Bound, target: AnyTarget | None) -> Arithmetic | None:
    """How a target computes a form; None if that is not known."""
    chosen = bound.modifiers
    word = chosen.get("rnd") or chosen.get("satfinite") or chosen.get("op") or ""
    return arithmetic(types_of(bound), generation(target), _quads(bound), word)


def shape_of(bound: Bound) -> tuple[int, int, int]:
    """The shape of a product: m, n and k."""
    m, rest = (bound.modifiers["shape"] or "")[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def tables_of(m: int, n: int, k: int, stored: int, widths: Sequence[int]) -> tuple[Array, Array, Array, Array]:
    """The positions of the elements of d, a, b and c. stored: how many columns of a are stored, of k. widths: bits."""
    return (
        fragments.of_c(m, n, widths[0]),
        fragments.of_a(m, stored, widths[1]),
        fragments.of_b(k, n, widths[2]),
        fragments.of_c(m, n, widths[3]),
    )


def bind_tiles(
    builder: KernelBuilder, node: Instruction, bound: Bound, types: Sequence[str], widths: Sequence[int],
    tables: Sequence[Array],
) -> tuple[Tiles, tuple[WriteSlot, ...], list[ReadSlot]]:  # fmt: skip
    """Bind the first four operands of any mma, d, a, b and c: their tiles, what it writes and what it reads.

    types: those of d, a, b and c.
    """
    counts = tuple(t.size // (32 * fragments.per_register(w)) for t, w in zip(tables, widths, strict=True))
    slots = [elements(builder, o, c) for o, c in zip(node.operands[:4], counts, strict=True)]
    kinds = [TYPES[_register(t)] for t in types]
    writers = tuple(builder.destination(e, kinds[0], bound) for e in slots[0])
    readers = [builder.read(e, kinds[i], False, f"element of {bound.spelling}") for i in (1, 2, 3) for e in slots[i]]
    return Tiles(tuple(tables), tuple(widths), counts), writers, readers  # type: ignore[arg-type]


def expect_row_col(builder: KernelBuilder, node: Instruction) -> None:
    """Raise OperandError unless a product is of a by rows and b by columns."""
    if [x for x in node.modifiers if x in ("row", "col")] != ["row", "col"]:
        raise builder.error(OperandError, f"{node.spelling}: a is .row and b is .col, in this order", node.offset)


def expect_arithmetic(builder: KernelBuilder, node: Instruction, bound: Bound, how: Arithmetic | None) -> Arithmetic:
    """The arithmetic of a product. Raises NotElementwise if that of the target is not known."""
    if how is None:
        message = f"{bound.spelling}: nothing is published about its arithmetic on {generation(builder.target)} GPUs"
        raise builder.error(NotElementwise, message, node.offset)
    return how


@binds("mma")
def _bind_mma(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 4)
    modifiers = bound.modifiers
    if not _quads(bound):
        expect_row_col(builder, node)
    m, n, k = shape_of(bound)
    types = types_of(bound)
    how = expect_arithmetic(builder, node, bound, arithmetic_of(bound, builder.target))
    widths = tuple(BITS[t] for t in types)
    if _quads(bound):
        layouts = (modifiers["alayout"] or "", modifiers["blayout"] or "")
        tables: tuple[Array, ...] = (
            fragments.of_quads(f"c{widths[0]}", ""),
            fragments.of_quads("a", layouts[0]),
            fragments.of_quads("b", layouts[1]),
            fragments.of_quads(f"c{widths[3]}", ""),
        )
    else:
        tables = tables_of(m, n, k, k, widths)
    tiles, writers, readers = bind_tiles(builder, node, bound, types, widths, tables)
    detail = Product(tiles.tables, tiles.widths, tiles.counts, how, _layouts(types, tables, how))
    return Step("mma", node, bound, tuple(readers), writers, detail=detail)


def _register(name: str) -> str:
    """The type of the registers that hold elements of a type."""
    return {"f64": "f64", "f32": "f32", "s32": "s32"}.get(name, "b32")


@runs("mma")
def _run_mma(frame: KernelFrame, step: Step, active: Array | None) -> None:
    product: Product = step.detail
    warps, lanes = active_warps(frame, step, active)
    if active is None and product.layouts and _run_laid_out(frame, step, product, product.layouts):
        return
    operands, doubts = factors(frame, step, warps, product.tables, product.widths, product.counts)
    result = product.arithmetic(*operands)
    width = product.widths[0]
    doubt = spread(doubts, result, width) if any(d is not None for d in doubts) else None
    scattered(frame, step.destinations, lanes, product.tables[0], width, result, doubt, active)


def _layouts(types: tuple[str, str, str, str], tables: Sequence[Array], how: Arithmetic) -> tuple[FragmentLayout, ...]:
    """The layouts of d, a, b and c for vectors whose lanes are tiles; empty for other arithmetic."""
    if how.way != "blocks" or how.model is None or tables[0].shape[2] >= TILES or len(tables[0]) > 1:
        return ()
    if not (installed("llvmlite") and installed("numba")):
        return ()
    (of_d, of_a, of_b, of_c), terms = (BITS[t] for t in types), how.model.terms
    down = FragmentLayout(tables[2], of_b, terms, down=True)
    return (
        FragmentLayout(tables[0], of_d),
        FragmentLayout(tables[1], of_a, terms),
        down,
        FragmentLayout(tables[3], of_c),
    )


def _run_laid_out(frame: KernelFrame, step: Step, product: Product, layouts: tuple[FragmentLayout, ...]) -> bool:
    """Compute a product of all warps whose tiles are the lanes of vectors.

    Returns False, with nothing changed, if the definition has to compute some of it, and for undefined bits.
    """
    from ptxdiff.emulator.numeric import tensorcore_vectors as vectors  # which loads LLVM

    how, lanes, kept = product.arithmetic, frame.lanes, frame.fragments
    of_d, of_a, of_b, of_c = layouts
    assert how.model is not None
    if not vectors.usable(how.types, how.model, len(of_a.widths)):
        return False
    slots = tuple(r.slot for r in step.sources)
    wide, first, second = vectors.wide_range(how.types), of_a.count, of_a.count + of_b.count
    key_of_c = slots[second:], how.types[3], of_c.shape
    # What an earlier product has left is not laid out in registers, and read from them again.
    c = None
    if all(slot >= 0 and frame.undefined[slot] is None for slot in slots[second:]):
        c = kept.found(key_of_c, tuple(frame.values.held(slot) for slot in slots[second:]))
    read = [frame.read(r) for r in (step.sources if c is None else step.sources[:second])]
    if any(mask is not None for _, mask in read):
        return False
    registers = tuple(v for v, _ in read)

    def factor(layout: FragmentLayout, some: slice, kind: str, axis: int) -> vectors.Factor:
        def made() -> vectors.Factor:
            return vectors.factor(layout.gathered(registers[some], lanes), kind, wide, axis, layout.widths)

        return kept.of((slots[some], kind, wide, axis, layout.shape), registers[some], made)

    a = factor(of_a, slice(first), how.types[1], 3)
    b = factor(of_b, slice(first, second), how.types[2], 2)
    if c is None:
        some = registers[second:]
        c = kept.of(key_of_c, some, lambda: of_c.gathered(some, lanes)[0])
    d, special = vectors.multiplied(a, b, c, how.types, how.model)
    if special.any():
        return False
    found = frame.write_later(step.destinations, lambda: of_d.scattered(d, lanes))
    if how.types[0] == how.types[3]:
        written = tuple(w.slot for w in step.destinations)
        kept.keep((written, how.types[3], of_c.shape), found, d)
    return True


def factors(
    frame: KernelFrame, step: Step, warps: Array, tables: Sequence[Array], widths: Sequence[int], counts: Sequence[int]
) -> tuple[list[Array], list[Array | None]]:
    """a, b and c of a product, each as `gathered`, from a step's first sources.

    tables, widths, counts: those of d, a, b and c, as in `Product`.
    """
    found = []
    at = 0
    for table, width, count in zip(tables[1:], widths[1:], counts[1:], strict=True):
        found.append(gathered(frame, step.sources[at : at + count], warps, table, width))
        at += count
    return [value for value, _ in found], [doubt for _, doubt in found]


def gathered(
    frame: KernelFrame, readers: Sequence[ReadSlot], warps: Array, table: Array, width: int
) -> tuple[Array, Array | None]:
    """An operand's elements as tiles x rows x columns of codes, and which of them have undefined bits (None: none)."""
    read = [frame.read(r) for r in readers]
    values = _elements([v for v, _ in read], frame.lanes, warps, width)
    found = values.take(table.reshape(-1), axis=1).reshape(-1, *table.shape[1:])
    if all(m is None for _, m in read):
        return found, None
    masks = [np.zeros((), UNSIGNED[r.width]) if m is None else m for (_, m), r in zip(read, readers, strict=True)]
    doubt = _elements(masks, frame.lanes, warps, width)
    return found, doubt[:, table.reshape(-1)].reshape(-1, *table.shape[1:]) != 0


def _elements(registers: Sequence[Array], lanes: int, warps: Array, width: int) -> Array:
    """The elements in registers, a row for each warp."""
    whole = np.empty((len(warps), len(registers), 32), np.result_type(*registers))
    some = len(warps) * 32 < lanes
    for number, register in enumerate(registers):
        each = np.broadcast_to(register, (lanes,)).reshape(-1, 32)
        whole[:, number] = each[warps] if some else each
    rows = whole.reshape(len(warps), -1)
    if width >= 8:
        return rows.view(UNSIGNED[width])
    octets = rows.view(np.uint8)
    if width == 1:
        return np.unpackbits(octets, axis=1, bitorder="little")
    return np.stack([octets & 15, octets >> 4], -1).reshape(len(octets), -1)


def scattered(
    frame: KernelFrame,
    writers: Sequence[WriteSlot],
    lanes: Array,
    table: Array,
    width: int,
    tiles: Array,
    doubt: Array | None,
    active: Array | None,
) -> None:
    """Write tiles of codes back to the registers that hold them."""
    order = np.empty(table.size, np.int64)
    order[table.reshape(-1)] = np.arange(table.size)
    columns = _registers(tiles, order, len(lanes) // 32, width)
    masks = None if doubt is None else _registers(doubt, order, len(lanes) // 32, width)
    for number, writer in enumerate(writers):
        mask = None if masks is None else np.ascontiguousarray(masks[:, number]).reshape(-1)
        value = np.ascontiguousarray(columns[:, number]).reshape(-1)
        frame.write_lanes(writer, value, mask, lanes, active)


def _registers(tiles: Array, order: Array, warps: int, width: int) -> Array:
    """The registers that hold the elements of tiles: warps x registers x lanes."""
    rows = tiles.astype(UNSIGNED[width], copy=False).reshape(warps, -1).take(order, axis=1)
    return rows.view(UNSIGNED[max(width, 32)]).reshape(warps, -1, 32)


def spread(doubts: Sequence[Array | None], result: Array, width: int) -> Array:
    """The masks of undefined bits of the results: a result that depends on an element with undefined bits is
    undefined."""
    a, b, c = doubts
    bad = np.zeros(result.shape, np.bool_)
    if a is not None:
        bad |= np.any(a, axis=2, keepdims=True)
    if b is not None:
        bad |= np.any(b, axis=1, keepdims=True)
    if c is not None:
        bad |= c
    kind: Any = UNSIGNED[width]
    found: Array = np.where(bad, kind((1 << width) - 1), kind(0))
    return found
