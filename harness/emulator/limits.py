"""The limits of the emulator, in one table. They bound the time and memory that a text can use.

Each limit is CUDA's own or far above what compilers write. A text beyond one is refused with `TooLarge` and the limit's
words.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from ptxdiff.emulator.targets import Target
from ptxdiff.extras import SLOW_WITHOUT_COMPILER, installed

SNIPPET_SECONDS = 10.0
"""Seconds that a call of `emulate` may run for all its elements, by default."""
KERNEL_SECONDS = 60.0
"""Seconds that a launch of a kernel may run for its whole grid, by default: the limit of a GPU's watchdog. A backend
gives each of its runs this limit, including runs of asm without a kernel."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The greatest allowed count of something, and the reason for it."""

    most: int
    what: str
    reason: str

    def refusal(self, found: int) -> str:
        """The error message for a text with a count of `found`."""
        return f"{found:,} {self.what}: the emulator takes {self.most:,} ({self.reason})"


TEXT = Limit(8_000_000, "characters in one text", "some hundred times a large kernel")
TOKENS = Limit(2_000_000, "words and signs in one text", "they take 100 bytes each")
NAME = Limit(10_000, "characters in one name", "the longest mangled names of C++ have a few thousand")
INSTRUCTIONS = Limit(
    60_000, "statements, those of called functions counted at each call", "checking them takes three to nine seconds"
)
NESTING = Limit(150, "nested blocks, calls, operands and constants", "Python's stack holds some hundred")
MODIFIERS = Limit(32, "modifiers of one instruction", "no instruction has more than 16")
OPERANDS = Limit(4096, "operands in one list", "the longest vector of an instruction has 128")
REGISTERS = Limit(200_000, "registers in one program", "a thread of a GPU has 255 and spills the others")
CONSTRAINTS = Limit(4096, "constraints", "64 tensors of 64 elements a pack")
ARGUMENTS = Limit(4096, "arguments", "each needs a constraint")
PACK = Limit(4096, "elements in one pack", "each needs an operand, or a part of one")
ELEMENTS = Limit(1 << 32, "elements in one call", "every float32 there is; give the others in further calls")
LOCAL = Limit(512 << 10, "bytes of .local memory in one thread", "CUDA gives a thread no more")
STATIC_SHARED = Limit(227 << 10, "bytes of .shared variables in one kernel", "no GPU has more for one block")
VARIABLES = Limit(64 << 20, "bytes of .global and .const variables in one module", "each launch copies them")
PARAMETERS = Limit(32_764, "bytes of parameters of one kernel", "CUDA passes no more")

GRID = (2**31 - 1, 65_535, 65_535)
"""Blocks of a grid, along x, y and z."""
BLOCK = (1024, 1024, 64)
"""Threads of a block, along x, y and z."""
BLOCK_THREADS = 1024
CLUSTER_BLOCKS = 16
"""Blocks of a cluster: 8 anywhere, 16 where the host allows sizes that are not portable."""

_SHARED_KIB = {75: 64, 80: 163, 86: 99, 87: 163, 88: 99, 89: 99, 90: 227, 100: 227, 101: 227, 103: 227, 107: 227}
_SHARED_KIB |= {110: 227, 120: 99, 121: 99}


def shared_memory(target: Target) -> int:
    """Bytes of shared memory that one block can have on a target (CUDA programming guide, compute capabilities)."""
    return _SHARED_KIB.get(target.number, 227) << 10


CELLS = 1 << 26
"""How many values the registers of lanes that run together may hold (512 MiB of 64-bit values)."""
CHECKED_EVERY = 16
"""Steps between two readings of the clock: a reading takes 0.1 us, a step on few lanes 3 us."""


def lanes_together(wanted: int, registers: int, steps: int) -> int:
    """How many lanes run together: `wanted`, or fewer if each has very many registers and constants."""
    return max(1, min(wanted, CELLS // (registers + steps + 1)))


STILL_RUNNING = "still running after"
"""How the words of a run that took too long begin."""


class Deadline:
    """The time limit of a whole call in seconds; None: no limit. Compiling definitions does not count."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._done = self._total = 0
        self._unit = ""
        self._lock = threading.Lock()
        self._end = float("inf") if seconds is None else time.monotonic() + seconds
        self._compiled = _compiling.seconds

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        now = time.monotonic()
        return now > self._end and now > self._end + _compiling.seconds - self._compiled

    def begin(self, total: int, unit: str) -> None:
        """Record the amount of work for error messages, such as `total` blocks."""
        self._done, self._total, self._unit = 0, total, unit

    def done(self, count: int) -> None:
        """Record that `count` more units are done."""
        with self._lock:
            self._done += count

    @property
    def words(self) -> str:
        """The error message."""
        progress = f", {self._done:,} of {self._total:,} {self._unit} done" if self._done else ""
        slow = "" if installed("llvmlite") else f"; {SLOW_WITHOUT_COMPILER}"
        return (
            f"{STILL_RUNNING} {self.seconds:g} s{progress}: an endless loop? "
            f"limit= (for cases --ptx-limit) gives the whole call more seconds, limit=None has no limit{slow}"
        )


class _Compiling:
    """Seconds that this process has spent on compiling definitions."""

    seconds = 0.0


_compiling = _Compiling()


def compiled_for(seconds: float) -> None:
    """Record seconds spent on compiling a definition, which no deadline counts."""
    _compiling.seconds += seconds
