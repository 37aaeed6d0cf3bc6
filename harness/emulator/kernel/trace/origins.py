"""Records the thread that produced each byte of memory, and each cell of tensor memory, while a kernel runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.space import SHARED_BASE, Buffer
from ptxdiff.emulator.kernel.tcgen05 import instruction_descriptors
from ptxdiff.emulator.kernel.tcgen05 import operands as tensoroperands
from ptxdiff.emulator.kernel.tcgen05.memory import TensorMemory
from ptxdiff.emulator.kernel.tcgen05.operands import TensorOperand, accumulator, values
from ptxdiff.emulator.kernel.tcgen05.pairs import members
from ptxdiff.emulator.kernel.tcgen05.products import TensorProduct
from ptxdiff.emulator.kernel.warp import fragments
from ptxdiff.emulator.kernel.warp.mma import factors, gathered
from ptxdiff.emulator.kernel.wgmma import descriptors
from ptxdiff.emulator.kernel.wgmma.multiply import GroupProduct, Matrix, arranged
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.emulator.numeric.vectorise import Array

SHARED, LOCAL, TENSOR = "shared memory", "local memory", "tensor memory"
Byte = tuple[str, int]
"""The name of a memory, and the offset of a byte or tensor memory cell in it. Equal in every run of a launch."""
Focus = Byte | str
"""A part of an instruction's result: a byte that it wrote to memory, or the name of a register."""
_NAMES = {"Shared": SHARED, "ClusterShared": SHARED, "LocalMemory": LOCAL, "TensorMemory": TENSOR}


@dataclass(frozen=True, slots=True)
class Stored:
    """The origin of a value: the thread's number in the grid, and the time of the instruction.

    byte: where it was stored; None if not needed. operand: if the value is not a result but a source operand of that
    instruction, which a product or an exchange passes to other threads, the operand's number; else -1.
    """

    thread: int
    time: int
    byte: Byte | None = None
    operand: int = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """A value that an instruction takes from elsewhere than its own thread's registers.

    name: its part in the instruction, in words. value: its bits. stored: its origin; None if no thread of the launch
    made it. memory: where it was read; None if it was in a register.
    """

    name: str
    value: int
    stored: Stored | None
    memory: Byte | None = None


class Takes(Protocol):
    """The values that an instruction takes from elsewhere, recorded when it ran."""

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """The values behind a part of its result, in the order of the computation; None if it has no such part."""


def name_of(region: Any) -> tuple[str, int]:
    """The name of a region, and the offset in it that counts as its first."""
    if isinstance(region, Buffer):
        return region.name or "a buffer", region.residue
    return _NAMES[type(region).__name__], 0


@dataclass(frozen=True)
class Snapshot:
    """Places of a region with the threads that produced their values: arrays of one shape. thread -1: none; place -1:
    no place.

    order: the times at which they were produced.
    """

    name: str
    places: Array
    threads: Array
    order: Array

    def stored(self, at: Any) -> Stored | None:
        """The origin of the value at an index of the arrays."""
        if self.threads[at] < 0:
            return None
        return Stored(int(self.threads[at]), int(self.order[at]), (self.name, int(self.places[at])))

    def taken(self, at: Any, name: str, value: int) -> Taken:
        """The value at an index of the arrays."""
        position = int(self.places[at])
        return Taken(name, value, self.stored(at), (self.name, position) if position >= 0 else None)


class Origins:
    """The origins of the values in each region of memory. Places: byte offsets, or numbers of tensor memory cells."""

    def __init__(self) -> None:
        self._makers: dict[int, tuple[Any, Array, Array]] = {}
        self._coming: dict[int, tuple[Any, Array, Array]] = {}

    def note(self, region: Any, places: Array, threads: Array | int, time: int) -> None:
        """Record that threads produce the values at some places."""
        by, when = _arrays(self._makers, region)
        by[places], when[places] = threads, time

    def expect(self, region: Any, places: Array, threads: Array | int, time: int) -> None:
        """Record that threads issue copies to some places. Two pending copies to one place bring the same bytes."""
        by, when = _arrays(self._coming, region)
        by[places], when[places] = threads, time

    def arrive(self, region: Any, places: Array) -> None:
        """Record that the copies to some places have completed."""
        by, when = _arrays(self._makers, region)
        issued_by, issued = _arrays(self._coming, region)
        by[places], when[places] = issued_by[places], issued[places]

    def of(self, region: Any, places: Array) -> Snapshot:
        """The present origins of the values at some places; none for place -1."""
        name, first = name_of(region)
        by, when = _arrays(self._makers, region)
        inside = places >= 0
        return Snapshot(
            name,
            np.where(inside, places - first, -1),
            np.where(inside, by[places], -1),
            np.where(inside, when[places], 0),
        )

    def last(self, region: Any, places: Array) -> Stored | None:
        """The origin of the newest value at some places; None if no thread produced any of them."""
        newest = self.of(region, places)
        at = int(np.argmax(np.where(newest.threads >= 0, newest.order, -1)))
        return newest.stored(at)


def _arrays(of: dict[int, tuple[Any, Array, Array]], region: Any) -> tuple[Array, Array]:
    if id(region) not in of:  # the region is kept, so that no other one gets its id
        size = len(region.words) if isinstance(region, TensorMemory) else len(region.bytes)
        of[id(region)] = (region, np.full(size, -1, np.int64), np.zeros(size, np.int64))
    _, by, when = of[id(region)]
    return by, when


@dataclass
class CopyTaken:
    """A copy: each byte, or cell, of the destination comes from the source or is a filler. Arrays have an entry for
    each.

    name, to: the destination. values: the copied bytes. made: the places of the source, with their origins. old,
    before: for a reduction, the origins and values at the destination; None until it completes, and for a plain copy.
    """

    name: str
    to: Array
    values: Array
    made: Snapshot
    old: Snapshot | None = None
    before: Array | None = None

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        if focus[0] != self.name:
            return None
        at = np.flatnonzero(self.to == focus[1])
        if not len(at):
            return None
        number = int(at[0])
        taken = [self.made.taken(number, "the copied byte", int(self.values[number]))]
        if self.old is not None and self.before is not None:
            taken.insert(0, self.old.taken(number, "the old value", int(self.before[number])))
        return taken


@dataclass(frozen=True)
class OldTaken:
    """An atomic: the old value at its address, behind the register that gets it and the bytes that it writes."""

    register: str
    name: str
    first: int
    size: int
    found: Taken

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        if isinstance(focus, str):
            return [self.found] if focus == self.register else None
        inside = focus[0] == self.name and self.first <= focus[1] < self.first + self.size
        return [self.found] if inside else None


@dataclass(frozen=True)
class OperandTaken:
    """A store of many registers: each place gets its value from one operand of one thread.

    name, places: the destination. operands: the number of the operand for each place. values: the stored values.
    """

    name: str
    places: Array
    operands: Array
    values: Array
    thread: int
    time: int

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        if focus[0] != self.name:
            return None
        at = np.flatnonzero(self.places == focus[1])
        if not len(at):
            return None
        number = int(at[0])
        stored = Stored(self.thread, self.time, operand=int(self.operands[number]))
        return [Taken("the register that is stored", int(self.values[number]), stored)]


@dataclass(frozen=True)
class RegistersTaken:
    """A load from tensor memory, or of matrices: the values that each register gets."""

    taken: dict[str, tuple[Taken, ...]]

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        return self.taken.get(focus) if isinstance(focus, str) else None


# ---- The elements that products of tensor cores take -----------------------------------------------------------------
#
# Each matrix is recorded with the origin of each element: a thread of the warp that holds it in registers, or the
# thread that stored it in shared or tensor memory. The metadata of a sparse matrix and the scales of blocks follow
# the matrices: if they are in registers, those of all threads; if in tensor memory, the scales alone.

WARP = 32
ElementsOf = dict[str, list[tuple[int, int, int]]]
"""The elements in each register, by its name: tile, row and column."""


@dataclass(frozen=True)
class TakenMatrix:
    """A matrix of a product, as rows x columns. codes: of its elements. made: their origins.

    held: for a matrix in registers, the thread of each element, and the number of the operand. first: the number of its
    first row. turned: true for b, whose rows are the columns of the product.
    """

    name: str
    codes: Array
    made: Snapshot | None = None
    held: tuple[Array, Array, int] | None = None
    first: int = 0
    turned: bool = False

    def element(self, row: int, column: int) -> Taken:
        """One element."""
        index = f"{column}, {row}" if self.turned else f"{self.first + row}, {column}"
        name, value = f"{self.name}[{index}]", int(self.codes[row, column])
        if self.made is not None:
            return self.made.taken((row, column), name, value)
        assert self.held is not None
        threads, operands, time = self.held
        return Taken(name, value, Stored(int(threads[row, column]), time, operand=int(operands[row, column])))

    def row(self, number: int) -> Iterator[Taken]:
        """All elements of a row."""
        return (self.element(number, k) for k in range(self.codes.shape[1]))


@dataclass(frozen=True)
class ElementsTaken:
    """A product whose result is in registers. elements: tile, row and column, by register of the thread.

    tiles: a, b and c of each tile; c is None if the product does not add one. others: metadata and scales.
    """

    elements: ElementsOf
    tiles: Sequence[tuple[TakenMatrix, TakenMatrix, TakenMatrix | None]]
    others: Sequence[Taken]

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        if not isinstance(focus, str) or focus not in self.elements:
            return None
        taken = list(self.others)
        for tile, row, column in self.elements[focus]:
            a, b, c = self.tiles[tile]
            taken += [*a.row(row), *b.row(column), *([c.element(row, column)] if c is not None else [])]
        return taken


# in the registers of a warp ---------------------------------------------------------------------------------------


def of_warp(frame: KernelFrame, step: Step, lane: int, time: int) -> ElementsTaken:
    """The elements that a lane's mma takes, for every kind of mma."""
    product = step.detail
    warp = lane // WARP
    found, _ = factors(frame, step, np.array([warp]), product.tables, product.widths, product.counts)
    matrices: list[list[TakenMatrix]] = []
    base = 0
    for name, table, width, count, codes in zip(
        "abc", product.tables[1:], product.widths[1:], product.counts[1:], found, strict=True
    ):
        held = _held(frame, warp, table, width, base, time)
        tiles = [TakenMatrix(name, c, held=(t, o, time)) for c, t, o in zip(codes, *held, strict=True)]
        if name == "b":
            tiles = [
                TakenMatrix(name, m.codes.T, held=(m.held[0].T, m.held[1].T, time), turned=True)
                for m in tiles if m.held is not None
            ]  # fmt: skip
        matrices.append(tiles)
        base += count
    elements = _elements(frame, step, lane, product.tables[0], product.widths[0])
    return ElementsTaken(elements, list(zip(*matrices, strict=True)), _others(frame, step, warp, base, time))


def _held(frame: KernelFrame, warp: int, table: Array, width: int, base: int, time: int) -> tuple[Array, Array]:
    """The thread that holds each element of a table, and the number of the operand."""
    each = fragments.per_register(width)
    return frame.first * frame.grid.threads + warp * WARP + table // each % WARP, base + table // (WARP * each)


def _elements(frame: KernelFrame, step: Step, lane: int, table: Array, width: int) -> ElementsOf:
    """The elements in each register that a product writes in a lane."""
    each = fragments.per_register(width)
    mine = table // each % WARP == lane % WARP
    elements: ElementsOf = {}
    for tile, row, column in zip(*(x.tolist() for x in np.nonzero(mine)), strict=True):
        slot = step.destinations[int(table[tile, row, column]) // (WARP * each)].slot
        elements.setdefault(frame.program.registers[slot].name, []).append((tile, row, column))
    return elements


def _others(frame: KernelFrame, step: Step, warp: int, first: int, time: int, end: int | None = None) -> list[Taken]:
    """The operands after the matrices, in each thread of a warp."""
    taken = []
    thread = frame.first * frame.grid.threads + warp * WARP
    for number in range(first, len(step.sources) if end is None else end):
        value, _ = frame.read(step.sources[number])
        own = np.broadcast_to(value, (frame.lanes,))[warp * WARP : (warp + 1) * WARP].tolist()
        taken += [
            Taken(f"operand {number}", int(v), Stored(thread + k, time, operand=number)) for k, v in enumerate(own)
        ]
    return taken


# of a warpgroup ---------------------------------------------------------------------------------------------------


def of_warpgroup(frame: KernelFrame, origins: Origins, step: Step, lane: int, time: int) -> ElementsTaken:
    """The elements that a lane's wgmma takes: its own warp's rows of a and of the accumulator, and all of b."""
    product: GroupProduct = step.detail
    warp, behind = lane // WARP, len(step.sources) - 2
    first = warp % 4 * 16
    scale, _ = frame.read(step.sources[-1])
    c = None
    if bool(np.broadcast_to(scale, (frame.lanes,))[lane]):
        c = _in_registers(frame, step, "d", warp, product.table, BITS[product.arithmetic.types[0]], 0, time, first)
    if product.a.table is not None:
        a = _in_registers(frame, step, "a", warp, product.a.table, BITS[product.a.type], product.count, time, first)
    else:
        whole = _by_descriptor(frame, origins, step, lane, product.a, product.count, "a")
        assert whole.made is not None
        part, made = slice(first, first + 16), whole.made
        a = TakenMatrix(
            "a", whole.codes[part], Snapshot(made.name, made.places[part], made.threads[part], made.order[part]),
            first=first,
        )  # fmt: skip
    b = _by_descriptor(frame, origins, step, lane, product.b, behind, "b", turned=True)
    elements = _elements(frame, step, lane, product.table, BITS[product.arithmetic.types[0]])
    others = _others(frame, step, warp, behind - 1, time, behind) if product.storage is not None else []
    return ElementsTaken(elements, [(a, b, c)], others)


def _in_registers(
    frame: KernelFrame, step: Step, name: str, warp: int, table: Array, width: int, base: int, time: int, first: int
) -> TakenMatrix:
    count = table.size // (WARP * fragments.per_register(width))
    codes, _ = gathered(frame, step.sources[base : base + count], np.array([warp]), table, width)
    threads, operands = _held(frame, warp, table, width, base, time)
    return TakenMatrix(name, codes[0], held=(threads[0], operands[0], time), first=first)


def _by_descriptor(
    frame: KernelFrame, origins: Origins, step: Step, lane: int, matrix: Matrix, operand: int, name: str,
    turned: bool = False,
) -> TakenMatrix:  # fmt: skip
    value, _ = frame.read(step.sources[operand])
    descriptor = descriptors.decoded(int(np.broadcast_to(value, (frame.lanes,))[lane]))
    if isinstance(descriptor, str):  # the run will stop at this step
        return TakenMatrix(name, np.zeros((0, 0), np.uint8))
    shared, bits = frame.shared, BITS[matrix.type]
    address = descriptors.addresses(descriptor, matrix.across, matrix.rows, matrix.depth).reshape(-1)
    chunks = address - SHARED_BASE + int(frame.block[lane]) * shared.size
    codes = arranged(shared.bytes.reshape(-1, 16).take(chunks // 16, axis=0)[None], matrix)[0]
    places = chunks[:, None] + np.arange(128 // bits) * bits // 8
    if matrix.across:
        places = places.reshape(matrix.k, matrix.rows).T
    return TakenMatrix(name, codes, origins.of(shared, places.reshape(matrix.rows, matrix.k)), turned=turned)


# in tensor memory -------------------------------------------------------------------------------------------------


@dataclass
class CellsTaken:
    """A product in tensor memory, in parts: one for each block of a pair.

    cells: of each block's accumulator. c: their old values; None if the product does not add them. a, b: rows of each
    block. scales: of each block's rows of a, and columns of b.
    """

    cells: list[Array] = field(default_factory=list)
    c: list[TakenMatrix | None] = field(default_factory=list)
    a: list[TakenMatrix] = field(default_factory=list)
    b: list[TakenMatrix] = field(default_factory=list)
    scales: list[tuple[TakenMatrix, ...]] = field(default_factory=list)

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        if focus[0] != TENSOR:
            return None
        for block, cells in enumerate(self.cells):
            rows, columns = np.nonzero(cells == focus[1])
            if not len(rows):
                continue
            row, column = int(rows[0]), int(columns[0])
            b, c = self.b, self.c[block]
            each = len(b[0].codes)
            taken = [s.element(k, 0) for s, k in zip(self.scales[block], (row, column), strict=False)]
            taken += [*self.a[block].row(row), *b[column // each].row(column % each)]
            return taken + ([c.element(row, column)] if c is not None else [])
        return None


@dataclass
class NotedProduct:
    """A tcgen05.mma while it is issued. Its matrices in shared memory are added one after the other."""

    frame: KernelFrame
    origins: Origins
    operands: list[TensorOperand]
    taken: CellsTaken

    def matrix(self, offsets: Array) -> None:
        """Add the next matrix in shared memory, given by the places of its chunks."""
        operand = self.operands.pop(0)
        codes, _ = tensoroperands.from_shared(self.frame, offsets, operand)
        bits, each = tensoroperands.BITS[operand.type], 128 // operand.element
        places = offsets[:, None] + np.arange(each) * (bits if bits < 8 else operand.element) // 8
        if operand.across:
            places = places.reshape(operand.k, -1)[:, : operand.rows].T
        made = self.origins.of(self.frame.shared, places.reshape(operand.rows, operand.k))
        to = self.taken.a if operand.name == "a" else self.taken.b
        to.append(TakenMatrix(operand.name, codes, made, turned=operand.name == "b"))


def of_tensor_cores(frame: KernelFrame, origins: Origins, step: Step, lane: int) -> NotedProduct | None:
    """The elements that a lane's tcgen05.mma takes, before it changes anything; None if it will be refused."""
    product: TensorProduct = step.detail
    given = values(frame, step, step.sources, np.array([lane]))[0]
    at = [x + (p or 0) for x, p in zip(given, product.places, strict=False)]
    what = instruction_descriptors.decoded(at[3], product.kind, product.ws, product.block, product.pair, product.sparse)
    if isinstance(what, str):
        return None
    blocks = members(frame, step, lane, product.pair)
    rows = what.m // len(blocks)
    halves = product.ws or (product.pair and rows == 64 and not product.sparse)
    dense = product.kind.startswith("mxf4")
    a = TensorOperand("a", rows, what.stored, what.a, what.across_a, dense)
    b = TensorOperand("b", what.n // len(blocks), what.k, what.b, what.across_b, dense)
    memory, taken = frame.tensor.memory, CellsTaken()
    for block in blocks:
        cells = accumulator(frame, step, lane, at[0], (rows, what.n), halves, block).cells
        taken.cells.append(cells)
        old = TakenMatrix("d", memory.words[cells], origins.of(memory, cells))
        taken.c.append(old if given[len(product.places)] else None)
        if product.places[1] is not None:
            each = a.element
            copies = 128 // rows if halves else 1
            # The first of equal copies: what other threads stored in the others is not recorded.
            some = tensoroperands.cells_of_a(frame, step, lane, at[1], a, copies, block)[:rows]
            codes, _ = tensoroperands.from_cells(frame, some, a)
            taken.a.append(TakenMatrix("a", codes, origins.of(memory, some[:, np.arange(a.k) * each // 32])))
        taken.scales.append(())
        if what.block:
            parts = zip(at[4:6], (rows, what.n), (what.part_a, what.part_b), "ab", (False, halves), strict=True)
            count = what.stored // what.block
            taken.scales[-1] = tuple(_scale(frame, origins, step, lane, block, count, *p) for p in parts)
    own = [] if product.places[1] is not None else [a] * len(blocks)
    return NotedProduct(frame, origins, [*own, *([b] * len(blocks))], taken)


def _scale(
    frame: KernelFrame, origins: Origins, step: Step, lane: int, block: int, count: int,
    given: int, rows: int, part: int, name: str, halves: bool,
) -> TakenMatrix:  # fmt: skip
    """The scales of each row, with all those of a row as one value."""
    memory = frame.tensor.memory
    places = tensoroperands.scale_cells(rows, halves)
    some = tensoroperands.cells(frame, step, lane, given & 0x3FFFFFFF, *places, f"the scale of {name}", block)[0]
    codes = memory.words[some] >> np.uint32(8 * part) & np.uint32((1 << 8 * count) - 1)
    return TakenMatrix(f"scale of {name}", codes[:, None], origins.of(memory, some[:, None]))
