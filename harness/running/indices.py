"""What to say where an index may have left its range, because edges and random bits know none."""

from __future__ import annotations

import re

from harness.model.arguments import format_of
from harness.model.case import Case

_LEFT = re.compile(r"out of bounds|out of range|IndexError|lies in no buffer|illegal memory access")


def index_hint(case: Case, input_set: str, words: str) -> str:
    """A sentence for a fault of memory, or of a reference, in a whole kernel that takes integers of any value.

    input_set: the inputs that showed it. words: the fault. "" where nothing points to an index.
    """
    if case.elementwise or input_set.startswith("generated") or not _LEFT.search(words):
        return ""
    known = {*case.domains, *case.in_place}
    free = [n for n, a in case.inputs.items() if not format_of(a).is_float and n not in known]
    if not free:
        return ""
    name = free[0]
    return (
        f"{input_set} gives {', '.join(free)} any bits: the range of an index is told by "
        f'where={{"{name}": Domain("...", lambda v: v["{name}"] < ...)}}, or by where={{"{name}": generated}} and '
        "generate="
    )
