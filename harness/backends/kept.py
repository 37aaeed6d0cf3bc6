"""Outcomes of PTX on the CPU, kept in memory, so that each experiment runs once.

Targets with the same code share a run, and so do backends: machine code is compared with the bits that the emulator has
just computed for the same PTX, the same launch and the same inputs. All of these are in the experiment's identity.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ptxdiff.jobs import Outcome
from ptxdiff.model.identity.definition import Experiment
from ptxdiff.model.match import read_only

_KEPT_RESULTS = 512
_KEPT_BYTES = 256 << 20  # of outputs: enough for a variant's results on one target, which the next target reuses


class KeptOutcomes:
    """The latest outcomes, by experiment."""

    def __init__(self) -> None:
        self._results: OrderedDict[Experiment, Outcome] = OrderedDict()
        self._bytes = 0

    def once(self, identity: Experiment, compute: Callable[[], Outcome]) -> Outcome:
        """The kept outcome of an experiment, else the computed one. Errors, such as a time limit, are not kept."""
        if identity in self._results:
            return self._results[identity]
        outcome = replace(compute(), identity=identity.digest)
        if outcome.status == "ran":
            # Read only, because callers share the kept arrays.
            kept = {n: read_only(bits) for n, bits in outcome.outputs.items()}
            other = {n: read_only(bits) for n, bits in outcome.alternative.items()}
            orders = {w: {n: read_only(bits) for n, bits in o.items()} for w, o in outcome.orders.items()}
            outcome = replace(outcome, outputs=kept, alternative=other, orders=orders)
            self._results[identity] = outcome
            self._bytes += _size(outcome)
            while len(self._results) > _KEPT_RESULTS or self._bytes > _KEPT_BYTES:
                self._bytes -= _size(self._results.popitem(last=False)[1])
        return outcome


def _size(outcome: Outcome) -> int:
    """The size of an outcome's outputs in bytes."""
    every = (outcome.outputs, outcome.alternative, *outcome.orders.values())
    return sum(np.asarray(bits).nbytes for outputs in every for bits in outputs.values())
