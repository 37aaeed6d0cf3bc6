"""The items that a run was asked for, from its recorded arguments. Only these can be missing from it."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Options that say how a run is carried out and where its results go, but not which items run. The value of one in the
# second group may be a word of its own.
_MANNER = re.compile(r"-[qvxs]+$|-n\d|--(no-header|ptx-resume|verbose|quiet)$|--(ptx-require-gpu)$")
_MANNER_WITH_VALUE = re.compile(
    r"(-n|-p|--numprocesses|--maxprocesses|--dist|--ptx-records|--ptx-limit|--junit-?xml|--color|--durations)($|=)"
)


def selection(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments that select items."""
    kept = []
    words = iter(arguments)
    for word in words:
        if found := _MANNER_WITH_VALUE.match(word):
            if found[2] == "":
                next(words, None)
        elif not _MANNER.match(word):
            kept.append(word)
    return tuple(kept)
