"""What other rooms must know of an instruction, beside its operands: facts of its form, each stated in one place.

The scheduler, the memory model, traces, the linter and the fuzzer's reducer ask a form for these facts. None of them
has a table of opcodes, so a new operation of the machine needs no other place. The defaults are those of an operation
of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of an instruction. A text where a truth value is expected: true with one of these modifiers.

    `effects`: it changes state other than its destinations, or it waits.
    `destinations`: how many of its first operands it writes; 0 for a store `st [a], b`.
    `exchanges`: whether other threads take part: "operands" if the result depends on operands of the whole warp,
    "together" if threads of a warp, a warpgroup or a block must execute it together, else "".
    `memory`: how it accesses memory that a program addresses: "reads", "writes", "updates" (an atomic), "copies", or
    "". Waits for copies count as "copies".
    `control`: "branch", "table" (a branch through a table), "call", "end" (of the thread), or "".
    `waits`: what the scheduler does: "barrier", "warp" (a barrier of a warp) and "phase" let a thread wait for others,
    "arrival" counts it at a barrier.
    `orders_blocks`: blocks can communicate by it (ISA 8): atomics, fences, and strong accesses.
    `orders_parts`: it may order some threads of a block, of several warps, without the others.
    `reaches`: beyond the thread's own block it concerns blocks of its "cluster", of its "pair", or of the "grid".
    `product`: of matrices, by a "warp", a "warpgroup" or the "tensor cores".
    `asynchronous`: it only begins an access to shared memory, which completes at an mbarrier or with its group.
    `proxy`: "async" if its accesses are those of the async proxy (ISA 8.6), else "".
    `computes`: it has a result that hardware must confirm.
    """

    effects: bool | str = True
    destinations: int = 1
    exchanges: str = ""
    memory: str = ""
    control: str = ""
    waits: str = ""
    orders_blocks: bool | str = False
    orders_parts: bool = False
    reaches: str = ""
    product: str = ""
    asynchronous: bool = False
    proxy: str = ""
    computes: bool = True

    @property
    def registers_only(self) -> bool:
        """Whether its destinations depend on its sources alone, and nothing else changes."""
        return not (self.effects or self.exchanges or self.memory or self.control)


def true_of(fact: bool | str, modifiers: Iterable[str]) -> bool:
    """Whether a fact is true of an instruction with these modifiers."""
    return fact if isinstance(fact, bool) else not set(fact.split()).isdisjoint(modifiers)


ARITHMETIC = Facts(effects=False)
"""The facts of a form with a definition, and of opcodes that are unknown."""
