"""Both kernels of a comparison run in lockstep on the thread that stores the element in which they differ."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.backends.compiled import CompiledKernel, PlacedKernel, compile_job, placed
from harness.comparing.parting import Parting, Reached, held_in, parted_by_branches, parting, reached
from harness.jobs import Job, Outcome
from harness.ptx.errors import PtxError
from harness.ptx.kernel.following import Launched, followed, storing_thread
from harness.ptx.kernel.origins import Stored
from harness.ptx.kernel.traced import SeenOperand, ThreadStep, ThreadTrace, TooLong

HOPS = 64
"""From instruction to instruction that a value is followed between threads at most; each may run both kernels again."""
KEPT = 8
"""Traces of a file that are kept while a value is followed."""
_WHO = re.compile(r"thread (\d+) of block \((\d+), (\d+), (\d+)\)")


@dataclass(frozen=True)
class Followed:
    """One side of a comparison: its job, its kernel, and whether open multiplications and additions are contracted."""

    name: str
    job: Job
    kernel: CompiledKernel
    fuse: bool
    traces: dict[int, ThreadTrace] = field(default_factory=dict)

    def placed(self) -> PlacedKernel:
        """The kernel with memory that no run has touched."""
        return placed(self.job, self.kernel, fuse=self.fuse)

    def trace(self, thread: int) -> ThreadTrace:
        """What a thread of the grid does. Raises TooLong."""
        if thread not in self.traces:
            if len(self.traces) == KEPT:
                del self.traces[next(iter(self.traces))]
            self.traces[thread] = followed(_launched(self.placed()), thread)
        return self.traces[thread]


@dataclass(frozen=True)
class ShownStep:
    """One instruction of a file: its line, its text, and registers before it and after it, as (name, type, bits)."""

    file: str
    line: int
    text: str
    thread: str
    before: tuple[tuple[str, str, int | None], ...]
    after: tuple[tuple[str, str, int | None], ...]
    executed: bool = True


@dataclass(frozen=True)
class FoundParting:
    """The first instructions with different values. steps: of a and b; None where a file has none.

    words: in one line, what happens there. basis: what the alignment rests on, and what it cannot tell.
    """

    words: str
    basis: str
    steps: tuple[ShownStep | None, ShownStep | None]


def side(name: str, job: Job, fuse: bool) -> Followed | None:
    """A side of the comparison; None where its kernel cannot be compiled."""
    kernel = compile_job(job)
    return None if isinstance(kernel, Outcome) else Followed(name, job, kernel, fuse)


def part_at(a: Followed, b: Followed, output: str, unit: int) -> FoundParting:
    """Where two kernels part that leave different bits in a unit of an output, or of which one stores nothing there."""
    try:
        stored = _stored(a, output, unit), _stored(b, output, unit)
        one, other = stored
        if one is None and other is None:
            return _nothing(f"no thread of either file stores to {output}[{unit}]")
        first = one or other
        assert first is not None
        traces = a.trace((one or first).thread), b.trace((other or first).thread)
        left, right = (None if s is None else reached(t, s) for t, s in zip(traces, stored, strict=True))
        if left is None or right is None:
            steps = tuple(None if r is None else r.step for r in (left, right))
            return _one_sided((a, b), traces, (steps[0], steps[1]), f"{output}[{unit}]")
        if launched_alike(a, b):
            return _through_threads((a, b), traces, (left, right))
        narrow = _of_unit(a, left, output, unit), _of_unit(b, right, output, unit)
        if narrow[0] is None or narrow[1] is None:
            lost = (a, b)[0 if narrow[0] is None else 1].name
            words = f"both files store {output}[{unit}], and which register of {lost} holds it cannot be told"
            found = Parting("values", left.step, right.step)
            return replace(_found((a, b), traces, found, 0), words=words, basis=_NOT_ALIGNED)
        return _through_threads((a, b), traces, (narrow[0], narrow[1]), alike=False)
    except TooLong as error:
        return _nothing(f"not followed: {error.message}")


def part_at_fault(a: Followed, b: Followed) -> FoundParting:
    """Where two kernels part of which at least one stops with a fault that names its thread."""
    try:
        wrong = a if (fault := _fault(a)) else b
        fault = fault or _fault(b)
        if fault is None:
            return _nothing("neither run stops when it is repeated")
        thread = _thread_of(fault, wrong)
        if thread is None:
            return _nothing(f"the fault names no thread: {fault.message}")
        if not launched_alike(a, b):
            return _fault_alone(wrong, (a, b), thread, fault)
        traces = a.trace(thread), b.trace(thread)
        mine, theirs = traces if wrong is a else traces[::-1]
        if not mine.steps:
            return _nothing("the thread executes nothing before the fault")
        at = mine.steps[-1]
        like = [s for s in mine.steps if s.opcode == at.opcode]
        same = [s for s in theirs.steps if s.opcode == at.opcode]
        counterpart = same[len(like) - 1] if len(same) >= len(like) else None
        pair = (at, counterpart) if wrong is a else (counterpart, at)
        if pair[0] is None or pair[1] is None:
            return _one_sided((a, b), traces, pair, "the place of the fault")
        found = _found((a, b), traces, parting(*traces, (Reached(pair[0]), Reached(pair[1]))), hops=0)
        refused = found.steps[0 if wrong is a else 1]
        if refused is not None and refused.line == at.line and counterpart is not None:
            words = f"{wrong.name} goes where it must not: {fault.message}"
            return replace(found, words=words, basis=_FAULT)
        return found
    except TooLong as error:
        return _nothing(f"not followed: {error.message}")


def launched_alike(a: Followed, b: Followed) -> bool:
    """Whether both files run with the same blocks and threads."""
    one, other = a.placed(), b.placed()
    return (*one.grid, 1, 1)[:3] == (*other.grid, 1, 1)[:3] and (*one.block, 1, 1)[:3] == (*other.block, 1, 1)[:3]


def _fault_alone(wrong: Followed, sides: tuple[Followed, Followed], thread: int, fault: PtxError) -> FoundParting:
    """The place of a fault, where no thread of the other file does the same."""
    trace = wrong.trace(thread)
    last = _shown(wrong.name, trace, trace.steps[-1]) if trace.steps else None
    words = f"{wrong.name} goes where it must not: {fault.message}"
    return FoundParting(words, _NO_THREAD, (last, None) if wrong is sides[0] else (None, last))


def _of_unit(one: Followed, sink: Reached, output: str, unit: int) -> Reached | None:
    """A store with the one register alone that holds a unit; None where that cannot be told."""
    tensor, step = one.placed().tensors[output], sink.step
    if step.memory is None:  # a copy, which holds it in no register
        return sink
    first = tensor.place(unit) - step.memory[1]
    size = tensor.layout.unit
    for low, high, register in held_in(step):
        if low <= first and first + size <= high:
            memory = (step.memory[0], step.memory[1] + low, high - low)
            return Reached(replace(step, reads=(register,), memory=memory, data=step.data[low:high]))
    return None


def _through_threads(
    sides: tuple[Followed, Followed],
    traces: tuple[ThreadTrace, ThreadTrace],
    at: tuple[Reached, Reached],
    alike: bool = True,
) -> FoundParting:
    """The walk back, from thread to thread where a value came from another one."""
    threads = 0
    for _ in range(HOPS):
        found = parting(*traces, at, alike)
        if found.elsewhere is None:
            return _found(sides, traces, found, threads, alike)
        there = tuple(s.trace(stored.thread) for s, stored in zip(sides, found.elsewhere, strict=True))
        steps = tuple(reached(t, stored) for t, stored in zip(there, found.elsewhere, strict=True))
        if steps[0] is None or steps[1] is None or steps[0] == at[0]:
            return _found(sides, traces, found, threads, alike)
        threads += there[0].thread != traces[0].thread
        traces, at = (there[0], there[1]), (steps[0], steps[1])
    far = _found(sides, traces, Parting("values", at[0].step, at[1].step), threads, alike)
    return replace(far, words=f"followed through {HOPS} instructions of other threads, and not further", basis=_FAR)


def _launched(placed_kernel: PlacedKernel) -> Launched:
    x, y, z = (*placed_kernel.grid, 1, 1)[:3]
    u, v, w = (*placed_kernel.block, 1, 1)[:3]
    return Launched(placed_kernel.loaded, placed_kernel.parameters, (x, y, z), (u, v, w), placed_kernel.shared)


def _stored(one: Followed, output: str, unit: int) -> Stored | None:
    made = one.placed()
    tensor = made.tensors[output]
    return storing_thread(_launched(made), tensor.buffer, tensor.place(unit), tensor.layout.unit)


def _fault(one: Followed) -> PtxError | None:
    return one.trace(-2).fault  # no thread: the run alone


def _thread_of(fault: PtxError, one: Followed) -> int | None:
    """The thread that a fault names, as a number in the grid."""
    found = _WHO.search(fault.message)
    if found is None:
        return None
    thread, *block = map(int, found.groups())
    made = one.placed()
    size = made.loaded.cluster or (1, 1, 1)
    whole = [g // s for g, s in zip((*made.grid, 1, 1), size, strict=False)]
    # Blocks are numbered cluster by cluster, by their rank in it.
    cluster = _numbered([b // s for b, s in zip(block, size, strict=True)], whole)
    rank = _numbered([b % s for b, s in zip(block, size, strict=True)], size)
    return (cluster * math.prod(size) + rank) * math.prod(made.block) + thread


def _numbered(place: Sequence[int], sizes: Sequence[int]) -> int:
    return place[0] + sizes[0] * (place[1] + sizes[1] * place[2])


# in words --------------------------------------------------------------------------------------------------------

_FAULT = (
    "The access at which the run stops stands beside the other file's access of the same opcode and number in the same "
    "thread. Values are followed back from its operands; here they are equal."
)
_UNLIKE = (
    "The files are launched in different ways: their threads are paired by the element that both store, and values are "
    "followed back from there. Addresses, guards and branches are not compared, as they hold numbers of threads. "
)
_NOT_ALIGNED = f"{_UNLIKE}Here the values are not followed: what is shown are the two stores."
_FAR = (
    "What is shown are the instructions at which the walk stopped: their values differ already, so the cause lies "
    "before them."
)
_NO_THREAD = (
    "The files are launched in different ways, so that no thread of the other file does the same: nothing is aligned "
    "with the access at which the run stops."
)
_BASIS: Mapping[str, str] = {
    "operands": "The walk goes back from the values that differ, in each file by its own registers, as long as both "
    "have the same opcode; through copies, products and atomics it goes by the first element that differs. Here the "
    "operands have equal values in both files, and the results differ.",
    "values": "The two files compute this in different ways, so they are aligned by values, not by instructions: of "
    "each is shown the first instruction on the way to the difference whose value the other file's thread never has, "
    "or the one at which the opcodes part. All that it reads, the other has too. A value that is equal by coincidence "
    "counts as common, so that the cause may lie earlier.",
    "addresses": "These loads bring in what the other file's thread does not load from there.",
    "branch": "Branches are aligned by the values that their conditions compare; a branch turned round counts as the "
    "same. Whether the difference in the output comes from this branch is not shown by it.",
    "elsewhere": "The values came from another thread, or from an asynchronous copy, and could not be followed there: "
    "in the run that follows that thread it did not make them.",
}


def _found(
    sides: tuple[Followed, Followed],
    traces: tuple[ThreadTrace, ThreadTrace],
    found: Parting,
    hops: int,
    alike: bool = True,
) -> FoundParting:
    words = {
        "operands": "the same operands, and other results",
        "addresses": "other values come in here",
        "values": "the first values that the other file never has",
        "branch": "a branch that one file takes and the other does not",
        "elsewhere": "other values come in here",
    }[found.kind]
    if found.kind in ("operands", "addresses") and found.a is not None and found.b is not None:
        words = _more_exactly(found.a, found.b, words)
    if hops:
        words += f"; the value went through {hops} other thread{'s' * (hops > 1)} to the store"
    steps = tuple(_shown(s.name, t, step) for s, t, step in zip(sides, traces, (found.a, found.b), strict=True))
    return FoundParting(words, ("" if alike else _UNLIKE) + _BASIS[found.kind], (steps[0], steps[1]))


def _more_exactly(a: ThreadStep, b: ThreadStep, words: str) -> str:
    """How two instructions of one opcode differ."""
    values = [[o.value for o in s.reads] for s in (a, b)]
    if a.memory is not None and b.memory is not None and a.memory != b.memory:
        one, other = (f"{m[2]} bytes at offset {m[1]} of {m[0]}" for m in (a.memory, b.memory))
        same = "the same operands, and " if values[0] == values[1] else ""
        return f"{same}other addresses: {one} against {other}"
    if sorted(values[0], key=repr) != sorted(values[1], key=repr):
        return "other constants"
    return "the same operands in another order" if values[0] != values[1] else words


def _one_sided(
    sides: tuple[Followed, Followed],
    traces: tuple[ThreadTrace, ThreadTrace],
    at: tuple[ThreadStep | None, ThreadStep | None],
    place: str,
) -> FoundParting:
    """Where only one file's thread gets to a place."""
    branch = parted_by_branches(*traces)
    if branch is not None:
        return _found(sides, traces, branch, 0)
    here = 0 if at[0] is not None else 1
    steps = tuple(_shown(s.name, t, step) for s, t, step in zip(sides, traces, at, strict=True))
    words = f"only {sides[here].name} gets to {place}; the thread of {sides[1 - here].name} ends without it"
    return FoundParting(words, "No branch with equal conditions parts the two threads.", (steps[0], steps[1]))


def _shown(file: str, trace: ThreadTrace, step: ThreadStep | None) -> ShownStep | None:
    if step is None:
        return None
    before = {o.name: o for o in step.reads if o.name}
    after = {o.name: o for o in step.writes}
    return ShownStep(
        file, step.line, step.text, trace.who, tuple(map(_entry, before.values())),
        tuple(map(_entry, after.values())), step.executed,
    )  # fmt: skip


def _entry(operand: SeenOperand) -> tuple[str, str, int | None]:
    return operand.name, operand.kind, operand.value


def _nothing(words: str) -> FoundParting:
    return FoundParting(words, "", (None, None))
