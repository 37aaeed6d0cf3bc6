"""The evidence of many results together: of one backend's passes the weakest counts, of several backends the best.

A pack that rests on a model is not proved by other packs of the same backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxdiff.records import Evidence, Result
from ptxdiff.records.compare import strength

Cell = tuple[str, str, str]
"""Case, variant and target."""


def weakest(results: Sequence[Result]) -> Evidence:
    """The weakest evidence of the passes among an item's results; without a pass, the best of all."""
    passes = [r.evidence for r in results if r.verdict == "pass"]
    return min(passes, key=strength) if passes else max((r.evidence for r in results), key=strength)


def evidence_of_cells(executed: Iterable[Result]) -> dict[Cell, str]:
    """The evidence by cell. executed: passes of backends that execute."""
    by_backend: dict[tuple[Cell, str], str] = {}
    for r in executed:
        place = (r.key.case, r.key.variant, r.key.target), r.key.backend
        by_backend[place] = min(by_backend.get(place, r.evidence), r.evidence, key=strength)
    best: dict[Cell, str] = {}
    for (cell, _), evidence in by_backend.items():
        best[cell] = max(best.get(cell, "none"), evidence, key=strength)
    return best
