"""Which clusters of a grid have been launched, and which are cancelled before (clusterlaunchcontrol.try_cancel).

A kernel with such requests runs in waves of at most a quarter of its clusters, so that clusters are left to cancel, and
a block that goes on with the work of others does so several times. A request cancels the last and the first of those
left by turns: the ISA promises no order. If blocks may wait for each other (the program has atomics, fences, or
volatile or acquiring accesses), it is always the first, because a block may wait for blocks before it. A request fails
only if no cluster is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.numeric.vectorise import Array

_PARTS = 4
_HIDDEN = np.array([0x9D2C5680, 0x7F4A7C15, 0x5BD1E995, 0x434C4331], np.uint32)
"""Responses are opaque: a kernel that takes their bits for a number gets a wrong one."""
Cluster = tuple[int, int, int]
"""The coordinates of a cluster's first block."""


class Launches:
    """The clusters of a grid, from `next` to `end`, that have neither begun nor been cancelled.

    `unqueried`: the cancelled clusters whose response no thread has queried: who cancelled them, and the step.
    """

    def __init__(self, clusters: int, in_order: bool) -> None:
        self.next, self.end = 0, clusters
        self.wave = -(-clusters // _PARTS)
        self.in_order = in_order
        self.cancelled = 0
        self.unqueried: dict[Cluster, tuple[str, Step]] = {}

    def waves(self, most: int) -> Iterator[tuple[int, int]]:
        """The first cluster of each wave, and how many begin with it; at most `most`."""
        while self.next < self.end:
            count = max(1, min(most, self.wave, self.end - self.next))
            first, self.next = self.next, self.next + count
            yield first, count

    def cancel(self) -> int | None:
        """Cancel a cluster and return its number; None if none is left."""
        if self.next == self.end:
            return None
        self.cancelled += 1
        if self.in_order or self.cancelled % 2 == 0:
            self.next += 1
            return self.next - 1
        self.end -= 1
        return self.end


def response(first: Cluster | None) -> Array:
    """The 16 bytes that a request writes: the first block of a cancelled cluster, or None if there is none."""
    x, y, z = first or (0, 0, 0)
    answer = np.array([x, y | z << 16, first is not None, 0], np.uint32)
    return (answer ^ _HIDDEN).view(np.uint8)


def answers(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """What 64-bit halves of responses say: whether they are responses, whether a cluster was cancelled, and x, y, z."""
    words = np.stack([low, low >> np.uint64(32), high, high >> np.uint64(32)]).astype(np.uint32) ^ _HIDDEN[:, None]
    places = np.stack([words[0], words[1] & np.uint32(0xFFFF), words[1] >> np.uint32(16)])
    known = (words[3] == 0) & (words[2] <= 1)
    return known, words[2] == 1, places
