"""Schedule threads at barriers: they wait until all participants have arrived, or until an mbarrier's phase is
complete.

A barrier has a number. It is for all threads of a block, or for as many as its second operand says, so that warps that
run different code can have their own barriers. Waiting threads go on only when no other thread can run. Copies to
shared memory land only when no thread can go on even then. So a missing wait or arrival shows as a wrong order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from ptxdiff.emulator.binding.program import Program, Step
from ptxdiff.emulator.errors import ExecutionError, PtxError
from ptxdiff.emulator.kernel.async_copy import mbarrier
from ptxdiff.emulator.kernel.block_orders import PATIENCE, PIECES, RESIDENT, observes
from ptxdiff.emulator.kernel.cluster.blocks import ClusterFrame
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.tcgen05 import awaited_registers
from ptxdiff.emulator.kernel.warp.exchange import bits_of, membership, warp_sync
from ptxdiff.emulator.kernel.warp.owed import AT_A_BARRIER
from ptxdiff.emulator.machine.lockstep import Scheduler, guarded
from ptxdiff.emulator.numeric.vectorise import Array


def _is_aligned(step: Step) -> bool:
    """Whether a step is a barrier of a block that all threads of a warp must execute together (`bar` always is)."""
    return step.facts.waits in ("barrier", "arrival") and (
        step.node.opcode == "bar" or "aligned" in step.node.modifiers
    )


class ThreadsEndEarly(PtxError):
    """Threads meet at a barrier of a block of which others have ended: the launch has to run again, with the accesses
    of each thread remembered by themselves."""

    def __init__(self) -> None:
        super().__init__("threads end before others of their block meet at a barrier")


def ends_early(program: Program) -> bool:
    """Whether threads of a program may end before others of their block meet at a barrier."""
    last = max((at for at, step in enumerate(program.steps) if step.kind == "barrier"), default=-1)
    return any(
        step.kind == "exit" or (step.kind == "branch" and step.target > last) for step in program.steps[: last + 1]
    )


class KernelScheduler(Scheduler):
    """The scheduler with barriers."""

    def __init__(self, program: Program, frame: KernelFrame) -> None:
        super().__init__(program, frame)
        self.kernel_frame = frame
        if frame.grid.loops:
            self.patience, self.weights = PATIENCE, frame.grid.loops
        self.pauses = False
        """Whether other blocks can still run, so that `run` returns when all threads here wait in loops."""
        self.paused = False
        self._fruitless = False
        self._turns: list[Array] = []
        self._rounds: Iterator[list[Array]] | None = None
        if frame.promises.slots:
            self.watch = frame.promises.watch
        elif awaited_registers.loads(program):
            self.watch = awaited_registers.AwaitedRegisters(frame).watch
        self.alive: Array = np.ones(frame.lanes, np.bool_)
        self.blocked: dict[int, Array] = {}
        self.arrived: dict[tuple[int, int], tuple[Array, Array]] = {}
        """How often each thread of a block arrived at a barrier without waiting, and what they released, by block and
        the barrier's number."""
        self.ended_early: Array = np.zeros(frame.lanes // frame.grid.threads, np.bool_)
        """Which blocks have threads that have ended, and others."""
        self.warp_masks: Array = np.zeros(frame.lanes, np.uint32)
        """The membership mask of each lane that waits at bar.warp.sync."""
        frame.at_barriers = self._at_barriers
        frame.at_warp_barriers = self._at_warp_barriers
        self.refused: dict[int, Array] = {}
        """At each mbarrier.try_wait, the threads that were answered once that their phase is not complete."""

    def _error(self, kind: type[ExecutionError], step: Step, message: str) -> ExecutionError:
        return self.kernel_frame.fault(kind, step, message)

    def left(self, lanes: Array) -> None:
        """Record that threads have ended."""
        self.alive = self.alive & ~lanes
        self.kernel_frame.gone = ~self.alive
        of_blocks = self.alive.reshape(-1, self.kernel_frame.grid.threads)
        self.ended_early = np.asarray(of_blocks.any(axis=1) & ~of_blocks.all(axis=1))
        if isinstance(self.kernel_frame, ClusterFrame) and lanes.any():
            self.kernel_frame.ended(lanes)

    def block(self, step: Step, at: int, active: Array) -> tuple[int, Array | None]:
        """At a barrier, pass if all threads of each block that have not ended are here; else wait."""
        if step.guard >= 0:
            held, passing = self._split(step, active)
            if passing.any():
                self._refuse_torn_warps(step, held, passing)
                self._park(at + 1, passing)
            active = held
            if not active.any():
                return at + 1, None
        if step.facts.waits == "arrival":
            return self._arrive(step, at, active)
        if step.facts.waits == "warp":
            return self._warp_barrier(step, at, active)
        if step.facts.waits == "phase":
            active = self._test(step, at, active)
            return at + 1, active if active.any() else None
        if self.kernel_frame.owed:
            self._refuse_owed(active)
        if len(step.sources) == 1 and not self.blocked and np.array_equal(active, self.alive):
            self._order_blocks(active)
            for block in np.unique(self.kernel_frame.block[active]).tolist() if step.destinations else ():
                self._reduce(active & (self.kernel_frame.block == block), {at})
            return at + 1, active
        self._wait(at, active)
        return at + 1, None

    def _order_blocks(self, lanes: Array) -> None:
        """Order the threads of blocks that have met at a barrier, all that have not ended. lanes: a mask.

        A barrier orders what the threads did that execute it (ISA 9.7.13.1: "prior memory accesses requested by this
        thread"). Nothing orders what a thread did that ended before.
        """
        frame = self.kernel_frame
        if not self.ended_early.any():
            frame.order.block_barriers(lanes)
            return
        early = np.repeat(self.ended_early, frame.grid.threads)
        if (lanes & ~early).any():
            frame.order.block_barriers(lanes & ~early)
        if (lanes & early).any() and frame.grid.races:
            if not frame.order.exact:
                raise ThreadsEndEarly
            for block in np.unique(frame.block[lanes & early]).tolist():
                frame.order.barrier(np.flatnonzero(lanes & (frame.block == block)))

    def _refuse_torn_warps(self, step: Step, here: Array, elsewhere: Array) -> None:
        """Raise ExecutionError if an aligned barrier is executed by lanes whose warps have other lanes elsewhere.

        ISA 9.7.13.1: all threads of a warp must execute the same aligned barrier, else the behaviour is undefined. A
        GPU counts whole warps there, and so releases others too early.
        """
        if not _is_aligned(step):
            return
        torn = here.reshape(-1, 32).any(axis=1) & elsewhere.reshape(-1, 32).any(axis=1)
        if torn.any():
            warp = int(np.flatnonzero(torn)[0]) * 32
            lane, other = (warp + int(np.flatnonzero(lanes[warp : warp + 32])[0]) for lanes in (here, elsewhere))
            who = self.kernel_frame.who
            text = f"{who(lane)} executes {step.bound.spelling}, and {who(other)} of its warp does not: all threads of "
            text += "a warp must execute the same aligned barrier; barrier without .aligned is for some of them"
            raise self.kernel_frame.fault(ExecutionError, step, text)

    def _at_barriers(self) -> Array:
        """The lanes that wait at a barrier of their block."""
        waiting = np.zeros(self.frame.lanes, np.bool_)
        for at, lanes in self.blocked.items():
            if self.program.steps[at].kind == "barrier":
                waiting |= lanes
        return waiting

    def _at_warp_barriers(self) -> Array:
        """The masks of the lanes that wait at bar.warp.sync, and 0 of other lanes."""
        masks = np.zeros(self.frame.lanes, np.uint32)
        for at, lanes in self.blocked.items():
            if self.program.steps[at].facts.waits == "warp":
                masks[lanes] = self.warp_masks[lanes]
        return masks

    def _refuse_owed(self, active: Array) -> None:
        """Raise ExecutionError if lanes wait at a barrier, and others of their warps wait for them in an exchange."""
        for lane, debts in self.kernel_frame.owed.items():
            for debt in debts.values() if active[lane] else ():
                raise debt.error(AT_A_BARRIER)

    def _wait(self, at: int, lanes: Array) -> None:
        old = self.blocked.get(at)
        self.blocked[at] = lanes if old is None else old | lanes

    def _split(self, step: Step, active: Array) -> tuple[Array, Array]:
        held, doubtful = guarded(self.frame, step, active)
        if doubtful is not None and doubtful.any():
            self.frame.under_doubt(step, doubtful)
        taken = active if held is None else held
        return taken, active & ~taken

    # mbarriers -------------------------------------------------------------------------------------------

    def _test(self, step: Step, at: int, active: Array) -> Array:
        """The lanes whose phase is complete; the others wait and test again later."""
        frame = self.kernel_frame
        lanes = np.flatnonzero(active)
        if isinstance(frame, ClusterFrame) and step.kind == "cluster_wait":
            if "aligned" in step.node.modifiers:
                frame.need_whole_warps(step, active)
            answers = frame.ready(step, lanes)
            frame.passed(lanes[answers])
        else:
            answers = mbarrier.complete(frame, step, lanes)
        if step.kind == "mbarrier_try_wait":
            answers = self._tried(step, at, lanes, answers)
        passing = active.copy()
        passing[lanes[~answers]] = False
        if not answers.all():
            self._wait(at, active & ~passing)
        return passing

    def _tried(self, step: Step, at: int, lanes: Array, complete: Array) -> Array:
        """Answer lanes whose phase is complete, and others once with no; which lanes go on.

        A thread also gets a no if nothing ordered it after the end of the phase: it might have tested earlier. On
        hardware a try ends after an unknown time, so a program that uses one try as a wait goes on too early.
        """
        before = self.refused.setdefault(at, np.zeros(self.frame.lanes, np.bool_))
        phases = mbarrier.awaited_phases(self.kernel_frame, step, lanes)
        known = complete & (phases.number < 0)
        answered_no = ~known & ~before[lanes]
        yes = complete & ~answered_no
        before[lanes] = answered_no | (before[lanes] & ~yes)
        if (answered_no | yes).any():
            told = answered_no | yes
            mbarrier.give(self.kernel_frame, step, lanes[told], yes[told], phases.of(told))
        return np.asarray(answered_no | yes)

    def _woken(self) -> bool:
        """Wake lanes whose phase is now complete; returns whether there are any."""
        any_woken = False
        for at, lanes in list(self.blocked.items()):
            step = self.program.steps[at]
            if step.facts.waits != "phase":
                continue
            some, frame = np.flatnonzero(lanes), self.kernel_frame
            if isinstance(frame, ClusterFrame) and step.kind == "cluster_wait":
                ready = some[frame.ready(step, some)]
            else:
                ready = some[mbarrier.complete(frame, step, some)]
            if len(ready):
                any_woken = True
                moving = np.zeros_like(lanes)
                moving[ready] = True
                self._park(at, moving)
                self._stay(at, lanes & ~moving)
        return any_woken

    def _stay(self, at: int, lanes: Array) -> None:
        if lanes.any():
            self.blocked[at] = lanes
        else:
            del self.blocked[at]

    # barriers of a warp ----------------------------------------------------------------------------------

    def _warp_barrier(self, step: Step, at: int, active: Array) -> tuple[int, Array | None]:
        """Lanes pass whose masks name only lanes that are here or have ended; the others wait for those they name."""
        frame = self.kernel_frame
        masks = membership(frame, step, step.sources[0], active).reshape(-1)
        here, alive = (np.repeat(bits_of(lanes), 32) for lanes in (active, self.alive))
        ready = active & (masks & alive & ~here == 0)
        if ready.any():
            warp_sync(frame, ready, masks)
        waiting = active & ~ready
        if waiting.any():
            self.warp_masks[waiting] = masks[waiting]
            self._wait(at, waiting)
        return at + 1, (ready if ready.any() else None)

    def _warps_met(self) -> bool:
        """Release lanes that wait at bar.warp.sync with those that their masks name, at one place or at several."""
        places = {at: lanes for at, lanes in self.blocked.items() if self.program.steps[at].facts.waits == "warp"}
        if not places:
            return False
        waiting = np.logical_or.reduce(list(places.values()))
        free = np.zeros_like(waiting)
        for warp in np.flatnonzero(waiting.reshape(-1, 32).any(axis=1)).tolist():
            mine = slice(warp * 32, warp * 32 + 32)
            for mask in np.unique(self.warp_masks[mine][waiting[mine]]):
                alike = waiting[mine] & (self.warp_masks[mine] == mask)
                if mask & bits_of(self.alive[mine])[0] & ~bits_of(alike)[0] == 0:
                    free[mine] |= alike
        if not free.any():
            return False
        warp_sync(self.kernel_frame, free, self.warp_masks)
        for at, lanes in places.items():
            if (lanes & free).any():
                self._park(at + 1, lanes & free)
                self._stay(at, lanes & ~free)
        return True

    # barriers of a block ---------------------------------------------------------------------------------

    def _arrive(self, step: Step, at: int, active: Array) -> tuple[int, Array | None]:
        order = self.kernel_frame.order
        lanes = np.flatnonzero(active)
        keys = np.stack([self.kernel_frame.block[lanes], self._operand(step, 0, active)[lanes]], 1)
        order.tick()
        for block, number in np.unique(keys, axis=0).tolist():
            some = lanes[(keys == (block, number)).all(axis=1)]
            times, released = self.arrived.get((block, number), (None, None))
            times = np.zeros(self.kernel_frame.grid.threads, np.int64) if times is None else times.copy()
            times[some - block * len(times)] += 1
            self.arrived[block, number] = times, order.join(released, order.release(some))
        return at + 1, active

    def _operand(self, step: Step, which: int, lanes: Array) -> Array:
        """A barrier's number, or its count of threads, in each lane; -1 if it has no such operand."""
        if which >= len(step.sources):
            return np.full(self.frame.lanes, -1, np.int64)
        value, mask = self.frame.read(step.sources[which])
        if mask is not None:
            self.kernel_frame.refuse_undefined(
                step, np.broadcast_to(mask, lanes.shape)[lanes], np.flatnonzero(lanes), "the operand of a barrier"
            )
        return np.asarray(np.broadcast_to(value, lanes.shape).astype(np.int64))

    def release(self) -> bool:
        """Called when no thread can run: release complete barriers. Raises ExecutionError on a deadlock."""
        if self.blocked and (self._released() or self._warps_met() or self._woken()):
            self._fruitless = False
            return True
        if self._turns and self.resume():
            return True
        if self.resting:
            # Copies land only when the others have had a turn, too.
            if self._fruitless and self.kernel_frame.asynchronous():
                self.kernel_frame.grid.changes += 1
                self._woken()
            self._fruitless = True
            if self.pauses:
                self.paused = True
                return False
            return self.resume()
        if not self.blocked:
            return False
        while self.kernel_frame.asynchronous():
            if self._woken():
                return True
        raise self._deadlock()

    def _released(self) -> bool:
        """Release threads at complete barriers; returns whether there are any."""
        frame = self.kernel_frame
        threads = frame.grid.threads
        number, count = np.full(frame.lanes, -1, np.int64), np.full(frame.lanes, -1, np.int64)
        for at, lanes in self.blocked.items():
            step = self.program.steps[at]
            if step.kind == "barrier":
                number = np.where(lanes, self._operand(step, 0, lanes), number)
                count = np.where(lanes, self._operand(step, 1, lanes), count)
        free, whole = np.zeros(frame.lanes, np.bool_), np.zeros(frame.lanes, np.bool_)
        ended = whole.copy()
        waiting = (number >= 0).reshape(-1, threads)
        for block in np.flatnonzero(waiting.any(axis=1)).tolist():
            mine = slice(block * threads, (block + 1) * threads)
            for one in np.unique(number[mine]).tolist():
                if one < 0:
                    continue
                here = number[mine] == one
                wanted = int(count[mine][here].max())
                alive = self.alive[mine]
                times, released = self.arrived.get((block, one), (None, None))
                came = here.astype(np.int64) if times is None else here + times
                # A thread waits there for all threads of its warp that have not ended, and so a warp counts as a whole.
                warps = np.where(alive | (came > 0), came, len(came)).reshape(-1, 32).min(axis=1)
                warps[warps == len(came)] = 0
                total = 32 * int(warps.sum())
                if wanted % 32 and wanted > 0:
                    raise self._odd_count(block * threads + int(np.flatnonzero(here)[0]), one, wanted)
                if wanted >= 0 and total > wanted:
                    raise self._too_many(block * threads + int(np.flatnonzero(here)[0]), one, total, wanted)
                if total == wanted or (wanted < 0 and (came[alive] > 0).all()):
                    here &= np.repeat(warps > 0, 32)
                    free[mine] |= here
                    met = np.zeros(frame.lanes, np.bool_)
                    met[mine] = here
                    places = {at for at, lanes in self.blocked.items() if (lanes & met).any()}
                    for at in places:
                        here_alone = self.blocked[at] & met
                        self._refuse_torn_warps(self.program.steps[at], here_alone, self.alive & ~here_alone)
                    arrived = times is not None and bool(times.any())
                    if any(self.program.steps[at].destinations for at in places):
                        self._reduce(met, places, arrived)
                    if times is not None and released is not None:
                        times = np.where(np.repeat(warps > 0, 32), 0, times)
                        self.arrived[block, one] = times, released
                        if not times.any():
                            del self.arrived[block, one]
                    if here.all() and not arrived:
                        whole[mine] = True
                    elif not arrived and (here == alive).all():
                        ended[mine] = here
                    else:  # only the threads at this barrier are ordered
                        frame.order.barrier(block * threads + np.flatnonzero(here), released if arrived else None)
        if not free.any():
            return False
        if whole.any() or ended.any():
            self._order_blocks(whole | ended)
        for at, lanes in list(self.blocked.items()):
            if self.program.steps[at].kind == "barrier" and (lanes & free).any():
                self._park(at + 1, lanes & free)
                self._stay(at, lanes & ~free)
        return True

    def _reduce(self, met: Array, places: set[int], arrived: bool = False) -> None:
        """Give threads that met at `bar.red` the reduction of their predicates. places: the steps where they wait.

        Raises ExecutionError if others met them at `bar.sync` or `bar.arrive`, or at another reduction.
        """
        frame, steps = self.kernel_frame, [self.program.steps[at] for at in sorted(places)]
        kinds = {step.detail[0] if step.destinations else "sync" for step in steps}
        if len(kinds) > 1 or arrived:
            text = f"{frame.who(int(np.flatnonzero(met)[0]))} meets threads at another kind of barrier: all threads of "
            raise frame.fault(ExecutionError, steps[0], text + "a bar.red execute one, with the same reduction")
        held = np.zeros(frame.lanes, np.bool_)
        for at, step in zip(sorted(places), steps, strict=True):
            here = met & self.blocked.get(at, met)
            value, mask = frame.read(step.detail[1])
            if mask is not None:
                lanes = np.flatnonzero(here)
                doubt = np.broadcast_to(mask, (frame.lanes,))[lanes]
                frame.refuse_undefined(step, doubt, lanes, "the predicate of a barrier")
            held |= here & (np.broadcast_to(value, (frame.lanes,)) != 0)
        op = kinds.pop()
        result = held[met].sum() if op == "popc" else held[met].all() if op == "and" else held[met].any()
        for at, step in zip(sorted(places), steps, strict=True):
            here = met & self.blocked.get(at, met)
            kind = np.uint32 if op == "popc" else np.uint8
            frame.write(step.destinations[0], np.full(frame.lanes, result, kind), None, here)

    def _odd_count(self, lane: int, number: int, wanted: int) -> ExecutionError:
        at = next(a for a, lanes in self.blocked.items() if lanes[lane])
        text = (
            f"{self.kernel_frame.who(lane)} waits at barrier {number} for {wanted} threads: the number is a multiple "
        )
        return self.kernel_frame.fault(
            ExecutionError, self.program.steps[at], text + "of 32, as warps count as a whole"
        )

    def _too_many(self, lane: int, number: int, came: int, wanted: int) -> ExecutionError:
        at = next(a for a, lanes in self.blocked.items() if lanes[lane])
        text = f"{came} threads reach barrier {number}, which is for {wanted}; {self.kernel_frame.who(lane)} is one"
        return self.kernel_frame.fault(ExecutionError, self.program.steps[at], text)

    def _deadlock(self) -> ExecutionError:
        frame = self.kernel_frame
        for at, lanes in self.blocked.items():
            self._refuse_torn_warps(self.program.steps[at], lanes, self.alive & ~lanes)
        # A thread that waits for a phase is a more likely cause than threads that wait for it at a barrier.
        at = min(self.blocked, key=lambda a: (self.program.steps[a].kind == "barrier", a))
        step = self.program.steps[at]
        lane = int(np.flatnonzero(self.blocked[at])[0])
        if step.kind == "mbarrier_try_wait":
            text = f"deadlock: {frame.who(lane)} waits {mbarrier.awaited(frame, step, lane)}"
            return frame.grid.error(ExecutionError, step, text)
        if isinstance(frame, ClusterFrame) and step.kind == "cluster_wait":
            text = f"deadlock: {frame.who(lane)} waits at the cluster's barrier, and {frame.missing(lane)}"
            return frame.grid.error(ExecutionError, step, text)
        missing = "others wait at another barrier" if len(self.blocked) > 1 else "others never come"
        text = f"deadlock: {frame.who(lane)} waits at this barrier, and {missing}"
        return frame.grid.error(ExecutionError, step, text)

    def run(self) -> None:
        """Run until every thread has ended and none of its copies or operations is under way, or until `paused`."""
        if self.paused:
            self.paused = False
            self.resume()
        super().run()
        if self.paused:
            return
        frame = self.kernel_frame
        if frame.bulk.leaving:
            one = frame.bulk.leaving[0]
            reader = frame.bulk.reader(frame.shared.units(one.offsets, 16))
            text = f"the block of {frame.who(one.lane)} ends, and its shared memory with it: "
            raise frame.fault(ExecutionError, one.step, text + reader)
        frame.tensor.ended()
        launches = frame.grid.launches
        if launches is not None and launches.unqueried:
            first, (who, step) = next(iter(launches.unqueried.items()))
            text = f"{who} has cancelled the launch of the cluster of block {first}, and no thread has queried the "
            text += "response: its work is never done (clusterlaunchcontrol.query_cancel)"
            raise frame.fault(ExecutionError, step, text)

    def forget(self) -> None:
        """Free the memory of threads that have ended. Their frame and what it holds refer to each other, so until a
        collection of garbage, which no count of bytes begins, the registers of hundreds of blocks would stay."""
        vars(self.kernel_frame).clear()
        vars(self).clear()

    # blocks that take turns ------------------------------------------------------------------------------

    def one_after_the_other(self) -> None:
        """Let each block (cluster) run alone until it waits for others, or several of a large grid, in the grid's
        order."""
        grid, lanes = self.kernel_frame.grid, self.frame.lanes
        clusters = lanes // grid.threads // grid.cluster_size
        count = min(clusters, PIECES)
        piece = np.arange(lanes) // grid.threads // grid.cluster_size * count // clusters
        masks = [piece == number for number in range(count)]
        self._rounds = ([masks[number] for number in each] for each in grid.order.rounds(count))
        self._begun = True
        self.resting = {0: np.ones(lanes, np.bool_)}

    def resume(self) -> bool:
        """See `Scheduler`; where blocks take turns, let the next ones go on."""
        if self._rounds is None:
            return super().resume()
        while self.resting:
            self._turns = self._turns or next(self._rounds)[::-1]
            mine = self._turns.pop()
            for at, lanes in list(self.resting.items()):
                if (lanes & mine).any():
                    self._park(at, lanes & mine)
                    self.resting[at] = lanes & ~mine
                    if not self.resting[at].any():
                        del self.resting[at]
            if self.waiting:
                return True
            if not self._turns:
                break
        return bool(self.waiting)

    # threads that wait in loops --------------------------------------------------------------------------

    def state(self) -> bytes:
        """A digest of all registers, and of the steps at which threads rest or wait."""
        digest = hashlib.blake2b(digest_size=16)
        for places in (self.resting, self.blocked):
            for at, lanes in sorted(places.items()):
                digest.update(at.to_bytes(4, "little") + lanes.tobytes())
        for bits in (*self.frame.values, *self.frame.undefined):
            digest.update(b"-" if bits is None else np.ascontiguousarray(bits).tobytes())
        return digest.digest()

    def endless(self, left: int) -> ExecutionError:
        """The error for threads in a loop that waits for what no thread does. left: pieces that have not begun."""
        frame, steps = self.kernel_frame, self.program.steps
        at, lanes = min(self.resting.items())
        seen = next((n for n in range(at, len(steps)) if observes(steps[n])), None)
        if seen is None:
            seen = next((n for n in range(at, len(steps)) if steps[n].kind == "ld"), at)
        text = f"deadlock: {frame.who(int(np.flatnonzero(lanes)[0]))} waits in a loop for a value that no thread writes"
        if left:
            text += f" before it ends: {RESIDENT:,} threads wait, and no GPU runs more at a time"
        return frame.fault(ExecutionError, steps[seen], text)
