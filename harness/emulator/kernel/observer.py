"""The hooks of a running kernel: what an observer is told of steps, memory, copies and tensor cores.

The scheduler and the frame, and what is under way in it, call them; without an observer they cost nothing. The methods
here do nothing, so an observer defines those that it needs. A hook changes nothing of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.emulator.numeric.vectorise import Array

if TYPE_CHECKING:
    from ptxdiff.emulator.binding.program import Step
    from ptxdiff.emulator.kernel.async_copy.bulk_in_flight import Coming
    from ptxdiff.emulator.kernel.async_copy.cp_async import Flying
    from ptxdiff.emulator.kernel.async_copy.tensor_maps import TensorMap
    from ptxdiff.emulator.kernel.frame import KernelFrame
    from ptxdiff.emulator.kernel.memory.space import Access, Place, Shared
    from ptxdiff.emulator.machine.frame import Frame


class KernelObserver:
    """Observes every step of every block. frame: the threads that run now. active: the lanes of the step."""

    frame: KernelFrame
    active: Array

    def block(self, threads: int) -> int | None:
        """The only block that has to run for it; None for all."""
        return None

    def begin(self, frame: KernelFrame) -> None:
        """Threads of some blocks begin."""
        self.frame = frame

    def enter(self, frame: Frame, step: Step) -> None:
        """Before a step."""

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """After it."""

    # memory ------------------------------------------------------------------------------------------------------

    def loads(self, access: Access, lanes: Array, place: Place) -> None:
        """Lanes have loaded."""

    def stores(self, step: Step, size: int, lanes: Array, place: Place) -> None:
        """Lanes have stored `size` bytes each."""

    def updates(self, step: Step, access: Access, lanes: Array, place: Place, element: int, old: list[int]) -> None:
        """Lanes have updated memory one after the other. old: the value that each found."""

    # copies ------------------------------------------------------------------------------------------------------

    def copies_issued(self, copies: Flying) -> None:
        """Lanes have issued cp.async."""

    def landed(self, shared: Shared, places: Array) -> None:
        """Bytes of a copy have arrived in shared memory."""

    def box_read(self, step: Step, tensor: TensorMap, lane: int, corner: list[int]) -> None:
        """A lane's bulk copy has read a box of a tensor, and is issued next, once for each block that gets it."""

    def bulk_issued(self, coming: Coming) -> None:
        """A bulk copy to shared memory has been issued."""

    def bulk_lands(self, coming: Coming) -> None:
        """Its bytes arrive next, or are reduced with those there."""

    def box_leaves(self, step: Step, tensor: TensorMap, lane: int, corner: list[int], start: int) -> None:
        """A lane copies a box from shared memory to a tensor next."""

    def bytes_leave(self, step: Step, lane: int, offsets: Array) -> None:
        """A lane copies 16-byte chunks of shared memory elsewhere next."""

    # tensor cores ------------------------------------------------------------------------------------------------

    def tensor_issued(self, step: Step, lane: int, written: Array, read: Array) -> None:
        """A lane has issued work on cells of tensor memory."""

    def tensor_reads(self, step: Step, lane: int, written: Array, offsets: Array) -> None:
        """Tensor cores, working for a lane, read chunks of shared memory."""
