"""The accumulator of a product in tensor memory: its cells and their codes (ISA 9.7.16.10.5).

A kernel accumulates into the same cells many times, so their numbers are cached. If the layout is a rectangle, its
codes are read and written as one slice, which costs a tenth of indexing cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxdiff.ptx.binding.program import Step
from ptxdiff.ptx.kernel import tensoroperands
from ptxdiff.ptx.kernel.frame import KernelFrame
from ptxdiff.ptx.kernel.tensormemory import COLUMNS, LANES
from ptxdiff.ptx.kernel.tensoroperands import Codes
from ptxdiff.ptx.numeric.vectorise import Array


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
    lanes, columns = tensoroperands.rows_of(*shape, ws)
    cells = tensoroperands.cells(frame, step, lane, given, lanes, columns, "d", block)
    made = Accumulator(key[0], given >> 16, given & 0xFFFF, ws, cells, cells.reshape(-1), lanes + (given >> 16))
    frame.tensor.accumulators[key] = made
    return made


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
