"""Which registers a block has written at each instruction, on every path through its branches and predicates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptxdiff.emulator import destination
from ptxdiff.emulator.isa.lookup import facts_of
from ptxdiff.emulator.text import Address, CodeBlock, Instruction, Label, Name, Operand, Pair
from ptxdiff.lint.block import names

Written = frozenset[str]
Halves = frozenset[tuple[str, str, bool]]


@dataclass(frozen=True)
class State:
    """The state at one place: registers written on every path to it, on any path, and those written under a predicate.

    `halves`: for writes under a predicate: register, predicate and whether it was negated.
    """

    surely: Written
    maybe: Written
    halves: Halves

    def joined(self, other: State) -> State:
        """The state where two paths meet."""
        return State(self.surely & other.surely, self.maybe | other.maybe, self.halves & other.halves)

    def under(self, predicate: str, negated: bool) -> State:
        """The state under a known predicate."""
        done = frozenset(r for r, p, n in self.halves if p == predicate and n == negated)
        return State(self.surely | done, self.maybe, self.halves)


def control_of(instruction: Instruction) -> str:
    """How an instruction changes the flow: "branch", "table", "call", "end", or ""."""
    return facts_of(instruction.opcode, instruction.modifiers).control


def written_names(instruction: Instruction) -> tuple[Name, ...]:
    """The registers that an instruction writes."""
    return tuple(n for n in names(_register(destination(instruction))))


def _register(operand: Operand | None) -> Operand | None:
    return None if isinstance(operand, Address) else operand


def read_names(instruction: Instruction) -> Iterator[Name]:
    """The registers that an instruction reads, including its guard."""
    if instruction.guard:
        yield instruction.guard.register
    written = _register(destination(instruction))
    parts = (written.first, written.second) if isinstance(written, Pair) else (written,)
    for operand in instruction.operands:
        if operand is not written and not any(operand is part for part in parts):
            yield from names(operand)


@dataclass(frozen=True)
class Flow:
    """Instructions in the order of the text, the state before each, and the state at the end of the block."""

    instructions: tuple[Instruction, ...]
    before: tuple[State | None, ...]
    end: State | None


def flow(tree: CodeBlock) -> Flow | None:
    """The flow through a block; None if it calls functions or jumps through a table."""
    items = list(_flat(tree))
    if any(isinstance(i, Instruction) and control_of(i) in ("call", "table") for i in items):
        return None
    labels = {item.name: n for n, item in enumerate(items) if isinstance(item, Label)}
    states: list[State | None] = [None] * (len(items) + 1)
    states[0] = State(frozenset(), frozenset(), frozenset())
    pending = [0]
    while pending:
        at = pending.pop()
        state = states[at]
        if at == len(items) or state is None:
            continue
        for to, after in _after(items[at], at, state, labels, len(items)):
            old = states[to]
            new = after if old is None else old.joined(after)
            if new != old:
                states[to] = new
                pending.append(to)
    places = [n for n, item in enumerate(items) if isinstance(item, Instruction)]
    found = tuple(i for i in items if isinstance(i, Instruction))
    return Flow(found, tuple(states[n] for n in places), states[len(items)])


def _flat(block: CodeBlock) -> Iterator[Instruction | Label]:
    for statement in block.statements:
        if isinstance(statement, CodeBlock):
            yield from _flat(statement)
        elif isinstance(statement, (Instruction, Label)):
            yield statement


def _after(
    item: Instruction | Label, at: int, state: State, labels: dict[str, int], end: int
) -> Iterator[tuple[int, State]]:
    """The successors of an item, and the state there."""
    if isinstance(item, Label):
        yield at + 1, state
        return
    guard = item.guard
    taken = state.under(guard.register.text, guard.negated) if guard else state
    passed = state.under(guard.register.text, not guard.negated) if guard else None
    if control_of(item) == "branch":
        target = next((o.text for o in item.operands if isinstance(o, Name)), "")
        yield labels.get(target, end), taken
        if passed is not None:
            yield at + 1, passed
    elif control_of(item) == "end":
        if passed is not None:
            yield at + 1, passed
    else:
        yield at + 1, _executed(item, state)


def _executed(item: Instruction, state: State) -> State:
    new = frozenset(n.text for n in written_names(item))
    halves = frozenset(h for h in state.halves if h[1] not in new)
    if item.guard is None:
        return State(state.surely | new, state.maybe | new, halves)
    predicate, negated = item.guard.register.text, item.guard.negated
    both = frozenset(r for r in new if (r, predicate, not negated) in halves)
    return State(state.surely | both, state.maybe | new, halves | frozenset((r, predicate, negated) for r in new))
