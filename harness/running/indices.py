"""A hint for kernels whose index inputs left their range: edges and random bits have no range."""

from __future__ import annotations

import re

from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case

_LEFT = re.compile(r"out of bounds|out of range|IndexError|lies in no buffer|illegal memory access")


def index_hint(case: Case, input_set: str, words: str) -> str:
    """A hint for a memory fault, or a fault of a reference, in a whole kernel that has integer inputs of any value.

    input_set: the name of the set that caused it. words: the fault's text. Returns "" if nothing suggests an index.
    """
    if case.elementwise or input_set.startswith("generated") or not _LEFT.search(words):
        return ""
    known = {*case.domains, *case.in_place}
    free = [n for n, a in case.inputs.items() if not format_of(a).is_float and n not in known]
    if not free:
        return ""
    name = free[0]
    return (
        f"{input_set} gives {', '.join(free)} any bits; state the range of an index with "
        f'where={{"{name}": Domain("...", lambda v: v["{name}"] < ...)}}, or by where={{"{name}": generated}} and '
        "generate="
    )
