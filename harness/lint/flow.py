"""Which registers a block has written at each instruction, on every path through its branches and predicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxdiff.emulator import REGISTER_WIDTH, NotElementwise, destination
from ptxdiff.emulator.isa.lookup import facts_of
from ptxdiff.emulator.text import OPERAND, Address, CodeBlock, Instruction, Label, Name, Operand, Pair
from ptxdiff.lint.block import LintedBlock, names

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
    instructions = tuple(i for i in items if isinstance(i, Instruction))
    return Flow(instructions, tuple(states[n] for n in places), states[len(items)])


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


# Find outputs that are written before an input's last read, in blocks that the emulator cannot run -----------------
#
# A block with memory, barriers or other threads cannot run alone. If it has no branch, the order of its instructions
# suffices: with both operands in one register, the later instruction reads the value that the earlier one wrote.


@dataclass(frozen=True)
class Early:
    """An output that is written (`write`) before an input of the same size is read (`read`)."""

    output: int
    input: int
    write: Instruction
    read: Instruction

    @property
    def certain(self) -> bool:
        """Whether a thread that executes one of the two finds the register shared: both run, or one without a guard.

        Of two instructions under different guards, no thread may run both.
        """
        return self.write.guard is None or self.read.guard is None


def written_early(block: LintedBlock) -> Iterator[Early]:
    """For each output without `&` one such pair, a certain one if there is any.

    There is none for a block with branches, or that cannot be bound.

    These do not count: two instructions of which only one runs (`@p` and `@!p`), a copy of the input into the output,
    and a tied output, whose register no other input can have.
    """
    if block.parsed is None or not isinstance(block.bind_error, NotElementwise):
        return
    instructions = block.instructions
    if any(map(control_of, instructions)):
        return
    tied = {c.tied for c in block.parsed if c.tied is not None}
    inputs = [n for n in block.inputs if block.parsed[n].tied is None and not block.parsed[n].immediate]
    for output in block.outputs:
        constraint = block.parsed[output]
        if constraint.early or output in tied:
            continue
        same = [n for n in inputs if REGISTER_WIDTH[block.parsed[n].letter] == REGISTER_WIDTH[constraint.letter]]
        same.sort(key=lambda n: block.parsed[n].letter != constraint.letter)  # type: ignore[index]
        pairs = [e for n in same for e in _pairs(instructions, output, n)]
        if pairs:
            yield next((e for e in pairs if e.certain), pairs[0])


def _pairs(instructions: Sequence[Instruction], output: int, source: int) -> Iterator[Early]:
    for at, write in enumerate(instructions):
        if not _names(written_names(write), output) or _copies(write, source):
            continue
        for later, read in enumerate(instructions[at + 1 :], at + 1):
            if _names(read_names(read), source) and not _exclude(write, read, instructions[at + 1 : later]):
                yield Early(output, source, write, read)


def _names(names: Iterator[Name] | Sequence[Name], number: int) -> bool:
    return any(n.text.partition(".")[0] == f"{OPERAND}{number}" for n in names)


def _copies(instruction: Instruction, source: int) -> bool:
    return instruction.opcode == "mov" and _names(read_names(instruction), source)


def _exclude(one: Instruction, other: Instruction, between: Sequence[Instruction]) -> bool:
    """Whether only one of two instructions runs: their guards are opposite, and no instruction between writes the
    predicate."""
    if one.guard is None or other.guard is None or one.guard.negated == other.guard.negated:
        return False
    name = one.guard.register.text
    return name == other.guard.register.text and all(
        n.text != name for instruction in between for n in written_names(instruction)
    )
