"""A sweep through any backend: one chunk of inputs after another, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs import InputSet
from ptxdiff.jobs import Backend, Job, Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.model.arguments import format_of
from ptxdiff.records import Offender
from ptxdiff.references.formats import as_codes
from ptxdiff.sweep.result import ROW, Swept, blocks_of, hashed

CHUNK = 1 << 20

JudgeOne = Callable[[Job, Outcome], Judgement]


def sweep_in_chunks(backend: Backend, job: Job, inputs: InputSet, judge_one: JudgeOne, chunk: int = CHUNK) -> Swept:
    """Run and judge a whole set. If a chunk does not run, the sweep ends with that chunk's outcome."""
    total = Judgement()
    findings: dict[str, None] = {}
    sums = [0] * -(-inputs.count // ROW)
    digested = 0
    last = Outcome("not run", "the set has no inputs")
    witness: Mapping[str, Any] | None = None
    place = 0
    for first in range(0, inputs.count, chunk):
        units = inputs.take(first, chunk)
        size = min(chunk, inputs.count - first)
        part = replace(job, setup=replace(job.setup, shape=(size,)), inputs=units)
        last = backend.run(part)
        if last.status != "ran":
            return Swept(last, total, inputs=units)
        findings |= dict.fromkeys(last.findings)
        if last.outputs:
            found = judge_one(part, last)
            if witness is None and found.offenders:
                place = found.offenders[0].index // codes_per_unit(job, found.offenders[0].output.partition(" ")[0])
                witness, place = pack_around(units, place, job.setup.pack)
            numbers = np.arange(inputs.first + first, inputs.first + first + size)
            total = total.merged(renumbered(job, found, numbers))
            add_sums(job, last.outputs, first, sums, inputs.first)
            digested += size
        if len(findings) >= 8:
            break
    return Swept(
        replace(last, outputs={}, alternative={}, orders={}, findings=tuple(findings)),
        total,
        blocks_of(sums, inputs.count) if digested == inputs.count else (),
        witness if witness is not None else inputs.take(0, job.setup.pack),
        place,
    )


def pack_around(units: Mapping[str, NDArray[Any]], place: int, pack: int) -> tuple[dict[str, NDArray[Any]], int]:
    """The units of the pack that holds a place, and the place in it."""
    first = place - place % pack
    return {n: u[first : first + pack] for n, u in units.items()}, place - first


def add_sums(job: Job, outputs: Mapping[str, Any], first: int, sums: list[int], offset: int) -> None:
    """Add a chunk's hashes to the sums of its rows. offset: the number of the set's first input."""
    total: NDArray[np.int64] | None = None
    for k, (name, argument) in enumerate(job.case.outputs.items()):
        units = as_codes(np.ascontiguousarray(outputs[name]).reshape(-1))
        numbers = np.arange(offset + first, offset + first + units.size, dtype=np.int64)
        made = hashed(units, numbers, bits=format_of(argument).unit_bits, output=k).astype(np.int64)
        total = made if total is None else total + made
    assert total is not None
    for row in range(first // ROW, -(-(first + total.size) // ROW)):
        sums[row] += int(total[max(0, row * ROW - first) : (row + 1) * ROW - first].sum())


def codes_per_unit(job: Job, output: str) -> int:
    """How many codes a storage unit of an output holds."""
    return format_of(job.case.outputs[output]).codes_per_unit


def renumbered(job: Job, found: Judgement, numbers: NDArray[np.int64]) -> Judgement:
    """A judgement on a piece, with the numbers that its inputs have in the whole set."""

    def moved(offender: Offender) -> Offender:
        element, code = divmod(offender.index, per := codes_per_unit(job, offender.output.partition(" ")[0]))
        return replace(offender, index=int(numbers[element]) * per + code)

    return found.renumbered(moved)
