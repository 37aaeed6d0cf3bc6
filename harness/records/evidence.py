"""The evidence of passes, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ptxdiff.records.types import EVIDENCE, Result

ASSEMBLED = "assembled"
_WORDS = {"none": "without evidence"}
_ORDER = (*reversed(EVIDENCE[1:]), ASSEMBLED, "none")


def evidence_of_passes(results: Iterable[Result]) -> Counter[str]:
    """The number of passes by evidence; those of the assembler are counted apart. Expected failures are not passes."""
    return Counter(_evidence(r) for r in results if r.verdict == "pass" and not r.expected_failure)


def _evidence(result: Result) -> str:
    return ASSEMBLED if result.key.backend == "assembler" else result.evidence


def beside(counts: Mapping[str, int]) -> str:
    """The counts in parentheses, to follow the number of passes: ` (3 hardware, 2 model)`; "" for none."""
    words = [
        f"{counts[name]:,} {'without evidence' if name == 'none' else name}" for name in _ORDER if counts.get(name)
    ]
    return f" ({', '.join(words)})" if words else ""


def passes(results: Iterable[Result]) -> str:
    """`12 passes (4 hardware, 3 confirmed, 5 model)`."""
    counts = evidence_of_passes(results)
    total = counts.total()
    return f"{total:,} pass{'es' * (total != 1)}{beside(counts)}"
