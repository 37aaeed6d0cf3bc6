"""Run both kernels of a comparison in lockstep, on the threads that store the first element that differs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Literal

from ptxdiff.backends.compiled import CompiledKernel, PlacedKernel, compile_job, placed
from ptxdiff.emulator import PtxError
from ptxdiff.emulator.kernel.trace import (
    LOCAL,
    SHARED,
    TENSOR,
    WARP,
    Focus,
    Launched,
    SeenOperand,
    Stored,
    Taken,
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


# ---- The first difference of two traces of one thread, whose register names and order of instructions may differ -----
#
# Instructions are not aligned by their place in the text. The search starts at a pair of instructions with different
# results, such as the two stores of an output, and goes back. As long as both have the same opcode, it ignores operands
# with equal values and continues at the instructions that made the other operands. It ends
#
# - if all operands are equal: the two instructions give different bits for the same operands ("operands");
# - if the opcodes differ, or operands cannot be paired: the result is then, in each trace, the first instruction on the
#   way to this place whose value the other trace never has ("values").
#
# A branch that one thread takes and the other does not is the result if it comes earlier ("branch"). Values from memory
# or from other threads (of a load, a copy, a product of tensor cores, an atomic) are compared element by element. The
# search continues at the instruction that made the first element that differs, in another thread if that made it.
#
# The search ends early, at the values that it has reached, in these cases: the opcodes differ, for example because one
# file uses cp.async where the other loads and stores; the launches are equal but the layouts of shared memory differ,
# so that addresses differ first; metadata of a sparse product in tensor memory; atomics that threads reach in another
# order, whose old values differ although nothing is wrong.
#
# In files with different launches no thread of one corresponds to a thread of the other. Two threads then have only the
# stored element in common. The search starts at the stored values and ignores addresses, guards and branches, because
# these depend on the numbers of threads and blocks.

Kind = Literal["operands", "addresses", "values", "branch", "elsewhere"]
OWN_MEMORY = (SHARED, LOCAL, TENSOR)
MOST_BRANCHES = 3000
"""The most branches of a thread that are compared."""


@dataclass(frozen=True)
class TraceDifference:
    """The first instructions of two traces that differ; None if a trace has none.

    elsewhere: for the kind "elsewhere", the stores of other threads that made the two values that differ.
    """

    kind: Kind
    a: ThreadStep | None
    b: ThreadStep | None
    elsewhere: tuple[Stored, Stored] | None = None


@dataclass(frozen=True)
class Reached:
    """An instruction that the search has reached.

    focus: the part of its result that differs; None for the whole result. sent: whether the difference is in the values
    that other threads get from it, not in its own thread's result.
    """

    step: ThreadStep
    focus: Focus | None = None
    sent: bool = False

    def made_of(self) -> Sequence[Taken]:
        """The values outside the thread's registers from which the focused part is made."""
        return self.step.made_of(self.focus)


def reached(trace: ThreadTrace, stored: Stored) -> Reached | None:
    """The instruction of a thread that made a value; None if the trace does not have it."""
    step = trace.at(stored.time)
    if step is None:
        return None
    if stored.operand < 0:
        return Reached(step, stored.byte, sent=stored.byte is None)
    operand = step.reads[stored.operand]
    return Reached(trace.steps[operand.maker], operand.name) if operand.maker >= 0 else Reached(step, sent=True)


def trace_difference(
    a: ThreadTrace, b: ThreadTrace, at: tuple[Reached, Reached], alike: bool = True
) -> TraceDifference:
    """The first difference of two traces. at: two instructions that give different values to memory or other threads.

    alike: whether both files have the same launch, so that threads of equal number do equal work.
    """
    both = _TracePair(_TraceValues(a, alike), _TraceValues(b, alike), alike)
    difference = both.walk(*at)
    if not alike:
        return difference
    branch = both.branches()
    if branch is not None and _before(branch, difference):
        return branch
    return difference


def branch_difference(a: ThreadTrace, b: ThreadTrace) -> TraceDifference | None:
    """The first branch that one thread takes and the other does not; None if there is none."""
    return _TracePair(_TraceValues(a), _TraceValues(b)).branches()


def _before(one: TraceDifference, other: TraceDifference) -> bool:
    """Whether the first difference comes before the second in both traces."""
    if other.a is None or other.b is None or one.a is None or one.b is None:
        return True
    return one.a.number <= other.a.number and one.b.number <= other.b.number


def stored_registers(store: ThreadStep) -> list[tuple[int, int, SeenOperand]]:
    """The registers that a store writes to memory, as (first byte, end, register); empty if they cannot be
    determined."""
    for begin in range(len(store.reads)):
        registers, at = [], 0
        for operand in store.reads[begin:]:
            size = min(operand.width // 8, len(store.data) - at)
            if operand.value is None or size <= 0:
                break
            if operand.value.to_bytes(-(-operand.width // 8), "little")[:size] != store.data[at : at + size]:
                break
            registers.append((at, at + size, operand))
            at += size
        if store.data and at == len(store.data):
            return registers
    return []


def for_register(load: ThreadStep, register: str) -> ThreadStep:
    """A vector load, reduced to one of its registers; other instructions are returned unchanged."""
    at = 0
    if load.loads and load.memory is not None and sum(w.width for w in load.writes) == 8 * len(load.data):
        for written in load.writes:
            size = written.width // 8
            if written.name == register:
                memory = (load.memory[0], load.memory[1] + at, size)
                part = slice(at, at + size)
                return replace(load, memory=memory, data=load.data[part], origins=load.origins[part], writes=(written,))
            at += size
    return load


class _TraceValues:
    """A trace, and the sets of all values and all loaded bytes in it."""

    def __init__(self, trace: ThreadTrace, alike: bool = True) -> None:
        self.trace, self.alike = trace, alike
        self.values: set[int | None] = set()
        self.loaded: set[tuple[str, int, int]] = set()
        for step in trace.steps:
            constants = (o for o in step.reads if not o.name)
            self.values |= {o.value for o in (*step.writes, *constants) if o.width > 1}
            if step.loads and step.memory is not None:
                name, first, _ = step.memory
                self.loaded |= {(name, first + k, byte) for k, byte in enumerate(step.data)}

    def computed_from(self, step: ThreadStep) -> tuple[SeenOperand, ...]:
        """The operands of an instruction that are compared; with different launches neither addresses nor guard."""
        if self.alike:
            return step.reads
        if step.loads:
            return ()
        if step.stores:
            return tuple(o for _, _, o in stored_registers(step))
        return step.reads[:-1] if step.step.guard >= 0 else step.reads

    def maker(self, operand: SeenOperand) -> ThreadStep | None:
        """The instruction that made an operand; None for constants and parameters."""
        return self.trace.steps[operand.maker] if operand.maker >= 0 else None

    def has(self, operand: SeenOperand, made: ThreadStep) -> bool:
        """Whether this trace has a value of the other trace: loaded bytes are compared with their address, too."""
        if operand.width == 1:
            return False  # every trace has both values of a predicate, so that a predicate proves nothing
        if made.loads and made.memory is not None:
            name, first, _ = (made := made if self.alike else for_register(made, operand.name)).memory or ("", 0, 0)
            return all((name, first + k, byte) in self.loaded for k, byte in enumerate(made.data))
        return operand.value in self.values

    def own_store(self, step: ThreadStep) -> ThreadStep | None:
        """The store of this thread whose bytes a step loaded; None if another thread or the host wrote them."""
        stored = next((s for s in step.origins if s is not None), None)
        if stored is None or stored.thread != self.trace.thread:
            return None
        store = self.trace.at(stored.time)
        return store if store is not None and store.stores else None


class _TracePair:
    def __init__(self, a: _TraceValues, b: _TraceValues, alike: bool = True) -> None:
        self.a, self.b, self.alike = a, b, alike

    def walk(self, at: Reached, beside: Reached) -> TraceDifference:
        """Search back from two instructions with different results. Each turn goes to an earlier time, so it ends."""
        while (one := at.step).opcode == (other := beside.step).opcode:
            step_back = None if at.sent or beside.sent else self._elsewhere(at, beside)
            if step_back is None:
                step_back = self._guarded(one, other)
            if isinstance(step_back, TraceDifference):
                return step_back
            if step_back is not None:
                at, beside = step_back
                continue
            if not self.alike and one.loads and other.loads:
                return TraceDifference("addresses", one, other)
            left, right = _unmatched(self.a.computed_from(one), self.b.computed_from(other))
            if not left and not right:
                return self._same_operands(one, other)
            pairs = [(self.a.maker(x), self.b.maker(y)) for x, y in zip(left, right, strict=False)]
            stores = one.stores and other.stores
            follow = [self._followable(stores, x, y, *p) for x, y, p in zip(left, right, pairs, strict=False)]
            if len(left) != len(right) or not all(follow):
                if all(m is None for p in pairs for m in p):  # constants and parameters
                    return TraceDifference("operands", one, other)
                break
            mine, theirs = pairs[0]
            assert mine is not None
            assert theirs is not None  # they are followable
            at, beside = Reached(mine, left[0].name), Reached(theirs, right[0].name)
        first = _first(self.a, self.b, one), _first(self.b, self.a, other)
        both_load = first[0].loads and first[1].loads and not self.alike
        return TraceDifference("addresses" if both_load else "values", *first)

    def _elsewhere(self, at: Reached, beside: Reached) -> TraceDifference | tuple[Reached, Reached] | None:
        """Follow values that came from memory or from other threads, if they differ; None if they do not."""
        one, other = at.step, beside.step
        if one.loads and other.loads:
            return self._differing_element(_loaded(at), _loaded(beside), one, other)
        mine, theirs = at.made_of(), beside.made_of()
        if bool(mine) and len(mine) == len(theirs):
            difference = self._differing_element(mine, theirs, one, other)
            if difference is None and one.step.facts.product in _WHOLE and _equal(mine, theirs):
                return TraceDifference("operands", one, other)  # the operand registers also hold other elements
            return difference
        if mine or theirs:
            return TraceDifference("values", one, other)
        return self._shuffled(one, other)

    def _differing_element(
        self, mine: Sequence[Taken], theirs: Sequence[Taken], one: ThreadStep, other: ThreadStep
    ) -> TraceDifference | tuple[Reached, Reached] | None:
        """Follow the first element that differs to the instructions that made it; None if no element differs."""
        pair = next(((x, y) for x, y in zip(mine, theirs, strict=False) if x.value != y.value), None)
        if pair is None:
            return None
        x, y = pair
        if x.memory != y.memory and (self.alike or not _own_memory(x, y)):
            return None  # the addresses differ, so the search follows the addresses first
        if x.stored is None and y.stored is None:
            return TraceDifference("values", one, other)
        if x.stored is not None and y.stored is not None:
            makers = self._own(x.stored, y.stored)
            return makers or TraceDifference("elsewhere", one, other, (x.stored, y.stored))
        by = self.a.trace.at(x.stored.time) if x.stored is not None and self._is_own(self.a, x.stored) else None
        to = self.b.trace.at(y.stored.time) if y.stored is not None and self._is_own(self.b, y.stored) else None
        return TraceDifference("values", by or one, to or other)

    def _is_own(self, side: _TraceValues, stored: Stored) -> bool:
        return stored.thread == side.trace.thread

    def _own(self, one: Stored, other: Stored) -> tuple[Reached, Reached] | None:
        """The instructions of the two traced threads that made two values; None if another thread made one."""
        if not (self._is_own(self.a, one) and self._is_own(self.b, other)):
            return None
        makers = reached(self.a.trace, one), reached(self.b.trace, other)
        return (makers[0], makers[1]) if makers[0] is not None and makers[1] is not None else None

    def _followable(
        self, stores: bool, x: SeenOperand, y: SeenOperand, one: ThreadStep | None, other: ThreadStep | None
    ) -> bool:
        """Whether the search may continue at the instructions `one` and `other`, which made the operands x and y.

        stores: whether the operands are those of stores, which compute nothing.
        """
        if one is None or other is None:
            return False
        alike = one.opcode == other.opcode or x.width == y.width == 1
        return stores or alike or not (self.b.has(x, one) or self.a.has(y, other))

    def _shuffled(self, one: ThreadStep, other: ThreadStep) -> TraceDifference | None:
        """For two shuffles with different results: the lane whose value they read, if it is not the thread's own."""
        if not self.alike or one.step.kind != "shfl" or other.step.kind != "shfl":
            return None
        came = one.writes[0].value, other.writes[0].value
        pairs = list(zip(one.warp[0], other.warp[0], strict=True))
        if came[0] == came[1] or came not in pairs or pairs[self.a.trace.thread % WARP] == came:
            return None
        return self._in_lane(pairs.index(came), one, other)

    def _in_lane(self, lane: int, one: ThreadStep, other: ThreadStep) -> TraceDifference:
        a, b = (side.trace.thread // WARP * WARP + lane for side in (self.a, self.b))
        return TraceDifference("elsewhere", one, other, (Stored(a, one.time), Stored(b, other.time)))

    def _guarded(self, one: ThreadStep, other: ThreadStep) -> tuple[Reached, Reached] | None:
        """For two instructions of which only one was executed: the instructions that made their guards."""
        if not self.alike or one.executed == other.executed or one.step.guard < 0 or other.step.guard < 0:
            return None
        if one.reads[-1].value == other.reads[-1].value:
            return None  # one of the guards is negated, which is the difference
        mine, theirs = self.a.maker(one.reads[-1]), self.b.maker(other.reads[-1])
        return (Reached(mine), Reached(theirs)) if mine is not None and theirs is not None else None

    def _same_operands(self, one: ThreadStep, other: ThreadStep) -> TraceDifference:
        """For equal operands with different results: the difference is the instruction, or values of other lanes."""
        if self.alike and one.warp and other.warp and one.warp != other.warp and len(one.warp) == len(other.warp):
            pairs = zip(one.warp, other.warp, strict=True)
            lane = next(k for mine, theirs in pairs for k in range(len(mine)) if mine[k] != theirs[k])
            return self._in_lane(lane, one, other)
        return TraceDifference("operands", one, other)

    # branches ----------------------------------------------------------------------------------------------------

    def branches(self) -> TraceDifference | None:
        """The first pair of branches whose conditions compare the same values with different results."""
        a, b = ([s for s in side.trace.steps if s.branches][:MOST_BRANCHES] for side in (self.a, self.b))
        conditions = [self._condition(self.a, s) for s in a], [self._condition(self.b, s) for s in b]
        mine, theirs = ([c.operands for c in side] for side in conditions)
        for word, first, last, begin, end in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
            if word not in ("equal", "replace") or last - first != end - begin:
                continue
            for k in range(last - first):
                x, y = conditions[0][first + k], conditions[1][begin + k]
                if not x.differs_from(y, word == "equal"):
                    continue
                if x.made is None or y.made is None:
                    return TraceDifference("branch", a[first + k], b[begin + k])
                if [w.value for w in x.made.writes] == [w.value for w in y.made.writes]:
                    return TraceDifference("branch", a[first + k], b[begin + k])  # one branch negates the predicate
                difference = self.walk(Reached(x.made), Reached(y.made))
                begun_here = difference.a is x.made and difference.b is y.made
                return TraceDifference("branch", x.made, y.made) if begun_here else difference
        return None

    def _condition(self, side: _TraceValues, branch: ThreadStep) -> _Condition:
        guard = branch.reads[-1]
        made = side.maker(guard)
        if made is None or made.opcode != "setp" or len(made.reads) < 2:
            return _Condition((guard.value,), "", branch.executed, branch.executed, made)
        x, y = (o.value or 0 for o in made.reads[:2])
        word = made.step.node.modifiers[0]
        floats = made.step.node.modifiers[-1].startswith(("f", "bf"))
        if x > y:
            x, y, word = y, x, _MIRRORED.get(word, word)
        relation, holds = (_FLOAT if floats else _INTEGER).get(word, (word, True))
        return _Condition((x, y), relation, (guard.value == 1) == holds, branch.executed, made)


_WHOLE = ("warp", "warpgroup")
"""Products whose results depend only on the elements that `made_of` lists."""


def _loaded(at: Reached) -> list[Taken]:
    """The bytes that a load read; with a register as focus only those of the register."""
    step = for_register(at.step, at.focus) if isinstance(at.focus, str) else at.step
    assert step.memory is not None  # it loads
    name, first, _ = step.memory
    origins = step.origins or (None,) * len(step.data)
    return [
        Taken("a byte", value, stored, (name, first + k))
        for k, (value, stored) in enumerate(zip(step.data, origins, strict=True))
    ]


def _equal(mine: Sequence[Taken], theirs: Sequence[Taken]) -> bool:
    return all(x.value == y.value for x, y in zip(mine, theirs, strict=True))


def _own_memory(one: Taken, other: Taken) -> bool:
    """Whether both lie in memory of one block or thread, where each file has its own layout."""
    return all(t.memory is not None and t.memory[0] in OWN_MEMORY for t in (one, other))


@dataclass(frozen=True)
class _Condition:
    """The condition of a branch.

    operands, relation: the comparison. holds: its result. taken: whether the thread branched. made: the instruction
    that made the predicate.
    """

    operands: tuple[int | None, ...]
    relation: str
    holds: bool
    taken: bool
    made: ThreadStep | None

    def differs_from(self, other: _Condition, same_operands: bool) -> bool:
        if self.relation == other.relation:
            return self.holds != other.holds
        return same_operands and self.taken != other.taken


_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "lo": "hi", "hi": "lo", "ls": "hs", "hs": "ls"} | {
    "ltu": "gtu", "gtu": "ltu", "leu": "geu", "geu": "leu",
}  # fmt: skip
_INTEGER = {"lt": ("lt", True), "ge": ("lt", False), "gt": ("gt", True), "le": ("gt", False), "eq": ("eq", True)} | {
    "ne": ("eq", False), "lo": ("lt", True), "hs": ("lt", False), "hi": ("gt", True), "ls": ("gt", False),
}  # fmt: skip
_FLOAT = {"lt": ("lt", True), "geu": ("lt", False), "ge": ("ge", True), "ltu": ("ge", False), "gt": ("gt", True)} | {
    "leu": ("gt", False), "le": ("le", True), "gtu": ("le", False), "eq": ("eq", True), "neu": ("eq", False),
    "ne": ("ne", True), "equ": ("ne", False), "num": ("num", True), "nan": ("num", False),
}  # fmt: skip
"""Each comparison as one of a few relations, or as a relation's opposite, because compilers invert branches."""


def _first(own: _TraceValues, other: _TraceValues, start: ThreadStep) -> ThreadStep:
    """The earliest instruction on the way to `start` whose value the other trace never has."""
    numbers, todo = {start.number}, [start]
    while todo:
        step = todo.pop()
        behind = [(o, own.maker(o)) for o in own.computed_from(step)]
        if (store := own.own_store(step)) is not None and store.number not in numbers:
            numbers.add(store.number)
            todo.append(store)
        for operand, made in behind:
            if made is not None and made.number not in numbers and _new(own, other, operand, made):
                numbers.add(made.number)
                todo.append(made)
    return own.trace.steps[min(numbers)]


def _new(own: _TraceValues, other: _TraceValues, operand: SeenOperand, made: ThreadStep) -> bool:
    """Whether the other trace lacks a value. A predicate is new if it compares a new value."""
    if operand.width == 1:
        return any((m := own.maker(o)) is not None and _new(own, other, o, m) for o in made.reads)
    return not other.has(operand, made)


def _unmatched(one: Sequence[SeenOperand], other: Sequence[SeenOperand]) -> tuple[list[SeenOperand], list[SeenOperand]]:
    """The operands of each side that have no operand of equal value on the other side, in any place."""
    left, right = [], list(other)
    for operand in one:
        same = next((o for o in right if o.value == operand.value and (o.width == 1) == (operand.width == 1)), None)
        if same is None:
            left.append(operand)
        else:
            right.remove(same)
    return left, right
