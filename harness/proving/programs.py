"""Run an asm block on terms: each register is a term and a mask of undefined bits, also a term.

Lanes are independent, so one lane with arbitrary inputs stands for all. As in `ptxdiff.emulator.machine.lockstep`, the
lowest step runs first; here every way through the block is taken, each under its condition. Where a rule for undefined
bits has no term, one undefined bit makes the whole result undefined: that can refuse a proof, never give one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ptxdiff.emulator import AsmBlock, AsmOperand, fusable, role_in_contraction
from ptxdiff.emulator.binding.program import UNDEFINED, Program, ReadSlot, Step, WriteSlot
from ptxdiff.emulator.isa.forms import Form
from ptxdiff.emulator.numeric.vectorise import ArrayFunction
from ptxdiff.proving import definitions
from ptxdiff.proving import terms as t
from ptxdiff.proving.terms import FALSE, TRUE, NotModelled, Term

STEPS = 20_000
"""Steps after which a block with loops is given up."""


@dataclass(frozen=True)
class MaskedTerm:
    """A value and the mask of its undefined bits; both are conditions for a predicate."""

    value: Term
    undefined: Term

    @property
    def doubtful(self) -> Term:
        """Whether any bit is undefined."""
        return t.nonzero(self.undefined)


@dataclass(frozen=True)
class Results:
    """What a block computes.

    outputs: a pattern for each element of each output tensor. undefined: whether an output has an undefined bit, or a
    branch depends on one. approximate: the instructions whose bits are a model. computed: the definitions that were
    applied.
    """

    outputs: tuple[tuple[Term, ...], ...]
    undefined: Term
    approximate: frozenset[str]
    computed: tuple[ComputedTerms, ...] = ()


@dataclass(frozen=True)
class ComputedTerms:
    """One application of a definition: the instruction, its definition over arrays, its operands and its result."""

    spelling: str
    function: ArrayFunction
    sources: tuple[Term, ...]
    value: Term


def _term_width(width: int) -> int:
    return 0 if width == 1 else width


def defined(value: Term) -> MaskedTerm:
    """A value without undefined bits."""
    return MaskedTerm(value, t.const(0, value.width))


def _lost(width: int) -> MaskedTerm:
    width = _term_width(width)
    return MaskedTerm(t.const(0, width), t.const(t.ones(width), width))


SOME_FUSED = "contraction: ptxas may fuse some products and sums and not others, which is not proved"


def readings_of(pairs: int) -> tuple[bool | None, ...]:
    """Whether all products and sums are fused, or (None) any of them, where ptxas may fuse so many pairs."""
    return (False, True, None) if pairs > 1 else (False, True)


def run(
    block: AsmBlock, operands: Sequence[AsmOperand], inputs: Sequence[Sequence[Term]], outputs: Sequence[int], pack: int
) -> Results:
    """The results of one invocation. inputs: the elements of each input tensor. outputs: bits of an element of each
    output tensor. Raises NotModelled."""
    lane = Lane(block.program)
    for operand, slot in zip(operands, block.slots, strict=True):
        if operand.output:
            continue
        if slot < 0:
            raise NotModelled("an operand that is a compile-time constant")
        lane.registers[slot] = _loaded(operand, inputs[operand.tensor])
    lane.run()
    elements: list[list[Term | None]] = [[None] * pack for _ in outputs]
    undefined = lane.undefined
    for operand, slot in zip(operands, block.slots, strict=True):
        if not operand.output:
            continue
        register = lane.registers[slot] or _lost(operand.width)
        width = operand.element_width
        for k in range(operand.count):
            position = operand.first + k
            low = k * width
            element, mask = (element_of(v, low, width) for v in (register.value, register.undefined))
            elements[operand.tensor][position] = element
            undefined = t.bor(undefined, t.nonzero(mask))
    elements_of_outputs = tuple(tuple(e for e in row if e is not None) for row in elements)
    assert all(len(row) == pack for row in elements_of_outputs)
    return Results(elements_of_outputs, undefined, frozenset(lane.approximate), tuple(lane.computed))


def element_of(value: Term, low: int, width: int) -> Term:
    """The element of a register from a bit on; one of 1 bit is a condition."""
    if value.width == 0:
        return value
    element = t.extract(value, low + width - 1, low)
    return t.nonzero(element) if width == 1 else element


def _loaded(operand: AsmOperand, elements: Sequence[Term]) -> MaskedTerm:
    """An input register: its elements, the first in the low bits, and undefined bits above them."""
    own = elements[operand.first : operand.first + operand.count]
    if operand.width == 1:
        return defined(own[0])
    value, width = t.const(0, operand.width), operand.element_width
    for k, element in enumerate(own):
        wide = t.as_bits(element, operand.width) if element.width == 0 else t.zext(element, operand.width)
        value = t.or_(value, t.shl(wide, t.const(k * width, operand.width)))
    above = t.ones(operand.width) & ~t.ones(width * operand.count)
    return MaskedTerm(value, t.const(above, operand.width))


class Lane:
    """The registers of one lane.

    units: whether an approximate instruction is its definition, with the special function unit as a function of which
    nothing is known; else the whole instruction is such a function.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.units = False
        self.registers: list[MaskedTerm | None] = [None] * len(program.registers)
        self.undefined = FALSE
        self.approximate: set[str] = set()
        self.computed: list[ComputedTerms] = []
        self.active = TRUE
        self.products: dict[int, frozenset[tuple[str, bool]]] = {}
        """The registers that may hold a product without rounding modifier: its type, and whether it flushes."""
        self.offered = {f.pair for f in fusable(program)}

    def run(self) -> None:
        """Take every way through the program, each under its condition. Raises NotModelled."""
        steps = self.program.steps
        waiting: dict[int, Term] = {0: TRUE}
        for _ in range(STEPS):
            if not waiting:
                return
            at = min(waiting)
            self.active = waiting.pop(at)
            if at >= len(steps) or self.active is FALSE:
                continue
            step = steps[at]
            following = self.active
            if step.kind in ("branch", "exit"):
                taken = self.active
                if step.guard >= 0:
                    guard = self.read(ReadSlot(step.guard, 1, negated=step.guard_negated))
                    self.undefined = t.bor(self.undefined, t.band(self.active, guard.doubtful))
                    taken = t.band(self.active, guard.value)
                following = t.band(self.active, t.bnot(taken))
                if step.kind == "branch":
                    if step.target < 0:
                        raise NotModelled(f"{step.bound.spelling}, a branch with several targets")
                    _wait(waiting, step.target, taken)
            else:
                self.execute(step)
            _wait(waiting, at + 1, following)
        raise NotModelled(f"more than {STEPS} steps: the end of a loop depends on the inputs")

    def runner(self, step: Step) -> Callable[..., list[MaskedTerm]] | None:
        """What computes the results of a step, from this lane, the step and its condition; None if nothing does."""
        return _RUNNERS.get(step.kind)

    def execute(self, step: Step) -> None:
        """Run a step that is no branch."""
        condition, doubt = self.active, FALSE
        if step.guard >= 0:
            guard = self.read(ReadSlot(step.guard, 1, negated=step.guard_negated))
            doubt = t.band(self.active, guard.doubtful)
            condition = t.band(self.active, guard.value)
        runner = self.runner(step)
        if runner is None:
            raise NotModelled(f"{step.bound.spelling}, which reads or writes what is outside the block's registers")
        results = runner(self, step, condition)
        products = self.products_of(step)
        for writer, bits in zip(step.destinations, results, strict=True):
            self.write(writer, bits, condition, doubt)
            kept = frozenset() if condition is TRUE else self.products.get(writer.slot, frozenset())
            self.products[writer.slot] = products | kept

    def products_of(self, step: Step) -> frozenset[tuple[str, bool]]:
        """The products that a step's results may be, through moves and negations.

        Raises NotModelled if ptxas may fuse a sum with a product that the emulator's contraction does not see: one that
        is moved, negated, or computed before a branch.
        """
        sources = [(k, self.products.get(r.slot, frozenset())) for k, r in enumerate(step.sources) if r.slot >= 0]
        role = role_in_contraction(step)
        if role is None:
            return frozenset[tuple[str, bool]]().union(*(p for _, p in sources)) if step.kind in _MOVES else frozenset()
        kind, own = role[0], role[1:]
        if kind == "product":
            return frozenset([own])
        if kind == "negation":
            return frozenset[tuple[str, bool]]().union(*(p for _, p in sources))
        for position, products in sources:
            if own in products and (step.node.offset, position) not in self.offered:
                raise NotModelled(f"a sum that ptxas may fuse with a product that is moved: {step.bound.spelling}")
        return frozenset()

    def read(self, reader: ReadSlot) -> MaskedTerm:
        """The value of a source, and its undefined bits."""
        width = _term_width(reader.width)
        if reader.shared:
            raise NotModelled("an address in shared memory")
        if reader.slot == -1:
            return defined(t.const(reader.pattern, width))
        bits = self.registers[reader.slot] if reader.slot != UNDEFINED else None
        if bits is None:
            return _lost(reader.width)
        if bits.value.width != width:
            if width == 0 or bits.value.width < width:
                raise NotModelled("a register that is read wider than it is")
            bits = MaskedTerm(t.extract(bits.value, width - 1, 0), t.extract(bits.undefined, width - 1, 0))
        return MaskedTerm(t.bnot(bits.value), bits.undefined) if reader.negated else bits

    def write(self, writer: WriteSlot, bits: MaskedTerm, condition: Term, doubt: Term) -> None:
        """Write a result where a condition holds. doubt: where the condition itself is undefined."""
        if writer.slot < 0:
            return
        width = _term_width(writer.width)
        if writer.upper >= 0:
            self.write(WriteSlot(writer.upper, 64), _above(bits, writer.signed), condition, doubt)
        bits = MaskedTerm(*(_resized(v, width, writer.signed) for v in (bits.value, bits.undefined)))
        old = self.registers[writer.slot] or _lost(writer.width)
        undefined = t.ite(condition, bits.undefined, old.undefined)
        if doubt is not FALSE:
            undefined = t.ite(doubt, t.const(t.ones(width), width), undefined)
        self.registers[writer.slot] = MaskedTerm(t.ite(condition, bits.value, old.value), undefined)


def _wait(waiting: dict[int, Term], at: int, condition: Term) -> None:
    if condition is not FALSE:
        waiting[at] = t.bor(waiting.get(at, FALSE), condition)


def _resized(value: Term, width: int, is_signed: bool) -> Term:
    if value.width == width:
        return value
    if value.width == 0:
        return t.as_bits(value, width)
    if width == 0:
        return t.nonzero(t.extract(value, 0, 0))
    if value.width > width:
        return t.extract(value, width - 1, 0)
    return t.sext(value, width) if is_signed else t.zext(value, width)


def _above(bits: MaskedTerm, is_signed: bool) -> MaskedTerm:
    """The upper 64 bits of a widened 64-bit result."""
    if not is_signed:
        return defined(t.const(0, 64))
    value, undefined = (t.ashr(_resized(v, 64, True), t.const(63, 64)) for v in (bits.value, bits.undefined))
    return MaskedTerm(value, undefined)


def _scalar(lane: Lane, step: Step, condition: Term) -> list[MaskedTerm]:
    sources = [lane.read(r) for r in step.sources]
    values = [s.value for s in sources]
    form = step.bound.form
    if form.approximate:
        lane.approximate.add(step.bound.name)
    results = []
    for number, function in enumerate(step.functions):
        build = definitions.uninterpreted if form.approximate and not lane.units else definitions.of_lanes
        value = build(function, *values)
        lane.computed.append(ComputedTerms(step.bound.spelling, function, tuple(values), value))
        results.append(MaskedTerm(value, _undefined(form, sources, function, value.width, number)))
    return results


def _undefined(form: Form, sources: Sequence[MaskedTerm], function: ArrayFunction, width: int, number: int) -> Term:
    """The mask of a result by its form's rule; see `ptxdiff.emulator.numeric.definedness`."""
    rule, masks = form.undefined, [s.undefined for s in sources]
    if all(m.constant == 0 for m in masks):
        return t.const(0, width)
    alike = all(m.width == width for m in masks)
    if callable(rule) and rule.__name__ in _EXACT and width:
        return _EXACT[rule.__name__](sources)
    if callable(rule) and rule.__name__ == "extend" and width and masks[0].width:
        return _resized(masks[0], width, True)  # copies of an undefined sign are undefined
    if isinstance(rule, str) and rule.startswith("moves") and not form.approximate:
        return _moved(form, rule.split()[1:], sources, function, width)
    if rule == "logic" and alike and width:
        return _combined(sources, function)
    if rule in ("bits", "logic") and alike:
        return _union(masks)
    if rule == "upward" and alike and width:
        joined = _union(masks)
        return t.or_(joined, t.neg(joined))
    if rule == "pair" and width:
        return _paired(masks, width)
    if rule == "sources" and width:
        return _of_sources(masks, width)
    if rule in _COUNTS and width and all(m.width for m in masks):
        return _by_parts(masks, width, _COUNTS[str(rule)])
    if rule == "own half":
        masks = [m if m.width == 0 else t.extract(m, 16 * number + 15, 16 * number) for m in masks]
    if isinstance(rule, str) and rule in _PARTS and alike and width:
        return _spread(_union(masks), width, _PARTS[rule])
    return _all_if(_any(masks), width)


def _any(masks: Sequence[Term]) -> Term:
    either = FALSE
    for mask in masks:
        either = t.bor(either, t.nonzero(mask))
    return either


def _all_if(condition: Term, width: int) -> Term:
    return t.ite(condition, t.const(t.ones(width), width), t.const(0, width))


def _moved(
    form: Form, movable: Sequence[str], sources: Sequence[MaskedTerm], function: ArrayFunction, width: int
) -> Term:
    """The definition itself, applied to the masks of the sources that it moves."""
    names = [*(s.name for s in form.sources), *form.reads]
    values = [s.undefined if n in movable else s.value for n, s in zip(names, sources, strict=True)]
    others = [s.undefined for n, s in zip(names, sources, strict=True) if n not in movable]
    return t.ite(_any(others), t.const(t.ones(width), width), definitions.of_lanes(function, *values))


def _combined(sources: Sequence[MaskedTerm], function: ArrayFunction) -> Term:
    """The bits that differ for some choice of zeros or ones for each source's undefined bits."""
    choices = []
    for source in sources:
        low = t.and_(source.value, t.not_(source.undefined))
        choices.append((low,) if source.undefined.constant == 0 else (low, t.or_(low, source.undefined)))
    first, *others = (definitions.of_lanes(function, *chosen) for chosen in itertools.product(*choices))
    return _union([t.xor(first, other) for other in others])


def _paired(masks: Sequence[Term], width: int) -> Term:
    half = width // 2
    if len(masks) == 1:
        own = masks[0].width // 2
        high, low = t.extract(masks[0], 2 * own - 1, own), t.extract(masks[0], own - 1, 0)
    else:
        high, low = masks[0], masks[1]
    ones, none = t.ones(half), t.const(0, width)
    upper = t.ite(t.nonzero(high), t.const(ones << half, width), none)
    return t.or_(upper, t.ite(t.nonzero(low), t.const(ones, width), none))


def _of_sources(masks: Sequence[Term], width: int) -> Term:
    *sources, last = masks
    part, whole = width // len(sources), t.const(0, width)
    for k, mask in enumerate(reversed(sources)):
        whole = t.or_(whole, t.ite(t.nonzero(mask), t.const(t.ones(part) << part * k, width), t.const(0, width)))
    return t.ite(t.nonzero(last), t.const(t.ones(width), width), whole)


_COUNTS = {"two parts": 2, "four parts": 4}


def _by_parts(masks: Sequence[Term], width: int, count: int) -> Term:
    part, whole = width // count, t.const(0, width)
    for k in range(count):
        own = [t.extract(m, m.width // count * (k + 1) - 1, m.width // count * k) for m in masks]
        whole = t.or_(whole, t.ite(_any(own), t.const(t.ones(part) << part * k, width), t.const(0, width)))
    return whole


_PARTS = {"words": 32, "halves": 16, "bytes": 8}


def _union(masks: Sequence[Term]) -> Term:
    union = masks[0]
    for mask in masks[1:]:
        union = t.bor(union, mask) if union.width == 0 else t.or_(union, mask)
    return union


def _spread(mask: Term, width: int, part: int) -> Term:
    """Every part in which a bit is set, whole."""
    spread = t.const(0, width)
    for low in range(0, width, part):
        touched = t.nonzero(t.extract(mask, low + part - 1, low))
        spread = t.or_(spread, t.ite(touched, t.const(t.ones(part) << low, width), t.const(0, width)))
    return spread


def _and(sources: Sequence[MaskedTerm]) -> Term:
    """A defined zero makes the result bit defined."""
    a, b = sources
    either = t.or_(a.undefined, b.undefined)
    return t.and_(t.and_(either, t.or_(a.value, a.undefined)), t.or_(b.value, b.undefined))


def _or(sources: Sequence[MaskedTerm]) -> Term:
    """A defined one makes the result bit defined."""
    a, b = sources
    either = t.or_(a.undefined, b.undefined)
    zeros = t.and_(t.or_(t.not_(a.value), a.undefined), t.or_(t.not_(b.value), b.undefined))
    return t.and_(either, zeros)


def _select(sources: Sequence[MaskedTerm]) -> Term:
    """The mask of the chosen source; all bits if the predicate is undefined."""
    a, b, p = sources
    chosen = t.ite(p.value, a.undefined, b.undefined)
    return t.ite(p.doubtful, t.const(t.ones(chosen.width), chosen.width), chosen)


_EXACT: dict[str, Callable[[Sequence[MaskedTerm]], Term]] = {"and_": _and, "or_": _or, "select": _select}


def _mov(lane: Lane, step: Step, condition: Term) -> list[MaskedTerm]:
    return [lane.read(r) for r in step.sources]


def _unpack(lane: Lane, step: Step, condition: Term) -> list[MaskedTerm]:
    sources = [lane.read(r) for r in step.sources]
    each = len(step.destinations) // len(sources)
    parts = []
    for number, writer in enumerate(step.destinations):
        source, low = sources[number // each], number % each * writer.width
        if writer.slot < 0:
            parts.append(_lost(writer.width))
        elif source.value.width == writer.width:
            parts.append(source)
        else:
            high = low + writer.width - 1
            parts.append(MaskedTerm(t.extract(source.value, high, low), t.extract(source.undefined, high, low)))
    return parts


def _pack(lane: Lane, step: Step, condition: Term) -> list[MaskedTerm]:
    sources = [lane.read(r) for r in step.sources]
    width = step.sources[0].width
    each = len(sources) // len(step.destinations)
    packed = []
    for number, writer in enumerate(step.destinations):
        parts = sources[number * each : (number + 1) * each]
        total = writer.width
        value, undefined = t.const(0, total), t.const(0, total)
        for k, part in enumerate(parts):
            by = t.const(k * width, total)
            value = t.or_(value, t.shl(_resized(part.value, total, False), by))
            undefined = t.or_(undefined, t.shl(_resized(part.undefined, total, False), by))
        packed.append(MaskedTerm(value, undefined))
    return packed


def _split(lane: Lane, step: Step, condition: Term) -> list[MaskedTerm]:
    source = lane.read(step.sources[0])
    parts = []
    for number, writer in enumerate(step.destinations):
        low = number * step.detail
        if low >= writer.width:
            parts.append(defined(t.const(0, source.value.width)))
            continue
        mask, by = t.const((1 << step.detail) - 1, source.value.width), t.const(low, source.value.width)
        parts.append(MaskedTerm(*(t.and_(t.lshr(v, by), mask) for v in (source.value, source.undefined))))
    return parts


def _fusion(lane: Lane, step: Step, condition: Term) -> list[MaskedTerm]:
    """A sum, or what it is if it is fused: each is one of the inputs' choices (`ptxdiff.emulator.undecided`)."""
    choice, *others = (lane.read(r) for r in step.sources)
    for (offset, position), one in zip(step.detail, others, strict=True):
        chosen = t.variable(f"fused.{offset}.{position}", 0)
        pairs = zip((one.value, one.undefined), (choice.value, choice.undefined), strict=True)
        choice = MaskedTerm(*(t.ite(chosen, yes, no) for yes, no in pairs))
    return [choice]


def _nothing(lane: Lane, step: Step, condition: Term) -> list[MaskedTerm]:
    return []


FUSION = "fusion"
"""The kind of a step of `ptxdiff.emulator.undecided`."""
_RUNNERS: Mapping[str, Callable[[Lane, Step, Term], list[MaskedTerm]]] = {
    "scalar": _scalar, "mov": _mov, "unpack": _unpack, "pack": _pack, "split": _split, FUSION: _fusion,
    "nothing": _nothing,
}  # fmt: skip
_MOVES = ("mov", "unpack", "pack", "split")
