"""Further launches of a kernel that changes its module's variables: on a device the next launch would find them so.

Outputs depend on the inputs and on the variables alone. So if a launch leaves variables that an earlier launch began
with, all further launches repeat what has run, and nothing is left to try. If it does not, as with a counter, further
launches run from the variables that a counter has after 2^k launches. They may prove nothing, and the result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ptxdiff.records import UNPROVED

LAUNCHES = 8
"""How often a kernel is launched in turn at most."""
COUNTED = 32
"""Bits of a counter: it is tried after 2^k launches, for all k below."""
WORD = 4
"""Bytes of a counter."""

NEVER_REPEATED = UNPROVED + (
    f"the module's variables change with every launch and were never again as before in {LAUNCHES} launches: a later "
    "launch may give other bits"
)


L = TypeVar("L")
Launch = Callable[[bytes | None], tuple[L, bytes, bytes]]
"""Launches a kernel with variables as they are at its start, or, for None, as its module states them.

Returns what it gave, and the variables before and after it.
"""


def launched(launch: Launch[L], same: Callable[[L, L], bool]) -> tuple[L, bool, bool]:
    """What the first launch gave, whether any later one gives the same, and whether that is proved.

    same: whether two launches gave the same bits. Raises PtxError where a launch does.
    """
    first, before, after = launch(None)
    states = [before]
    while after not in states and len(states) < LAUNCHES:
        states.append(after)
        later, _, after = launch(after)
        if not same(first, later):
            return first, False, True
    if after in states:
        return first, True, True
    for state in _counted([*states, after]):
        if not same(first, launch(state)[0]):
            return first, False, True
    return first, True, False


def _counted(states: Sequence[bytes]) -> list[bytes]:
    """The variables after 2^k launches, where each word grows by the same number at every launch; else none."""
    whole = len(states[0]) - len(states[0]) % WORD
    words = np.array([np.frombuffer(s[:whole], np.uint32) for s in states])
    steps: NDArray[np.uint32] = np.diff(words, axis=0)
    if not len(words[0]) or (steps != steps[0]).any() or len({s[whole:] for s in states}) > 1:
        return []
    counts = [1 << k for k in range(COUNTED) if 1 << k > LAUNCHES] + [(1 << COUNTED) - 1]
    return [(words[0] + steps[0] * np.uint32(n)).astype(np.uint32).tobytes() + states[0][whole:] for n in counts]
