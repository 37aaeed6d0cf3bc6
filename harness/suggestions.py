"""Nearest names, for messages about names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CUTOFF = 0.6
_MOST = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message, "; did you mean rcp.rn?", with the names most like a word in any case; "" if none is."""
    names = {name.lower(): name for name in known}
    near = [names[n] for n in difflib.get_close_matches(word.lower(), names, _MOST, _CUTOFF)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
