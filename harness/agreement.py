"""Whether targets and variants agree: results of the same inputs, compared bit for bit with each other.

Apart from the reference: two targets may both lie within a bound and still give different bits, which somebody who
moves between them wants to know. Compared are a variant's results on its targets and backends, and, on one target,
variants that promise the same (one reference, one match policy). A difference is a fact of the later result, not a
verdict; where both are exact, one of them fails as well.
"""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.backends import Job, Outcome
from harness.case import Policies
from harness.judge import judge_same
from harness.records import Disagreement, Key

KEPT_BYTES = 64 << 20
"""How much of earlier outputs is kept for comparing."""
LINES_SHOWN = 12


@dataclass(frozen=True)
class _Witness:
    key: Key
    outputs: Mapping[str, NDArray[Any]]
    ptx: str


class Witnesses:
    """The first outputs for each setup and its inputs, for later targets and variants; the oldest go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], _Witness] = OrderedDict()
        self._bytes = 0

    def compare(
        self, key: Key, policy: Policies, job: Job, outcome: Outcome, inputs_digest: str
    ) -> tuple[Disagreement, ...]:
        """What differs between this outcome and those of other targets, backends and variants; keeps it for later.

        An outcome without outputs, or with findings, is left out: its bits mean nothing.
        """
        if not outcome.outputs or outcome.findings:
            return ()
        mine = _Witness(key, outcome.outputs, outcome.artifacts.ptx or "")
        found = []
        for name in _names(key, policy, inputs_digest):
            other = self._kept.get(name)
            if other is None:
                self._keep(name, mine)
            elif other.key != key and (difference := _difference(mine, other, job)):
                found.append(difference)
        return tuple(found)

    def _keep(self, name: tuple[object, ...], witness: _Witness) -> None:
        self._kept[name] = witness
        self._bytes += _size(witness)
        while self._bytes > KEPT_BYTES and self._kept:
            self._bytes -= _size(self._kept.popitem(last=False)[1])


def _names(key: Key, policy: Policies, inputs_digest: str) -> Iterator[tuple[object, ...]]:
    """Under what an outcome is compared: as its variant on any target, and as its promise on this target."""
    yield ("variant", replace(key, target="", backend=""), inputs_digest)
    promise = (policy.describe_match(), repr(policy.reference), tuple(sorted(policy.ftz.items())), policy.nan)
    anybody = replace(key, variant="", pack=0, num_warps=0, fusion=False)
    yield ("promise", anybody, promise, inputs_digest)


def _size(witness: _Witness) -> int:
    return sum(array.nbytes for array in witness.outputs.values())


def _difference(mine: _Witness, other: _Witness, job: Job) -> Disagreement | None:
    if all(_same(array, other.outputs.get(name)) for name, array in mine.outputs.items()):
        return None
    judgement = judge_same(job.case, job.inputs, other.outputs, mine.outputs, job.setup.pack)
    if not judgement.offenders:
        return None
    return Disagreement(other.key, judgement.different, judgement.offenders[0], ptx_lines(other.ptx, mine.ptx))


def _same(one: NDArray[Any], other: NDArray[Any] | None) -> bool:
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one is other or np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def ptx_lines(before: str, after: str) -> tuple[str, ...]:
    """The lines by which two PTX texts differ, `-` and `+` before them; headers, comments and declarations apart."""
    from harness.triton.ptxtext import body

    if not before or not after or before == after:
        return ()
    was, now = ([line for line in body(ptx).splitlines() if not line.startswith(".reg")] for ptx in (before, after))
    lines = difflib.unified_diff(was, now, n=0, lineterm="")
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    more = len(changed) - LINES_SHOWN
    return (*changed[:LINES_SHOWN], *([f"and {more} more"] if more > 0 else []))
