"""Rules that ask a solver about all contents of the registers; they run if they are selected by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxdiff.emulator import PtxError, UndefinedBits, sharing
from ptxdiff.lint import trial
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Found
from ptxdiff.lint.trial import readings

SECONDS = 10.0
"""Processor seconds of solvers for one question about a block."""


def _without_solvers() -> Iterator[Found]:
    yield Found(None, "no solver was asked: none is installed", "pip install 'ptxdiff[prove]'", severity="note")


@rule(
    "early-clobber-proof",
    "An output and an input in one register give another result for inputs that a solver found.",
    why="Without `&` the compiler may put the output into the register of an input that is not needed after the block.",
    default=False,
)
def early_clobber_proof(block: LintedBlock) -> Iterator[Found]:
    """Ask about every pair that may share a register. What a solver finds is run before it is reported."""
    from ptxdiff.proving.registers import changed_by_sharing
    from ptxdiff.proving.solving import SolverFault, available
    from ptxdiff.proving.terms import NotModelled

    target = trial.trial_target(block)
    if block.parsed is None or block.program is None or target is None:
        return
    try:
        hazards = sharing(block.text, block.constraints, None, block.constants).hazards
    except PtxError:
        return
    if hazards and not available():
        yield from _without_solvers()
        return
    for hazard in hazards:
        if hazard.tied >= 0:
            continue
        pair = hazard.output, hazard.input
        names = block.spelled(hazard.output), block.spelled(hazard.input)
        try:
            given = changed_by_sharing(block.text, block.constraints, target, (pair,), block.constants, SECONDS)
        except (NotModelled, PtxError, SolverFault):
            given = None
        change = _ran(block, pair, given) if isinstance(given, dict) else ""
        if given is not False and not change:
            message = f"{names[0]} and {names[1]} in one register were tried on some values, and nothing is proved"
            yield Found(block.place(hazard.write), message, severity="note")
        if change:
            message = f"with {names[0]} and {names[1]} in one register, {change}"
            instead = f"make the constraint of {names[0]} '=&{block.parsed[hazard.output].letter}'"
            yield Found(block.place(hazard.write), message, instead)


def _ran(block: LintedBlock, pair: tuple[int, int], given: dict[int, int]) -> str:
    """The result that a run gives for some inputs with a shared register, and the right one; "" if both are equal."""
    arrays: dict[int, Any] = {n: _one(trial.width(block, n), given.get(n, 0)) for n in block.inputs}
    clock = trial.Clock()
    plain = trial.defined(block, arrays, clock)
    if plain is None:
        return ""
    try:
        results = trial.run(block, plain[0], clock, dict([pair]), trial.bits_of(plain[1]))
    except UndefinedBits:
        return ""
    for number, pattern in (results or {}).items():
        if (pattern != plain[1][number]).any():
            inputs = ", ".join(trial.shown(block, n, u[0]) for n, u in plain[0].items())
            right = trial.shown(block, number, plain[1][number][0]).partition(" = ")[2]
            return f"{inputs}: {trial.shown(block, number, pattern[0])} instead of {right}"
    return ""


def _one(bits: int, number: int) -> Any:
    return np.array([number], np.bool_ if bits == 1 else f"u{max(bits // 8, 1)}")


@rule(
    "output-part-unwritten",
    "A part of an output register that holds an element of a result is never written.",
    why="The element then has an undefined value.",
    default=False,
)
def output_part_unwritten(block: LintedBlock) -> Iterator[Found]:
    """Elements of results all of whose bits are undefined for all inputs, in every reading of the operands."""
    from ptxdiff.proving import terms as t
    from ptxdiff.proving.programs import element_of
    from ptxdiff.proving.registers import never_written, of_block
    from ptxdiff.proving.solving import SolverFault, available
    from ptxdiff.proving.terms import NotModelled

    target = trial.trial_target(block)
    if block.parsed is None or block.program is None or target is None or block.has_constants:
        return
    try:
        after = of_block(block.text, block.constraints, target, block.constants)
    except (NotModelled, PtxError):
        return
    missing_bits: list[dict[str, int]] = []
    for operands, *_ in readings(block):
        missing: dict[str, int] = {}
        for operand in operands:
            register = after.outputs.get(operand.number)
            if not operand.output or register is None or register.value.width == 0:
                continue
            for k in range(operand.count):
                low = k * operand.element_width
                mask = element_of(register.undefined, low, operand.element_width)
                if mask.constant == 0:
                    continue
                if mask.op != "const" and not available():
                    yield from _without_solvers()
                    return
                try:
                    (empty,) = never_written([mask], SECONDS)
                except SolverFault:
                    continue
                if empty and operand.count > 1 and register.undefined.constant != t.ones(register.value.width):
                    high = low + operand.element_width - 1
                    missing[f"bits {low} to {high} of {block.spelled(operand.number)}"] = operand.first + k
        missing_bits.append(missing)
    for bits, element in missing_bits[0].items() if missing_bits else ():
        if all(bits in other for other in missing_bits):
            yield Found(None, f"{bits}, which hold element {element} of a result, are never written", "write them")
