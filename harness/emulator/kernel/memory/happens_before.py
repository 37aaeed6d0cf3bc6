"""Which accesses happen before which (PTX ISA 8.9, causality order), by vector clocks.

One vocabulary for shared memory, global memory and asynchronous copies, and for every way in which threads meet:

A *team* is the threads that can order each other: those of a block, of a cluster, or of more blocks. A *member* is a
thread of a team, by its number in it; `agent` gives numbers beyond the threads' to asynchronous work (the bytes that
arrive at an mbarrier, the products of a warpgroup). The *clock* counts events of synchronisation in the whole frame.
An access is recorded with its member and the clock at that moment (FastTrack's epoch). What a lane *knows* is a time
for each member: an access of the member at `when` happens before the lane's next instruction if `when` < that time. So

    race = when >= order.heard(lanes, members)      # and one of the two writes, and not both are strong

To *release* is to hand over what one knows, together with one's own past (`released`); to *acquire* is to take the
maximum with it (`acquire`). A barrier is both, for those who meet (`meet`, `meet_blocks`, `meet_warps`). An mbarrier
keeps what its arrivals released until a thread sees the phase complete. On a location of memory, with the scope and
`.sem` of the instructions (ISA 8.7 and 8.8):

    order.store(lane, location, sem, scope)         # st.release publishes, st.relaxed what a fence before it published
    order.load(lane, location, sem, scope)          # ld.acquire learns, ld.relaxed as soon as a fence follows
    order.update(lane, location, sem, scope)        # atom, red: both, and it goes on with a release sequence
    order.fence(lanes, scope, sem)                  # fence.acq_rel, fence.sc, membar

`location` is any hashable name of the bytes, `sem` one of "weak", "relaxed", "acquire", "release", "acq_rel", `scope`
one of "cta", "cluster", "gpu", "sys". Two operations synchronise only if the scope of each contains the other's thread.
A weak or relaxed store ends the release sequence of the location; an update does not.

Costs: threads of a block that met at a barrier of the whole block share one number, `block_time`, and those of a warp
one more, `warp_time`. Both are lower bounds of what a lane knows, and decide nearly all accesses. A row for each
different state of knowledge exists only from the first partial meeting on; `row[lane]` is its index in `rows`, and row
0 knows nothing. Rows are never changed in place, so lanes share them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.program import Program, Step
from ptxdiff.emulator.numeric.vectorise import Array

ALWAYS = (1 << 31) - 1
"""The time that a lane knows of itself: its own accesses are in program order."""
SCOPES = ("cta", "cluster", "gpu", "sys")
_RELEASES = frozenset({"release", "acq_rel", "sc"})
_ACQUIRES = frozenset({"acquire", "acq_rel", "sc"})
_FIRST_ROWS = 8
_FEW = 8
"""At most so many updates are made one after the other, which costs less than to prepare many, as in a spin loop."""
_TOGETHER = 1024
"""The most updates whose knowledge is computed at once, for the sake of memory."""


def orders_parts(step: Step) -> bool:
    """Whether a step may order some threads of a block, of several warps, without the others."""
    if step.kind == "barrier":
        return len(step.sources) > 1  # it has a count
    return step.facts.orders_parts or step.bound.modifiers.get("sem") not in (None, "weak", "volatile")


def acquiring(program: Program) -> frozenset[int]:
    """The steps (by place in the text) that see a value of another thread, acquire, and whose result is used.

    A thread that does not look at the value may have come first, so it is ordered after nobody.
    """
    read = {reader.slot for step in program.steps for reader in step.sources} | {s.guard for s in program.steps}
    fences = any(step.kind == "fence" for step in program.steps)
    found = set()
    for step in program.steps:
        sem = step.bound.modifiers.get("sem") or ("relaxed" if step.kind == "atom" else "weak")
        used = any(slot in read for writer in step.destinations for slot in (writer.slot, writer.upper) if slot >= 0)
        if used and step.kind in ("ld", "atom") and (sem in _ACQUIRES or (fences and sem != "weak")):
            found.add(step.node.offset)
    return frozenset(found)


@dataclass(frozen=True)
class Released:
    """What one or several threads of a block published at a location: times by member, the block, and the scope."""

    times: Array
    block: int
    scope: str


class HappensBefore:
    """What each lane of a frame knows of the others of its team.

    `lanes`: of the frame. `threads`: of a block. `team`: threads of a team, a multiple of `threads`; lane i is member
    i % team of team i // team. `cluster`: threads of a cluster, for scopes. `exact`: whether anything may order fewer
    threads than a block, other than those of one warp; if not, less need be remembered.
    """

    def __init__(self, lanes: int, threads: int, team: int = 0, cluster: int = 0, exact: bool = True) -> None:
        self.lanes, self.threads = lanes, threads
        self.team = team or threads
        self.cluster = cluster or threads
        self.exact = exact
        self.member = np.arange(lanes, dtype=np.int64) % self.team
        self.clock = 0
        self.block_time = np.zeros(lanes, np.int64)
        self.warp_time = np.zeros(lanes, np.int64)
        self.row = np.zeros(lanes, np.int64)
        self.rows = np.zeros((_FIRST_ROWS, self.team), np.int32)
        self.used = 1
        self._agents: dict[Hashable, int] = {}
        # Each lane's last fence: what it knew then (see `_known`), and the fence's scope; time 0: none.
        self._fenced = np.zeros((4, lanes), np.int64)
        self._fence_scope = np.full(lanes, -1, np.int64)
        self._pending: dict[int, list[Released]] = {}
        self._at: dict[Hashable, list[Released]] = {}

    # members and time ------------------------------------------------------------------------------------

    def members(self, lanes: Array) -> Array:
        """The numbers of lanes within their teams."""
        found: Array = self.member[lanes]
        return found

    def agent(self, key: Hashable) -> int:
        """The member that stands for asynchronous work, the same in all teams; made when it is first asked for.

        Each has the numbers of a warp, so that accesses of two agents are never taken for those of one warp.
        """
        found = self._agents.get(key)
        if found is None:
            found = self._agents[key] = self.team + 32 * len(self._agents)
            if found >= self.rows.shape[1]:
                self.rows = np.pad(self.rows, ((0, 0), (0, 32 * max(4, len(self._agents)))))
        return found

    def tick(self) -> int:
        """Begin a new moment: accesses until now happened before it. Returns the clock."""
        self.clock += 1
        return self.clock

    def heard(self, lanes: Array, members: Array) -> Array:
        """For each lane, a row of times: accesses before them by members (a row for each lane) are ordered before it.

        members: of the lane's team, -1 for nobody.
        """
        own = self.members(lanes)[:, None]
        found = np.where(members // self.threads == own // self.threads, self.block_time[lanes][:, None], 0)
        np.maximum(found, self.warp_time[lanes][:, None], out=found, where=members >> 5 == own >> 5)
        if self.used > 1:
            np.maximum(found, self.rows[self.row[lanes][:, None], members], out=found)
        found[members == own] = ALWAYS
        return found

    def times(self, lanes: Array) -> Array:
        """The most that any of some lanes of one team knows of each member, without their own past."""
        rows = self._rows_of(lanes)
        found: Array = self.rows[rows[0]].copy() if len(rows) == 1 else self.rows[rows].max(axis=0)
        self._with_own(found, lanes, self.block_time[lanes], self.warp_time[lanes])
        return found

    def _rows_of(self, lanes: Array) -> Array:
        """The different rows of some lanes, sorted."""
        rows = self.row[lanes]
        return rows[:1] if (rows == rows[0]).all() else np.unique(rows)

    def _with_own(self, times: Array, lanes: Array, block_time: Array, warp_time: Array) -> None:
        """Raise times to what lanes know of their whole blocks and warps."""
        members = self.members(lanes)
        if len(lanes) == 1:
            self._with_own_of_one(times, int(members[0]), int(block_time[0]), int(warp_time[0]))
            return
        for numbers, known, each in (
            (members // self.threads, block_time, self.threads),
            (members >> 5, np.where(warp_time > block_time, warp_time, 0), 32),
        ):
            if not known.any():
                continue
            if (numbers == numbers[0]).all():
                part = times[int(numbers[0]) * each :][:each]
                np.maximum(part, known.max(), out=part)
                continue
            most = np.zeros(self.team // each, np.int32)
            np.maximum.at(most, numbers, known.astype(np.int32))
            parts = times[: self.team].reshape(-1, each)
            np.maximum(parts, most[:, None], out=parts)

    def _with_own_of_one(self, times: Array, member: int, block_time: int, warp_time: int) -> None:
        for each, known in ((self.threads, block_time), (32, warp_time if warp_time > block_time else 0)):
            if known:
                part = times[member // each * each :][:each]
                np.maximum(part, known, out=part)

    # releasing and acquiring -----------------------------------------------------------------------------

    def released(self, lanes: Array) -> Array:
        """What some lanes of one team hand over now: all that they know, and their own past. Call `tick` before."""
        found = self.times(lanes)
        found[self.members(lanes)] = self.clock
        return found

    def acquire(self, lanes: Array, times: Array) -> None:
        """Order lanes of one team after what was released."""
        times = self._wide(times)
        before = self._rows_of(lanes)
        if self.used + len(before) > len(self.rows):
            self._compact(len(before))
            before = self._rows_of(lanes)
        joined = np.maximum(self.rows[before], times)
        changed = (joined != self.rows[before]).any(axis=1)
        if changed.any():
            kept = before.copy()
            kept[changed] = self.used + np.arange(int(changed.sum()))
            self.rows[kept[changed]] = joined[changed]
            self.used += int(changed.sum())
            self.row[lanes] = kept[np.searchsorted(before, self.row[lanes])]
        blocks = self.members(lanes) // self.threads
        alike = (blocks == blocks[0]).all()
        for block in [int(blocks[0])] if alike else np.unique(blocks).tolist():
            whole = int(times[block * self.threads : (block + 1) * self.threads].min())
            some = lanes if alike else lanes[blocks == block]
            self.block_time[some] = np.maximum(self.block_time[some], whole)

    def finished(self, firsts: Array, agents: Array, count: int) -> None:
        """Order `count` lanes from each of `firsts` on after all that an agent, one for each, has done until now.

        As `acquire` of a time for the agent alone. Lanes that knew the same share a row again, also those of other
        teams, as a row has no more than times by member.
        """
        now = self.tick()
        lanes = firsts[:, None] + np.arange(count)
        different, number = self._row_and_agent(lanes, agents)
        if self.used + len(different) > len(self.rows):
            self._compact(len(different))
            different, number = self._row_and_agent(lanes, agents)
        rows, of = np.divmod(different, self.rows.shape[1])
        new = self.used + np.arange(len(rows))
        self.rows[new] = self.rows[rows]
        self.rows[new, of] = now
        self.row[lanes] = new[number]
        self.used += len(rows)

    def _row_and_agent(self, lanes: Array, agents: Array) -> tuple[Array, Array]:
        """The different pairs of a lane's row and its agent, each as one number, and which of them each lane has."""
        pairs = self.row[lanes] * self.rows.shape[1] + agents[:, None]
        if (pairs == pairs[0, 0]).all():
            return pairs[0, :1], np.zeros(lanes.shape, np.int64)
        different, number = np.unique(pairs, return_inverse=True)
        return different, number.reshape(lanes.shape)

    def _wide(self, times: Array) -> Array:
        """Times with a column for each agent that has been made since."""
        lacking = self.rows.shape[1] - len(times)
        return np.pad(times, (0, lacking)) if lacking else times

    def joined(self, one: Array | None, other: Array) -> Array:
        """The maximum of what was released twice."""
        return self._wide(other) if one is None else np.maximum(self._wide(one), self._wide(other))

    def _compact(self, more: int) -> None:
        """Keep only rows that a lane still has, and make room for as many again and for `more`."""
        held = np.unique(np.concatenate([[0], self.row, self._fenced[0]]))
        size = max(_FIRST_ROWS, 2 * len(held) + more)
        kept = np.zeros((size, self.rows.shape[1]), np.int32)
        kept[: len(held)] = self.rows[held]
        self.row = np.searchsorted(held, self.row)
        self._fenced[0] = np.searchsorted(held, self._fenced[0])
        self.rows, self.used = kept, len(held)

    # barriers --------------------------------------------------------------------------------------------

    def meet(self, lanes: Array, arrived: Array | None = None) -> None:
        """A barrier of lanes of one team, and of those that arrived without waiting and released `arrived`."""
        self.tick()
        times = self.released(lanes)
        self.acquire(lanes, times if arrived is None else self.joined(arrived, times))

    def meet_blocks(self, lanes: Array) -> None:
        """A barrier in each block that has any of these lanes (a mask), of all its threads that have not ended."""
        now = self.tick()
        if self.used > 1:
            self._share(lanes, self.threads)
        self.block_time[lanes] = now

    def meet_warps(self, lanes: Array) -> None:
        """A barrier in each warp of all its threads that have not ended. lanes: a mask."""
        now = self.tick()
        if self.used > 1:
            self._share(lanes, 32)
        self.warp_time[lanes] = now

    def _share(self, lanes: Array, each: int) -> None:
        """Let the lanes of each group of `each` know what any of them knows."""
        rows, here = self.row.reshape(-1, each), lanes.reshape(-1, each)
        for group in np.flatnonzero((here & (rows != rows[:, :1])).any(axis=1)).tolist():
            some = group * each + np.flatnonzero(here[group])
            self.acquire(some, self.times(some))

    # locations of memory ---------------------------------------------------------------------------------

    def fence(self, lanes: Array, scope: str, sem: str = "acq_rel") -> None:
        """A fence: what relaxed loads have seen is acquired, and later relaxed writes release what lanes know now."""
        now = self.tick()
        for lane in self._pending.keys() & set(lanes.tolist()) if sem in _ACQUIRES else ():
            for one in self._pending.pop(lane):
                if self._strong(lane, scope, one):
                    self.acquire(np.array([lane]), one.times)
        if sem not in _RELEASES:
            return
        some = (self.row[lanes], self.block_time[lanes], self.warp_time[lanes], np.full(len(lanes), now))
        self._fenced[:, lanes] = some
        self._fence_scope[lanes] = SCOPES.index(scope)

    def store(self, lane: int, location: Hashable, sem: str, scope: str = "sys") -> None:
        """A store to a location, which ends its release sequence and may begin another."""
        published = self.published(lane, sem, scope)
        if published:
            self._at[location] = published
        else:
            self._at.pop(location, None)

    def load(self, lane: int, location: Hashable, sem: str, scope: str = "sys") -> None:
        """A load that sees the last store and the updates after it."""
        self._learn(lane, self._at.get(location), sem, scope)

    def update(self, lane: int, location: Hashable, sem: str, scope: str = "gpu") -> None:
        """An atomic operation: a load and a store that goes on with the location's release sequence."""
        before = self._at.get(location)
        self._learn(lane, before, sem, scope)
        published = self.published(lane, sem, scope)
        if published:
            self._at[location] = self._merged(before or [], published)

    def updates(self, lanes: Array, locations: Sequence[Hashable], sem: str, scope: str) -> None:
        """`update` for several lanes, one after the other, each at its location."""
        alike = sem in _RELEASES | _ACQUIRES and (scope != "cta" or self.team == self.threads)
        for first in range(0, len(lanes), _TOGETHER):
            some, places = lanes[first : first + _TOGETHER], locations[first : first + _TOGETHER]
            if len(some) <= _FEW or not alike or (self._fence_scope[some] >= 0).any() or self._mixed(places, scope):
                for lane, location in zip(some.tolist(), places, strict=True):
                    self.update(lane, location, sem, scope)
            else:
                self._update_together(some, places, sem, scope)

    def _mixed(self, locations: Sequence[Hashable], scope: str) -> bool:
        """Whether something was released at a location at another scope."""
        return any(one.scope != scope for location in set(locations) for one in self._at.get(location, ()))

    def _update_together(self, lanes: Array, locations: Sequence[Hashable], sem: str, scope: str) -> None:
        """Updates of the same scope: in each round one lane of each location, so that it sees those before it."""
        now, count = self.tick(), np.arange(len(lanes))
        known = self.rows[self.row[lanes]]
        members = self.members(lanes)
        for each, times in ((self.threads, self.block_time[lanes]), (32, self.warp_time[lanes])):
            parts = known[:, : self.team].reshape(len(lanes), -1, each)
            parts[count, members // each] = np.maximum(parts[count, members // each], times[:, None])
            known[:, : self.team] = parts.reshape(len(lanes), -1)
        known[count, members] = now
        groups: dict[tuple[int, Hashable], list[int]] = {}
        for at, key in enumerate(zip((lanes // self.team).tolist(), locations, strict=True)):
            groups.setdefault(key, []).append(at)
        released = np.zeros((len(groups), known.shape[1]), np.int32)
        for number, (team, location) in enumerate(groups):
            for one in self._at.get(location, ()):
                if one.block * self.threads // self.team == team:
                    np.maximum(released[number], self._wide(one.times), out=released[number])
        learned = np.zeros_like(known)
        for turn in range(max(map(len, groups.values()))):
            here = [number for number, group in enumerate(groups.values()) if len(group) > turn]
            those = [group[turn] for group in groups.values() if len(group) > turn]
            learned[those] = released[here]
            if sem in _RELEASES:
                released[here] = np.maximum(released[here], known[those])
        if sem in _ACQUIRES:
            self._learn_rows(lanes, learned)
        if sem in _RELEASES:
            for number, ((team, location), group) in enumerate(groups.items()):
                others = [o for o in self._at.get(location, ()) if o.block * self.threads // self.team != team]
                block = int(lanes[group[-1]]) // self.threads
                self._at[location] = [*others, Released(released[number], block, scope)]

    def _learn_rows(self, lanes: Array, times: Array) -> None:
        """`acquire` for lanes that each learn a row of times."""
        some = np.flatnonzero((times > self.rows[self.row[lanes]]).any(axis=1))
        if self.used + len(some) > len(self.rows):
            self._compact(len(some))
        new = self.used + np.arange(len(some))
        self.rows[new] = np.maximum(self.rows[self.row[lanes[some]]], times[some])
        self.row[lanes[some]] = new
        self.used += len(some)

    def publishes(self, location: Hashable) -> bool:
        """Whether anything was released at a location."""
        return location in self._at

    @property
    def synchronised(self) -> bool:
        """Whether any location or fence can order lanes; if not, relaxed accesses have no effect here."""
        return bool(self._at) or bool((self._fence_scope >= 0).any())

    def published(self, lane: int, sem: str, scope: str) -> list[Released]:
        """What a store or an arrival with this `.sem` hands over."""
        block = lane // self.threads
        if sem in _RELEASES:
            self.tick()
            return [Released(self.released(np.array([lane])), block, scope)]
        if sem == "weak" or self._fence_scope[lane] < 0:
            return []
        row, block_time, warp_time, when = self._fenced[:, lane]
        times = self.rows[row].copy()
        one = np.array([lane])
        self._with_own(times, one, np.array([block_time]), np.array([warp_time]))
        times[lane % self.team] = when
        return [Released(times, block, SCOPES[min(SCOPES.index(scope), int(self._fence_scope[lane]))])]

    def learn_relaxed(self, lanes: list[int], times: Array) -> None:
        """Let lanes learn what was released as soon as they execute a fence."""
        for lane in lanes:
            seen = [Released(times, lane // self.threads, "sys")]
            self._pending[lane] = self._merged(self._pending.get(lane, []), seen)

    def _merged(self, before: list[Released], published: list[Released]) -> list[Released]:
        found = {(one.block, one.scope): one for one in before}
        for one in published:
            old = found.get((one.block, one.scope))
            times = one.times if old is None else self.joined(old.times, one.times)
            found[one.block, one.scope] = Released(times, one.block, one.scope)
        return list(found.values())

    def _learn(self, lane: int, published: list[Released] | None, sem: str, scope: str) -> None:
        if not published or sem == "weak":
            return
        strong = [one for one in published if self._strong(lane, scope, one)]
        if sem in _ACQUIRES:
            for one in strong:
                self.acquire(np.array([lane]), one.times)
        elif strong:
            self._pending[lane] = self._merged(self._pending.get(lane, []), strong)

    def _strong(self, lane: int, scope: str, one: Released) -> bool:
        """Whether the scope of each of two operations contains the thread of the other (ISA 8.7, morally strong)."""
        narrower = min(SCOPES.index(scope), SCOPES.index(one.scope))
        block = lane // self.threads
        if lane // self.team != one.block * self.threads // self.team:
            return False  # a team knows nothing of the members of another
        if narrower == 0:
            return block == one.block
        blocks = self.cluster // self.threads
        return narrower > 1 or block // blocks == one.block // blocks
