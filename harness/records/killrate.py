"""How many planted mistakes a quick run catches, of those that are known to be wrong on some input."""

from __future__ import annotations

from collections.abc import Collection

from harness.records.rules import FATES
from harness.records.types import Mutation

KILLED_AND_FATES = ("killed", *FATES)

BY_PADDING = "fail by padding alone"


def totals(found: Collection[Mutation]) -> dict[str, int]:
    """The number of mutants that were killed, and by fate; also those "refused", "left out" and `BY_PADDING`."""
    counts = {fate: sum(m.count(fate) for m in found) for fate in KILLED_AND_FATES}
    counts |= {"refused": sum(m.refused for m in found), "left out": sum(m.left_out for m in found)}
    return counts | {BY_PADDING: sum(m.by_padding for m in found)}


def kill_rate(found: Collection[Mutation]) -> str:
    """`23 of 24 wrong mutants killed (95.83%)`. The rate is rounded down: it is 100% only if none was missed.

    Mutants that fail by padding alone may be right, and are not counted.
    """
    total = totals(found)
    wrong = total["killed"] + total["missed"]
    hundredths = 10_000 * total["killed"] // wrong if wrong else 0
    rate = f"{hundredths // 100}.{hundredths % 100:02}%" if wrong else "no rate"
    return f"{total['killed']} of {wrong} wrong mutants killed ({rate})"
