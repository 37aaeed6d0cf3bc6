"""Records of whole strips of tensor memory say what records of each cell say."""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.kernel.tcgen05 import cell_access
from ptxdiff.emulator.kernel.tcgen05.cell_access import Rows
from ptxdiff.emulator.kernel.tcgen05.memory import CELLS, COLUMNS, CORES, TensorMemory, cell

NONE, EMPTY = np.zeros(0, np.int64), np.zeros((0, 0), np.int32)
LAST, ORDERS = 12, np.random.default_rng(7).integers(0, 2, 49).astype(np.uint8)


def block_of_cells(rng: np.random.Generator) -> np.ndarray:
    """Rows of cells of two blocks: whole strips by lane or by column, some lanes of strips, or a single cell."""
    columns = np.arange(int(rng.integers(1, 4))) + int(rng.integers(4))
    quarter = 32 * int(rng.integers(4))
    match rng.integers(7):
        case 0:
            found = cell(quarter + np.arange(32)[:, None], columns)
        case 1:
            found = cell(np.arange(128)[:, None], columns)
        case 2:
            found = cell(quarter + 16 + np.arange(16)[:, None], columns)
        case 3:
            found = cell(quarter + np.arange(32)[:, None] ^ 1, columns)  # whole strips, and not in order
        case 4:
            some = [0, 1, 3, *[2] * 29]  # as many cells as a strip has, and not all of them
            found = cell(quarter + np.array(some)[:, None], columns)
        case 5:
            found = cell(16 + np.arange(32)[:, None], columns)  # of two strips
        case _:
            found = cell(quarter + rng.integers(0, 32, (1, 1)), columns[:1])
    return np.stack([found.reshape(-1), CELLS + found.reshape(-1)])


def suspected(memory: TensorMemory, rows: Rows, accessor: np.ndarray, writes: int, role: int, since: int) -> bool:
    answer, cores = np.zeros(1, np.uint8), accessor >= CORES
    mine = np.where(cores, accessor, -1)
    warp = np.where(cores, 0, accessor % CORES + 1)
    agents = np.where(np.arange(128) == 4, 128, -1)
    times = np.full((1, 160), since, np.int32)
    cell_access.suspect(
        rows.first, rows.whole, mine, accessor % CORES, np.where(cores, mine, 0), warp, np.full(2, since),
        np.zeros(2, np.int64), np.zeros(2, np.int64), times, agents, ORDERS, CORES, writes, 1, 0, role, 3,
        memory.open.view(np.uint8).reshape(-1), *memory.records, answer,
    )  # fmt: skip
    return bool(answer[0])


def test_strips_agree_with_cells() -> None:
    """Random accesses of two blocks, in a memory whose strips are whole until they are split, and in one by cell."""
    rng, seen, apart = np.random.default_rng(2), {True: 0, False: 0}, 0
    for _ in range(150):
        strips, cells = TensorMemory(2), TensorMemory(2)
        cells.split[:] = 1
        for memory in (strips, cells):
            memory.open[:, :6] = True
        for now in range(1, LAST):
            some, kind = block_of_cells(rng), int(rng.integers(8))
            rows, by_cell = Rows.of(some), Rows(some, False)
            assert np.array_equal(np.unique(rows.first & ~(31 << 9)), np.unique(some & ~(31 << 9)))
            accessor = np.full(2, CORES + 4 if kind > 3 else int(rng.integers(4)))
            since, role, writes = int(rng.integers(LAST)), int(rng.integers(7)), int(rng.integers(2))
            answers = [
                suspected(memory, one, accessor, writes, role, since)
                for memory, one in ((strips, rows), (cells, by_cell))
            ]
            assert answers[0] == answers[1]
            seen[answers[0]] += 1
            known = np.full(2, since), np.full((2, 4), since, np.int32), np.full((2, 128), since, np.int32)
            for memory, one in ((strips, rows), (cells, by_cell)):
                cell_access.note(
                    kind, one.first, one.whole, accessor, np.full(2, since), now, role or 1, 3, 0, *known, CORES,
                    *memory.records,
                )  # fmt: skip
        apart += 0 < strips.split.sum() < strips.split.size
        everything = np.arange(2 * CELLS).reshape(-1, COLUMNS)[:, :8]
        strips.spread_out(everything)
        for ours, theirs in zip(strips.records[1:], cells.records[1:], strict=True):
            np.testing.assert_array_equal(ours[everything], theirs[everything])
    assert min(seen.values()) > 100
    assert apart > 50
