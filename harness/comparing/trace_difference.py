"""The first difference of two traces of one thread, whose register names and order of instructions may differ.

Instructions are not aligned by their place in the text. The search starts at a pair of instructions with different
results, such as the two stores of an output, and goes back. As long as both have the same opcode, it ignores operands
with equal values and continues at the instructions that made the other operands. It ends

- if all operands are equal: the two instructions give different bits for the same operands ("operands");
- if the opcodes differ, or operands cannot be paired: the result is then, in each trace, the first instruction on the
  way to this place whose value the other trace never has ("values").

A branch that one thread takes and the other does not is the result if it comes earlier ("branch"). Values from memory
or from other threads (of a load, a copy, a product of tensor cores, an atomic) are compared element by element. The
search continues at the instruction that made the first element that differs, in another thread if that made it.

The search ends early, at the values that it has reached, in these cases: the opcodes differ, for example because one
file uses cp.async where the other loads and stores; the launches are equal but the layouts of shared memory differ, so
that addresses differ first; metadata of a sparse product in tensor memory; atomics that threads reach in another order,
whose old values differ although nothing is wrong.

In files with different launches no thread of one corresponds to a thread of the other. Two threads then have only the
stored element in common. The search starts at the stored values and ignores addresses, guards and branches, because
these depend on the numbers of threads and blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal

from ptxdiff.emulator.kernel.trace import (
    LOCAL,
    SHARED,
    TENSOR,
    WARP,
    Focus,
    SeenOperand,
    Stored,
    Taken,
    ThreadStep,
    ThreadTrace,
)

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
