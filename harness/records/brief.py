"""What a run says of the smaller plan that `auto` gives machine code at quick effort.

The words stand in the notes of an item's first result, so that records keep them, whoever reads them later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ptxdiff.records.types import Result

_NOTE = re.compile(r"the smaller plan of auto: (\d+) of (\d+) runs; ")


def brief_words(done: int, planned: int) -> str:
    """The note of an item that ran a part of its plan. planned: the runs of the whole plan."""
    return f"the smaller plan of auto: {done} of {planned} runs; --ptx-backend=sass, or full effort, has all of them"


def brief_counts(results: Iterable[Result]) -> tuple[int, int]:
    """The runs of all items that ran a part of their plan, and the runs that their whole plans have; zero if none."""
    found = [m for r in results for note in r.notes if (m := _NOTE.match(note))]
    return sum(int(m[1]) for m in found), sum(int(m[2]) for m in found)
