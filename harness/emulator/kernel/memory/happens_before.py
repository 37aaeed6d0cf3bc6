"""Which accesses happen before which (PTX ISA 8.9, causality order), by vector clocks.

One vocabulary for shared memory, global memory and asynchronous copies, and for every way in which threads synchronise:

A *team* is the threads that can order each other: those of a block, of a cluster, or of more blocks. A *member* is a
thread of a team, by its number in it; `agent` gives numbers beyond the threads' to asynchronous work (the bytes that
arrive at an mbarrier, the products of a warpgroup). The *clock* counts events of synchronisation in the whole frame. An
access is recorded with its member and its *time*, the clock at that moment (FastTrack's *epoch*). Each lane has a
*vector clock*: a time for each member. An access happens before the lane's next instruction if its time is less than
its member's component, so

    race = ~order.happens_before(lanes, members, times)     # and one of the two writes, and not both are strong

A *release* hands over the vector clock, with the present time for the releasing thread itself (`release`); an *acquire*
joins it, which is to take the maximum of each component (`acquire`). A release *synchronises with* the acquire. A
barrier is both, for all its threads (`barrier`, `block_barriers`, `warp_barriers`). An mbarrier keeps what its arrivals
released until a thread sees the phase complete. On a location of memory, with the scope and `.sem` of the instructions
(ISA 8.7 and 8.8):

    order.store(lane, location, sem, scope)         # st.release releases, st.relaxed what a fence before it released
    order.load(lane, location, sem, scope)          # ld.acquire acquires, ld.relaxed as soon as a fence follows
    order.update(lane, location, sem, scope)        # atom, red: both, and it goes on with a release sequence
    order.fence(lanes, scope, sem)                  # fence.acq_rel, fence.sc, membar

`location` is any hashable name of the bytes, `sem` one of "weak", "relaxed", "acquire", "release", "acq_rel", `scope`
one of "cta", "cluster", "gpu", "sys". Two operations synchronise only if they are morally strong: the scope of each
contains the other's thread. A weak or relaxed store ends the release sequence of the location; an update does not.

Costs: threads of a block that passed a barrier of the whole block share one number, `block_time`, and those of a warp
one more, `warp_time`. Both are lower bounds of components of a lane's vector clock, and decide nearly all accesses. A
vector for each different vector clock exists only from the first synchronisation of a part of a block on;
`vector[lane]` is its index in `vectors`, and vector 0 is zero. Vectors are never changed in place, so lanes share them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.program import Program, Step
from ptxdiff.emulator.numeric.vectorise import Array

ALWAYS = (1 << 31) - 1
"""A lane's component of its own vector clock: its own accesses are in program order."""
SCOPES = ("cta", "cluster", "gpu", "sys")
RELEASES = frozenset({"release", "acq_rel", "sc"})
ACQUIRES = frozenset({"acquire", "acq_rel", "sc"})
"""Values of `.sem` with which an access or a fence releases, and acquires."""
_FIRST_VECTORS = 8
_FEW = 8
"""At most so many updates are made one after the other, which costs less than to prepare many, as in a spin loop."""
_TOGETHER = 1024
"""The most updates whose vector clocks are computed at once, for the sake of memory."""


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
    offsets = set()
    for step in program.steps:
        sem = step.bound.modifiers.get("sem") or ("relaxed" if step.kind == "atom" else "weak")
        used = any(slot in read for writer in step.destinations for slot in (writer.slot, writer.upper) if slot >= 0)
        if used and step.kind in ("ld", "atom") and (sem in ACQUIRES or (fences and sem != "weak")):
            offsets.add(step.node.offset)
    return frozenset(offsets)


@dataclass(frozen=True)
class Release:
    """What one or several threads of a block released at a location: a vector clock, the block, and the scope."""

    vector: Array
    block: int
    scope: str


class HappensBefore:
    """The vector clock of each lane of a frame, with a component for each member of its team.

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
        self.vector = np.zeros(lanes, np.int64)
        self.vectors = np.zeros((_FIRST_VECTORS, self.team), np.int32)
        self.used = 1
        self._agents: dict[Hashable, int] = {}
        # Each lane's last fence: its vector clock then (`vector`, `block_time`, `warp_time`), the time, 0 for none, and
        # the fence's scope.
        self._fenced = np.zeros((4, lanes), np.int64)
        self._fence_scope = np.full(lanes, -1, np.int64)
        self._until_fence: dict[int, list[Release]] = {}
        self._at: dict[Hashable, list[Release]] = {}

    # members and time ------------------------------------------------------------------------------------

    def members(self, lanes: Array) -> Array:
        """The numbers of lanes within their teams."""
        numbers: Array = self.member[lanes]
        return numbers

    def agent(self, key: Hashable) -> int:
        """The member that stands for asynchronous work, the same in all teams; made when it is first asked for.

        Each has the numbers of a warp, so that accesses of two agents are never taken for those of one warp.
        """
        first_member = self._agents.get(key)
        if first_member is None:
            first_member = self._agents[key] = self.team + 32 * len(self._agents)
            if first_member >= self.vectors.shape[1]:
                self.vectors = np.pad(self.vectors, ((0, 0), (0, 32 * max(4, len(self._agents)))))
        return first_member

    def tick(self) -> int:
        """Begin a new moment: accesses until now happened before it. Returns the clock."""
        self.clock += 1
        return self.clock

    def happens_before(self, lanes: Array, members: Array, times: Array) -> Array:
        """For each lane, of accesses by members at times (a row for each lane), which happen before it."""
        ordered: Array = times < self.components(lanes, members)
        return ordered

    def components(self, lanes: Array, members: Array) -> Array:
        """For each lane, the components of its vector clock for members (a row for each lane).

        members: of the lane's team, -1 for nobody.
        """
        own = self.members(lanes)[:, None]
        times = np.where(members // self.threads == own // self.threads, self.block_time[lanes][:, None], 0)
        np.maximum(times, self.warp_time[lanes][:, None], out=times, where=members >> 5 == own >> 5)
        if self.used > 1:
            np.maximum(times, self.vectors[self.vector[lanes][:, None], members], out=times)
        times[members == own] = ALWAYS
        return times

    def join_of(self, lanes: Array) -> Array:
        """The join of the vector clocks of some lanes of one team, without their own past."""
        vectors = self._vectors_of(lanes)
        joined: Array = self.vectors[vectors[0]].copy() if len(vectors) == 1 else self.vectors[vectors].max(axis=0)
        self._with_own(joined, lanes, self.block_time[lanes], self.warp_time[lanes])
        return joined

    def _vectors_of(self, lanes: Array) -> Array:
        """The different vectors of some lanes, by index, sorted."""
        vectors = self.vector[lanes]
        return vectors[:1] if (vectors == vectors[0]).all() else np.unique(vectors)

    def _with_own(self, vector: Array, lanes: Array, block_time: Array, warp_time: Array) -> None:
        """Raise components of a vector clock to the times of the lanes' barriers of whole blocks and warps."""
        members = self.members(lanes)
        if len(lanes) == 1:
            self._with_own_of_one(vector, int(members[0]), int(block_time[0]), int(warp_time[0]))
            return
        for numbers, times, each in (
            (members // self.threads, block_time, self.threads),
            (members >> 5, np.where(warp_time > block_time, warp_time, 0), 32),
        ):
            if not times.any():
                continue
            if (numbers == numbers[0]).all():
                part = vector[int(numbers[0]) * each :][:each]
                np.maximum(part, times.max(), out=part)
                continue
            most = np.zeros(self.team // each, np.int32)
            np.maximum.at(most, numbers, times.astype(np.int32))
            parts = vector[: self.team].reshape(-1, each)
            np.maximum(parts, most[:, None], out=parts)

    def _with_own_of_one(self, vector: Array, member: int, block_time: int, warp_time: int) -> None:
        for each, time in ((self.threads, block_time), (32, warp_time if warp_time > block_time else 0)):
            if time:
                part = vector[member // each * each :][:each]
                np.maximum(part, time, out=part)

    # releasing and acquiring -----------------------------------------------------------------------------

    def release(self, lanes: Array) -> Array:
        """The vector clock that some lanes of one team release now, with their own past. Call `tick` before."""
        vector = self.join_of(lanes)
        vector[self.members(lanes)] = self.clock
        return vector

    def acquire(self, lanes: Array, vector: Array) -> None:
        """Order lanes of one team after what was released: join a vector clock to theirs."""
        vector = self._wide(vector)
        before = self._vectors_of(lanes)
        if self.used + len(before) > len(self.vectors):
            self._compact(len(before))
            before = self._vectors_of(lanes)
        joined = np.maximum(self.vectors[before], vector)
        changed = (joined != self.vectors[before]).any(axis=1)
        if changed.any():
            kept = before.copy()
            kept[changed] = self.used + np.arange(int(changed.sum()))
            self.vectors[kept[changed]] = joined[changed]
            self.used += int(changed.sum())
            self.vector[lanes] = kept if len(kept) == 1 else kept[np.searchsorted(before, self.vector[lanes])]
        blocks = self.members(lanes) // self.threads
        alike = (blocks == blocks[0]).all()
        for block in [int(blocks[0])] if alike else np.unique(blocks).tolist():
            whole = int(vector[block * self.threads : (block + 1) * self.threads].min())
            some = lanes if alike else lanes[blocks == block]
            self.block_time[some] = np.maximum(self.block_time[some], whole)

    def acquire_agents(self, firsts: Array, agents: Array, count: int) -> None:
        """Order `count` lanes from each of `firsts` on after all that an agent, one for each, has done until now.

        As `acquire` of a vector clock with the agent's component alone. Lanes that had the same vector have the same
        again, also those of other teams, as a vector has no more than times by member.
        """
        now = self.tick()
        lanes = firsts[:, None] + np.arange(count)
        different, number = self._vector_and_agent(lanes, agents)
        if self.used + len(different) > len(self.vectors):
            self._compact(len(different))
            different, number = self._vector_and_agent(lanes, agents)
        vectors, of = np.divmod(different, self.vectors.shape[1])
        new = self.used + np.arange(len(vectors))
        self.vectors[new] = self.vectors[vectors]
        self.vectors[new, of] = now
        self.vector[lanes] = new[number]
        self.used += len(vectors)

    def _vector_and_agent(self, lanes: Array, agents: Array) -> tuple[Array, Array]:
        """The different pairs of a lane's vector and its agent, each as one number, and which of them each lane has."""
        pairs = self.vector[lanes] * self.vectors.shape[1] + agents[:, None]
        if (pairs == pairs[0, 0]).all():
            return pairs[0, :1], np.zeros(lanes.shape, np.int64)
        different, number = np.unique(pairs, return_inverse=True)
        return different, number.reshape(lanes.shape)

    def _wide(self, vector: Array) -> Array:
        """A vector clock with a component for each agent that has been made after it."""
        lacking = self.vectors.shape[1] - len(vector)
        return np.pad(vector, (0, lacking)) if lacking else vector

    def join(self, one: Array | None, other: Array) -> Array:
        """The join of two vector clocks."""
        return self._wide(other) if one is None else np.maximum(self._wide(one), self._wide(other))

    def _compact(self, more: int) -> None:
        """Keep only vectors in use, and make room for as many again and for `more`."""
        held = np.unique(np.concatenate([[0], self.vector, self._fenced[0], self._other_vectors()])).astype(np.int64)
        size = max(_FIRST_VECTORS, 2 * len(held) + more)
        self._check_room(4 * size * self.vectors.shape[1])
        kept = np.zeros((size, self.vectors.shape[1]), np.int32)
        kept[: len(held)] = self.vectors[held]
        self._renumber(held)
        self.vectors, self.used = kept, len(held)

    def _other_vectors(self) -> list[int]:
        """Vectors in use beside those of lanes and their last fences, by index."""
        return []

    def _check_room(self, size: int) -> None:
        """Raise an error if `size` bytes of vectors are too many."""

    def _renumber(self, held: Array) -> None:
        """Give each index of a vector its new value: the place of the old one in `held`."""
        self.vector = np.searchsorted(held, self.vector)
        self._fenced[0] = np.searchsorted(held, self._fenced[0])

    # barriers --------------------------------------------------------------------------------------------

    def barrier(self, lanes: Array, arrived: Array | None = None) -> None:
        """A barrier of lanes of one team, and of those that arrived without waiting and released `arrived`."""
        self.tick()
        vector = self.release(lanes)
        self.acquire(lanes, vector if arrived is None else self.join(arrived, vector))

    def block_barriers(self, lanes: Array) -> None:
        """A barrier in each block that has any of these lanes (a mask), of all its threads that have not ended."""
        now = self.tick()
        if self.used > 1:
            self._share(lanes, self.threads)
        self.block_time[lanes] = now

    def warp_barriers(self, lanes: Array) -> None:
        """A barrier in each warp of all its threads that have not ended. lanes: a mask."""
        now = self.tick()
        if self.used > 1:
            self._share(lanes, 32)
        self.warp_time[lanes] = now

    def _share(self, lanes: Array, each: int) -> None:
        """Let the lanes of each group of `each` acquire what each of them could release."""
        vectors, here = self.vector.reshape(-1, each), lanes.reshape(-1, each)
        for group in np.flatnonzero((here & (vectors != vectors[:, :1])).any(axis=1)).tolist():
            some = group * each + np.flatnonzero(here[group])
            self.acquire(some, self.join_of(some))

    # locations of memory ---------------------------------------------------------------------------------

    def fence(self, lanes: Array, scope: str, sem: str = "acq_rel") -> None:
        """A fence: acquire what relaxed loads have read, and let later relaxed writes release what lanes can now."""
        now = self.tick()
        for lane in self._until_fence.keys() & set(lanes.tolist()) if sem in ACQUIRES else ():
            for one in self._until_fence.pop(lane):
                if self._morally_strong(lane, SCOPES.index(scope), _key(one)):
                    self.acquire(np.array([lane]), one.vector)
        if sem not in RELEASES:
            return
        some = (self.vector[lanes], self.block_time[lanes], self.warp_time[lanes], np.full(len(lanes), now))
        self._fenced[:, lanes] = some
        self._fence_scope[lanes] = SCOPES.index(scope)

    def store(self, lane: int, location: Hashable, sem: str, scope: str = "sys") -> None:
        """A store to a location, which ends its release sequence and may begin another."""
        released = self.released_by(lane, sem, scope)
        if released:
            self._at[location] = released
        else:
            self._at.pop(location, None)

    def load(self, lane: int, location: Hashable, sem: str, scope: str = "sys") -> None:
        """A load that sees the last store and the updates after it."""
        self._acquire_from(lane, self._at.get(location), sem, scope)

    def update(self, lane: int, location: Hashable, sem: str, scope: str = "gpu") -> None:
        """An atomic operation: a load and a store that goes on with the location's release sequence."""
        before = self._at.get(location)
        self._acquire_from(lane, before, sem, scope)
        released = self.released_by(lane, sem, scope)
        if released:
            self._at[location] = self._merged(before or [], released)

    def updates(self, lanes: Array, locations: Sequence[Hashable], sem: str, scope: str) -> None:
        """`update` for several lanes, one after the other, each at its location."""
        alike = sem in RELEASES | ACQUIRES and (scope != "cta" or self.team == self.threads)
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
        vectors = self.vectors[self.vector[lanes]]
        members = self.members(lanes)
        for each, times in ((self.threads, self.block_time[lanes]), (32, self.warp_time[lanes])):
            parts = vectors[:, : self.team].reshape(len(lanes), -1, each)
            parts[count, members // each] = np.maximum(parts[count, members // each], times[:, None])
            vectors[:, : self.team] = parts.reshape(len(lanes), -1)
        vectors[count, members] = now
        groups: dict[tuple[int, Hashable], list[int]] = {}
        for at, key in enumerate(zip((lanes // self.team).tolist(), locations, strict=True)):
            groups.setdefault(key, []).append(at)
        released = np.zeros((len(groups), vectors.shape[1]), np.int32)
        for number, (team, location) in enumerate(groups):
            for one in self._at.get(location, ()):
                if one.block * self.threads // self.team == team:
                    np.maximum(released[number], self._wide(one.vector), out=released[number])
        acquired = np.zeros_like(vectors)
        for turn in range(max(map(len, groups.values()))):
            here = [number for number, group in enumerate(groups.values()) if len(group) > turn]
            those = [group[turn] for group in groups.values() if len(group) > turn]
            acquired[those] = released[here]
            if sem in RELEASES:
                released[here] = np.maximum(released[here], vectors[those])
        if sem in ACQUIRES:
            self._acquire_each(lanes, acquired)
        if sem in RELEASES:
            for number, ((team, location), group) in enumerate(groups.items()):
                others = [o for o in self._at.get(location, ()) if o.block * self.threads // self.team != team]
                block = int(lanes[group[-1]]) // self.threads
                self._at[location] = [*others, Release(released[number], block, scope)]

    def _acquire_each(self, lanes: Array, vectors: Array) -> None:
        """`acquire` for lanes with a vector clock for each."""
        some = np.flatnonzero((vectors > self.vectors[self.vector[lanes]]).any(axis=1))
        if self.used + len(some) > len(self.vectors):
            self._compact(len(some))
        new = self.used + np.arange(len(some))
        self.vectors[new] = np.maximum(self.vectors[self.vector[lanes[some]]], vectors[some])
        self.vector[lanes[some]] = new
        self.used += len(some)

    def has_release(self, location: Hashable) -> bool:
        """Whether anything was released at a location."""
        return location in self._at

    @property
    def synchronised(self) -> bool:
        """Whether any location or fence can order lanes; if not, relaxed accesses have no effect here."""
        return bool(self._at) or bool((self._fence_scope >= 0).any())

    def released_by(self, lane: int, sem: str, scope: str) -> list[Release]:
        """What a store or an arrival with this `.sem` releases."""
        block = lane // self.threads
        if sem in RELEASES:
            self.tick()
            return [Release(self.release(np.array([lane])), block, scope)]
        if sem == "weak" or self._fence_scope[lane] < 0:
            return []
        index, block_time, warp_time, time = self._fenced[:, lane]
        vector = self.vectors[index].copy()
        one = np.array([lane])
        self._with_own(vector, one, np.array([block_time]), np.array([warp_time]))
        vector[lane % self.team] = time
        return [Release(vector, block, SCOPES[min(SCOPES.index(scope), int(self._fence_scope[lane]))])]

    def acquire_at_fence(self, lanes: list[int], vector: Array) -> None:
        """Let lanes acquire what was released as soon as they execute a fence."""
        for lane in lanes:
            read = [Release(vector, lane // self.threads, "sys")]
            self._until_fence[lane] = self._merged(self._until_fence.get(lane, []), read)

    def _merged(self, before: list[Release], releases: list[Release]) -> list[Release]:
        merged = {(one.block, one.scope): one for one in before}
        for one in releases:
            old = merged.get((one.block, one.scope))
            vector = one.vector if old is None else self.join(old.vector, one.vector)
            merged[one.block, one.scope] = Release(vector, one.block, one.scope)
        return list(merged.values())

    def _acquire_from(self, lane: int, releases: list[Release] | None, sem: str, scope: str) -> None:
        if not releases or sem == "weak":
            return
        strong = [one for one in releases if self._morally_strong(lane, SCOPES.index(scope), _key(one))]
        if sem in ACQUIRES:
            for one in strong:
                self.acquire(np.array([lane]), one.vector)
        elif strong:
            self._until_fence[lane] = self._merged(self._until_fence.get(lane, []), strong)

    def _morally_strong(self, lane: int, scope: int, other: tuple[int, int]) -> bool:
        """Whether the scope of each of two operations contains the thread of the other (ISA 8.7).

        scope: as an index of `SCOPES`; of the other operation, that and the block.
        """
        narrower, block = min(scope, other[0]), other[1]
        if lane // self.team != block * self.threads // self.team:
            return False  # nothing orders threads of two teams
        group = self.threads if narrower == 0 else self.cluster
        return narrower > 1 or lane // group == block * self.threads // group


def _key(release: Release) -> tuple[int, int]:
    return SCOPES.index(release.scope), release.block
