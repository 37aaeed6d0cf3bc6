"""A stand-in for a device: the emulator, with mistakes that tests plant."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxdiff.conformance.fetch import ComparedOnDevice, Identity
from ptxdiff.conformance.inputs import Inputs
from ptxdiff.conformance.measure import apart_of, run_emulated


@dataclass
class Pretended:
    """Returns the emulator's results. `wrong`: by form, a function that changes the results.

    `deadly`: forms whose compilation kills the process. `refused`: forms that the assembler refuses.
    """

    wrong: dict[str, Any] = field(default_factory=dict)
    deadly: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    checking: bool = True

    def __post_init__(self) -> None:
        self.identity = Identity("Pretended", "sm_90a", "1.0", "0.0")
        self.ready: dict[tuple[str, str], bool] = {}

    def compiled(self, snippets, checks):
        if any(s.form in self.deadly for s in snippets) and checks:
            os._exit(3)
        self.ready |= {(s.form, s.variant): checks and self.checking for s in snippets}
        return {n: "no such thing" for n, s in enumerate(snippets) if s.form in self.refused}

    def use(self):
        pass

    def run(self, snippet, columns):
        results = run_emulated(snippet, columns, self.identity.target)
        assert not isinstance(results, str), results
        change = self.wrong.get(snippet.form)
        return change(columns, results) if change else results

    def checks(self, snippet):
        return self.ready[snippet.form, snippet.variant]

    def check(self, snippet, start, count):
        columns = Inputs(snippet).drawn(start, min(count, 4096))
        want = run_emulated(snippet, columns, self.identity.target)
        apart = apart_of(snippet, want, self.run(snippet, columns))
        wrong = np.flatnonzero(apart < 0)
        farthest = int(np.argmax(apart))
        found = tuple(int(start + w) for w in wrong[:8])
        return ComparedOnDevice(len(wrong), found, max(int(apart[farthest]), 0), start + farthest)


def adds_one_to_nan(columns, results):
    """Results in which each NaN's pattern is one greater, as a wrong model of NaN would give."""
    (d,) = results
    return [np.where((d & 0x7FFFFFFF) > 0x7F800000, d ^ np.uint32(1), d)]


def one_ulp_off(columns, results):
    (d,) = results
    finite = (d & 0x7FFFFFFF < 0x7F800000) & (d & 0x7FFFFFFF > 0)
    return [np.where(finite & (columns[0] & 7 == 3), d + np.uint32(1), d)]
