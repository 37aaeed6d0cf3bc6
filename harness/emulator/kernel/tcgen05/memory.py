"""Tensor memory: 128 lanes and 512 columns of 32 bits for each block, their allocation, and the last access to each
cell.

A cell's number combines block, lane and column; an access is an array of these numbers. Races are found by time, as in
shared memory (`ptxdiff.emulator.kernel.memory.space.Shared`). Accesses are by warps, whose threads load and store
together, and by the tensor cores on behalf of a thread.

Columns are allocated from the highest down, aligned to their count (ISA 9.7.16.1.2 leaves the choice open). So a kernel
that assumes column 0 accesses columns that are not allocated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.machine.large_arrays import full, zeros
from ptxdiff.emulator.numeric.vectorise import Array

LANES, COLUMNS = 128, 512
CELLS = LANES * COLUMNS
CORES = 1 << 12
"""Warps have their number as accessor; the tensor cores have this plus the number in the cluster of their thread."""
_NOBODY, SEVERAL = -1, -2


def cell(lane: Array | int, column: Array | int) -> Array:
    """The numbers of cells in a block."""
    return np.asarray(np.asarray(lane) * COLUMNS + np.asarray(column))


@dataclass
class Columns:
    """Columns allocated to a block: the first, their count, and the step that allocated them."""

    first: int
    count: int
    step: Step


class TensorMemory:
    """The tensor memory of the blocks of a frame.

    `undefined`: undefined bits. `busy`, `being_read`: operations under way that write, or read, a cell.
    `storing`: the warp (from 1) that has not waited for its store to a cell. `loading`: how many warps have not waited
    for their load of a cell. `role`, `accumulator`: what the last operation did with a cell, and the number of the
    accumulator that a product wrote (`ptxdiff.emulator.kernel.tcgen05.in_flight`). `split`: the strips whose cells have
    records of their own (`ptxdiff.emulator.kernel.tcgen05.cell_access`); see `spread_out`. `latest`: how many columns a
    block has allocated last. `promised`: columns that the other block of a pair has allocated, before a warp of this
    block has asked for them.
    """

    def __init__(self, blocks: int) -> None:
        size = blocks * CELLS
        self._words, self._undefined = zeros(size, np.uint32), full(size, 0xFFFFFFFF, np.uint32)
        self._uses = 0
        self._kept: tuple[tuple[object, ...], Array] = (), self._words
        self.busy, self.being_read = zeros(size, np.int16), zeros(size, np.int16)
        self.storing, self.loading = zeros(size, np.int8), zeros(size, np.int16)
        self.role, self.accumulator = zeros(size, np.int8), zeros(size, np.int32)
        self.unfenced = zeros(size, np.bool_)
        self.split = np.zeros(size // 32, np.uint8)
        self.held: list[list[Columns]] = [[] for _ in range(blocks)]
        self.open = np.zeros((blocks, COLUMNS), np.bool_)
        self.promised: list[list[Columns]] = [[] for _ in range(blocks)]
        self.freed: list[dict[int, Step]] = [{} for _ in range(blocks)]
        self.latest: list[Columns | None] = [None] * blocks
        self.may_allocate: list[Step | None] = [None] * blocks
        self.writer, self.reader = full(size, _NOBODY, np.int32), full(size, _NOBODY, np.int32)
        self.written, self.read = zeros(size, np.int32), zeros(size, np.int32)  # of nobody, so of no meaning

    @property
    def words(self) -> Array:
        """The bits of each cell; who takes them may change them."""
        self._uses += 1
        return self._words

    @words.setter
    def words(self, values: Array) -> None:
        self._uses += 1
        self._words = values

    @property
    def undefined(self) -> Array:
        """The undefined bits of each cell; who takes them may change them."""
        self._uses += 1
        return self._undefined

    def keep(self, values: Array, *cells: object) -> None:
        """Remember that some cells have these values, all bits of which are defined, until somebody takes `words` or
        `undefined`. cells: what names them, and which of their bits the values are."""
        self._kept = (self._uses, *cells), values

    def kept(self, *cells: object) -> Array | None:
        """What `keep` remembers of these cells; None: nothing, or no longer."""
        return self._kept[1] if self._kept[0] == (self._uses, *cells) else None

    @property
    def records(self) -> tuple[Array, ...]:
        """What is recorded of each cell, as `ptxdiff.emulator.kernel.tcgen05.cell_access` takes it."""
        return (
            self.split, self.busy, self.being_read, self.storing, self.loading, self.role, self.accumulator,
            self.unfenced.view(np.uint8), self.writer, self.reader, self.written, self.read,
        )  # fmt: skip

    def spread_out(self, cells: Array) -> None:
        """Give some cells the records of their strips, so that they can be looked up by cell."""
        cells = cells.reshape(-1)
        strips = cells // CELLS * (CELLS // 32) + cells // (32 * COLUMNS) % 4 * COLUMNS + cells % COLUMNS
        some = cells[self.split[strips] == 0]
        first = some - some // COLUMNS % 32 * COLUMNS
        for of in (*self.records[1:7], self.unfenced, *self.records[8:]):
            of[some] = of[first]

    # columns ---------------------------------------------------------------------------------------------

    def allocate(self, step: Step, blocks: list[int], count: int) -> int | None:
        """Allocate `count` columns that are free in all `blocks` and return the first; None if there are too few."""
        for first in range(COLUMNS - count, -1, -count):
            if not self.open[blocks, first : first + count].any():
                for block in blocks:
                    self.open[block, first : first + count] = True
                    self.latest[block] = Columns(first, count, step)
                    self.held[block].append(Columns(first, count, step))
                    for number in range(first, first + count):
                        self.freed[block].pop(number, None)
                    self._forget(block, first, count)
                return first
        return None

    def free(self, step: Step, block: int, found: Columns) -> None:
        """Free columns."""
        self.held[block].remove(found)
        self.open[block, found.first : found.first + found.count] = False
        self.freed[block].update(dict.fromkeys(range(found.first, found.first + found.count), step))
        self._forget(block, found.first, found.count)

    def _forget(self, block: int, first: int, count: int) -> None:
        """Reset the records of cells that are allocated or freed."""
        whole = slice(block * CELLS, (block + 1) * CELLS)
        some = slice(first, first + count)
        for of, value in ((self.undefined, 0xFFFFFFFF), (self.writer, _NOBODY), (self.reader, _NOBODY)):
            of[whole].reshape(LANES, COLUMNS)[:, some] = value
        self.unfenced[whole].reshape(LANES, COLUMNS)[:, some] = False

    def cells_of(self, block: int, found: Columns) -> Array:
        """The numbers of all cells in columns of a block."""
        numbers = cell(np.arange(LANES)[:, None], np.arange(found.first, found.first + found.count))
        return np.asarray(block * CELLS + numbers.reshape(-1))

    # who touched what ------------------------------------------------------------------------------------

    def note_read(self, cells: Array, who: Array | int, now: int, since: Array | int) -> None:
        """Record reads at time `now`; `since`: when the reader last passed a barrier with the others."""
        old = self.reader[cells]
        recent = (self.read[cells] >= since) & (old != who) & (old != _NOBODY)
        self.reader[cells] = np.where(recent, SEVERAL, who)
        self.read[cells] = now

    def note_write(self, cells: Array, who: Array | int, now: int) -> None:
        """Record writes at time `now`."""
        self.writer[cells] = who
        self.written[cells] = now

    def written_by_others(self, cells: Array, who: Array | int, since: Array | int, cores: int = 0) -> Array:
        """Which cells others wrote since `since`. cores: a second number of the accessor; 0: none."""
        return self._others(self.writer, self.written, cells, who, since, cores)

    def read_by_others(self, cells: Array, who: Array | int, since: Array | int, cores: int = 0) -> Array:
        """Which cells others read since `since`. cores: a second number of the accessor; 0: none."""
        return self._others(self.reader, self.read, cells, who, since, cores)

    def _others(self, by: Array, when: Array, cells: Array, who: Array | int, since: Array | int, cores: int) -> Array:
        found = by[cells]
        mine = (found == who) | (found == _NOBODY) | ((found == cores) & (cores > 0))
        return np.asarray(~mine & (when[cells] >= since))
