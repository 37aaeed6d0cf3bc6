"""A program as the machine runs it: steps on numbered registers.

A `Program` is immutable once it is built, and threads share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxdiff.emulator.isa.facts import ARITHMETIC, Facts, true_of
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.text.nodes import Instruction, Source
from ptxdiff.emulator.text.types import ScalarType

REGISTERS_ONLY = frozenset((
    "scalar", "mov", "pack", "unpack", "split", "special", "nothing", "ld_param", "param_move", "param_parts",
))  # fmt: skip
"""Kinds of step that change registers alone, whatever form they come from."""
UNDEFINED = -2
"""Slot number of a source without defined bits."""


@dataclass(frozen=True, slots=True)
class Register:
    """A register of the program: its place in the register file, its type, and its name as written."""

    slot: int
    type: ScalarType
    name: str


@dataclass(frozen=True, slots=True)
class ReadSlot:
    """A source operand: a register slot, or (slot -1) a constant pattern. `width` bits of it are read.

    `shared`: the pattern is an address in the shared memory of the thread's block; the bits above it hold the block's
    rank in its cluster.
    """

    slot: int
    width: int
    pattern: int = 0
    negated: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class WriteSlot:
    """A destination: a register slot (-1: the result is discarded) and how a narrower result is widened.

    `upper`: the slot of a .b128 register's upper half, which the widening fills.
    """

    slot: int
    width: int
    signed: bool = False
    upper: int = -1


@dataclass(slots=True)
class Step:
    """One executable instruction.

    `kind` is "scalar" (a definition over arrays), "branch", "exit", or the name of a machine operation. `detail` holds
    the operands that only this operation has.
    """

    kind: str
    node: Instruction
    bound: Bound
    sources: tuple[ReadSlot, ...] = ()
    destinations: tuple[WriteSlot, ...] = ()
    functions: tuple[Any, ...] = ()
    target: int = -1
    detail: Any = None
    guard: int = -1
    guard_negated: bool = False

    @property
    def facts(self) -> Facts:
        """The facts of its form, or those of arithmetic for a step that changes registers alone."""
        return ARITHMETIC if self.kind in REGISTERS_ONLY else self.bound.form.facts

    @property
    def orders_blocks(self) -> bool:
        """Whether blocks can communicate by it."""
        return true_of(self.facts.orders_blocks, self.node.modifiers)


@dataclass(slots=True)
class Program:
    """Steps in order, the types of all register slots, and the slot of the carry flag."""

    steps: list[Step]
    registers: list[Register]
    source: Source
    branches: bool
