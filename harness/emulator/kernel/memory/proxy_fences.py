"""Which fences of the async proxy lie between what threads wrote and a copy or product that accesses it.

PTX ISA 8.9, proxy-preserved base causality order: a write of the generic proxy is ordered before an access of the async
proxy only if a proxy fence lies on the path between them. So one fence, by one thread, happens after the write and
before the access; a fence by a thread that the access does not wait for has no effect on it.

Each unit of bytes has a state: 0 (no thread wrote it since the async proxy did), UNFENCED, or the number of a `_Cover`,
the last of a chain of fences that happen after the write. An access asks whether one of the chain happens before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ptxdiff.emulator.kernel.memory.happens_before import ALWAYS, HappensBefore
from ptxdiff.emulator.machine.large_arrays import zeros
from ptxdiff.emulator.numeric.vectorise import Array

UNFENCED = -1
_ALL, _OF_WARP, _OWN, _SOME = 0, 1, 2, 3
"""Which of a fence's lanes happen after a unit's writes: all of the team; of each write, those in the warp of its
thread; of each write, its own thread; some, in a list for each write."""


class Writes(NamedTuple):
    """Writes of threads to some units: for each the index of the unit, the thread as a lane, the time."""

    at: Array
    lane: Array
    time: Array


@dataclass(frozen=True, eq=False)
class _Cover:
    """A fence that happens after the writes of some units: its lanes (sorted) and its time.

    kind: for which of its lanes that holds. some: for each write, these lanes. before: the number of the cover by an
    earlier fence, or UNFENCED.
    """

    lanes: Array
    time: int
    kind: int
    some: tuple[tuple[int, ...], ...]
    before: int


class ProxyFences:
    """The states of some units of memory, whose writes the lanes of `order` make."""

    def __init__(self, units: int, order: HappensBefore) -> None:
        self.order = order
        self.states = zeros(units, np.int32)
        self._covers: list[_Cover] = [_Cover(np.zeros(0, np.int64), 0, _ALL, (), UNFENCED)]  # the state 0
        self._unsettled = 1
        self._looked = 0

    def wrote(self, units: Array) -> None:
        """Record that threads write units now."""
        self.states[units] = UNFENCED

    def clear(self, units: Array) -> None:
        """Record that the async proxy writes units now, so that what threads wrote is gone."""
        self.states[units] = 0

    def settle(self) -> None:
        """Set the state to 0 where all threads have passed barriers of their blocks behind the fence."""
        order = self.order
        if self._unsettled == len(self._covers) or self._looked == order.clock or order.team != order.threads:
            return  # a barrier of a block orders no other block
        self._looked, first = order.clock, self._unsettled
        ordered = int(order.block_time.min())
        while self._unsettled < len(self._covers) and self._covers[self._unsettled].time < ordered:
            self._unsettled += 1
        if first < self._unsettled:
            self.states[(self.states >= first) & (self.states < self._unsettled)] = 0

    # fences ----------------------------------------------------------------------------------------------

    def without(self, lanes: Array, units: Array, teams: Array) -> Array:
        """Which of some units, whose state is not 0, a fence by lanes adds something to. teams: that of each unit."""
        states = self.states[units]
        adds: Array = states == UNFENCED
        if adds.all():
            return adds
        vectors = _VectorsOfSome(self.order, lanes)
        for number in np.unique(states[~adds]).tolist():
            cover = self._covers[number]
            ordered = cover.time < vectors.by_all(cover.lanes)
            of_team = cover.lanes // self.order.team
            first = np.flatnonzero(np.diff(of_team, prepend=-1))
            join = np.logical_or if cover.kind == _ALL else np.logical_and
            needless = np.zeros(self.order.lanes // self.order.team, np.bool_)
            needless[of_team[first]] = join.reduceat(ordered, first)
            adds |= (states == number) & ~needless[teams]
        return adds

    def fence(self, lanes: Array, units: Array, writes: Writes) -> None:
        """Record a fence by lanes. units: those of their teams that it may make visible, with the last writes of
        each."""
        vectors, now = _VectorsOfSome(self.order, lanes), self.order.clock
        states = self.states[units]
        kinds = np.full(len(units), _SOME, np.int64)
        writer, time = writes.lane, writes.time
        for kind, holds in (
            (_OWN, vectors.among(writer) & (time >= vectors.by_any(writer))),
            (_OF_WARP, (time < vectors.in_warp(writer)) & (time >= vectors.by_any(writer, beyond_warp=True))),
            (_ALL, time < vectors.by_all(writer)),
        ):
            whole = np.ones(len(units), np.bool_)
            whole[writes.at[~holds]] = False
            kinds[whole] = kind
        keys = states.astype(np.int64) * 4 + kinds
        for key in np.unique(keys).tolist():
            if key % 4 != _SOME:
                self._cover(units[keys == key], _Cover(lanes, now, key % 4, (), key // 4))
        chosen = np.flatnonzero((kinds == _SOME)[writes.at])
        ordered: dict[int, list[tuple[int, ...]]] = {}
        for number, some in zip(chosen.tolist(), self._ordered_lanes(lanes, writer[chosen], time[chosen]), strict=True):
            ordered.setdefault(int(writes.at[number]), []).append(some)
        by_state: dict[tuple[int, tuple[tuple[int, ...], ...]], list[int]] = {}
        for at, lists in ordered.items():
            if all(lists):
                by_state.setdefault((int(states[at]), tuple(lists)), []).append(at)
        for (before, those), where in by_state.items():
            self._cover(units[where], _Cover(lanes, now, _SOME, those, before))

    def _ordered_lanes(self, lanes: Array, writers: Array, times: Array) -> list[tuple[int, ...]]:
        """Which of some lanes happen after each of some writes."""
        ordered: list[tuple[int, ...]] = [()] * len(writers)
        teams = writers // self.order.team
        for team in np.unique(teams).tolist():
            mine = lanes[lanes // self.order.team == team]
            here = np.flatnonzero(teams == team)
            members, which = np.unique(writers[here] % self.order.team, return_inverse=True)
            components = self.order.components(mine, np.broadcast_to(members, (len(mine), len(members))))
            after = np.packbits(times[here] < components[:, which], axis=0).T
            patterns, number = np.unique(after, axis=0, return_inverse=True)
            bits = np.unpackbits(patterns, axis=1, count=len(mine)).astype(np.bool_)
            lists = [tuple(mine[row].tolist()) for row in bits]
            for at, pattern in zip(here.tolist(), number.ravel().tolist(), strict=True):
                ordered[at] = lists[pattern]
        return ordered

    def _cover(self, units: Array, cover: _Cover) -> None:
        self.states[units] = len(self._covers)
        self._covers.append(cover)

    # accesses --------------------------------------------------------------------------------------------

    def lacking(self, lane: int, units: Array, writes: Writes, of_warp: bool) -> Array:
        """Which units no fence makes visible to an access of the async proxy by a lane.

        writes: the last ones of these units. of_warp: whether the access is one of the lane's whole warp, and so
        happens after what any of its threads did.
        """
        states = self.states[units]
        lacking: Array = states != 0
        count = np.bincount(writes.at, minlength=len(units))
        base = lane // self.order.team * self.order.team
        for number in np.unique(states[states > 0]).tolist():
            mine = states == number
            while number != UNFENCED and mine.any():
                cover = self._covers[number]
                ordered = self._before(cover, lane, of_warp)
                if cover.kind in (_ALL, _SOME):
                    if ordered.any() and all(ordered[np.array(some) - base].any() for some in cover.some):
                        lacking[mine] = False
                        break
                else:
                    fenced = ordered if cover.kind == _OWN else np.repeat(ordered.reshape(-1, 32).any(axis=1), 32)
                    seen = np.bincount(writes.at, fenced[writes.lane - base], len(units)) == count
                    lacking[mine & seen] = False
                    mine &= ~seen
                number = cover.before
        return lacking

    def _before(self, cover: _Cover, lane: int, of_warp: bool) -> Array:
        """Of each member of a lane's team, whether it executed a fence that happens before the lane's next access."""
        team = self.order.team
        first, last = np.searchsorted(cover.lanes, [lane // team * team, lane // team * team + team])
        members = self.order.members(cover.lanes[first:last])
        covered = np.zeros(team, np.bool_)
        covered[members] = self.order.happens_before(np.array([lane]), members[None], np.array([[cover.time]]))[0]
        if of_warp:
            covered[members] |= members >> 5 == lane % team >> 5
        return covered


class _VectorsOfSome:
    """The vector clocks of some lanes together: see `HappensBefore`. lanes: sorted."""

    def __init__(self, order: HappensBefore, lanes: Array) -> None:
        self.order, self.lanes = order, lanes
        teams = lanes // order.team
        self._first = np.flatnonzero(np.diff(teams, prepend=-1))
        self._teams = teams[self._first]
        self._ends = np.append(self._first[1:], len(lanes)) - 1

    def among(self, others: Array) -> Array:
        """Whether others are among the lanes."""
        mask = np.zeros(self.order.lanes, np.bool_)
        mask[self.lanes] = True
        included: Array = mask[others]
        return included

    def by_all(self, others: Array) -> Array:
        """For each other lane, a lower bound of its component in the vector clocks of all the lanes of its team."""
        bounds = self._of_rows(others, np.minimum)
        first, last = self.lanes[self._first], self.lanes[self._ends]
        for each, times in ((self.order.threads, self.order.block_time), (32, self.order.warp_time)):
            near = first // each == last // each  # otherwise this number orders none of another group
            known = np.zeros(self.order.lanes // each, np.int64)
            known[first[near] // each] = np.minimum.reduceat(times[self.lanes], self._first)[near]
            np.maximum(bounds, known[others // each], out=bounds)
        alone = np.full(self.order.lanes // self.order.team, -1, np.int64)
        alone[self._teams[first == last]] = first[first == last]
        bounds[alone[others // self.order.team] == others] = ALWAYS
        return bounds

    def by_any(self, others: Array, beyond_warp: bool = False) -> Array:
        """For each other lane, the greatest component in the vector clock of another lane of its team.

        beyond_warp: not by barriers of its warp alone.
        """
        greatest = self._of_rows(others, np.maximum)
        for each, times in ((self.order.threads, self.order.block_time), (32, self.order.warp_time)):
            if each != 32 or not beyond_warp:
                np.maximum(greatest, self._by_group(each, times, np.maximum)[others // each], out=greatest)
        return greatest

    def in_warp(self, others: Array) -> Array:
        """For each other lane, its component in the vector clocks of all the lanes of its warp; 0 if there are none."""
        components: Array = self._by_group(32, np.maximum(self.order.block_time, self.order.warp_time), np.minimum)[
            others // 32
        ]
        return components

    def _by_group(self, each: int, times: Array, join: np.ufunc) -> Array:
        groups = self.lanes // each
        first = np.flatnonzero(np.diff(groups, prepend=-1))
        known = np.zeros(self.order.lanes // each, np.int64)
        known[groups[first]] = join.reduceat(times[self.lanes], first)
        return known

    def _of_rows(self, others: Array, join: np.ufunc) -> Array:
        """Components of the lanes' vectors, joined."""
        order = self.order
        if order.used == 1:
            return np.zeros(len(others), np.int64)
        held = np.unique(self.lanes // order.team * order.used + order.vector[self.lanes])
        teams = held // order.used
        first = np.flatnonzero(np.diff(teams, prepend=-1))
        known = np.zeros((order.lanes // order.team, order.team), np.int32)
        known[teams[first]] = join.reduceat(order.vectors[held % order.used, : order.team], first, axis=0)
        components: Array = known[others // order.team, others % order.team].astype(np.int64)
        return components
