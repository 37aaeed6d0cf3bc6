"""The order of all threads of a grid, whose blocks communicate through memory: see `happens_before`.

The vector clock that is released at a location is made only when a thread acquires it: many kernels release with each
of thousands of atomic operations, and acquire nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from ptxdiff.emulator.binding.program import Program, Step
from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.memory.happens_before import ACQUIRES, RELEASES, SCOPES, HappensBefore
from ptxdiff.emulator.numeric.vectorise import Array

BUDGET = 1 << 29
"""Bytes of all vector clocks. A launch that needs more runs without the order of blocks, and a note says so."""


class TooManyVectorClocks(PtxError):
    """The threads' vector clocks take more than `BUDGET`."""

    def __init__(self) -> None:
        super().__init__("too many vector clocks")


def narrow_scopes(program: Program) -> bool:
    """Whether an access or a fence of a program has a narrower scope than .gpu."""
    return any(s.kind in ("ld", "st", "atom", "fence") and _is_narrow(s) for s in program.steps)


def _is_narrow(step: Step) -> bool:
    modifiers = step.bound.modifiers
    return modifiers.get("scope") in ("cta", "cluster") or modifiers.get("level") == "cta"


@dataclass(slots=True)
class _Snapshot:
    """What a thread released, in the terms of `HappensBefore`: the index of a vector, and three times."""

    lane: int
    vector: int
    block_time: int
    warp_time: int
    time: int
    scope: int


@dataclass(slots=True)
class _Releases:
    """What the writes of a location release: vector clocks by scope and block, and snapshots that are not yet in them.

    A block of 0 stands for all, where no access has a scope that some blocks lie outside. newest: what the last write
    releases, if it does; it is not yet in the others. before: the releases of the writes before a store, which a thread
    acquires that sees the value before that store. version: changes with each write.
    """

    version: int
    vectors: dict[tuple[int, int], Array] = field(default_factory=dict)
    snapshots: list[_Snapshot] = field(default_factory=list)
    newest: _Snapshot | None = None
    before: _Releases | None = None

    def wrote(self, snapshot: _Snapshot | None, version: int) -> None:
        """Record one more write of the release sequence. snapshot: what it releases."""
        if self.newest is not None:
            self.snapshots.append(self.newest)
        self.newest, self.before, self.version = snapshot, None, version


class GridOrder(HappensBefore):
    """The order of all threads of a grid, one team."""

    def __init__(self, lanes: int, threads: int, cluster: int, narrow: bool) -> None:
        """narrow: whether any access or fence has a narrower scope than .gpu."""
        super().__init__(lanes, threads, lanes, cluster)
        self.narrow = narrow
        self._locations: dict[Hashable, _Releases] = {}
        self._read_until_fence: dict[int, dict[tuple[int, int], Array]] = {}
        self._acquired: dict[tuple[int, Hashable], tuple[int, bool, str, str]] = {}
        self._versions = count()
        self.sc_fences = np.full(lanes // threads, -1, np.int64)
        """When each block last executed fence.sc."""
        self._fences_shared = np.zeros(lanes, np.int64)

    def store(self, lane: int, location: Hashable, sem: str, scope: str = "sys") -> None:
        """See `HappensBefore`."""
        snapshot = self._snapshot(lane, sem, scope)
        before = self._locations.pop(location, None)
        if before is not None:
            before.before = None
        if snapshot is not None or (before is not None and sem != "weak"):
            self._locations[location] = _Releases(next(self._versions), newest=snapshot, before=before)

    def load(self, lane: int, location: Hashable, sem: str, scope: str = "sys") -> None:
        """See `HappensBefore`."""
        releases = self._locations.get(location)
        if releases is not None and sem != "weak":
            self._acquire_at(releases, lane, location, sem, scope, releases.newest)

    def load_before(self, lane: int, location: Hashable, sem: str, scope: str) -> None:
        """A load that sees the value before the last write, and acquires what the writes until then released."""
        releases = self._locations.get(location)
        if releases is None or sem == "weak":
            return
        if releases.before is not None:
            self._acquire_at(releases.before, lane, location, sem, scope, releases.before.newest)
        else:
            self._acquire_at(releases, lane, location, sem, scope, None)

    def _acquire_at(
        self, releases: _Releases, lane: int, location: Hashable, sem: str, scope: str, newest: _Snapshot | None
    ) -> None:  # fmt: skip
        """Let a lane acquire what writes released, and from the newest of them if it sees that one."""
        for snapshot in releases.snapshots:
            key = self._key(snapshot)
            releases.vectors[key] = self.join(releases.vectors.get(key), self._vector_of(snapshot))
        releases.snapshots.clear()
        acquired = (releases.version, newest is not None, sem, scope)
        if self._acquired.get((lane, location)) == acquired:
            return  # a loop that waits sees the same again and again
        self._acquired[lane, location] = acquired
        parts = list(releases.vectors.items())
        if newest is not None:
            parts.append((self._key(newest), self._vector_of(newest)))
        for key, vector in parts:
            if not self._morally_strong(lane, SCOPES.index(scope), key):
                continue
            if sem in ACQUIRES:
                self.acquire(np.array([lane]), vector)
            else:
                until_fence = self._read_until_fence.setdefault(lane, {})
                narrowed = min(SCOPES.index(scope), key[0]), key[1]
                until_fence[narrowed] = self.join(until_fence.get(narrowed), vector)

    def update(self, lane: int, location: Hashable, sem: str, scope: str = "gpu") -> None:
        """See `HappensBefore`."""
        self.load(lane, location, sem, scope)
        snapshot = self._snapshot(lane, sem, scope)
        if snapshot is not None or location in self._locations:
            releases = self._locations.setdefault(location, _Releases(0))
            releases.wrote(snapshot, next(self._versions))

    def updates(self, lanes: Array, locations: Sequence[Hashable], sem: str, scope: str) -> None:
        """See `HappensBefore`."""
        for lane, location in zip(lanes.tolist(), locations, strict=True):
            self.update(lane, location, sem, scope)

    def fence(self, lanes: Array, scope: str, sem: str = "acq_rel") -> None:
        """See `HappensBefore`."""
        for lane in self._read_until_fence.keys() & set(lanes.tolist()) if sem in ACQUIRES else ():
            for key, vector in self._read_until_fence.pop(lane).items():
                if self._morally_strong(lane, SCOPES.index(scope), key):
                    self.acquire(np.array([lane]), vector)
            self._acquired = {k: v for k, v in self._acquired.items() if k[0] != lane}
        super().fence(lanes, scope, sem)
        if sem == "sc":
            self.sc_fences[lanes // self.threads] = self.clock

    def block_barriers(self, lanes: Array) -> None:
        """See `HappensBefore`. A barrier of a block also shares what its threads' fences released.

        By the ISA only the thread that fences releases. But fences of all threads, a barrier, and then an atomic of
        one thread (or the reverse, before they read) are in public code (the last block of a reduction in PyTorch),
        and hardware's fences are of that kind: they wait until the whole GPU sees what came before.
        """
        super().block_barriers(lanes)
        self._share_fences(lanes)

    def barrier(self, lanes: Array, arrived: Array | None = None) -> None:
        """See `HappensBefore` and `block_barriers`."""
        super().barrier(lanes, arrived)
        mask = np.zeros(self.lanes, np.bool_)
        mask[lanes] = True
        self._share_fences(mask)

    def _share_fences(self, lanes: Array) -> None:
        fenced = lanes & (self._fence_scope > 1) & (self._fenced[3] > self._fences_shared)
        for block in np.unique(np.flatnonzero(fenced) // self.threads).tolist():
            self._share_release(block * self.threads + np.flatnonzero(self._of_block(lanes, block)))
        for block in {lane // self.threads for lane in self._read_until_fence if lanes[lane]}:
            some = (block * self.threads + np.flatnonzero(self._of_block(lanes, block))).tolist()
            joined: dict[tuple[int, int], Array] = {}
            for lane in some:
                for key, vector in self._read_until_fence.get(lane, {}).items():
                    if joined.get(key) is not vector:
                        joined[key] = self.join(joined.get(key), vector)
            for lane in some:
                self._read_until_fence[lane] = dict(joined)

    def _of_block(self, lanes: Array, block: int) -> Array:
        return lanes[block * self.threads : (block + 1) * self.threads]

    def _share_release(self, lanes: Array) -> None:
        """Let each lane's later strong writes release what the last fence of any of the lanes would."""
        mine = lanes[(self._fence_scope[lanes] > 1) & (self._fenced[3, lanes] > 0)]
        states, first = np.unique(self._fenced[:3, mine], axis=1, return_index=True)
        vector = np.zeros(self.vectors.shape[1], np.int32)
        for state, at in zip(states.T.tolist(), first.tolist(), strict=True):
            np.maximum(
                vector, self._vector_of(_Snapshot(int(mine[at]), state[0], state[1], state[2], 0, 0)), out=vector
            )
        vector[mine] = np.maximum(vector[mine], self._fenced[3, mine])
        if self.used == len(self.vectors):
            self._compact(1)
        self.vectors[self.used] = vector
        self._fenced[0, lanes], self._fenced[1:3, lanes] = self.used, 0
        self.used += 1
        others = np.setdiff1d(lanes, mine)
        self._fenced[3, others], self._fence_scope[others] = 0, 2
        self._fences_shared[lanes] = self.clock

    def has_release(self, location: Hashable) -> bool:
        """See `HappensBefore`."""
        return location in self._locations

    @property
    def synchronised(self) -> bool:
        """See `HappensBefore`."""
        return bool(self._locations) or super().synchronised

    def _snapshot(self, lane: int, sem: str, scope: str) -> _Snapshot | None:
        number = SCOPES.index(scope)
        if sem in RELEASES:
            now = self.tick()
            vector = int(self.vector[lane]), int(self.block_time[lane]), int(self.warp_time[lane])
            return _Snapshot(lane, *vector, now, number)
        if sem == "weak" or self._fence_scope[lane] < 0:
            return None
        vector, block_time, warp_time, time = self._fenced[:, lane].tolist()
        return _Snapshot(lane, vector, block_time, warp_time, time, min(number, int(self._fence_scope[lane])))

    def _vector_of(self, one: _Snapshot) -> Array:
        vector: Array = self.vectors[one.vector].copy()
        self._with_own(vector, np.array([one.lane]), np.array([one.block_time]), np.array([one.warp_time]))
        vector[one.lane] = max(int(vector[one.lane]), one.time)
        return vector

    def _key(self, one: _Snapshot) -> tuple[int, int]:
        return one.scope, one.lane // self.threads if self.narrow else 0

    def _snapshots(self) -> list[_Snapshot]:
        releases = [r for last in self._locations.values() for r in (last, last.before) if r is not None]
        return [one for r in releases for one in (*r.snapshots, *([] if r.newest is None else [r.newest]))]

    def _other_vectors(self) -> list[int]:
        """See `HappensBefore`."""
        return [one.vector for one in self._snapshots()]

    def _check_room(self, size: int) -> None:
        """See `HappensBefore`. Raises TooManyVectorClocks."""
        if size > BUDGET:
            raise TooManyVectorClocks

    def _renumber(self, held: Array) -> None:
        """See `HappensBefore`."""
        for one in self._snapshots():
            one.vector = int(np.searchsorted(held, one.vector))
        super()._renumber(held)
