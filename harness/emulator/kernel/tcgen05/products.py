"""Products, dense and sparse, by the tensor cores of one block or of a pair, in tensor memory (tcgen05.mma; ISA
9.7.16.10)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, NotElementwise, OperandError, UnsupportedOnTarget
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel import products_in_vectors
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import address
from ptxdiff.emulator.kernel.tcgen05 import instruction_descriptors, operands
from ptxdiff.emulator.kernel.tcgen05 import operands as tensoroperands
from ptxdiff.emulator.kernel.tcgen05.in_flight import NONE, Work
from ptxdiff.emulator.kernel.tcgen05.instruction_descriptors import LONGER, InstructionDescriptor, Longer
from ptxdiff.emulator.kernel.tcgen05.memory import CELLS, COLUMNS
from ptxdiff.emulator.kernel.tcgen05.operands import (
    BITS,
    Accumulator,
    Codes,
    TensorOperand,
    accumulator,
    codes,
    read_of_blocks,
    store,
    values,
    write_of_blocks,
)
from ptxdiff.emulator.kernel.tcgen05.pairs import members, of_a_pair
from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.kernel.warp import sparse_mma
from ptxdiff.emulator.kernel.warp.mma import spread
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric import scaledproducts
from ptxdiff.emulator.numeric.scaledproducts import BLACKWELL, ScaledModel
from ptxdiff.emulator.numeric.tensorcore import MODELS, Model
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.targets import requirement
from ptxdiff.emulator.text.nodes import Address, Immediate, Instruction, Operand, Vector
from ptxdiff.emulator.text.types import TYPES

_GENERATED = 1 << 39
_SHIFT = 63 << 56
_RESERVED = 7 << 36 | 3 << 62
"""Bits of the descriptor of zero columns: whether there is a mask, by how much b's columns shift, and reserved ones."""


def pop_masks(
    builder: KernelBuilder, node: Instruction, bound: Bound, operands: list[Operand], pair: bool
) -> list[ReadSlot]:
    """Remove the mask from a product's operands without metadata and scale-input-d; its registers, or none.

    Raises OperandError for a wrong number of operands or of elements.
    """
    ws, scaled = "ws" in node.modifiers, "block_scale" in node.modifiers
    lanes = [] if ws or scaled or len(operands) != 6 or not isinstance(operands[4], Vector) else [operands.pop(4)]
    columns = [operands.pop()] if ws and not scaled and len(operands) == 6 else []
    if len(operands) != (7 if scaled else 5):
        counts = (7,) if scaled else (5, 6) if ws else (5, 6, 7)
        expect(builder, node, *(count + ("sp" in node.modifiers) for count in counts))
    if lanes:
        parts = builder.elements(lanes[0], 8 if pair else 4)
        return [builder.read(part, TYPES["b32"], False, "disable-output-lane") for part in parts]
    return [builder.read(one, TYPES["b64"], False, f"a mask of {bound.spelling}") for one in columns]


def written_elements(frame: KernelFrame, step: Step, lane: int, lanes: Array, masks: list[int]) -> Array | None:
    """Which elements of d are written, from the lane of each; None: all. Raises ExecutionError, see the module."""
    if len(masks) == 4:
        whole = sum(mask << 32 * number for number, mask in enumerate(masks))
        off = np.array([whole >> number & 1 for number in range(128)], np.bool_)
        return np.asarray(~off[lanes])
    if len(masks) == 8 and any(masks):
        text = f"{frame.who(lane)} disables lanes of d of a pair of blocks: the ISA says that 256 bits mask them, and "
        raise frame.fault(ExecutionError, step, text + "not which bits are those of which block; a mask of 0 runs")
    if len(masks) == 1 and masks[0] & _RESERVED:
        text = (
            f"{frame.who(lane)} gives the mask 0x{masks[0]:016x} of columns of b that are zero: its bits 36 to 38, 62 "
        )
        raise frame.fault(ExecutionError, step, text + "and 63 are reserved")
    if len(masks) == 1 and masks[0] & (_GENERATED | _SHIFT):
        text = f"{frame.who(lane)} gives the mask 0x{masks[0]:016x} of columns of b that are zero: the ISA's table "
        text += "calls the use span that of zeros, and its examples take it for that of b's columns; a mask whose bit "
        raise frame.fault(ExecutionError, step, text + "39 is 0 and whose shift is 0 runs: no column is zero then")
    return None


def collected(frame: KernelFrame, step: Step, lane: int, block: int, of: TensorOperand, codes: Array, ws: bool) -> None:
    """Record a product's use of a buffer of a block, or of a pair's first block. Raises ExecutionError for a wrong
    hint.

    codes: those of a; with ws those of b. A product without a hint discards the buffer (of b's buffers, the first).
    """
    hint = step.bound.modifiers.get("collector") or f"collector::{'b0' if ws else 'a'}::discard"
    _, buffer, use = hint.split("::")
    kept = frame.tensor.collectors.pop((block, buffer), None)
    if use in ("use", "lastuse"):
        if kept is None:
            text = f"{frame.who(lane)} uses the collector buffer {buffer}, in which nothing is: "
            text += f".collector::{buffer}::fill comes before, and no product without ::use between"
            raise frame.fault(ExecutionError, step, text)
        what, matrix, line = kept
        if what != of.type or matrix.shape != codes.shape or not np.array_equal(matrix, codes):
            text = (
                f"{frame.who(lane)} uses the collector buffer {buffer}, which has another {of.name} since the product "
            )
            raise frame.fault(ExecutionError, step, f"{text}in line {line}: hardware may take either")
    if use in ("fill", "use"):
        frame.tensor.collectors[block, buffer] = (of.type, codes, frame.tensor.line(step))


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
    some = operands.cells(frame, step, lane, given, lanes + copies, columns, "the metadata", block)
    operands.refuse_unwritten(frame, step, lane, some, "metadata")
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
    place = sparse_mma.Storage(chunks, chunks, _CHUNK.get(kind, 4), run, kind == "tf32")
    return np.asarray(sparse_mma.kept(chunks[None], place)[0])


def sparse_product(how: Arithmetic, a: Array, b: Array, c: Array, where: Array) -> Array:
    """The codes of d, m x n, from stored elements, m x k/2, at columns `where`, and b, n x k."""
    tiles = a[None], np.ascontiguousarray(b.T)[None], c[None], where[None]
    return np.asarray(products_in_vectors.sparse(how, *tiles, sparse_mma.multiplied)[0])


def sparse_doubts(
    a: Array | None, b: Array | None, c: Array | None, of_scales: list[Array | None], where: Array, result: Array
) -> Array:
    """The masks of undefined bits of the results: a result that depends on an undefined element or scale is
    undefined."""
    parts = [None if x is None else x[None] for x in (a, None if b is None else b.T, c)]
    found = sparse_mma.doubted(parts, where[None], result[None], 32)[0]
    for number, scales in enumerate(of_scales):
        if scales is not None:
            bad = np.where(scales.any(axis=1), np.uint32(0xFFFFFFFF), np.uint32(0))
            found = found | (bad[None] if number else bad[:, None])
    return np.asarray(found)


def sparse_scaled_product(
    a: Array, b: Array, c: Array, factors: list[Array], types: tuple[str, str, str], model: ScaledModel, where: Array
) -> Array:
    """Like `sparse_product`, with scales m x blocks and n x blocks. Each row of a uses different rows of b."""
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


GENERATION = "Blackwell"
_FLOATS = {
    "f16": MODELS[GENERATION]["f16"], "tf32": MODELS[GENERATION]["tf32"], "f8f6f4": Model(25, 32, -133, -21),
}  # fmt: skip
"""By kind, from MMA-Sim, arXiv 2511.10909, tcgen05.mma. Unlike `mma`, it does not widen 8-bit floats."""
_DIVIDES = requirement("100f")
"""Targets with scale-input-d (ISA 9.7.16.10.9.1)."""
_LATER = requirement("107f")
"""Targets with ue4m3 scales of 32 elements, and with other metadata of 4 bits (ISA 9.7.16.10.7.1, 9.7.16.10.8.3)."""


@dataclass(frozen=True)
class TensorProduct:
    """The operands of a tcgen05.mma. `shift`: d is divided by 2^shift.

    `places`: displacements of the addresses of d, a, the scales and a sparse a's metadata; None for an operand without
    address. `pair`: two blocks work together. `longer`: bits of descriptors that only some targets have, this one too.
    `later`: the target is of the family of sm_107.
    """

    kind: str
    ws: bool
    block: int
    shift: int
    places: tuple[int | None, ...]
    pair: bool = False
    sparse: bool = False
    longer: tuple[Longer, ...] = ()
    later: bool = False


@binds("tcgen05_mma")
def _bind_mma(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """`[d], a, b, idesc, {[scale a], [scale b] | {masks}}, enable-d{, shift}`; for a sparse a, `[metadata]` after b."""
    pair = of_a_pair(builder, node, bound)
    sparse = "sp" in node.modifiers
    kind = (bound.modifiers["kind"] or "").removeprefix("kind::")
    scaled, ws = "block_scale" in node.modifiers, "ws" in node.modifiers
    operands = list(node.operands)
    metadata = [operands.pop(3)] if sparse and len(operands) > 3 else []
    shift = 0
    if not scaled and not ws and len(operands) > 5 and isinstance(last := operands[-1], Immediate):
        shift = _shift(builder, last, kind)
        operands.pop()
    masks = pop_masks(builder, node, bound, operands, pair)
    readers, places = [], list[int | None]()
    for number, operand in enumerate(operands[:-1]):
        if number in (0, 4, 5) or (number == 1 and isinstance(operand, Address)):
            base, displacement = address(builder, operand, "tensor")
            readers.append(base)
            places.append(displacement)
        else:
            width = "b32" if number == 3 else "b64"
            readers.append(builder.read(operand, TYPES[width], False, f"a descriptor of {bound.spelling}"))
            places.append(None)
    for operand in metadata:
        base, displacement = address(builder, operand, "tensor")
        readers.append(base)
        places.append(displacement)
    readers.append(builder.read(operands[-1], TYPES["pred"], False, "enable-input-d"))
    readers += masks
    block = instruction_descriptors.SCALE_BLOCKS[kind, bound.modifiers.get("size")] if scaled else 0
    dense = () if sparse else LONGER.get(kind, ())
    longer = tuple(x for x in dense if builder.target and builder.target.has(x.targets))
    later = bool(builder.target and builder.target.has(_LATER))
    detail = TensorProduct(kind, ws, block, shift, tuple(places), pair, sparse, longer, later)
    return Step("tcgen05_mma", node, bound, tuple(readers), (), detail=detail)


def _shift(builder: KernelBuilder, operand: Immediate, kind: str) -> int:
    if not isinstance(operand.value, int) or not 0 <= operand.value <= 15:
        raise builder.error(OperandError, "scale-input-d is a constant from 0 to 15", operand.offset)
    if kind not in ("f16", "tf32"):
        raise builder.error(OperandError, f"products of .kind::{kind} have no scale-input-d", operand.offset)
    if builder.target and not builder.target.has(_DIVIDES):
        text = f"scale-input-d requires sm_100f or a later target of its family, not {builder.target}"
        raise builder.error(UnsupportedOnTarget, text, operand.offset)
    return operand.value


@runs("tcgen05_mma")
def _run_mma(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = frame.every if active is None else np.flatnonzero(active)
    given = values(frame, step, step.sources, lanes)
    if _together(frame, step, lanes, given):
        return
    for lane, own in zip(lanes.tolist(), given, strict=True):
        run_product(frame, step, lane, own)


def _together(frame: KernelFrame, step: Step, lanes: Array, given: list[list[int]]) -> bool:
    """Compute dense products of small floats that threads of consecutive blocks issue with the same operands, at once.

    Returns False, with nothing changed, for others, and if anything may be wrong or undefined: `_product` then decides,
    one thread after the other. Errors of operands are those of the first thread.
    """
    found: TensorProduct = step.detail
    tensor, memory, shared, count = frame.tensor, frame.tensor.memory, frame.shared, len(lanes)
    if count < 2 or not tensor.fast or frame.observer is not None or found.kind not in _FLOATS or found.shift:
        return False
    if found.pair or found.ws or found.sparse or found.block or len(given[0]) != len(found.places) + 1:
        return False
    hint = step.bound.modifiers.get("collector")
    blocks = frame.block[lanes]
    first, lane = int(blocks[0]), int(lanes[0])
    if hint not in (None, "collector::a::discard") or any(own != given[0] for own in given):
        return False
    if not np.array_equal(blocks, np.arange(first, first + count)):
        return False
    at = [x + (p or 0) for x, p in zip(given[0], found.places, strict=False)]
    what, enabled = _decoded(frame, step, lane, at[3]), bool(given[0][-1])
    _refuse_base(frame, step, lane, at[0], what.m, False)
    a = TensorOperand("a", what.m, what.stored, what.a, what.across_a)
    b = TensorOperand("b", what.n, what.k, what.b, what.across_b)
    shape = what.m, what.n
    d = [
        accumulator(frame, step, one, at[0], shape, False, block)
        for one, block in zip(lanes.tolist(), blocks.tolist(), strict=True)
    ]
    low = np.uint32(0xFFFF if what.d == "f16" else 0xFFFFFFFF)
    of_d = first, count, at[0], shape, what.d
    kept = memory.kept(*of_d)
    if not enabled:
        c = np.zeros((count, *shape), np.uint32)
    elif kept is not None:
        c = kept
    else:
        c = read_of_blocks(d, memory.words) & low
        if (read_of_blocks(d, memory.undefined) & low).any():
            return False
    apart = np.arange(count)[:, None]
    a_cells = None
    if found.places[1] is not None:
        _refuse_other_lane(frame, step, lane, at[1], at[0], "a")
        of_first = _a_in_cells(frame, step, lane, at[1], a, False, first)
        a_cells = of_first.reshape(1, -1) + apart * CELLS
        if memory.undefined[a_cells].any():
            return False
    in_shared = [(at[1], a)] * (a_cells is None) + [(at[2], b)]
    offsets, data = [], []
    for code, operand in in_shared:
        of_first = tensoroperands.shared_offsets(frame, step, lane, code, operand, first)
        some = of_first[None] + apart * shared.size
        chunks = some.reshape(-1) // 16
        if shared.undefined.reshape(-1, 16).take(chunks, axis=0).view(np.uint64).any():
            return False
        if shared.swizzles is not None:
            kinds = shared.swizzles.take(chunks)
            if ((kinds != 0) & (kinds != tensoroperands.swizzle_of(code))).any():
                return False
        offsets.append(some)
        octets = shared.bytes.reshape(-1, 16).take(chunks, axis=0)
        data.append(tensoroperands.arranged_of_blocks(tensoroperands.unpacked(octets, operand), operand, count))
    if not tensor.issue_together(
        step, lanes, [one.flat for one in d], a_cells, offsets, (at[0], what.m, what.n, False)
    ):  # fmt: skip
        return False
    if a_cells is not None:
        codes_of = [tensoroperands.from_cells(frame, own.reshape(what.m, -1), a)[0] for own in a_cells]
        data.insert(0, np.stack(codes_of))
    for block in blocks.tolist():
        tensor.collectors.pop((block, "a"), None)
    x, y = _signed(data[0], what.a, what.negate_a), _signed(data[1], what.b, what.negate_b)
    result = np.asarray(_arithmetic(found, what)(x, np.ascontiguousarray(y.transpose(0, 2, 1)), c))
    write_of_blocks(d, memory.words, result)
    if kept is None:
        write_of_blocks(d, memory.undefined, np.broadcast_to(~low, result.shape))
    memory.keep(result, *of_d)
    return True


def _arithmetic(found: TensorProduct, what: InstructionDescriptor) -> Arithmetic:
    return Arithmetic((what.d, what.a, what.b, what.d), "blocks", _FLOATS[found.kind], GENERATION)


def _decoded(frame: KernelFrame, step: Step, lane: int, code: int) -> InstructionDescriptor:
    """The descriptor. Raises ExecutionError if it is invalid, and NotElementwise if the target has such products and
    the emulator does not."""
    found: TensorProduct = step.detail
    what = f"the instruction descriptor 0x{code:08x} of {frame.who(lane)}"
    for one in found.longer:
        if code >> one.bit & 1:
            text = f"bit {one.bit} makes k {one.k} without .sp, and no published model says how so many terms are added"
            raise frame.fault(NotElementwise, step, f"{what}: {text}")
    if found.later and found.sparse and found.kind.startswith("mxf4"):
        if code >> 12 & 1:
            raise frame.fault(
                NotElementwise, step, f"{what}: the emulator does not run the sparsity of sm_107 (bit 12)"
            )
        text = "bit 12 (sparsity version) is 0, which is undefined on sm_107"
        raise frame.fault(ExecutionError, step, f"{what}: {text}")
    decoded = instruction_descriptors.decoded(code, found.kind, found.ws, found.block, found.pair, found.sparse)
    if isinstance(decoded, str):
        raise frame.fault(ExecutionError, step, f"{what}: {decoded}")
    if decoded.scale == "ue4m3" and decoded.block == 32 and not found.later:
        text = "scales of ue4m3 for 32 elements each are undefined before sm_107f; use .block16, or ue8m0 (bit 23)"
        raise frame.fault(ExecutionError, step, f"{what}: {text}")
    return decoded


def run_product(frame: KernelFrame, step: Step, lane: int, given: list[int]) -> None:
    """Compute a product issued by one thread. A pair computes two products, each of half of a's rows and all of b."""
    found: TensorProduct = step.detail
    at = [x + (p or 0) for x, p in zip(given, found.places, strict=False)]
    what = _decoded(frame, step, lane, at[3])
    blocks = members(frame, step, lane, found.pair)
    rows = what.m // len(blocks)
    halves = found.ws or (found.pair and rows == 64 and not found.sparse)
    _refuse_base(frame, step, lane, at[0], rows, halves)
    enabled, *masks = given[len(found.places) :]
    a = TensorOperand("a", rows, what.stored, what.a, what.across_a, found.kind.startswith("mxf4"))
    b = TensorOperand("b", what.n // len(blocks), what.k, what.b, what.across_b, found.kind.startswith("mxf4"))
    parts = []
    for block in blocks:
        d = accumulator(frame, step, lane, at[0], (rows, what.n), halves, block)
        in_cells = None
        if found.places[1] is not None:
            _refuse_other_lane(frame, step, lane, at[1], at[0], "a")
            in_cells = _a_in_cells(frame, step, lane, at[1], a, halves, block)
        of_scales = _scales(frame, step, lane, at[4:6] if what.block else [], (rows, what.n), halves, block)
        metadata = None
        if found.sparse:
            _refuse_other_lane(frame, step, lane, at[-1], at[0], "metadata")
            shape = Shape(found.kind, rows, what.k, found.ws)
            metadata = cells_of(frame, step, lane, at[-1], shape, what.selector, block)
        parts.append(Part(block, d, in_cells, of_scales, metadata))
    to = written_elements(frame, step, lane, parts[0].d.lanes, masks)
    written = [part.d.flat if to is None else part.d.cells[to] for part in parts]
    for part, some in zip(parts, written, strict=True):
        if enabled and part.d.read(frame.tensor.memory.undefined).any():
            tensoroperands.refuse_unwritten(frame, step, lane, some, "d")
    read = [x.reshape(-1) for part in parts for x in (part.a, *part.scales, part.metadata) if x is not None]
    whole = written[0] if len(written) == 1 else np.concatenate(written)
    work = frame.tensor.issue(
        step, lane, whole, np.concatenate(read) if read else NONE, accumulator=(at[0], what.m, what.n, halves)
    )
    left = [_matrix(frame, step, lane, at[1], a, part.a, work, part.block) for part in parts]
    right = _joined([_matrix(frame, step, lane, at[2], b, None, work, part.block) for part in parts])
    kept = (b, right) if found.ws else (a, _joined(left))
    collected(frame, step, lane, blocks[0], kept[0], kept[1][0], found.ws)
    for part, own in zip(parts, left, strict=True):
        _part(frame, step, lane, what, part, own, right, bool(enabled), to)


@dataclass(frozen=True)
class Part:
    """The parts of a product in one block: accumulator, cells of a (None: a is in shared memory), scales, metadata."""

    block: int
    d: Accumulator
    a: Array | None
    scales: list[Array]
    metadata: Array | None = None


def _part(
    frame: KernelFrame, step: Step, lane: int, what: InstructionDescriptor, part: Part, left: Codes, right: Codes,
    enabled: bool, to: Array | None,
) -> None:  # fmt: skip
    """The parts of one block."""
    found: TensorProduct = step.detail
    c: Codes = np.zeros(part.d.cells.shape, np.uint32), None
    if enabled:
        c = codes(frame, part.d, what.d)
        c = (_divided(frame, step, lane, c[0], what.d, 2.0**-found.shift), c[1]) if found.shift else c
    factors = [
        tensoroperands.scales(frame, step, lane, some, first, what.stored // what.block, f"the scale of {name}")
        for some, first, name in zip(part.scales, (what.part_a, what.part_b), "ab", strict=False)
    ]
    x = _signed(left[0], what.a, what.negate_a)
    y = _signed(right[0], what.b, what.negate_b)
    where = None
    if part.metadata is not None:
        shape = Shape(found.kind, len(part.d.cells), what.k, found.ws)
        where = columns_of(frame, step, lane, part.metadata, shape)
    result = _computed(found, what, x, y, c[0], [f for f, _ in factors], where)
    if where is None:
        doubts = _doubts(left[1], right[1], c[1], [m for _, m in factors], result)
    else:
        doubts = sparse_doubts(left[1], right[1], c[1], [m for _, m in factors], where, result)
    store(frame, part.d, result, doubts, what.d, to)


def _joined(parts: list[Codes]) -> Codes:
    """The rows of a, or columns of b, of all blocks, concatenated."""
    if len(parts) == 1:
        return parts[0]
    doubts = None
    if any(d is not None for _, d in parts):
        doubts = np.concatenate([np.zeros(c.shape, np.bool_) if d is None else d for c, d in parts])
    return np.concatenate([c for c, _ in parts]), doubts


def _doubts(a: Array | None, b: Array | None, c: Array | None, scales: list[Array | None], result: Array) -> Array:
    """The masks of undefined bits of the results: a result that depends on an undefined element or scale is
    undefined."""
    rows, columns = (_of_rows(x, y) for x, y in zip((a, b), scales or [None, None], strict=True))
    if rows is None and columns is None and c is None:
        return np.zeros(result.shape, np.uint32)
    parts = [
        None if rows is None else rows[None],
        None if columns is None else columns[None].transpose(0, 2, 1),
        None if c is None else c[None],
    ]
    return np.asarray(spread(parts, result[None], 32)[0])


def _of_rows(of_elements: Array | None, of_scales: Array | None) -> Array | None:
    """Which rows depend on undefined bits of elements or scales: rows x 1, or rows x k."""
    if of_scales is None:
        return of_elements
    rows = np.asarray(of_scales.any(axis=1, keepdims=True))
    return rows if of_elements is None else np.asarray(rows | of_elements.any(axis=1, keepdims=True))


def _refuse_other_lane(frame: KernelFrame, step: Step, lane: int, given: int, d: int, name: str) -> None:
    """Raise ExecutionError unless a or metadata begins at d's lane (ISA 9.7.16.10.5)."""
    if given >> 16 != d >> 16:
        text = f"{frame.who(lane)}: {name} begins at lane {given >> 16} of tensor memory, and d at lane {d >> 16}"
        raise frame.fault(ExecutionError, step, f"{text}; they must be equal")


def _refuse_base(frame: KernelFrame, step: Step, lane: int, given: int, m: int, ws: bool) -> None:
    base = given >> 16
    allowed = (0, 16) if m == 64 and not ws else (0,)
    if base not in allowed:
        text = (
            f"{frame.who(lane)}: a matrix of {m} rows begins at lane {' or '.join(map(str, allowed))} of tensor memory"
        )
        raise frame.fault(ExecutionError, step, f"{text}, not at lane {base}")


def _a_in_cells(
    frame: KernelFrame, step: Step, lane: int, given: int, a: TensorOperand, halves: bool, block: int
) -> Array:
    """The cells of a. halves: d's columns lie in halves or quarters of the lanes."""
    copies = 128 // a.rows if halves else 1
    if a.across:
        raise frame.fault(ExecutionError, step, "a in tensor memory is K-major (bit 15 of the instruction descriptor)")
    _refuse_base(frame, step, lane, given, a.rows, halves)
    some = tensoroperands.cells_of_a(frame, step, lane, given, a, copies, block)
    tensoroperands.refuse_unwritten(frame, step, lane, some, "a")
    if copies > 1:
        tensoroperands.refuse_torn_rows(frame, step, lane, some, a.rows)
    return some


def _scales(
    frame: KernelFrame, step: Step, lane: int, given: list[int], rows: tuple[int, int], halves: bool, block: int
) -> list[Array]:
    """The cells of both matrices' scales. The two highest bits of an address are ignored, because CUTLASS keeps the
    scale factor's id there. In a pair each block has the scales of its own rows of a and of all columns of b.
    """
    found = []
    for first, count, name in zip(given, rows, "ab", strict=False):
        places = tensoroperands.scale_cells(count, halves and name == "b")
        some = tensoroperands.cells(frame, step, lane, first & 0x3FFFFFFF, *places, f"the scale of {name}", block)
        tensoroperands.refuse_unwritten(frame, step, lane, some, f"the scale of {name}")
        found.append(some)
    return found


def _matrix(
    frame: KernelFrame, step: Step, lane: int, code: int, of: TensorOperand, in_cells: Array | None, work: Work,
    block: int,
) -> Codes:  # fmt: skip
    if in_cells is not None:
        return tensoroperands.from_cells(frame, in_cells, of)
    offsets = tensoroperands.shared_offsets(frame, step, lane, code, of, block)
    frame.tensor.read_shared(work, offsets)
    return tensoroperands.from_shared(frame, offsets, of)


def _divided(frame: KernelFrame, step: Step, lane: int, numbers_of: Array, kind: str, by: float) -> Array:
    """d times a power of two.

    Raises ExecutionError for subnormal results, whose rounding is not published; others are exact.
    """
    code, real = (np.uint16, np.float16) if kind == "f16" else (np.uint32, np.float32)
    numbers: Any = numbers_of.astype(code).view(real)
    scaled = (numbers * real(by)).astype(real)
    exact = scaled.astype(np.float64) == numbers.astype(np.float64) * by
    if (np.isfinite(numbers) & ~exact).any():
        text = f"scale-input-d makes subnormal numbers of d of {frame.who(lane)}, and nothing says how they round"
        raise frame.fault(ExecutionError, step, text)
    return np.asarray(np.where(np.isnan(numbers), numbers_of, scaled.view(code).astype(np.uint32)))


_SIGN_OF_NARROW = 5  # e2m1 is in bits 2 to 5


def _signed(codes: Array, kind: str, negative: bool) -> Array:
    """The codes, negated if `negative`."""
    sign = BITS[kind] - 1 if BITS[kind] >= 8 else _SIGN_OF_NARROW
    return np.asarray(codes ^ np.uint32(negative << sign))


def _computed(
    found: TensorProduct, what: InstructionDescriptor, a: Array, b: Array, c: Array, factors: list[Array],
    where: Array | None,
) -> Array:  # fmt: skip
    """The codes of d, m x n, from m x k and n x k. where: for a sparse a, the columns of its stored elements."""
    if factors:
        types = (what.a, what.b, what.scale)
        if where is not None:
            operands = a, b, c, factors, types, BLACKWELL[found.kind], where
            return products_in_vectors.sparse_scaled(*operands, sparse_scaled_product)
        return products_in_vectors.scaled(a, b, c, factors, types, BLACKWELL[found.kind])
    if found.kind == "i8":
        word = "satfinite" if what.saturate else ""
        how = Arithmetic((what.d, what.a, what.b, what.d), "integers", word=word)
    else:
        how = _arithmetic(found, what)
    if where is not None:
        return sparse_product(how, a, b, c, where)
    return np.asarray(how(a[None], np.ascontiguousarray(b.T)[None], c[None])[0])


_REFUSED = {
    "tcgen05_ashift": "does not run products of a shifted a (.ashift): the ISA says that a's rows are shifted down by "
    "one, except for the last, but not what its first row is then, nor where a row of a pair's first block goes; shift "
    "a by tcgen05.shift.down before, without .ashift",
}
"""What is not run, and what to do instead."""


def _refuses(operation: str) -> None:
    @binds(operation)
    def bind(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
        raise builder.error(NotElementwise, f"{node.spelling}: the emulator {_REFUSED[operation]}", node.offset)


for _operation in _REFUSED:
    _refuses(_operation)
