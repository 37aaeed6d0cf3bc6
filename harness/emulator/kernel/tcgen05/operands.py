"""The matrices of tcgen05.mma: a and b in shared memory; a, d and the scales in tensor memory (ISA 9.7.16.10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.space import SHARED_BASE
from ptxdiff.emulator.kernel.tcgen05.memory import CELLS, COLUMNS, LANES, cell
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array


@dataclass(frozen=True, eq=False)
class Accumulator:
    """The accumulator's m x n elements in a block, from an address on. `cells`: the number of each cell; `lanes`: its
    lane.

    `flat`: the same numbers in one dimension, always the same array (see `TensorWork.issue`).
    """

    block: int
    first_lane: int
    first: int
    ws: bool
    cells: Array
    flat: Array
    lanes: Array

    def window(self, of: Array) -> Array | None:
        """A view of the cells as rows x columns, or 4 x 16 x columns; None if they are no rectangle."""
        m, n = self.cells.shape
        whole = of.reshape(-1, LANES, COLUMNS)[self.block, :, self.first : self.first + n]
        if m == LANES:
            return whole
        return None if self.ws else whole.reshape(4, 32, n)[:, self.first_lane : self.first_lane + 16]

    def read(self, of: Array) -> Array:
        """The values of an array at the cells, m x n."""
        found = self.window(of)
        return np.asarray(of[self.cells] if found is None else found.reshape(self.cells.shape))

    def write(self, of: Array, what: Array, chosen: Array | None) -> None:
        """Set the values of an array at the cells, or at some of them."""
        found = self.window(of) if chosen is None else None
        if found is not None:
            found[...] = what.reshape(found.shape)
        elif chosen is None:
            of[self.cells] = what
        else:
            of[self.cells[chosen]] = what[chosen]


def accumulator(
    frame: KernelFrame, step: Step, lane: int, given: int, shape: tuple[int, int], ws: bool, block: int
) -> Accumulator:
    """The accumulator of a shape at an address in a block. Raises MemoryFault outside of tensor memory."""
    key = (block, given, shape, ws)
    found = frame.tensor.accumulators.get(key)
    if isinstance(found, Accumulator):
        return found
    lanes, columns = rows_of(*shape, ws)
    held = cells(frame, step, lane, given, lanes, columns, "d", block)
    made = Accumulator(key[0], given >> 16, given & 0xFFFF, ws, held, held.reshape(-1), lanes + (given >> 16))
    frame.tensor.accumulators[key] = made
    return made


def _of_blocks(some: Sequence[Accumulator], of: Array) -> Array | None:
    """A view of an array at accumulators of consecutive blocks, blocks x rows x columns; None: not all lanes, or not
    alike."""
    first, (m, n) = some[0], some[0].cells.shape
    alike = all(one.first == first.first and one.block == first.block + number for number, one in enumerate(some))
    if m != LANES or first.ws or not alike:
        return None
    return of.reshape(-1, LANES, COLUMNS)[first.block : first.block + len(some), :, first.first : first.first + n]


def read_of_blocks(some: Sequence[Accumulator], of: Array) -> Array:
    """The values of an array at accumulators of one shape: blocks x m x n."""
    found = _of_blocks(some, of)
    return np.stack([one.read(of) for one in some]) if found is None else found


def write_of_blocks(some: Sequence[Accumulator], of: Array, what: Array) -> None:
    """Set the values of an array at accumulators of one shape: blocks x m x n."""
    found = _of_blocks(some, of)
    if found is not None:
        found[...] = what
        return
    for one, own in zip(some, what, strict=True):
        one.write(of, own, None)


def codes(frame: KernelFrame, of: Accumulator, kind: str) -> Codes:
    """The codes of d, and which of them have undefined bits."""
    low = np.uint32(0xFFFF if kind == "f16" else 0xFFFFFFFF)
    memory = frame.tensor.memory
    doubt = of.read(memory.undefined) & low
    return of.read(memory.words) & low, np.asarray(doubt != 0) if doubt.any() else None


def store(frame: KernelFrame, of: Accumulator, result: Array, doubts: Array, kind: str, chosen: Array | None) -> None:
    """Write results to the cells; the upper half of the cell of a 16-bit result becomes undefined."""
    memory = frame.tensor.memory
    of.write(memory.words, result, chosen)
    of.write(memory.undefined, doubts | np.uint32(0xFFFF0000 if kind == "f16" else 0), chosen)


BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4, "s8": 8, "u8": 8}
Codes = tuple[Array, Array | None]
"""Codes, and which of them have undefined bits (None: none of them)."""


@dataclass(frozen=True)
class TensorOperand:
    """A matrix: rows of a (columns of b), k, type, whether it is MN-major; `dense`: two 4-bit elements in a byte."""

    name: str
    rows: int
    k: int
    type: str
    across: bool = False
    dense: bool = False

    @property
    def element(self) -> int:
        """Bits of a stored element, including its share of padding."""
        return max(BITS[self.type], 8) if not self.dense else 4


def values(frame: KernelFrame, step: Step, readers: tuple[ReadSlot, ...], lanes: Array) -> list[list[int]]:
    """The operands' values in each of some lanes."""
    columns = []
    for reader in readers:
        value, mask = frame.read(reader)
        if mask is not None:
            doubt = np.broadcast_to(mask, (frame.lanes,))[lanes]
            frame.refuse_undefined(step, doubt, lanes, f"an operand of {step.bound.spelling}")
        columns.append(np.broadcast_to(value, (frame.lanes,))[lanes].tolist())
    return [list(row) for row in zip(*columns, strict=True)]


# shared memory ----------------------------------------------------------------------------------------------------


def shared_offsets(frame: KernelFrame, step: Step, lane: int, code: int, found: TensorOperand, block: int) -> Array:
    """The offsets of a matrix's chunks in the shared memory of all blocks. Raises ExecutionError and MemoryFault."""
    descriptor = decoded(code)
    who = f"the descriptor of {found.name} of {frame.who(lane)}"
    if isinstance(descriptor, str):
        raise frame.fault(ExecutionError, step, f"{who}: {descriptor}")
    if (descriptor.swizzle.part == 32) != (found.across and found.type == "tf32"):
        parts = "in parts of 32 bytes" if descriptor.swizzle.part == 32 else "otherwise than in parts of 32 bytes"
        layout = "MN-major" if found.across else "K-major"
        text = f"{who} swizzles {parts}; a {layout} matrix of {found.type} cannot be swizzled that way (ISA 9.7.16.4.2)"
        raise frame.fault(ExecutionError, step, text)
    each = 128 // found.element
    depth = found.k if found.across else found.k * found.element // 8
    if not found.across and 16 < descriptor.swizzle.row < depth:
        text = f"{who} states a swizzle of {descriptor.swizzle.row} bytes, and {depth} bytes lie along k: the ISA does "
        raise frame.fault(ExecutionError, step, f"{text}not say where those beyond its rows are")
    address = addresses(descriptor, found.across, found.rows, depth, each).reshape(-1)
    offsets = address - SHARED_BASE
    shared = frame.shared
    if offsets.min() < 0 or offsets.max() + 16 > shared.limit:
        bad = offsets[(offsets < 0) | (offsets + 16 > shared.limit)]
        text = f"{who} reaches offset {int(bad[0])}, outside the {shared.limit} bytes of shared memory (start "
        text += f"{descriptor.start - SHARED_BASE}, leading offset {descriptor.leading}, stride {descriptor.stride})"
        raise frame.fault(MemoryFault, step, text)
    frame.promises.note_layout(step, offsets, descriptor.swizzle.row, block * frame.grid.threads, found.name)
    return np.asarray(offsets + block * shared.size)


def from_shared(frame: KernelFrame, offsets: Array, found: TensorOperand) -> Codes:
    """The codes of a matrix, rows x k, read from its chunks."""
    shared = frame.shared
    data = shared.bytes.reshape(-1, 16)[offsets // 16]
    doubt = shared.undefined.reshape(-1, 16)[offsets // 16]
    return _arranged(unpacked(data, found), found), None if not doubt.any() else _arranged(
        _doubtful(doubt, found), found
    )


def unpacked(octets: Array, found: TensorOperand) -> Array:
    """The elements of 16-byte chunks: chunks x elements."""
    bits = BITS[found.type]
    if bits >= 8:
        return np.asarray(np.ascontiguousarray(octets).view(UNSIGNED[bits]).astype(np.uint32))
    if found.dense:
        return np.asarray(np.stack([octets & 15, octets >> 4], -1).reshape(len(octets), -1).astype(np.uint32) << 2)
    if bits == 4:
        low = octets[:, :8]
        return np.asarray(np.stack([low & 15, low >> 4], -1).reshape(-1, 16).astype(np.uint32) << 2)
    triples = octets[:, :12].reshape(-1, 3).astype(np.uint32)
    whole = triples[:, 0] | triples[:, 1] << 8 | triples[:, 2] << 16
    return np.asarray(np.stack([whole >> 6 * n & 63 for n in range(4)], -1).reshape(-1, 16))


def _doubtful(mask: Array, found: TensorOperand) -> Array:
    """Which elements have undefined bits; padding does not count."""
    return np.asarray(unpacked(mask, found) != 0)


def _arranged(elements: Array, found: TensorOperand) -> Array:
    if found.across:
        wide = elements.reshape(found.k, -1)[:, : found.rows]
        return np.ascontiguousarray(wide.T)
    return np.ascontiguousarray(elements.reshape(found.rows, found.k))


def arranged_of_blocks(elements: Array, found: TensorOperand, count: int) -> Array:
    """Elements of the chunks of as many blocks, block by block, as blocks x rows x k."""
    if found.across:
        return np.asarray(elements.reshape(count, found.k, -1)[:, :, : found.rows].transpose(0, 2, 1))
    return np.asarray(elements.reshape(count, found.rows, found.k))


def swizzle_of(code: int) -> int:
    """The bytes of a swizzle's row in a valid descriptor."""
    descriptor = decoded(code)
    assert not isinstance(descriptor, str)
    return descriptor.swizzle.row


# tensor memory ----------------------------------------------------------------------------------------------------


@cache
def rows_of(m: int, n: int, ws: bool) -> tuple[Array, Array]:
    """Lane and column, relative to the first, of every element of an m x n accumulator (ISA 9.7.16.10.5).

    Layout D: 128 rows in as many lanes. F: 64 rows, 16 in each quarter of the lanes. E and G (.ws): 64 or 32 rows, and
    halves or quarters of the columns in the other lanes.
    """
    row, column = np.meshgrid(np.arange(m), np.arange(n), indexing="ij")
    if m == 128:
        return row, column
    if not ws:
        return row // 16 * 32 + row % 16, column
    each = n * m // 128
    return row + column // each * m, column % each


def cells(
    frame: KernelFrame, step: Step, lane: int, given: int, lanes: Array, columns: Array, name: str, block: int
) -> Array:
    """The numbers of a block's cells, from an address on. Raises MemoryFault outside of tensor memory."""
    first_lane, first = given >> 16, given & 0xFFFF
    last_lane, last = first_lane + int(lanes.max()), first + int(columns.max())
    if last_lane >= CELLS // COLUMNS or last >= COLUMNS:
        text = f"{name} of {frame.who(lane)} at address 0x{given:x} reaches lane {last_lane}, column {last} of tensor "
        raise frame.fault(MemoryFault, step, f"{text}memory, which has {CELLS // COLUMNS} lanes and {COLUMNS} columns")
    return np.asarray(block * CELLS + cell(lanes + first_lane, columns + first))


def refuse_unwritten(frame: KernelFrame, step: Step, lane: int, some: Array, name: str) -> None:
    """Raise MemoryFault if an operand lies in cells that were never written."""
    memory = frame.tensor.memory
    memory.spread_out(some)
    bad = (memory.writer[some] == -1) & (memory.undefined[some] == 0xFFFFFFFF)
    if bad.any():
        number = int(some.reshape(-1)[np.flatnonzero(bad.reshape(-1))[0]])
        text = f"{frame.who(lane)} takes {name} from {frame.tensor.place(number)}, which was never written"
        raise frame.fault(MemoryFault, step, text)


def cells_of_a(
    frame: KernelFrame, step: Step, lane: int, given: int, a: TensorOperand, copies: int, block: int
) -> Array:
    """The cells of a from an address on: rows x columns of 32 bits, once for each copy, copies below each other.

    Where d's columns lie in halves or quarters of the lanes (layouts B, E and G), each of these has all rows of a. That
    is CUTLASS's layout for pairs of blocks (`tmem_frg_2sm`, TmemAllocMode::Duplicated), and FlashMLA's for .ws
    (`tmem_frg_elastic`); the ISA has no figure of it. Raises MemoryFault outside of tensor memory.
    """
    lanes, columns = rows_of(copies * a.rows, a.k * a.element // 32, False)
    return cells(frame, step, lane, given, lanes, columns, "a", block)


def refuse_torn_rows(frame: KernelFrame, step: Step, lane: int, some: Array, rows: int) -> None:
    """Raise ExecutionError if copies of a row of a differ."""
    memory, copies = frame.tensor.memory, some.reshape(-1, rows, some.shape[1])
    words, known = memory.words[copies], ~memory.undefined[copies]
    torn = ((words ^ words[0]) & known & known[0]) != 0
    if torn.any():
        copy, row, column = (int(x[0]) for x in np.nonzero(torn))
        text = f"row {row} of a of {frame.who(lane)} differs between {frame.tensor.place(int(copies[0, row, column]))} "
        text += f"and lane {int(copies[copy, row, column]) % CELLS // COLUMNS}: each {rows} lanes have the same rows "
        raise frame.fault(ExecutionError, step, text + "of a, as they multiply them by columns of b of their own")


def from_cells(frame: KernelFrame, some: Array, found: TensorOperand) -> Codes:
    """The codes of a matrix from cells (rows x columns of 32 bits). Elements of 6 and 4 bits take a byte each.

    Of a matrix in several copies, below each other, an element is undefined if it is in any.
    """
    memory, copies = frame.tensor.memory, some.reshape(-1, found.rows, some.shape[1])
    words = np.ascontiguousarray(memory.words[copies[0]])
    doubt = np.bitwise_or.reduce(memory.undefined[copies], axis=0)
    bits = max(BITS[found.type], 8)

    def elements(of: Array) -> Array:
        octets: Any = of.view(UNSIGNED[8 if found.dense else bits]).reshape(found.rows, -1)
        if found.dense:
            return np.asarray(np.stack([octets & 15, octets >> 4], -1).reshape(found.rows, -1).astype(np.uint32) << 2)
        return np.asarray(octets.astype(np.uint32))

    return elements(words), None if not doubt.any() else elements(doubt) != 0


@cache
def scale_cells(rows: int, halves: bool = False) -> tuple[Array, Array]:
    """Lane and column of the scales of each row of a, or column of b, in each of their copies: copies x rows.

    There is a copy in each quarter of the lanes (ISA 9.7.16.10.7). halves: lanes 0 to 63 have those of the first half
    of b's columns, twice, and lanes 64 to 127 those of the second, as they have these columns of d (layout B). That
    is CUTLASS's layout (`tmem_sf_frg`, ScaleFactorDuplicated2by2); the ISA has no figure of it.
    """
    copy, row = np.meshgrid(np.arange(2 if halves else 4), np.arange(rows), indexing="ij")
    half, row = divmod(row, rows // 2) if halves else (0, row)
    return 64 * half + 32 * copy + row % 32, row // 32


def scales(frame: KernelFrame, step: Step, lane: int, some: Array, part: int, count: int, name: str) -> Codes:
    """The codes of scales, rows x blocks, from the cells of all copies.

    Raises ExecutionError if the copies differ.
    """
    memory = frame.tensor.memory
    words, doubt = memory.words[some], memory.undefined[some]
    shifts = (part + np.arange(count, dtype=np.uint32)) * np.uint32(8)
    codes = words[..., None] >> shifts & np.uint32(0xFF)
    masks = doubt[..., None] >> shifts & np.uint32(0xFF)
    torn = ((codes != codes[0]) & (masks == 0) & (masks[0] == 0)).any(axis=2)
    if torn.any():
        copy, row = (int(x[0]) for x in np.nonzero(torn))
        text = f"{name} of row {row} differs between {frame.tensor.place(int(some[0, row]))} and lane "
        have = "all four quarters of the lanes have" if len(some) == 4 else "both quarters of a half of the lanes have"
        text += f"{int(some[copy, row]) % CELLS // COLUMNS}: {have} the same scales"
        raise frame.fault(ExecutionError, step, text)
    bad = (masks != 0).any(axis=0)
    return np.ascontiguousarray(codes[0]), bad if bad.any() else None


# The layouts of matrices in shared memory that tcgen05's descriptors state (ISA 9.7.16.4.1) ------------------------
#
# The layouts are those of wgmma (`ptxdiff.emulator.kernel.wgmma.descriptors`), here for elements of any size: the
# smallest part is a chunk of 16 bytes, eight chunks make a core matrix, and a swizzle has rows of 32, 64 or 128 bytes.
# Two things differ: the places of the fields, and a swizzle of 128 bytes in parts of 32, which MN-major tf32 uses.
# There a group has four rows.

_FIELD = (1 << 14) - 1
_USED = _FIELD | _FIELD << 16 | _FIELD << 32 | 7 << 46 | 7 << 49 | 1 << 52 | 7 << 61


@dataclass(frozen=True)
class Swizzle:
    """A swizzle: bytes of a row, and bytes of the parts that it exchanges."""

    row: int
    part: int = 16


SWIZZLES = {0: Swizzle(16), 1: Swizzle(128, 32), 2: Swizzle(128), 4: Swizzle(64), 6: Swizzle(32)}
"""The swizzle for each mode (the three highest bits); rows of 16 bytes: no swizzle."""


@dataclass(frozen=True)
class MatrixDescriptor:
    """A matrix's address in shared memory and its two offsets, all in bytes, and its swizzle."""

    start: int
    leading: int
    stride: int
    swizzle: Swizzle

    @property
    def code(self) -> int:
        """The descriptor's 64 bits."""
        mode = next(m for m, found in SWIZZLES.items() if found == self.swizzle)
        parts = (self.start >> 4 & _FIELD, (self.leading >> 4 & _FIELD) << 16, (self.stride >> 4 & _FIELD) << 32)
        return sum(parts) | 1 << 46 | mode << 61


def decoded(code: int) -> MatrixDescriptor | str:
    """The descriptor that 64 bits encode, or an error message for bits that the emulator does not support."""
    if code & ~_USED:
        return f"it has set bits outside its fields (0x{code & ~_USED:x})"
    if code >> 46 & 7 != 1:
        return f"bits 46 to 48 are {code >> 46 & 7}, which ISA 9.7.16.4.1 fixes at 1 (a descriptor of wgmma has 0)"
    if code >> 49 & 7 and code >> 61:  # ISA 9.7.15.5.1: the field applies to all modes with a swizzle
        return f"its base offset is {code >> 49 & 7}; the emulator supports only 0, the base offset of aligned matrices"
    if code >> 52 & 1:
        return "its leading dimension is an absolute address (bit 52), which the emulator does not run"
    if code >> 61 not in SWIZZLES:
        return f"its swizzling mode is {code >> 61}; there are 0, 1, 2, 4 and 6"
    parts = [(code >> at & _FIELD) << 4 for at in (0, 16, 32)]
    return MatrixDescriptor(parts[0], parts[1], parts[2], SWIZZLES[code >> 61])


@cache
def _along(across: bool, swizzle: Swizzle, rows: int, depth: int, each: int) -> tuple[Array, Array, Array]:
    """For each chunk: the bytes within the swizzle's rows, and the multiples of the leading and of the stride offset.

    across: MN-major. depth: bytes of a row along k; if across, k itself. each: elements of a chunk. Shape of the
    results: rows x chunks along k; if across, k x chunks along the rows.
    """
    row_bytes = swizzle.row
    if across:
        k, chunk = np.meshgrid(np.arange(depth), np.arange(-(-rows // each)), indexing="ij")
        if row_bytes == 16:
            return k % 8 * 16, k // 8, chunk
        group = 4 if swizzle.part == 32 else 8
        return k % group * row_bytes + chunk % (row_bytes // 16) * 16, chunk // (row_bytes // 16), k // group
    row, chunk = np.meshgrid(np.arange(rows), np.arange(depth // 16), indexing="ij")
    if row_bytes == 16:
        return row % 8 * 16, chunk, row // 8
    return row % 8 * row_bytes + chunk * 16, 0 * row, row // 8


def addresses(found: MatrixDescriptor, across: bool, rows: int, depth: int, each: int) -> Array:
    """The address in shared memory of every chunk; see `_along`."""
    own, leading, stride = _along(across, found.swizzle, rows, depth, each)
    address = found.start + own + leading * found.leading + stride * found.stride
    if found.swizzle.part == 32:
        return np.asarray(address ^ (address >> 7 & 3) << 5)
    return np.asarray(address ^ (address >> 7 & found.swizzle.row // 16 - 1) << 4)
