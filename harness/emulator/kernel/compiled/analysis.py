"""Which programs can run as machine code, and under which conditions their registers are defined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ptxdiff.emulator.binding.program import Program, ReadSlot, Step
from ptxdiff.emulator.kernel.kernel import Kernel
from ptxdiff.emulator.kernel.memory.space import Access

Literal = tuple[int, int, bool]
"""That a predicate holds, or not: its slot, the number of the step that wrote it, and whether it is negated. Of the
slot -1: that a thread is among those that meet at the step of that number."""
Condition = frozenset[Literal]
"""What is true for all threads that execute a step."""

STEPS = 600
"""The most steps of a program: LLVM takes about a millisecond for each."""
_SPECIAL = frozenset({"%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid"})
_REGISTERS = frozenset({"scalar", "mov", "pack", "unpack", "split", "special", "ld_param", "policy", "nothing", "cvta"})
_GLOBAL = frozenset({"", "global", "const"})
_MEMORY = ("ld", "st")


@dataclass(frozen=True)
class Independent:
    """The steps of a program that threads execute, in order; all jumps are forward. `joins`: the steps to which there
    are jumps. Steps past the last are never reached."""

    steps: tuple[Step, ...]
    joins: frozenset[int]

    @property
    def branches(self) -> bool:
        """Whether threads may execute different steps."""
        return any(step.kind in ("branch", "exit") and at + 1 < len(self.steps) for at, step in enumerate(self.steps))


def independent(kernel: Kernel) -> Independent | None:
    """The program of a kernel whose threads are independent of each other and store no undefined bits, whatever they
    load; None where that is not obvious."""
    program = kernel.program
    if kernel.synchronises or kernel.cluster is not None or kernel.explicit_cluster or len(program.steps) > STEPS:
        return None
    joins: set[int] = set()
    last = len(program.steps)
    for at, step in enumerate(program.steps):
        if not _fits(program, step):
            return None
        if step.kind == "branch":
            if step.target <= at:
                return None
            joins.add(step.target)
        elif step.kind == "exit" and step.guard < 0 and not any(join > at for join in joins):
            last = at + 1
            break
    steps = tuple(program.steps[:last])
    if not _Definedness(program).holds(steps):
        return None
    return Independent(steps, frozenset(joins))


def _fits(program: Program, step: Step) -> bool:
    """Whether a step is one that code can be made of."""
    if any(one.shared or one.slot < -1 for one in step.sources) or any(one.upper >= 0 for one in step.destinations):
        return False
    if any(one.slot >= 0 and program.registers[one.slot].type.width > 64 for one in step.sources):
        return False
    if step.kind in ("branch", "exit"):
        return True
    if step.bound.form.facts.waits:
        return False
    if step.kind in _MEMORY:
        access: Access = step.detail
        plain = step.bound.modifiers.get("sem") in (None, "weak") and step.node.opcode == step.kind
        return plain and access.space in _GLOBAL and not step.bound.modifiers.get("scope")
    if step.kind == "special":
        return all(name in _SPECIAL and component in ("", "x", "y", "z") for name, component in step.detail)
    if step.kind == "cvta":
        return (step.bound.modifiers.get("space") or "") in ("global", "const")
    return step.kind in _REGISTERS


class _Definedness:
    """Where a program's registers are defined: under which condition each was last written with defined bits.

    Rules by which some undefined bits leave others defined are not used: a register is defined, or it is not.
    """

    def __init__(self, program: Program) -> None:
        self.defined: list[Condition | None] = [None] * len(program.registers)
        self.version = [-1] * len(program.registers)
        self.here: Condition | None = frozenset()
        """What is true for the threads that execute the present step; None: there are none."""
        self.coming: dict[int, list[Condition]] = {}

    def holds(self, steps: Iterable[Step]) -> bool:
        """Whether no address, no predicate and no stored value has undefined bits."""
        for at, step in enumerate(steps):
            self._join(at)
            if self.here is not None and not self._step(at, step):
                return False
        return True

    def _join(self, at: int) -> None:
        """Threads that have jumped to a step go on with those that come from the step before."""
        groups = self.coming.pop(at, [])
        if not groups:
            return
        if self.here is not None:
            groups.append(self.here)
        met: Condition = frozenset.intersection(*groups)
        exact = len(groups) == 1 or (len(groups) == 2 and _split_by_one(groups[0], groups[1]))
        self.here = met if exact else met | {(-1, at, False)}

    def _step(self, at: int, step: Step) -> bool:
        assert self.here is not None
        executed, guard = self.here, step.guard
        if guard >= 0:
            if not self._known(guard, executed):
                return False
            executed |= {(guard, self.version[guard], step.guard_negated)}
        if step.kind in ("branch", "exit"):
            if step.kind == "branch":
                self.coming.setdefault(step.target, []).append(executed)
            self.here = self.here | {(guard, self.version[guard], not step.guard_negated)} if guard >= 0 else None
            return True
        sources = [self._under(one.slot) for one in _read(step)]
        if (step.kind in _MEMORY or step.kind == "policy") and not all(
            one is not None and one <= executed for one in sources
        ):
            return False
        needed = frozenset[Literal]().union(*(one for one in sources if one is not None))
        for writer in step.destinations:
            if writer.slot >= 0:
                after = None if None in sources else _after(self.defined[writer.slot], executed, needed)
                self.defined[writer.slot] = after
                self.version[writer.slot] = at
        return True

    def _under(self, slot: int) -> Condition | None:
        """The condition under which a register is defined; None: it may be undefined in any thread."""
        return self.defined[slot] if slot >= 0 else frozenset()

    def _known(self, slot: int, here: Condition) -> bool:
        """Whether a register is defined in all threads for which a condition is true."""
        under = self._under(slot)
        return under is not None and under <= here


def _after(before: Condition | None, executed: Condition, needed: Condition) -> Condition:
    """The condition under which a register is defined after a step that threads execute under one condition, and whose
    sources are defined under another. before: the register's condition before, and that of the other threads after."""
    written = executed | needed
    if before is None:
        return written
    if before | needed <= written:
        return before | needed
    if needed <= executed and _split_by_one(before, executed):  # no other thread loses what it had
        return before & executed
    return written


def _split_by_one(one: Condition, other: Condition) -> bool:
    """Whether two conditions are those of a branch: the threads that take it, and all others."""
    only, without = one - other, other - one
    if len(only) != 1 or len(without) != 1:
        return False
    (a,), (b,) = only, without
    return a[:2] == b[:2] and a[2] != b[2] and a[0] >= 0


def _read(step: Step) -> tuple[ReadSlot, ...]:
    """The registers that a step reads."""
    policy = step.detail.policy if step.kind in _MEMORY else None
    return step.sources if policy is None else (*step.sources, policy)
