"""Products of a warpgroup's matrices (wgmma): operands in registers and by descriptor.

The product is computed when it is issued. `ptxdiff.emulator.kernel.wgmma.in_flight` checks that until the wait for it
no thread accesses its registers or writes to its matrices.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.builder import binds, binds_alone, expect
from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel import products_in_vectors
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory import global_races as races
from ptxdiff.emulator.kernel.memory.access import elements
from ptxdiff.emulator.kernel.memory.space import SHARED_BASE
from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.kernel.warp import fragments, sparse_mma
from ptxdiff.emulator.kernel.warp.laid_out import FragmentLayout
from ptxdiff.emulator.kernel.warp.mma import gathered, scattered, spread
from ptxdiff.emulator.kernel.warp.sparse_mma import Storage
from ptxdiff.emulator.kernel.wgmma import descriptors
from ptxdiff.emulator.kernel.wgmma.in_flight import Promise
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.tensorcore import BITS, FLOATS, MEASURED, MODELS
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.text.nodes import Immediate, Instruction, Operand, Vector
from ptxdiff.emulator.text.types import TYPES
from ptxdiff.extras import installed

_MODELS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "wgmma f8", "e5m2": "wgmma f8"}


@dataclass(frozen=True)
class Matrix:
    """An operand: rows of a (columns of b), k, its type, whether it is MN-major, and whether it is negated.

    `table`: the positions of its 16 rows in the registers of a warp; None: a descriptor gives the matrix.
    """

    rows: int
    k: int
    type: str
    across: bool = False
    negative: bool = False
    table: Array | None = None

    @property
    def depth(self) -> int:
        """The extent along k: bytes of a row; if MN-major, elements."""
        return self.k if self.across else self.k * BITS[self.type] // 8


@dataclass(frozen=True)
class GroupProduct:
    """A wgmma. `table`: the positions of a warp's 16 rows of d in its registers. `count`: registers of d.

    `storage`: the layout of a sparse a's metadata; `a` is then its stored half. None: a is dense. `layout`: that of d,
    for compiled code.
    """

    a: Matrix
    b: Matrix
    table: Array
    count: int
    arithmetic: Arithmetic
    storage: Storage | None = None
    layout: FragmentLayout | None = None


def accumulators(n: int, bits: int) -> Array:
    """The positions of a warp's 16 x n part of d in its registers: the layout of eight columns (`of_c`), repeated n / 8
    times."""
    one = fragments.of_c(16, 8, bits)
    parts = [one + number * one.size for number in range(n // 8)]
    return np.concatenate(parts, axis=2)


def shape_of(bound: Bound) -> tuple[int, int]:
    """n and k."""
    n, k = (bound.modifiers["shape"] or "").removeprefix("m64n").split("k")
    return int(n), int(k)


def arithmetic_of(bound: Bound) -> Arithmetic:
    """How Hopper computes a form; no other generation has wgmma."""
    d, a, b = (bound.modifiers[x] or "" for x in ("dtype", "atype", "btype"))
    word = "and" if a == "b1" else bound.modifiers.get("satfinite") or ""
    if a in _MODELS:
        return Arithmetic((d, a, b, d), "blocks", MODELS[MEASURED][_MODELS[a]], MEASURED)
    return Arithmetic((d, a, b, d), "bits" if a == "b1" else "integers", word=word)


@binds("wgmma")
def _bind_wgmma(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """Bind `d, a, b, scale-d`, signs and layouts."""
    return _bound(builder, node, bound, list(node.operands), None)


@binds("wgmma_sp")
def _bind_wgmma_sp(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """Bind a wgmma with metadata and its selector after b (ISA 9.7.15.6.3)."""
    if len(node.operands) < 6:
        expect(builder, node, 6)
    operands = list(node.operands)
    metadata, selector = operands.pop(3), operands.pop(3)
    kind, k = bound.modifiers["atype"] or "", shape_of(bound)[1]
    place = sparse_mma.storage(kind, k, sparse_mma.selector_of(builder, node, selector, kind, k))
    return _bound(builder, node, bound, operands, place, metadata)


def _bound(
    builder: KernelBuilder, node: Instruction, bound: Bound, operands: list[Operand], place: Storage | None,
    metadata: Operand | None = None,
) -> Step:  # fmt: skip
    """The step of a product; `operands` without metadata and selector."""
    n, k = shape_of(bound)
    how = arithmetic_of(bound)
    d_type, a_type, b_type, _ = how.types
    in_registers = len(operands) > 1 and isinstance(operands[1], Vector)
    layouts = 2 - in_registers if BITS[a_type] == 16 else 0
    signs = 2 if a_type in FLOATS else 0
    expect(builder, node, 4 + signs + layouts + len(node.operands) - len(operands))
    constants = [_constant(builder, node, o, (-1, 1)) for o in operands[4 : 4 + signs]]
    across = [_constant(builder, node, o, (0, 1)) == 1 for o in operands[4 + signs :]]
    stored = k if place is None else k // 2
    table = fragments.of_a(16, stored, BITS[a_type]) if in_registers else None
    a = Matrix(64, stored, a_type, len(across) == 2 and across[0], constants[:1] == [-1], table)
    b = Matrix(n, k, b_type, bool(across) and across[-1], constants[1:] == [-1])
    table_d = accumulators(n, BITS[d_type])
    count = table_d.size // (32 * fragments.per_register(BITS[d_type]))
    kind = TYPES[d_type if d_type != "f16" else "b32"]
    to = elements(builder, operands[0], count)
    writers = tuple(builder.destination(e, kind, bound) for e in to)
    readers = [builder.read(e, kind, False, f"element of {bound.spelling}") for e in to]
    if table is None:
        readers.append(builder.read(operands[1], TYPES["b64"], False, "the descriptor of a"))
    else:
        parts = elements(builder, operands[1], table.size // (32 * fragments.per_register(BITS[a_type])))
        readers += [builder.read(e, TYPES["b32"], False, f"element of {bound.spelling}") for e in parts]
    if metadata is not None:  # before the last two: the sources there are read while the product is under way
        readers.append(builder.read(metadata, TYPES["b32"], False, f"metadata of {bound.spelling}"))
    readers.append(builder.read(operands[2], TYPES["b64"], False, "the descriptor of b"))
    readers.append(builder.read(operands[3], TYPES["pred"], False, "scale-d"))
    return Step(
        "wgmma",
        node,
        bound,
        tuple(readers),
        writers,
        detail=GroupProduct(a, b, table_d, count, how, place, _layout(table_d, BITS[d_type])),
    )


def _layout(table: Array, width: int) -> FragmentLayout | None:
    """The layout of d in registers of 32 bits."""
    return FragmentLayout(table, width) if installed("numba") and width <= 32 else None


def _constant(builder: KernelBuilder, node: Instruction, operand: Operand, allowed: tuple[int, int]) -> int:
    if not isinstance(operand, Immediate) or operand.value not in allowed:
        message = f"{node.spelling}: this operand is the constant {allowed[0]} or {allowed[1]}"
        raise builder.error(OperandError, message, operand.offset)
    return int(operand.value)


@runs("wgmma")
def _run_wgmma(frame: KernelFrame, step: Step, active: Array | None) -> None:
    product: GroupProduct = step.detail
    groups = frame.warpgroups(step, active)
    if not len(groups):
        return
    warps = (groups[:, None] * 4 + np.arange(4)).reshape(-1)
    lanes = (warps[:, None] * 32 + np.arange(32)).reshape(-1)
    frame.promises.before(step, groups, product.count)
    promise = Promise(step, groups, frame.promises.groups.open(groups), product.count)
    scale = _uniform(frame, step, step.sources[-1], groups, "scale-d") != 0
    d_readers, rest = step.sources[: product.count], step.sources[product.count : -2]
    where = None
    if product.storage is not None:
        rest, metadata = rest[:-1], rest[-1]
        where = sparse_mma.columns(frame, step, metadata, warps, product.storage, False, 4)
        where = where.reshape(len(groups), 64, -1)
    n, width = product.b.rows, BITS[product.arithmetic.types[0]]
    c, of_c = np.zeros((len(groups), 64, n), UNSIGNED[width]), None
    whole = active is None and len(lanes) == frame.lanes
    key = tuple(r.slot for r in d_readers), product.arithmetic.types[0], n
    if scale.any():
        parts, doubts = _accumulators(frame, d_readers, warps, product, key if whole else None)
        parts = parts.reshape(c.shape)
        c = parts if scale.all() else np.where(scale[:, None, None], parts, c)
        of_c = None if doubts is None else doubts.reshape(c.shape) & scale[:, None, None]
    if product.a.table is not None:
        parts, doubts = gathered(frame, rest, warps, product.a.table, BITS[product.a.type])
        a, of_a = parts.reshape(-1, 64, product.a.k), None if doubts is None else doubts.reshape(-1, 64, product.a.k)
    else:
        a, of_a = _loaded(
            frame, step, promise, product.a, _uniform(frame, step, rest[0], groups, "a's descriptor"), "a"
        )
    b, of_b = _loaded(
        frame, step, promise, product.b, _uniform(frame, step, step.sources[-2], groups, "b's descriptor"), "b"
    )
    b, of_b = b.transpose(0, 2, 1), None if of_b is None else of_b.transpose(0, 2, 1)
    a, b, doubts_of, doubt = signed(a, product.a), signed(b, product.b), [of_a, of_b, of_c], None
    if where is None:
        result = product.arithmetic(a, b, c)
    else:
        result = products_in_vectors.sparse(product.arithmetic, a, b, c, where, sparse_mma.multiplied)
    if any(x is not None for x in doubts_of):
        doubt = (
            spread(doubts_of, result, width) if where is None else sparse_mma.doubted(doubts_of, where, result, width)
        )
    tiles = result.reshape(-1, 16, n)
    if whole and doubt is None and product.layout is not None:
        registers = product.layout.of_tiles(tiles, frame.lanes)
        for writer, register in zip(step.destinations, registers, strict=True):
            frame.write(writer, register, None, None)
        frame.fragments.keep(key, tuple(registers), result)
    else:
        scattered(
            frame, step.destinations, lanes, product.table, width, tiles,
            None if doubt is None else doubt.reshape(tiles.shape), active,
        )  # fmt: skip
    frame.promises.give(promise)


def _accumulators(
    frame: KernelFrame, readers: Sequence[ReadSlot], warps: Array, product: GroupProduct, key: Hashable | None
) -> tuple[Array, Array | None]:
    """`gathered` of d's registers. key: of what an earlier product kept for all warps (see `Fragments`); None: some
    warps."""
    width = BITS[product.arithmetic.types[0]]
    read = [frame.read(r) for r in readers] if key is not None else []
    if key is None or any(mask is not None for _, mask in read):
        return gathered(frame, readers, warps, product.table, width)

    def made() -> Array:
        return gathered(frame, readers, warps, product.table, width)[0]

    return frame.fragments.of(key, tuple(value for value, _ in read), made), None


def signed(codes: Array, matrix: Matrix) -> Array:
    """The codes, negated if the matrix is."""
    if not matrix.negative:
        return codes
    opposite: Array = codes ^ codes.dtype.type(1 << BITS[matrix.type] - 1)
    return opposite


def _uniform(frame: KernelFrame, step: Step, reader: ReadSlot, groups: Array, what: str) -> Array:
    """The operand of each warpgroup, one value. Raises ExecutionError if its threads differ."""
    value, mask = frame.read(reader)
    lanes = groups[:, None] * 128 + np.arange(128)
    if mask is not None:
        frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes].reshape(-1), lanes.reshape(-1), what)
    found = np.broadcast_to(value, (frame.lanes,))[lanes]
    torn = (found != found[:, :1]).any(axis=1)
    if torn.any():
        lane = int(lanes[np.flatnonzero(torn)[0], 0])
        text = f"{what} is to be the same in all threads of a warpgroup, and is not in that of {frame.who(lane)}"
        raise frame.fault(ExecutionError, step, text)
    return np.asarray(found[:, 0])


def _loaded(
    frame: KernelFrame, step: Step, promise: Promise, matrix: Matrix, codes: Array, name: str
) -> tuple[Array, Array | None]:
    """The matrix of a descriptor, warpgroups x rows x k, and which elements have undefined bits (None: none)."""
    shared = frame.shared
    different = list(dict.fromkeys(codes.tolist()))  # in most launches one, as all blocks lay out their memory alike
    rows, which = [], np.zeros(len(codes), np.int64)
    for number, code in enumerate(different):
        which[codes == code] = number
        lane = int(promise.groups[np.flatnonzero(which == number)[0]]) * 128
        found = descriptors.decoded(code)
        if isinstance(found, str):
            raise frame.fault(ExecutionError, step, f"the descriptor of {name} of {frame.who(lane)}: {found}")
        if not matrix.across and found.swizzle != 16 and matrix.depth > found.swizzle:
            text = f"the descriptor of {name} of {frame.who(lane)} states a swizzle of {found.swizzle} bytes, and "
            text += f"{matrix.depth} bytes lie along k: the ISA does not say where those beyond its rows are"
            raise frame.fault(ExecutionError, step, text)
        within = descriptors.addresses(found, matrix.across, matrix.rows, matrix.depth) - SHARED_BASE
        if int(within.min()) < 0 or int(within.max()) + 16 > shared.limit:
            wrong = int(within.min()) if int(within.min()) < 0 else int(within.max())
            text = f"the descriptor of {name} reaches offset {wrong}, outside the {shared.limit} bytes of shared memory"
            shown = f"start {found.start - SHARED_BASE}, leading {found.leading}, stride {found.stride}"
            raise frame.fault(MemoryFault, step, f"{text} ({shown}), in {frame.who(lane)}")
        if shared.swizzles is not None:
            for group in promise.groups[which == number].tolist():
                frame.promises.note_layout(step, within, found.swizzle, group * 128, name)
        rows.append(within.reshape(-1))
    offsets = np.stack(rows)[which] + (frame.block[promise.groups * 128] * shared.size)[:, None]
    frame.promises.read(step, promise, offsets)
    bytes_found = shared.bytes.reshape(-1, 16).take(offsets // 16, axis=0)
    undefined = shared.undefined.reshape(-1, 16).take(offsets // 16, axis=0)
    doubt = arranged(undefined, matrix) != 0 if undefined.any() else None
    return arranged(bytes_found, matrix), doubt


def arranged(chunks: Array, matrix: Matrix) -> Array:
    """The elements in chunks of a matrix, as warpgroups x rows x k."""
    count, bits = len(chunks), BITS[matrix.type]
    octets = np.ascontiguousarray(chunks)
    if bits == 1:
        return np.unpackbits(octets.reshape(count, matrix.rows, -1), axis=2, bitorder="little")
    found: Any = octets.reshape(count, -1).view(UNSIGNED[bits])
    if matrix.across:
        return np.asarray(found.reshape(count, matrix.k, matrix.rows).transpose(0, 2, 1))
    return np.asarray(found.reshape(count, matrix.rows, matrix.k))


# groups -----------------------------------------------------------------------------------------------------------


binds_alone("wgmma_fence", "wgmma_commit", "proxy_fence")


@binds("wgmma_wait")
def _bind_wait(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 1)
    left = node.operands[0]
    if not isinstance(left, Immediate) or not isinstance(left.value, int) or left.value < 0:
        message = f"{node.spelling} takes a constant number of groups"
        raise builder.error(OperandError, message, node.offset)
    return Step("wgmma_wait", node, bound, detail=left.value)


@runs("wgmma_fence")
def _run_fence(frame: KernelFrame, step: Step, active: Array | None) -> None:
    frame.need_whole_warps(step, active)
    frame.promises.fence(active)


@runs("wgmma_commit")
def _run_commit(frame: KernelFrame, step: Step, active: Array | None) -> None:
    frame.promises.commit(frame.warpgroups(step, active))


@runs("wgmma_wait")
def _run_wait(frame: KernelFrame, step: Step, active: Array | None) -> None:
    frame.promises.wait(step.detail, frame.warpgroups(step, active))


@runs("proxy_fence")
def _run_proxy_fence(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Make earlier writes of threads to shared memory visible to asynchronous copies and products."""
    lanes = frame.every if active is None else np.flatnonzero(active)
    space = step.bound.modifiers["space"]
    if not frame.grid.races or not len(lanes):
        return
    if space != "global":
        frame.shared.fence(lanes)
    if space in (None, "global"):
        races.fence(frame, lanes)
