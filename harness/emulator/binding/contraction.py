"""Contraction: ptxas may evaluate `mul` and the `add` or `sub` that uses it as one `fma`.

It may do so where neither instruction names a rounding modifier, also inside an asm block. Such code is
*contraction-open*: its result depends on the assembler. This module finds the pairs and rewrites a program as if all
were fused.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from ptxdiff.emulator.binding.program import Program, ReadSlot, Register, Step, WriteSlot
from ptxdiff.emulator.isa.forms import Bound, find
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.numeric.vectorise import ArrayFunction
from ptxdiff.emulator.targets import GENERATION
from ptxdiff.emulator.text.types import TYPES

_SIGN = {"f16": 1 << 15, "bf16": 1 << 15, "f32": 1 << 31, "f64": -(1 << 63)}
_SIGN |= {"f16x2": 0x80008000, "bf16x2": 0x80008000, "f32x2": (1 << 31) - (1 << 63)}


@scalar
def _flip(a: int, sign: int) -> int:
    return a ^ sign


def _type(bound: Bound) -> str:
    """The type of the result. (The factors of a mixed product have two types.)"""
    return next(c for c in bound.chosen if c in TYPES)


Role = tuple[str, str, bool]
"""What a step may be in a contraction: "product", "sum", or "negation" of either; its type; whether it flushes."""


def role_in_contraction(step: Step) -> Role | None:
    """The role of an instruction; None if it has none, whatever else ptxas makes of it."""
    if step.kind != "scalar":
        return None
    kind = {"mul": "product", "add": "sum", "sub": "sum"}.get(step.bound.contraction or "")
    kind = kind or ("negation" if step.bound.name == "neg" else None)
    if kind is None or (kind == "product" and "sat" in step.bound.chosen):
        return None
    return kind, _type(step.bound), "ftz" in step.bound.chosen


def contraction_open(program: Program) -> bool:
    """Whether some addition without rounding modifier may use the result of such a multiplication of its type.

    May say yes too often: control flow is ignored, and a moved product still counts as one.
    """
    moves: dict[int, set[int]] = {}
    for step in program.steps:
        if step.kind == "mov":
            for r, w in zip(step.sources, step.destinations, strict=True):
                moves.setdefault(r.slot, set()).add(w.slot)
    products = {(w.slot, _type(s.bound)) for s in program.steps if s.bound.contraction == "mul" for w in s.destinations}
    pending = list(products)
    while pending:
        slot, kind = pending.pop()
        moved = {(to, kind) for to in moves.get(slot, ())} - products
        products |= moved
        pending += moved
    return any(
        (r.slot, _type(step.bound)) in products
        for step in program.steps
        if step.bound.contraction in ("add", "sub")
        for r in step.sources
    )


def fused(program: Program, only: Container[Pair] | None = None) -> Program:
    """The program with every addition fused with the multiplication before it in the same basic block.

    Where both operands are products, the first is fused; ptxas may choose the other. only: the additions that are
    fused, each with one of its products; None for all.
    """
    return _Fuser(program, only).run()


def fusable(program: Program) -> tuple[Fusable, ...]:
    """The additions that `fused` may fuse, in order, each once for every operand that is a product."""
    fuser = _Fuser(program, ())
    fuser.run()
    return tuple(dict.fromkeys(fuser.offered))


def undecided(program: Program) -> Program:
    """The program in which it is open for each addition by itself whether it is fused, and with which product.

    A step of the kind "fusion" takes the sum and then each fused result; its detail names their pairs. No machine runs
    it; proofs take every choice.
    """
    return _EveryFusion(program, None).run()


Pair = tuple[int, int]
"""An addition, by the offset of its text, and the number of the operand that is the product."""

Fuse = bool | tuple[Pair, ...]
"""Which additions are fused: all, none, or these."""


@dataclass(frozen=True)
class Fusable:
    """An addition and a product that may become one instruction. product, addition: offsets of their texts."""

    product: int
    addition: int
    position: int

    @property
    def pair(self) -> Pair:
        """As `fused` takes it."""
        return self.addition, self.position


class _Fuser:
    """One pass over the steps that tracks which registers hold a product that may still be fused."""

    def __init__(self, program: Program, only: Container[Pair] | None) -> None:
        self.program = program
        self.only = only
        self.offered: list[Fusable] = []
        self.registers = list(program.registers)
        self.steps: list[Step] = []
        self.open: dict[int, tuple[Step, tuple[ReadSlot, ...]]] = {}
        self.entries = {s.target for s in program.steps if s.kind == "branch"}

    def run(self) -> Program:
        places = []
        for number, step in enumerate(self.program.steps):
            if number in self.entries:
                self.open.clear()
            places.append(len(self.steps))
            self._step(step)
        places.append(len(self.steps))
        for step in self.steps:
            if step.kind == "branch":
                step.target = places[step.target]
        return replace(self.program, steps=self.steps, registers=self.registers)

    def _step(self, step: Step) -> None:
        if step.kind == "branch":
            self.open.clear()
            step = replace(step)
        found = self._fuse(step) if step.bound.contraction in ("add", "sub") else None
        factors = self._keep_factors(step) if step.bound.contraction == "mul" else ()
        self.steps.extend(found or [step])
        for writer in step.destinations:
            self.open.pop(writer.slot, None)
        if factors and "sat" not in step.bound.chosen:
            self.open[step.destinations[0].slot] = (step, factors)

    def _hidden(self, width: int) -> Register:
        register = Register(len(self.registers), TYPES[f"b{width}"], "")
        self.registers.append(register)
        return register

    def _keep_factors(self, step: Step) -> tuple[ReadSlot, ...]:
        """Copy the factors, because the program may overwrite them before the sum."""
        kept = []
        for reader in step.sources:
            if reader.slot >= 0:
                copy = self._hidden(reader.width)
                self.steps.append(Step("mov", step.node, step.bound, (reader,), (WriteSlot(copy.slot, reader.width),)))
                reader = ReadSlot(copy.slot, reader.width)
            kept.append(reader)
        return tuple(kept)

    def _fuse(self, step: Step) -> list[Step] | None:
        """The steps in place of an addition; None if it stays as it is."""
        return next((steps for _, steps in self._fusions(step)), None)

    def _fusions(self, step: Step) -> Iterator[tuple[Pair, list[Step]]]:
        """The additions fused with each product that `only` has."""
        kind = _type(step.bound)
        for position, reader in enumerate(step.sources):
            product = self.open.get(reader.slot)
            if product is None or not self._compatible(product[0], step, kind):
                continue
            self.offered.append(Fusable(product[0].node.offset, step.node.offset, position))
            if self.only is not None and (step.node.offset, position) not in self.only:
                continue
            chosen = [m for m in step.bound.chosen if m in ("ftz", "sat")]
            forms = find("fma", ("rn", *chosen, kind))
            if not forms:
                return
            factors, other = product[1], step.sources[1 - position]
            steps: list[Step] = []
            if step.bound.contraction == "sub":
                # p - c = fma(a, b, -c); c - p = fma(-a, b, c)
                if position == 0:
                    other = self._negated(step, other, kind, steps)
                else:
                    factors = (self._negated(step, factors[0], kind, steps), factors[1])
            functions = (forms[0].array_function(),)
            steps.append(replace(step, bound=forms[0], sources=(*factors, other), functions=functions))
            yield (step.node.offset, position), steps

    def _compatible(self, product: Step, step: Step, kind: str) -> bool:
        same_guard = (product.guard, product.guard_negated) in ((-1, False), (step.guard, step.guard_negated))
        same_flush = ("ftz" in product.bound.chosen) == ("ftz" in step.bound.chosen)
        return _type(product.bound) == kind and same_guard and same_flush

    def _negated(self, step: Step, reader: ReadSlot, kind: str, into: list[Step]) -> ReadSlot:
        register = self._hidden(reader.width)
        function = ArrayFunction(_flip, (_SIGN[kind],), ((reader.width, False),), reader.width)
        written = WriteSlot(register.slot, reader.width)
        into.append(replace(step, sources=(reader,), destinations=(written,), functions=(function,)))
        return ReadSlot(register.slot, reader.width)


class _EveryFusion(_Fuser):
    """As `_Fuser`, with every result of an addition beside the others."""

    def _fuse(self, step: Step) -> list[Step] | None:
        every = [*self._fusions(step)]
        if not every:
            return None
        (writer,) = step.destinations
        steps: list[Step] = []
        results = []
        for one in ([step], *(fused_steps for _, fused_steps in every)):
            register = self._hidden(writer.width)
            steps += [*one[:-1], replace(one[-1], destinations=(WriteSlot(register.slot, writer.width),))]
            results.append(ReadSlot(register.slot, writer.width))
        pairs = tuple(pair for pair, _ in every)
        steps.append(replace(step, kind="fusion", sources=tuple(results), functions=(), detail=pairs))
        return steps


# Which bits approximate instructions give --------------------------------------------------------------------------
#
# Those of a measured GPU, or the true value rounded to nearest.

HOPPER, ROUNDED = GENERATION.lower(), "rounded"
APPROXIMATE = (HOPPER, ROUNDED)
"""The choices, the default first."""


def rounded(program: Program) -> Program:
    """The program with every approximate definition replaced by the model that rounds to nearest."""
    steps = [
        replace(s, functions=tuple(s.bound.array_function(n, True) for n, _ in enumerate(s.functions)))
        if s.bound.form.rounded is not None
        else s
        for s in program.steps
    ]
    return replace(program, steps=steps)
