"""The trace of one thread: what each of its instructions read, wrote, and took from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ptxdiff.ptx.binding.program import Step
from ptxdiff.ptx.errors import ExecutionError, PtxError
from ptxdiff.ptx.kernel.origins import Focus, Stored, Taken, Takes


class TooLong(ExecutionError):
    """A thread that executes more instructions, or copies more bytes, than are recorded."""


@dataclass(frozen=True, slots=True)
class SeenOperand:
    """A register, or a constant, as one instruction read it.

    name: as written; "" for a constant. value: None if bits are undefined. maker: the number of the thread's
    instruction that wrote it last; -1 for none.
    """

    name: str
    kind: str
    width: int
    value: int | None
    maker: int = -1


@dataclass(slots=True)
class ThreadStep:
    """One instruction of the thread.

    time: of the step in the whole run. reads: the guard is last; if the guard did not hold, they include the old values
    of the results. executed: whether the guard held. memory: the name of the memory that it accessed, the offset there
    and the size; data: the bytes that it loaded or stored. origins: of each byte that it loaded. warp: for an exchange,
    the value of each operand in the threads of the warp. takes: for a copy, a product, an atomic, or a load of
    matrices: what it takes from memory and from other threads.
    """

    number: int
    time: int
    step: Step
    line: int
    text: str
    reads: tuple[SeenOperand, ...]
    writes: tuple[SeenOperand, ...] = ()
    executed: bool = True
    memory: tuple[str, int, int] | None = None
    data: bytes = b""
    origins: tuple[Stored | None, ...] = ()
    warp: tuple[tuple[int, ...], ...] = ()
    takes: list[Takes] = field(default_factory=list)

    @property
    def loads(self) -> bool:
        """Whether it reads memory into registers."""
        return self.memory is not None and self.step.kind in ("ld", "ldu")

    @property
    def stores(self) -> bool:
        """Whether it changes memory."""
        return self.memory is not None and not self.loads

    @property
    def opcode(self) -> str:
        """The first word of the instruction."""
        return self.step.node.opcode

    @property
    def branches(self) -> bool:
        """Whether it jumps under a predicate."""
        return self.step.kind in ("branch", "exit") and self.step.guard >= 0

    def made_of(self, focus: Focus | None) -> Sequence[Taken]:
        """The values from elsewhere behind a part of its result; none if it depends on the thread's registers alone."""
        if focus is None:
            return ()
        return next((found for t in self.takes if (found := t.of(focus)) is not None), ())


@dataclass
class ThreadTrace:
    """The trace of one thread. thread: its number in the grid. who: the same in words. fault: ended the run early."""

    thread: int
    who: str = ""
    steps: list[ThreadStep] = field(default_factory=list)
    fault: PtxError | None = None

    @cached_property
    def _by_time(self) -> dict[int, ThreadStep]:
        return {s.time: s for s in self.steps}

    def at(self, time: int) -> ThreadStep | None:
        """The thread's instruction at a time, once the run is over."""
        return self._by_time.get(time)
