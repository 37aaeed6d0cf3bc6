"""On what evidence results pass, in words that stand beside every count of passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.records.types import EVIDENCE, Evidence, Result

_WORDS: dict[Evidence, str] = {"none": "assembled only", "model": "model alone"}


def evidence_of_passes(results: Iterable[Result]) -> dict[Evidence, int]:
    """How many results pass on each evidence, from the strongest to the weakest; what none has is left out."""
    counts = Counter(r.evidence for r in results if r.verdict == "pass")
    return {e: counts[e] for e in reversed(EVIDENCE) if counts[e]}


def passes(results: Iterable[Result]) -> str:
    """`12 passes (4 hardware, 3 confirmed, 5 model alone)`."""
    counts = evidence_of_passes(results)
    words = ", ".join(f"{n:,} {_WORDS.get(e, e)}" for e, n in counts.items())
    total = sum(counts.values())
    return f"{total:,} pass{'es' * (total != 1)}" + (f" ({words})" if words else "")
