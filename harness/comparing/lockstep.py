"""Run both kernels of a comparison in lockstep, on the threads that store the first element that differs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ptxdiff.backends.compiled import CompiledKernel, PlacedKernel, compile_job, placed
from ptxdiff.comparing.trace_difference import (
    Reached,
    TraceDifference,
    branch_difference,
    reached,
    stored_registers,
    trace_difference,
)
from ptxdiff.emulator import PtxError
from ptxdiff.emulator.kernel.trace import (
    Launched,
    SeenOperand,
    Stored,
    ThreadStep,
    ThreadTrace,
    TooLong,
    followed,
    storing_thread,
)
from ptxdiff.jobs import Job, Outcome

HOPS = 64
"""The most steps from thread to thread on the way of a value; each step may run both kernels again."""
KEPT = 8
"""The most traces of a file that stay in memory."""
_WHO = re.compile(r"thread (\d+) of block \((\d+), (\d+), (\d+)\)")


@dataclass(frozen=True)
class Followed:
    """One side of a comparison. fuse: whether multiplications and additions are fused where ptxas may fuse them."""

    name: str
    job: Job
    kernel: CompiledKernel
    fuse: bool
    traces: dict[int, ThreadTrace] = field(default_factory=dict)

    def placed(self) -> PlacedKernel:
        """The kernel with fresh memory."""
        return placed(self.job, self.kernel, fuse=self.fuse)

    def trace(self, thread: int) -> ThreadTrace:
        """The trace of a thread, given by its number in the grid. Raises TooLong."""
        if thread not in self.traces:
            if len(self.traces) == KEPT:
                del self.traces[next(iter(self.traces))]
            self.traces[thread] = followed(_launched(self.placed()), thread)
        return self.traces[thread]


@dataclass(frozen=True)
class ShownStep:
    """One executed instruction of a file, with the registers that it reads and writes, as (name, type, bits).

    thread: the thread in words. executed: False if its guard was false.
    """

    file: str
    line: int
    text: str
    thread: str
    before: tuple[tuple[str, str, int | None], ...]
    after: tuple[tuple[str, str, int | None], ...]
    executed: bool = True


@dataclass(frozen=True)
class ShownDifference:
    """The first instructions with different values. steps: of the two files; None if a file has none.

    words: one line that describes the difference. basis: the basis of the alignment, and its limits.
    """

    words: str
    basis: str
    steps: tuple[ShownStep | None, ShownStep | None]


def side(name: str, job: Job, fuse: bool) -> Followed | None:
    """A side of the comparison; None if its kernel cannot be compiled."""
    kernel = compile_job(job)
    return None if isinstance(kernel, Outcome) else Followed(name, job, kernel, fuse)


def locate(a: Followed, b: Followed, output: str, unit: int) -> ShownDifference:
    """Find the first instructions that differ, for two kernels with different bits in a unit of an output.

    unit: the number of the storage unit. One of the kernels may store nothing there.
    """
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
        if same_launch(a, b):
            return _through_threads((a, b), traces, (left, right))
        narrow = _of_unit(a, left, output, unit), _of_unit(b, right, output, unit)
        if narrow[0] is None or narrow[1] is None:
            lost = (a, b)[0 if narrow[0] is None else 1].name
            both = f"both files store {output}[{unit}]"
            message = f"{both}, but the register of {lost} that holds it cannot be determined"
            difference = TraceDifference("values", left.step, right.step)
            return replace(_found((a, b), traces, difference, 0), words=message, basis=_NOT_ALIGNED)
        return _through_threads((a, b), traces, (narrow[0], narrow[1]), alike=False)
    except TooLong as error:
        return _nothing(f"not traced: {error.message}")


def locate_fault(a: Followed, b: Followed) -> ShownDifference:
    """Find the first instructions that differ, for two kernels of which at least one stops with a fault."""
    try:
        wrong = a if (fault := _fault(a)) else b
        fault = fault or _fault(b)
        if fault is None:
            return _nothing("neither run stops with a fault when it is repeated")
        thread = _thread_of(fault, wrong)
        if thread is None:
            return _nothing(f"the fault names no thread: {fault.message}")
        if not same_launch(a, b):
            return _fault_alone(wrong, (a, b), thread, fault)
        traces = a.trace(thread), b.trace(thread)
        mine, theirs = traces if wrong is a else traces[::-1]
        if not mine.steps:
            return _nothing("the thread executes no instruction before the fault")
        at = mine.steps[-1]
        like = [s for s in mine.steps if s.opcode == at.opcode]
        same = [s for s in theirs.steps if s.opcode == at.opcode]
        counterpart = same[len(like) - 1] if len(same) >= len(like) else None
        pair = (at, counterpart) if wrong is a else (counterpart, at)
        if pair[0] is None or pair[1] is None:
            return _one_sided((a, b), traces, pair, "the place of the fault")
        shown = _found((a, b), traces, trace_difference(*traces, (Reached(pair[0]), Reached(pair[1]))), hops=0)
        refused = shown.steps[0 if wrong is a else 1]
        if refused is not None and refused.line == at.line and counterpart is not None:
            message = f"{wrong.name} makes an illegal access: {fault.message}"
            return replace(shown, words=message, basis=_FAULT)
        return shown
    except TooLong as error:
        return _nothing(f"not traced: {error.message}")


def same_launch(a: Followed, b: Followed) -> bool:
    """Whether both files run with the same grid and the same threads per block."""
    one, other = a.placed(), b.placed()
    return (*one.grid, 1, 1)[:3] == (*other.grid, 1, 1)[:3] and (*one.block, 1, 1)[:3] == (*other.block, 1, 1)[:3]


def _fault_alone(wrong: Followed, sides: tuple[Followed, Followed], thread: int, fault: PtxError) -> ShownDifference:
    """The instruction with a fault alone, because with different launches no thread of the other file corresponds."""
    trace = wrong.trace(thread)
    last = _shown(wrong.name, trace, trace.steps[-1]) if trace.steps else None
    message = f"{wrong.name} makes an illegal access: {fault.message}"
    return ShownDifference(message, _NO_THREAD, (last, None) if wrong is sides[0] else (None, last))


def _of_unit(one: Followed, sink: Reached, output: str, unit: int) -> Reached | None:
    """The store, reduced to the one register that holds a unit; None if that register cannot be determined."""
    tensor, step = one.placed().tensors[output], sink.step
    if step.memory is None:  # a copy, which holds the unit in no register
        return sink
    first = tensor.place(unit) - step.memory[1]
    size = tensor.layout.unit
    for low, high, register in stored_registers(step):
        if low <= first and first + size <= high:
            memory = (step.memory[0], step.memory[1] + low, high - low)
            return Reached(replace(step, reads=(register,), memory=memory, data=step.data[low:high]))
    return None


def _through_threads(
    sides: tuple[Followed, Followed],
    traces: tuple[ThreadTrace, ThreadTrace],
    at: tuple[Reached, Reached],
    alike: bool = True,
) -> ShownDifference:
    """Follow the differing values back, also into other threads that made them."""
    threads = 0
    for _ in range(HOPS):
        difference = trace_difference(*traces, at, alike)
        if difference.elsewhere is None:
            return _found(sides, traces, difference, threads, alike)
        there = tuple(s.trace(stored.thread) for s, stored in zip(sides, difference.elsewhere, strict=True))
        steps = tuple(reached(t, stored) for t, stored in zip(there, difference.elsewhere, strict=True))
        if steps[0] is None or steps[1] is None or steps[0] == at[0]:
            return _found(sides, traces, difference, threads, alike)
        threads += there[0].thread != traces[0].thread
        traces, at = (there[0], there[1]), (steps[0], steps[1])
    far = _found(sides, traces, TraceDifference("values", at[0].step, at[1].step), threads, alike)
    return replace(far, words=f"followed through {HOPS} instructions of other threads, then stopped", basis=_FAR)


def _launched(placed_kernel: PlacedKernel) -> Launched:
    x, y, z = (*placed_kernel.grid, 1, 1)[:3]
    u, v, w = (*placed_kernel.block, 1, 1)[:3]
    return Launched(placed_kernel.loaded, placed_kernel.parameters, (x, y, z), (u, v, w), placed_kernel.shared)


def _stored(one: Followed, output: str, unit: int) -> Stored | None:
    made = one.placed()
    tensor = made.tensors[output]
    return storing_thread(_launched(made), tensor.buffer, tensor.place(unit), tensor.layout.unit)


def _fault(one: Followed) -> PtxError | None:
    return one.trace(-2).fault  # -2 is the number of no thread: this only runs the kernel


def _thread_of(fault: PtxError, one: Followed) -> int | None:
    """The number in the grid of the thread that a fault names; None if it names none."""
    match = _WHO.search(fault.message)
    if match is None:
        return None
    thread, *block = map(int, match.groups())
    made = one.placed()
    size = made.loaded.cluster or (1, 1, 1)
    whole = [g // s for g, s in zip((*made.grid, 1, 1), size, strict=False)]
    # Blocks are numbered cluster by cluster, and within a cluster by rank.
    cluster = _numbered([b // s for b, s in zip(block, size, strict=True)], whole)
    rank = _numbered([b % s for b, s in zip(block, size, strict=True)], size)
    return (cluster * math.prod(size) + rank) * math.prod(made.block) + thread


def _numbered(place: Sequence[int], sizes: Sequence[int]) -> int:
    return place[0] + sizes[0] * (place[1] + sizes[1] * place[2])


# in words --------------------------------------------------------------------------------------------------------

_FAULT = (
    "The access at which the run stops is paired with the other file's access of the same opcode and number in the "
    "same thread. Values are followed back from its operands; here the operands are equal."
)
_UNLIKE = (
    "The files are launched in different ways. Their threads are paired by the element that both store, and values are "
    "followed back from there. Addresses, guards and branches are not compared, because they depend on thread numbers. "
)
_NOT_ALIGNED = f"{_UNLIKE}Here the values are not followed; the two stores are shown."
_FAR = (
    "The instructions shown are those at which the search stopped. Their values differ already, so the cause lies "
    "before them."
)
_NO_THREAD = (
    "The files are launched in different ways, so no thread of the other file corresponds to the one with the fault, "
    "and only that access is shown."
)
_BASIS: Mapping[str, str] = {
    "operands": "Differing values are followed back through each file's registers, as long as the opcodes are the "
    "same; through copies, products and atomics, the first element that differs is followed. Here the operands have "
    "equal values in both files, but the results differ.",
    "values": "The two files compute this in different ways, so they are aligned by values, not by instructions. For "
    "each file this is the first instruction on the way to the difference whose value the other file's thread never "
    "has, or the one at which the opcodes differ. The other file has all values that it reads. Values that are equal "
    "by coincidence count as common, so the cause may lie earlier.",
    "addresses": "These loads read values that the other file's thread does not load from there.",
    "branch": "Branches are aligned by the values that their conditions compare; an inverted branch counts as the "
    "same. This does not prove that the difference in the output comes from this branch.",
    "elsewhere": "The values came from another thread, or from an asynchronous copy, and could not be followed: in a "
    "second run, which traced that thread, it did not make them.",
}


def _found(
    sides: tuple[Followed, Followed],
    traces: tuple[ThreadTrace, ThreadTrace],
    found: TraceDifference,
    hops: int,
    alike: bool = True,
) -> ShownDifference:
    message = {
        "operands": "the same operands, but different results",
        "addresses": "different values are read here",
        "values": "the first values that the other file never has",
        "branch": "a branch that one file takes and the other does not",
        "elsewhere": "different values are read here",
    }[found.kind]
    if found.kind in ("operands", "addresses") and found.a is not None and found.b is not None:
        message = _operand_words(found.a, found.b) or message
    if hops:
        message += f"; the value went through {hops} other thread{'s' * (hops > 1)} to the store"
    steps = tuple(_shown(s.name, t, step) for s, t, step in zip(sides, traces, (found.a, found.b), strict=True))
    return ShownDifference(message, ("" if alike else _UNLIKE) + _BASIS[found.kind], (steps[0], steps[1]))


def _operand_words(a: ThreadStep, b: ThreadStep) -> str:
    """How the operands of two instructions with one opcode differ, in words; "" if they are equal."""
    values = [[o.value for o in s.reads] for s in (a, b)]
    if a.memory is not None and b.memory is not None and a.memory != b.memory:
        one, other = (f"{m[2]} bytes at offset {m[1]} of {m[0]}" for m in (a.memory, b.memory))
        same = "the same operands, but " if values[0] == values[1] else ""
        return f"{same}different addresses: {one} and {other}"
    if sorted(values[0], key=repr) != sorted(values[1], key=repr):
        return "different constants"
    return "the same operands in another order" if values[0] != values[1] else ""


def _one_sided(
    sides: tuple[Followed, Followed],
    traces: tuple[ThreadTrace, ThreadTrace],
    at: tuple[ThreadStep | None, ThreadStep | None],
    place: str,
) -> ShownDifference:
    """The difference if only one file's thread reaches a place: the first branch that differs, else that place."""
    branch = branch_difference(*traces)
    if branch is not None:
        return _found(sides, traces, branch, 0)
    here = 0 if at[0] is not None else 1
    steps = tuple(_shown(s.name, t, step) for s, t, step in zip(sides, traces, at, strict=True))
    message = f"only {sides[here].name} reaches {place}; the thread of {sides[1 - here].name} ends before that"
    return ShownDifference(message, "No branch with equal conditions differs in the two threads.", (steps[0], steps[1]))


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


def _nothing(words: str) -> ShownDifference:
    return ShownDifference(words, "", (None, None))
