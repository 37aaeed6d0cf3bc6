"""An asm block alone, by operand: does a shared register change a result, and is a part of an output ever written?

As the linter's trials (`ptxdiff.lint.trial`) it needs no knowledge of the tensors: every content of the registers of
inputs is meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ptxdiff.emulator import REGISTER_WIDTH, assemble, parse_constraints, undecided
from ptxdiff.proving import programs
from ptxdiff.proving import terms as t
from ptxdiff.proving.programs import Lane, MaskedTerm
from ptxdiff.proving.solving import ProofSearch, Verdict
from ptxdiff.proving.terms import FALSE, Term

Constants = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class BlockOutputs:
    """The registers of outputs after a block, by operand number; inputs are variables `r` and their number."""

    outputs: Mapping[int, MaskedTerm]
    undefined: Term


def of_block(
    text: str, constraints: str, target: str, constants: Constants = (), share: tuple[tuple[int, int], ...] = ()
) -> BlockOutputs:
    """Run a block on terms, with any of its products and sums fused that ptxas may fuse. share: outputs in registers of
    inputs. Raises NotModelled, PtxError."""
    block = assemble(text, constraints, target, share, False, constants)
    parsed = parse_constraints(constraints)
    lane = Lane(undecided(block.program))
    for number, (constraint, slot) in enumerate(zip(parsed, block.slots, strict=True)):
        if not constraint.output and slot >= 0:
            width = REGISTER_WIDTH[constraint.letter]
            lane.registers[slot] = programs.defined(t.variable(f"r{number}", 0 if width == 1 else width))
    lane.run()
    by_operand = {}
    for number, (constraint, slot) in enumerate(zip(parsed, block.slots, strict=True)):
        if constraint.output:
            width = REGISTER_WIDTH[constraint.letter]
            width = 0 if width == 1 else width
            lost = MaskedTerm(t.const(0, width), t.const(t.ones(width), width))
            by_operand[number] = lane.registers[slot] or lost
    return BlockOutputs(by_operand, lane.undefined)


def changed_by_sharing(
    text: str,
    constraints: str,
    target: str,
    share: tuple[tuple[int, int], ...],
    constants: Constants,
    seconds: float,
) -> dict[int, int] | bool | None:
    """False if outputs in registers of inputs change no defined bit and undefine none, for all inputs; inputs by
    operand number for which a solver says that they do, to be run before they are believed; None if that is open.

    share: each output with its input. Raises NotModelled, PtxError.
    """
    own = of_block(text, constraints, target, constants)
    shared = of_block(text, constraints, target, constants, share)
    goal = FALSE
    for number, mine in own.outputs.items():
        theirs = shared.outputs[number]
        if mine.value.width:
            apart = t.or_(t.xor(mine.value, theirs.value), theirs.undefined)
            goal = t.bor(goal, t.nonzero(t.and_(apart, t.not_(mine.undefined))))
        else:
            one = t.bor(t.bnot(t.eq(mine.value, theirs.value)), theirs.undefined)
            goal = t.bor(goal, t.band(one, t.bnot(mine.undefined)))
    goal = t.bor(goal, t.band(shared.undefined, t.bnot(own.undefined)))
    models: list[Mapping[str, int]] = []

    def kept(model: Mapping[str, int], exact: bool) -> Verdict | None:
        models.append(model)
        return None

    if ProofSearch(seconds, ()).refute(goal, (), kept, lambda asked: None) is None:
        return False
    if not models:
        return None
    return {int(name[1:]): number for name, number in models[-1].items() if name[1:].isdigit()}


def never_written(masks: Sequence[Term], seconds: float) -> list[bool]:
    """Of masks of undefined bits, whether all bits are undefined for all inputs."""
    search = ProofSearch(seconds, ())
    unwritten = []
    for mask in masks:
        written = t.bnot(mask) if mask.width == 0 else t.bnot(t.eq(mask, t.const(t.ones(mask.width), mask.width)))
        unwritten.append(search.refute(written, (), lambda *_: None, lambda asked: None) is None)
    return unwritten
