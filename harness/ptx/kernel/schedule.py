"""Barriers: threads that reach one wait until their block is complete."""

from __future__ import annotations

import numpy as np

from harness.ptx.binding.program import Program, Step
from harness.ptx.errors import ExecutionError
from harness.ptx.kernel.frame import KernelFrame
from harness.ptx.machine.lockstep import Scheduler, guarded
from harness.ptx.numeric.vectorise import Array


class KernelScheduler(Scheduler):
    """The scheduler with barriers: threads that reach one wait until their block is complete."""

    blocking = frozenset({"barrier"})

    def __init__(self, program: Program, frame: KernelFrame) -> None:
        super().__init__(program, frame)
        self.kernel_frame = frame
        if frame.grid.synchronises:
            # Only a loop that waits for another thread's atomic needs the others to move on.
            self.patience = 4096
        self.alive: Array = np.ones(frame.lanes, np.bool_)
        self.blocked: dict[int, Array] = {}

    def _error(self, kind: type[ExecutionError], step: Step, message: str) -> ExecutionError:
        return self.kernel_frame.fault(kind, step, message)

    def left(self, lanes: Array) -> None:
        """Threads that have ended."""
        self.alive = self.alive & ~lanes

    def block(self, step: Step, at: int, active: Array) -> tuple[int, Array | None]:
        """A barrier: pass it when all living threads of each block stand here, else wait."""
        if step.guard >= 0:
            held, passing = self._split(step, active)
            if passing.any():
                self._park(at + 1, passing)
            active = held
            if not active.any():
                return at + 1, None
        if not self.blocked and np.array_equal(active, self.alive):
            self._meet(active)
            return at + 1, active
        old = self.blocked.get(at)
        self.blocked[at] = active if old is None else old | active
        return at + 1, None

    def _split(self, step: Step, active: Array) -> tuple[Array, Array]:
        held, _ = guarded(self.frame, step, active)
        taken = active if held is None else held
        return taken, active & ~taken

    def _meet(self, lanes: Array) -> None:
        frame = self.kernel_frame
        frame.clock += 1
        frame.block_time = np.where(lanes, frame.clock, frame.block_time).astype(np.int32)

    def release(self) -> bool:
        """When nothing can run: let complete blocks pass their barrier. Raises ExecutionError on a deadlock."""
        if not self.blocked:
            return False
        frame = self.kernel_frame
        threads = frame.grid.threads
        waiting = np.zeros(frame.lanes, np.bool_)
        for lanes in self.blocked.values():
            waiting |= lanes
        barrier = self._barrier_numbers()
        complete = (waiting | ~self.alive).reshape(-1, threads).all(axis=1)
        table = np.where(waiting, barrier, -1).reshape(-1, threads)
        highest = table.max(axis=1)
        agreed = ((table == highest[:, None]) | (table == -1)).all(axis=1)
        free = np.repeat(complete & agreed, threads) & waiting
        if not free.any():
            raise self._deadlock(waiting)
        self._meet(free)
        for at, lanes in list(self.blocked.items()):
            moving = lanes & free
            if moving.any():
                self._park(at + 1, moving)
            staying = lanes & ~free
            if staying.any():
                self.blocked[at] = staying
            else:
                del self.blocked[at]
        return True

    def _barrier_numbers(self) -> Array:
        numbers = np.zeros(self.frame.lanes, np.int64)
        for at, lanes in self.blocked.items():
            value, _ = self.frame.read(self.program.steps[at].sources[0])
            numbers = np.where(lanes, value.astype(np.int64), numbers)
        return numbers

    def _deadlock(self, waiting: Array) -> ExecutionError:
        frame = self.kernel_frame
        at = min(self.blocked)
        lane = int(np.flatnonzero(self.blocked[at])[0])
        missing = "others wait at another barrier" if len(self.blocked) > 1 else "others never come"
        text = f"deadlock: {frame.who(lane)} waits at this barrier, and {missing}"
        return frame.grid.error(ExecutionError, self.program.steps[at], text)
