"""What a run was asked for, from the arguments it recorded: items are missing only from runs asked for them."""

from __future__ import annotations

import re
from collections.abc import Sequence

# These say how a run is carried out and where its results go, and not what is run; the second group's value may be a
# word of its own.
_MANNER = re.compile(r"-[qvxs]+$|-n\d|--(no-header|ptx-resume|verbose|quiet)$|--(ptx-require-gpu)$")
_MANNER_WITH_VALUE = re.compile(
    r"(-n|-p|--numprocesses|--maxprocesses|--dist|--ptx-records|--ptx-limit|--junit-?xml|--color|--durations)($|=)"
)


def selection(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments that select what is run."""
    kept = []
    words = iter(arguments)
    for word in words:
        if found := _MANNER_WITH_VALUE.match(word):
            if found[2] == "":
                next(words, None)
        elif not _MANNER.match(word):
            kept.append(word)
    return tuple(kept)
