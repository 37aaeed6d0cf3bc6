"""Distances of the results that a sweep did not flag, from the tallies of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.generated import Counted
from ptxdiff.judging.judge import add_counts
from ptxdiff.sweep.oracle import NEAR, Oracle
from ptxdiff.sweep.result import ROW


class Near:
    """The distances in tallies. columns: the fused function's tallies by the oracle's names, one number for each row of
    inputs.

    far: rows with a distance beyond `NEAR`, which the second pass must count. worst: the greatest distance in ulp, and
    worst_row its row, or -1 if all distances are zero.
    """

    def __init__(self, oracle: Oracle, columns: Mapping[str, NDArray[Any]]) -> None:
        self.oracle, self.columns = oracle, columns
        self.floats = [n for n, f in oracle.outputs.items() if f.is_float]
        rows = len(columns["flagged"])
        self.low, self.high = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        for n in self.floats:
            self.low = np.minimum(self.low, columns[f"{n}:low"])
            self.high = np.maximum(self.high, columns[f"{n}:high"])
        self.far = (self.low < NEAR[0]) | (self.high > NEAR[-1])
        size = np.maximum(-self.low, self.high)
        self.worst = int(size.max()) if rows else 0
        self.worst_row = int(size.argmax()) if self.worst else -1

    def histogram(self) -> dict[str, int]:
        """Counts of the signed distances of rows that are not far."""
        counted: dict[str, int] = {}
        for n in self.floats:
            rest = self.columns[f"{n}:finite"][~self.far].sum()
            for d in NEAR:
                count = int(self.columns[f"{n}:{d}"][~self.far].sum())
                rest -= count
                add_counts(counted, {str(d): count} if count else {})
            add_counts(counted, {"0": int(rest)} if rest else {})
        return counted

    def ranges(self, first: int, low: NDArray[np.int64], high: NDArray[np.int64]) -> dict[str, tuple[int, int]]:
        """Extremes by binary exponent of the first input, for rows with one exponent.

        first: the number of the first row's first input. low, high: by row, the extremes of individually examined
        results.
        """
        low, high = np.minimum(self.low, low), np.maximum(self.high, high)
        generator = self.oracle.generator
        name, fmt = next(iter(self.oracle.inputs.items()))
        fraction = fmt.mantissa_bits + fmt.ignored_bits
        if not isinstance(generator, Counted) or not fmt.is_float or fmt.codes_per_unit > 1 or not self.floats:
            return {}
        if (1 << (generator.shifts[name] + fraction)) < ROW:
            return {}
        field = ((first + np.arange(len(self.low)) * ROW) >> (generator.shifts[name] + fraction)) & (
            (1 << fmt.exponent_bits) - 1
        )
        last = (1 << fmt.exponent_bits) - 1 if fmt.infinity else -1
        found = {}
        for e in np.unique(field[field != last]).tolist():
            found["sub" if e == 0 else str(e - fmt.bias)] = (int(low[field == e].min()), int(high[field == e].max()))
        return found
