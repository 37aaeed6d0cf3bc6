"""Rules about registers of operands: inputs that are written, outputs written while an input may share their
register."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxdiff.emulator import Hazard, InputWritten, PtxError, UndefinedBits, check_inputs, sharing
from ptxdiff.lint import trial
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.flow import written_early
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Edit, Fix, Found

TRIED = 96
"""The most pairs of registers that are tried in one block."""
_LISTED = 6


@rule(
    "input-written",
    "An input operand is written.",
    why="The compiler assumes that an input keeps its value, and uses its register afterwards.",
)
def input_written(block: LintedBlock) -> Iterator[Found]:
    """The same check as for cases."""
    if block.tree is None or block.source is None or block.parsed is None:
        return
    try:
        check_inputs(block.tree, block.source, block.parsed)
    except InputWritten as error:
        what, _, instead = error.message.partition("; ")
        number = int(re.search(r"writes the input \$(\d+)", what)[1])  # type: ignore[index]
        statement = re.sub(r"\$(?=\d)", block.spelled(0)[0], _shown(error))
        message = f"`{statement}` writes the input {block.spelled(number)}"
        yield Found(block.place_of(error), message, instead.replace("$", block.spelled(0)[0]))


def _shown(error: PtxError) -> str:
    return error.message.split("`")[1]


_CLASSES = {"c": "h"}
"""Letters of constraints with the registers of another letter."""


def _apart(block: LintedBlock, output: int, source: int) -> bool:
    """Whether nvcc has different registers for two operands: in its PTX `%f` and `%r` are different classes."""
    if block.snippet.convention != "cuda" or block.parsed is None:
        return False
    letters = [_CLASSES.get(c, c) for c in (block.parsed[output].letter, block.parsed[source].letter)]
    return letters[0] != letters[1]


_APART_WHY = (
    "nvcc has different registers for the letters of these operands, such as %f and %r, so they share none there. "
    "Compilers with one class for both, as Triton's LLVM has, may let them share."
)


@dataclass(frozen=True)
class _Shown:
    """A pair of operands, and inputs with which sharing one register changes a result."""

    hazard: Hazard
    words: str


@rule(
    "missing-early-clobber",
    "An output is written before the last read of an input, and its constraint has no `&`.",
    why="Without `&` the compiler may put the output into the register of an input that is not needed after the block.",
)
def missing_early_clobber(block: LintedBlock) -> Iterator[Found]:
    """Run every pair that may share with one register for both; it is a finding if that changes a result.

    A block with memory cannot run alone; there the order of instructions decides.
    """
    if block.parsed is None:
        return
    if block.program is None:
        yield from _not_run(block)
        return
    shown, untried = _demonstrated(block)
    names = ", ".join(block.spelled(n) for n in untried)
    more = f"outputs that are written early were not tried ({names}): the block takes too long to run"
    if not shown:
        if untried:
            yield Found(
                None, more, "make their constraints '=&...', or try them with `ptxdiff.emulate`", severity="note"
            )
        return
    together = [s for s in shown if not _apart(block, s.hazard.output, s.hazard.input)]
    note: dict[str, Any] = {} if together or untried else {"severity": "note", "why": _APART_WHY}
    shown = together or shown
    first = shown[0].hazard
    outputs = sorted({*(s.hazard.output for s in shown), *untried})
    names = ", ".join(block.spelled(n) for n in outputs)
    message = (
        f"`{block.statement(first.write)}` writes {block.spelled(first.output)} before "
        f"`{block.statement(first.reading)}` reads {block.spelled(first.input)}; {shown[0].words}"
    )
    if len(outputs) > 1:
        message = f"{message} (the same happens to {names})" if not untried else f"{message}; {more}"
    yield Found(block.place(first.write), message, _instead(block, outputs), fix=_fix(block, outputs), **note)


def _instead(block: LintedBlock, outputs: Sequence[int]) -> str:
    assert block.parsed is not None
    names = ", ".join(block.spelled(n) for n in outputs)
    letter = block.parsed[outputs[0]].letter
    return f"make {'the constraint' if len(outputs) == 1 else 'the constraints'} of {names} '=&{letter}'"


def _not_run(block: LintedBlock) -> Iterator[Found]:
    """The same for a block that accesses memory or needs other threads, from the order of its instructions."""
    hazards = list(written_early(block))
    if not hazards:
        return
    together = [f for f in hazards if not _apart(block, f.output, f.input)]
    note: dict[str, Any] = {} if together else {"severity": "note", "why": _APART_WHY}
    hazards = together or hazards
    first = hazards[0]
    outputs = sorted({f.output for f in hazards})
    message = (
        f"`{block.statement(first.write.offset)}` writes {block.spelled(first.output)} before "
        f"`{block.statement(first.read.offset)}` reads {block.spelled(first.input)}; in one register it reads what "
        "was just written (found from the order of the instructions, as the emulator cannot run a block with memory or "
        "other threads alone)"
    )
    yield Found(block.place(first.write.offset), message, _instead(block, outputs), fix=_fix(block, outputs), **note)


def _demonstrated(block: LintedBlock) -> tuple[list[_Shown], list[int]]:
    """For each output with a hazard that changes a result, the first such hazard; and outputs for which the time was
    over."""
    try:
        hazards = sharing(block.text, block.constraints, None, block.constants).hazards
    except PtxError:
        return [], []
    hazards = tuple(sorted(hazards, key=lambda h: _apart(block, h.output, h.input)))[:TRIED]
    parsed = block.parsed or ()
    # A tied output can share its register with another input only if both inputs have the same value and type.
    hazards = tuple(h for h in hazards if h.tied < 0 or parsed[h.output].letter == parsed[h.input].letter)
    clock = trial.clock_of(block)
    shown: dict[int, _Shown] = {}
    for choose in (trial.ordinary, trial.special) if hazards else ():
        open_ones = [h for h in hazards if h.output not in shown]
        plain = trial.defined(block, choose(block), clock) if open_ones else None
        if plain is None:
            continue
        for hazard in open_ones:
            if hazard.output not in shown and (change := _changed(block, hazard, plain, clock)):
                shown[hazard.output] = _Shown(hazard, change)
    untried = {h.output for h in hazards} - set(shown) if clock.left <= 0 else set()
    return [shown[output] for output in sorted(shown)], sorted(untried)


def _changed(block: LintedBlock, hazard: Hazard, plain: tuple[trial.Units, trial.Units], clock: trial.Clock) -> str:
    """A description of the change with an output and an input in one register; "" if there is none."""
    given, expected = plain
    if hazard.tied >= 0:  # the tied output holds an input at first, so the other input must have that value
        equal = trial.defined(block, given | {hazard.input: given[hazard.tied]}, clock)
        if equal is None:
            return ""
        given, expected = equal
    pair = f"{block.spelled(hazard.output)} and {block.spelled(hazard.input)} in one register"
    try:
        results = trial.run(block, given, clock, {hazard.output: hazard.input}, trial.bits_of(expected))
    except UndefinedBits:
        return ""
    for number, pattern in (results or {}).items():
        lanes = np.flatnonzero(pattern != expected[number])
        if lanes.size:
            lane = int(lanes[0])
            inputs = [trial.shown(block, n, u[lane]) for n, u in given.items()]
            order = sorted(given).index(hazard.input)
            chosen = [inputs[order], *(w for k, w in enumerate(inputs) if k != order)][:_LISTED]
            more = ", ..." if len(inputs) > _LISTED else ""
            wrong = trial.shown(block, number, pattern[lane])
            right = trial.shown(block, number, expected[number][lane]).partition(" = ")[2]
            return f"with {pair}, {', '.join(chosen)}{more}: {wrong} instead of {right}"
    return ""


def _fix(block: LintedBlock, outputs: Sequence[int]) -> Fix | None:
    """An `&` after the sign of each output's constraint."""
    text = block.snippet.constraints
    starts = [0, *(comma.end() for comma in re.finditer(",", text))]
    edits = []
    for number in outputs:
        sign = re.compile(r'\s*"?[=+]').match(text, starts[number]) if number < len(starts) else None
        if sign is None:
            return None
        edits.append(Edit("constraints", sign.end(), sign.end(), "&"))
    return Fix("mark outputs that are written early with &", tuple(edits))
