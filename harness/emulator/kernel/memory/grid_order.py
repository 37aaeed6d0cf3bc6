"""The order of all threads of a grid, whose blocks communicate through memory: see `happens_before`.

What is published at a location is written down only when a thread acquires it: many kernels release with each of
thousands of atomic operations, and acquire nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from ptxdiff.emulator.binding.program import Program, Step
from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.memory.happens_before import SCOPES, HappensBefore
from ptxdiff.emulator.numeric.vectorise import Array

_RELEASES = frozenset({"release", "acq_rel"})
_ACQUIRES = frozenset({"acquire", "acq_rel"})
BUDGET = 1 << 29
"""Bytes of all rows of knowledge. A launch that needs more runs without the order of blocks, and a note says so."""


class TooManyStates(PtxError):
    """The threads' knowledge of each other takes more than `BUDGET`."""

    def __init__(self) -> None:
        super().__init__("too many states")


def narrow_scopes(program: Program) -> bool:
    """Whether an access or a fence of a program has a narrower scope than .gpu."""
    return any(s.kind in ("ld", "st", "atom", "fence") and _is_narrow(s) for s in program.steps)


def _is_narrow(step: Step) -> bool:
    words = step.bound.modifiers
    return words.get("scope") in ("cta", "cluster") or words.get("level") == "cta"


@dataclass(slots=True)
class _Snapshot:
    """What a thread published, in the terms of `HappensBefore`: a row and three times. block: the thread's."""

    lane: int
    row: int
    block_time: int
    warp_time: int
    when: int
    scope: int


@dataclass(slots=True)
class _Published:
    """What the writes of a location publish: written down by scope and block, and snapshots that are not yet.

    A block of -1 stands for all, where no access has a scope that some blocks lie outside. newest: what the last write
    publishes, if it does; it is not yet in the others. before: what the writes before a store published, which whoever
    sees the value before that store learns. version: changes with each write.
    """

    version: int
    written: dict[tuple[int, int], Array] = field(default_factory=dict)
    snapshots: list[_Snapshot] = field(default_factory=list)
    newest: _Snapshot | None = None
    before: _Published | None = None

    def wrote(self, snapshot: _Snapshot | None, version: int) -> None:
        """Record one more write of the release sequence. snapshot: what it publishes."""
        if self.newest is not None:
            self.snapshots.append(self.newest)
        self.newest, self.before, self.version = snapshot, None, version


class GridOrder(HappensBefore):
    """The order of all threads of a grid, one team."""

    def __init__(self, lanes: int, threads: int, cluster: int, narrow: bool) -> None:
        """narrow: whether any access or fence has a narrower scope than .gpu."""
        super().__init__(lanes, threads, lanes, cluster)
        self.narrow = narrow
        self._locations: dict[Hashable, _Published] = {}
        self._learned: dict[int, dict[tuple[int, int], Array]] = {}
        self._known: dict[tuple[int, Hashable], tuple[int, bool, str, str]] = {}
        self._versions = count()
        self.sc_fences = np.full(lanes // threads, -1, np.int64)
        """When each block last executed fence.sc."""
        self._handed_over = np.zeros(lanes, np.int64)

    def store(self, lane: int, location: Hashable, sem: str, scope: str = "sys") -> None:
        """See `HappensBefore`."""
        snapshot = self._snapshot(lane, sem, scope)
        before = self._locations.pop(location, None)
        if before is not None:
            before.before = None
        if snapshot is not None or (before is not None and sem != "weak"):
            self._locations[location] = _Published(next(self._versions), newest=snapshot, before=before)

    def load(self, lane: int, location: Hashable, sem: str, scope: str = "sys") -> None:
        """See `HappensBefore`."""
        published = self._locations.get(location)
        if published is not None and sem != "weak":
            self._take(published, lane, location, sem, scope, published.newest)

    def load_before(self, lane: int, location: Hashable, sem: str, scope: str) -> None:
        """A load that sees the value before the last write, and learns what the writes until then published."""
        published = self._locations.get(location)
        if published is None or sem == "weak":
            return
        if published.before is not None:
            self._take(published.before, lane, location, sem, scope, published.before.newest)
        else:
            self._take(published, lane, location, sem, scope, None)

    def _take(
        self, published: _Published, lane: int, location: Hashable, sem: str, scope: str, newest: _Snapshot | None
    ) -> None:  # fmt: skip
        """Let a lane learn what writes published, and the newest of them if it sees that one."""
        for snapshot in published.snapshots:
            key = self._key(snapshot)
            published.written[key] = self.joined(published.written.get(key), self._times_of(snapshot))
        published.snapshots.clear()
        known = (published.version, newest is not None, sem, scope)
        if self._known.get((lane, location)) == known:
            return  # a loop that waits sees the same again and again
        self._known[lane, location] = known
        parts = list(published.written.items())
        if newest is not None:
            parts.append((self._key(newest), self._times_of(newest)))
        for key, times in parts:
            if not self._reaches(lane, SCOPES.index(scope), key):
                continue
            if sem in _ACQUIRES:
                self.acquire(np.array([lane]), times)
            else:
                learned = self._learned.setdefault(lane, {})
                narrowed = min(SCOPES.index(scope), key[0]), key[1]
                learned[narrowed] = self.joined(learned.get(narrowed), times)

    def update(self, lane: int, location: Hashable, sem: str, scope: str = "gpu") -> None:
        """See `HappensBefore`."""
        self.load(lane, location, sem, scope)
        snapshot = self._snapshot(lane, sem, scope)
        if snapshot is not None or location in self._locations:
            published = self._locations.setdefault(location, _Published(0))
            published.wrote(snapshot, next(self._versions))

    def updates(self, lanes: Array, locations: Sequence[Hashable], sem: str, scope: str) -> None:
        """See `HappensBefore`."""
        for lane, location in zip(lanes.tolist(), locations, strict=True):
            self.update(lane, location, sem, scope)

    def fence(self, lanes: Array, scope: str, sem: str = "acq_rel") -> None:
        """See `HappensBefore`."""
        for lane in self._learned.keys() & set(lanes.tolist()) if sem != "release" else ():
            for key, times in self._learned.pop(lane).items():
                if self._reaches(lane, SCOPES.index(scope), key):
                    self.acquire(np.array([lane]), times)
            self._known = {k: v for k, v in self._known.items() if k[0] != lane}
        super().fence(lanes, scope, sem)
        if sem == "sc":
            self.sc_fences[lanes // self.threads] = self.clock

    def meet_blocks(self, lanes: Array) -> None:
        """See `HappensBefore`. A barrier of a block also hands over what its threads' fences have done.

        By the ISA only the thread that fences publishes. But fences of all threads, a barrier, and then an atomic of
        one thread (or the reverse, before they read) are in public code (the last block of a reduction in PyTorch),
        and hardware's fences are of that kind: they wait until the whole GPU sees what came before.
        """
        super().meet_blocks(lanes)
        self._share_fences(lanes)

    def meet(self, lanes: Array, arrived: Array | None = None) -> None:
        """See `HappensBefore` and `meet_blocks`."""
        super().meet(lanes, arrived)
        mask = np.zeros(self.lanes, np.bool_)
        mask[lanes] = True
        self._share_fences(mask)

    def _share_fences(self, lanes: Array) -> None:
        fenced = lanes & (self._fence_scope > 1) & (self._fenced[3] > self._handed_over)
        for block in np.unique(np.flatnonzero(fenced) // self.threads).tolist():
            self._hand_over(block * self.threads + np.flatnonzero(self._of_block(lanes, block)))
        for block in {lane // self.threads for lane in self._learned if lanes[lane]}:
            some = (block * self.threads + np.flatnonzero(self._of_block(lanes, block))).tolist()
            learned: dict[tuple[int, int], Array] = {}
            for lane in some:
                for key, times in self._learned.get(lane, {}).items():
                    if learned.get(key) is not times:
                        learned[key] = self.joined(learned.get(key), times)
            for lane in some:
                self._learned[lane] = dict(learned)

    def _of_block(self, lanes: Array, block: int) -> Array:
        return lanes[block * self.threads : (block + 1) * self.threads]

    def _hand_over(self, lanes: Array) -> None:
        """Let each lane's later strong writes publish what the last fence of any of the lanes would."""
        mine = lanes[(self._fence_scope[lanes] > 1) & (self._fenced[3, lanes] > 0)]
        states, first = np.unique(self._fenced[:3, mine], axis=1, return_index=True)
        times = np.zeros(self.rows.shape[1], np.int32)
        for state, at in zip(states.T.tolist(), first.tolist(), strict=True):
            np.maximum(times, self._times_of(_Snapshot(int(mine[at]), state[0], state[1], state[2], 0, 0)), out=times)
        times[mine] = np.maximum(times[mine], self._fenced[3, mine])
        if self.used == len(self.rows):
            self._compact(1)
        self.rows[self.used] = times
        self._fenced[0, lanes], self._fenced[1:3, lanes] = self.used, 0
        self.used += 1
        others = np.setdiff1d(lanes, mine)
        self._fenced[3, others], self._fence_scope[others] = 0, 2
        self._handed_over[lanes] = self.clock

    def publishes(self, location: Hashable) -> bool:
        """See `HappensBefore`."""
        return location in self._locations

    @property
    def synchronised(self) -> bool:
        """See `HappensBefore`."""
        return bool(self._locations) or super().synchronised

    def _snapshot(self, lane: int, sem: str, scope: str) -> _Snapshot | None:
        number = SCOPES.index(scope)
        if sem in _RELEASES:
            now = self.tick()
            known = int(self.row[lane]), int(self.block_time[lane]), int(self.warp_time[lane])
            return _Snapshot(lane, *known, now, number)
        if sem == "weak" or self._fence_scope[lane] < 0:
            return None
        row, block_time, warp_time, when = self._fenced[:, lane].tolist()
        return _Snapshot(lane, row, block_time, warp_time, when, min(number, int(self._fence_scope[lane])))

    def _times_of(self, one: _Snapshot) -> Array:
        times: Array = self.rows[one.row].copy()
        self._with_own(times, np.array([one.lane]), np.array([one.block_time]), np.array([one.warp_time]))
        times[one.lane] = max(int(times[one.lane]), one.when)
        return times

    def _key(self, one: _Snapshot) -> tuple[int, int]:
        return one.scope, one.lane // self.threads if self.narrow else -1

    def _reaches(self, lane: int, scope: int, key: tuple[int, int]) -> bool:
        """Whether the scopes of two operations contain each other's thread (ISA 8.7, morally strong)."""
        narrower = min(scope, key[0])
        group = self.threads if narrower == 0 else self.cluster
        return narrower > 1 or lane // group == key[1] * self.threads // group

    def _compact(self, more: int) -> None:
        """See `HappensBefore`; snapshots hold rows, too. Raises TooManyStates."""
        kept_of = [p for last in self._locations.values() for p in (last, last.before) if p is not None]
        snapshots = [one for p in kept_of for one in (*p.snapshots, *([] if p.newest is None else [p.newest]))]
        held = np.unique(np.concatenate([[0], self.row, self._fenced[0], [one.row for one in snapshots]]))
        held = held.astype(np.int64)
        size = max(8, 2 * len(held) + more)
        if 4 * size * self.rows.shape[1] > BUDGET:
            raise TooManyStates
        for one in snapshots:
            one.row = int(np.searchsorted(held, one.row))
        kept = np.zeros((size, self.rows.shape[1]), np.int32)
        kept[: len(held)] = self.rows[held]
        self.row = np.searchsorted(held, self.row)
        self._fenced[0] = np.searchsorted(held, self._fenced[0])
        self.rows, self.used = kept, len(held)
