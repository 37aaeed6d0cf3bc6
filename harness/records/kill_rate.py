"""How many planted mistakes a quick run catches, of those that are known to be wrong on some input."""

from __future__ import annotations

from collections.abc import Collection

from ptxdiff.records.rules import FATES
from ptxdiff.records.types import Mutation

KILLED_AND_FATES = ("killed", *FATES)

BY_PADDING = "fail by padding alone"


def totals(found: Collection[Mutation]) -> dict[str, int]:
    """The number of mutants that were killed, and by fate; also those "refused", "left out" and `BY_PADDING`."""
    counts = {fate: sum(m.count(fate) for m in found) for fate in KILLED_AND_FATES}
    counts |= {"refused": sum(m.refused for m in found), "left out": sum(m.left_out for m in found)}
    return counts | {BY_PADDING: sum(m.by_padding for m in found)}


def kill_rate(found: Collection[Mutation]) -> str:
    """`23 of 24 wrong mutants killed (95.83%)`, and how many pass within the policy.

    Mutants that the policy allows are wrong too: they give other bits. The rate is rounded down, and is 100% only if
    none was missed or allowed. Mutants that fail by padding alone may be right, and are not counted.
    """
    total = totals(found)
    wrong = total["killed"] + total["missed"] + total["allowed"]
    hundredths = 10_000 * total["killed"] // wrong if wrong else 0
    rate = f"{hundredths // 100}.{hundredths % 100:02}%" if wrong else "no rate"
    killed = f"{total['killed']} of {wrong} wrong mutants killed ({rate})"
    return f"{killed}, {total['allowed']} of {wrong} pass within the policy" if total["allowed"] else killed


SHOWN = 8


def allowed_changes(found: Collection[Mutation]) -> str:
    """`2 of 4 wrong mutants pass within the policy: cvt.rni.s8.f32 $0, q; -> cvt.rzi.s8.f32 $0, q; | ...`; "" if none
    does."""
    total = totals(found)
    changes = [s.change for m in found for s in m.survivors if s.fate == "allowed"]
    if not changes:
        return ""
    wrong = total["killed"] + total["missed"] + len(changes)
    shown = " | ".join(dict.fromkeys(changes[:SHOWN])) + f" | and {len(changes) - SHOWN} more" * (len(changes) > SHOWN)
    return f"{len(changes)} of {wrong} wrong mutants pass within the policy: {shown}"
