"""What special registers read as in a bare snippet, where there is no grid.

Lanes stand for the threads of one long one-dimensional block: `%tid.x` is the lane's number, `%laneid` that
modulo 32. Clocks and timers read 0, so that a snippet that stores them gives the same answer every time.
"""

from __future__ import annotations

import numpy as np

from .vectorise import Array


def special(name: str, component: str, lanes: int) -> Array:
    """The value of a special register in each lane, as 64-bit patterns."""
    lane = np.arange(lanes, dtype=np.uint64)
    in_warp = lane % np.uint64(32)
    one = np.ones(lanes, np.uint64)
    if name == "%tid":
        return lane if component == "x" else one - one
    if name in ("%nctaid", "%nclusterid", "%cluster_nctaid", "%cluster_nctarank") or (
        name == "%ntid" and component != "x"
    ):
        return one
    if name == "%ntid":
        return one * np.uint64(lanes)
    if name == "%laneid":
        return in_warp
    if name == "%warpid":
        return lane // np.uint64(32)
    if name.startswith("%lanemask_"):
        return lane_mask(name[10:], in_warp)
    return one - one


def lane_mask(which: str, lane: Array) -> Array:
    """The registers `%lanemask_eq` and so on, for lanes of a warp given as 64-bit patterns."""
    bit = np.uint64(1) << lane
    below = bit - np.uint64(1)
    ones = np.uint64(0xFFFFFFFF)
    masks = {"eq": bit, "lt": below, "le": below | bit, "gt": ~(below | bit) & ones, "ge": ~below & ones}
    return masks[which]
