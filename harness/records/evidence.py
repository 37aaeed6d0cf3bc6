"""What passes rest on, counted: a pass on a model, or of the assembler, is not one on a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from harness.records.types import Result

BASES = ("hardware", "confirmed", "specification", "model", "assembled", "none")


def basis(result: Result) -> str:
    """What a pass rests on: its evidence, or "assembled" where nothing was executed."""
    if result.key.backend == "assembler":
        return "assembled"
    return result.evidence if result.evidence in BASES else "none"


def bases(results: Iterable[Result]) -> Counter[str]:
    """How many passes rest on what; failures that cases declare are no passes."""
    return Counter(basis(r) for r in results if r.verdict == "pass" and not r.expected_failure)


def beside(counts: Mapping[str, int]) -> str:
    """The counts as they stand beside the number of passes, ` (3 hardware, 2 model)`; empty for none."""
    words = [f"{counts[name]:,} {name if name != 'none' else 'without evidence'}" for name in BASES if counts.get(name)]
    return f" ({', '.join(words)})" if words else ""
