"""Where two traces of one thread part, though registers have other names and instructions another order.

Nothing is aligned by place in the text. From a pair of instructions with different results, such as the two stores of
an output, the walk goes back: as long as both have the same opcode, the operands with equal values are set aside, and
the walk goes on at the instructions that made the others. It ends

- where all operands are equal: one instruction gives other bits than the other ("operands");
- where the opcodes differ, or operands cannot be paired: of each trace is then taken the first instruction that leads
  there and whose value the other trace never has ("values").

Before that, predicates of branches are compared: a branch that one takes and the other does not comes first
("branch"). What an instruction takes from memory or from other threads (a load, a copy, a product of tensor cores, an
atomic) is compared element by element: the first that differs is followed to the instruction that made it. Where
another thread made it, the walk goes on there.

It cannot follow, and ends at the values that are then shown: two instructions of different opcodes, as when one file
copies with cp.async what the other loads and stores; equal launches that lay shared memory out in different ways, whose
addresses part first; metadata of a sparse product in tensor memory; atomics that threads reach in another order, where
what each finds differs though nothing is wrong.

Of files with different launches no thread of one does what a thread of the other does: two threads have only the
element in common that both store. Then the walk begins at the values stored, leaves addresses and guards aside, as
these hold numbers of threads and blocks, and compares no branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal

from harness.ptx.kernel.noting import PRODUCTS
from harness.ptx.kernel.origins import LOCAL, SHARED, TENSOR, Focus, Stored, Taken
from harness.ptx.kernel.taken import WARP
from harness.ptx.kernel.traced import SeenOperand, ThreadStep, ThreadTrace

Kind = Literal["operands", "addresses", "values", "branch", "elsewhere"]
OWN_MEMORY = (SHARED, LOCAL, TENSOR)
MOST_BRANCHES = 3000
"""Branches of a thread that are compared at most."""


@dataclass(frozen=True)
class Parting:
    """The first instruction of each trace that yields a value which the other never has; None where there is none.

    elsewhere: with the kind of this name, who made the two values that differ: another thread of each launch.
    """

    kind: Kind
    a: ThreadStep | None
    b: ThreadStep | None
    elsewhere: tuple[Stored, Stored] | None = None


@dataclass(frozen=True)
class Reached:
    """An instruction at which a walk has arrived, and the part of its result that differs; None: all of it.

    sent: what differs is not what it gives its own thread, but what others get by it.
    """

    step: ThreadStep
    focus: Focus | None = None
    sent: bool = False

    def made_of(self) -> Sequence[Taken]:
        """What the part takes from elsewhere than the thread's registers."""
        return self.step.made_of(self.focus)


def reached(trace: ThreadTrace, stored: Stored) -> Reached | None:
    """The instruction of a thread that made a value; None where the trace does not have it."""
    step = trace.at(stored.time)
    if step is None:
        return None
    if stored.operand < 0:
        return Reached(step, stored.byte, sent=stored.byte is None)
    operand = step.reads[stored.operand]
    return Reached(trace.steps[operand.maker], operand.name) if operand.maker >= 0 else Reached(step, sent=True)


def parting(a: ThreadTrace, b: ThreadTrace, at: tuple[Reached, Reached], alike: bool = True) -> Parting:
    """Where two traces part, seen from two instructions that leave other values in memory or with other threads.

    alike: whether both files are launched in one way, so that equal threads do equal work.
    """
    both = _Sides(_Known(a, alike), _Known(b, alike), alike)
    found = both.walk(*at)
    if not alike:
        return found
    branch = both.branches()
    if branch is not None and _before(branch, found):
        return branch
    return found


def parted_by_branches(a: ThreadTrace, b: ThreadTrace) -> Parting | None:
    """The first branch that one thread takes and the other does not; None where all agree."""
    return _Sides(_Known(a), _Known(b)).branches()


def _before(one: Parting, other: Parting) -> bool:
    """Whether one parting comes first in both traces."""
    if other.a is None or other.b is None or one.a is None or one.b is None:
        return True
    return one.a.number <= other.a.number and one.b.number <= other.b.number


def held_in(store: ThreadStep) -> list[tuple[int, int, SeenOperand]]:
    """The registers whose bits a store leaves, each with the range of its bytes; none where that cannot be told."""
    for begin in range(len(store.reads)):
        found, at = [], 0
        for operand in store.reads[begin:]:
            size = min(operand.width // 8, len(store.data) - at)
            if operand.value is None or size <= 0:
                break
            if operand.value.to_bytes(-(-operand.width // 8), "little")[:size] != store.data[at : at + size]:
                break
            found.append((at, at + size, operand))
            at += size
        if store.data and at == len(store.data):
            return found
    return []


def of_register(load: ThreadStep, register: str) -> ThreadStep:
    """A load of a vector with what one of its registers got alone; any other instruction as it is."""
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


class _Known:
    """A trace and the values in it."""

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
        """What an instruction computes with: where launches differ, neither addresses nor its guard."""
        if self.alike:
            return step.reads
        if step.loads:
            return ()
        if step.stores:
            return tuple(o for _, _, o in held_in(step))
        return step.reads[:-1] if step.step.guard >= 0 else step.reads

    def maker(self, operand: SeenOperand) -> ThreadStep | None:
        """The instruction that made an operand."""
        return self.trace.steps[operand.maker] if operand.maker >= 0 else None

    def has(self, operand: SeenOperand, made: ThreadStep) -> bool:
        """Whether the trace has a value of the other one: bytes by their place in memory, others by the value."""
        if operand.width == 1:
            return False  # every trace has both
        if made.loads and made.memory is not None:
            name, first, _ = (made := made if self.alike else of_register(made, operand.name)).memory or ("", 0, 0)
            return all((name, first + k, byte) in self.loaded for k, byte in enumerate(made.data))
        return operand.value in self.values

    def own_store(self, step: ThreadStep) -> ThreadStep | None:
        """The store of this thread behind what a step loaded."""
        stored = next((s for s in step.origins if s is not None), None)
        if stored is None or stored.thread != self.trace.thread:
            return None
        found = self.trace.at(stored.time)
        return found if found is not None and found.stores else None


class _Sides:
    def __init__(self, a: _Known, b: _Known, alike: bool = True) -> None:
        self.a, self.b, self.alike = a, b, alike

    def walk(self, at: Reached, beside: Reached) -> Parting:
        """Back from two instructions with different results. Time falls with every turn, so that it ends."""
        while (one := at.step).opcode == (other := beside.step).opcode:
            found = None if at.sent or beside.sent else self._elsewhere(at, beside)
            if found is None:
                found = self._guarded(one, other)
            if isinstance(found, Parting):
                return found
            if found is not None:
                at, beside = found
                continue
            if not self.alike and one.loads and other.loads:
                return Parting("addresses", one, other)
            left, right = _unmatched(self.a.computed_from(one), self.b.computed_from(other))
            if not left and not right:
                return self._alike(one, other)
            pairs = [(self.a.maker(x), self.b.maker(y)) for x, y in zip(left, right, strict=False)]
            stores = one.stores and other.stores
            follow = [self._followable(stores, x, y, *p) for x, y, p in zip(left, right, pairs, strict=False)]
            if len(left) != len(right) or not all(follow):
                if all(m is None for p in pairs for m in p):  # constants and parameters
                    return Parting("operands", one, other)
                break
            mine, theirs = pairs[0]
            assert mine is not None
            assert theirs is not None  # they are followable
            at, beside = Reached(mine, left[0].name), Reached(theirs, right[0].name)
        first = _first(self.a, self.b, one), _first(self.b, self.a, other)
        both_load = first[0].loads and first[1].loads and not self.alike
        return Parting("addresses" if both_load else "values", *first)

    def _elsewhere(self, at: Reached, beside: Reached) -> Parting | tuple[Reached, Reached] | None:
        """What came from memory or from other threads, where that differs; None where it does not, or nothing did."""
        one, other = at.step, beside.step
        if one.loads and other.loads:
            return self._taken(_loaded(at), _loaded(beside), one, other)
        mine, theirs = at.made_of(), beside.made_of()
        if bool(mine) and len(mine) == len(theirs):
            found = self._taken(mine, theirs, one, other)
            if found is None and one.step.kind in _WHOLE and _equal(mine, theirs):
                return Parting("operands", one, other)  # registers with other elements do not count
            return found
        if mine or theirs:
            return Parting("values", one, other)
        return self._shuffled(one, other)

    def _taken(
        self, mine: Sequence[Taken], theirs: Sequence[Taken], one: ThreadStep, other: ThreadStep
    ) -> Parting | tuple[Reached, Reached] | None:
        """The first of two instructions' elements that differs, followed to those who made it."""
        pair = next(((x, y) for x, y in zip(mine, theirs, strict=False) if x.value != y.value), None)
        if pair is None:
            return None
        x, y = pair
        if x.memory != y.memory and (self.alike or not _own_memory(x, y)):
            return None  # they look elsewhere: what made their addresses comes first
        if x.stored is None and y.stored is None:
            return Parting("values", one, other)
        if x.stored is not None and y.stored is not None:
            found = self._own(x.stored, y.stored)
            return found or Parting("elsewhere", one, other, (x.stored, y.stored))
        by = self.a.trace.at(x.stored.time) if x.stored is not None and self._is_own(self.a, x.stored) else None
        to = self.b.trace.at(y.stored.time) if y.stored is not None and self._is_own(self.b, y.stored) else None
        return Parting("values", by or one, to or other)

    def _is_own(self, side: _Known, stored: Stored) -> bool:
        return stored.thread == side.trace.thread

    def _own(self, one: Stored, other: Stored) -> tuple[Reached, Reached] | None:
        """The instructions of these two threads that made values; None where another thread did."""
        if not (self._is_own(self.a, one) and self._is_own(self.b, other)):
            return None
        found = reached(self.a.trace, one), reached(self.b.trace, other)
        return (found[0], found[1]) if found[0] is not None and found[1] is not None else None

    def _followable(
        self, stores: bool, x: SeenOperand, y: SeenOperand, one: ThreadStep | None, other: ThreadStep | None
    ) -> bool:
        """Whether the makers of two operands are worth comparing. stores: for stores, which compute nothing."""
        if one is None or other is None:
            return False
        alike = one.opcode == other.opcode or x.width == y.width == 1
        return stores or alike or not (self.b.has(x, one) or self.a.has(y, other))

    def _shuffled(self, one: ThreadStep, other: ThreadStep) -> Parting | None:
        """For two shuffles that give other values: the lane whose value came in, where that is not this one."""
        if not self.alike or one.step.kind != "shfl" or other.step.kind != "shfl":
            return None
        came = one.writes[0].value, other.writes[0].value
        pairs = list(zip(one.warp[0], other.warp[0], strict=True))
        if came[0] == came[1] or came not in pairs or pairs[self.a.trace.thread % WARP] == came:
            return None
        return self._in_lane(pairs.index(came), one, other)

    def _in_lane(self, lane: int, one: ThreadStep, other: ThreadStep) -> Parting:
        a, b = (side.trace.thread // WARP * WARP + lane for side in (self.a, self.b))
        return Parting("elsewhere", one, other, (Stored(a, one.time), Stored(b, other.time)))

    def _guarded(self, one: ThreadStep, other: ThreadStep) -> tuple[Reached, Reached] | None:
        """For two instructions of which a guard kept one from running: what made the guards."""
        if not self.alike or one.executed == other.executed or one.step.guard < 0 or other.step.guard < 0:
            return None
        if one.reads[-1].value == other.reads[-1].value:
            return None  # one of them is negated: that is where they part
        mine, theirs = self.a.maker(one.reads[-1]), self.b.maker(other.reads[-1])
        return (Reached(mine), Reached(theirs)) if mine is not None and theirs is not None else None

    def _alike(self, one: ThreadStep, other: ThreadStep) -> Parting:
        """Equal operands and other results: the instruction itself, or what other threads of the warp give it."""
        if self.alike and one.warp and other.warp and one.warp != other.warp and len(one.warp) == len(other.warp):
            pairs = zip(one.warp, other.warp, strict=True)
            lane = next(k for mine, theirs in pairs for k in range(len(mine)) if mine[k] != theirs[k])
            return self._in_lane(lane, one, other)
        return Parting("operands", one, other)

    # branches ----------------------------------------------------------------------------------------------------

    def branches(self) -> Parting | None:
        """The first pair of branches whose conditions compare the same and come out differently."""
        a, b = ([s for s in side.trace.steps if s.branches][:MOST_BRANCHES] for side in (self.a, self.b))
        conditions = [self._condition(self.a, s) for s in a], [self._condition(self.b, s) for s in b]
        mine, theirs = ([c.operands for c in side] for side in conditions)
        for word, first, last, begin, end in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
            if word not in ("equal", "replace") or last - first != end - begin:
                continue
            for k in range(last - first):
                x, y = conditions[0][first + k], conditions[1][begin + k]
                if not x.parts_from(y, word == "equal"):
                    continue
                if x.made is None or y.made is None:
                    return Parting("branch", a[first + k], b[begin + k])
                if [w.value for w in x.made.writes] == [w.value for w in y.made.writes]:
                    return Parting("branch", a[first + k], b[begin + k])  # the predicate is turned round
                found = self.walk(Reached(x.made), Reached(y.made))
                return Parting("branch", x.made, y.made) if found.a is x.made and found.b is y.made else found
        return None

    def _condition(self, side: _Known, branch: ThreadStep) -> _Condition:
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


_WHOLE = PRODUCTS | {"wgmma"}
"""Kinds of instructions that make each element of their result of what they take, and of nothing else."""


def _loaded(at: Reached) -> list[Taken]:
    """The bytes that a load got, or those for the register that is asked about."""
    step = of_register(at.step, at.focus) if isinstance(at.focus, str) else at.step
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
    """Whether both lie in what a block, or a thread, keeps for itself: each file lays it out in its own way."""
    return all(t.memory is not None and t.memory[0] in OWN_MEMORY for t in (one, other))


@dataclass(frozen=True)
class _Condition:
    """What a branch asks. holds: whether the relation does; taken: whether it branched. made: by which instruction."""

    operands: tuple[int | None, ...]
    relation: str
    holds: bool
    taken: bool
    made: ThreadStep | None

    def parts_from(self, other: _Condition, same_operands: bool) -> bool:
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
"""Each comparison as another one, or its opposite: compilers turn branches round."""


def _first(own: _Known, other: _Known, start: ThreadStep) -> ThreadStep:
    """The earliest instruction that leads to one, of those whose values the other trace never has."""
    found, todo = {start.number}, [start]
    while todo:
        step = todo.pop()
        behind = [(o, own.maker(o)) for o in own.computed_from(step)]
        if (store := own.own_store(step)) is not None and store.number not in found:
            found.add(store.number)
            todo.append(store)
        for operand, made in behind:
            if made is not None and made.number not in found and _new(own, other, operand, made):
                found.add(made.number)
                todo.append(made)
    return own.trace.steps[min(found)]


def _new(own: _Known, other: _Known, operand: SeenOperand, made: ThreadStep) -> bool:
    """Whether the other trace lacks a value. A predicate is new where it compares a new value."""
    if operand.width == 1:
        return any((m := own.maker(o)) is not None and _new(own, other, o, m) for o in made.reads)
    return not other.has(operand, made)


def _unmatched(one: Sequence[SeenOperand], other: Sequence[SeenOperand]) -> tuple[list[SeenOperand], list[SeenOperand]]:
    """The operands of each side without one of equal value on the other; the place of an operand does not count."""
    left, right = [], list(other)
    for operand in one:
        same = next((o for o in right if o.value == operand.value and (o.width == 1) == (operand.width == 1)), None)
        if same is None:
            left.append(operand)
        else:
            right.remove(same)
    return left, right
