"""Run every tuple that one invocation reads: 2^32 words, on a processor, in bounded memory.

The plain judge takes minutes for as many results. So it judges each element once in each lane, in tuples whose elements
are all equal. Every other result must have the bits that its element has there, in its lane; tuples with any other
result go to the plain judge. A judgement of an element depends on its inputs and outputs alone, so equal bits have
equal judgements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs import InputSet
from ptxdiff.inputs.generated import CountedTuples
from ptxdiff.jobs import Backend, Job, Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.sweep.chunks import add_sums, codes_per_unit, pack_around, renumbered
from ptxdiff.sweep.result import PLACES, ROW, Swept, blocks_of, mixed, output_salt

CHUNK = 1 << 19
"""Inputs of one piece."""
JUDGED = 1 << 22
"""Differing inputs after which the sweep ends, if some of them fail: there are enough to show."""

Units = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class _Elements:
    """Each element in every lane of a pack: its inputs, and what the asm made of it.

    outputs, alternative: units [lane, element] by name; the latter of the other reading of code that may be contracted.
    wrong: which of them fail [lane, element]. judgement: on all of them, without its counts, because the set has these
    tuples, too.
    """

    outputs: Units
    alternative: Units
    wrong: NDArray[np.bool_]
    judgement: Judgement

    @property
    def readings(self) -> tuple[tuple[str, Units], ...]:
        return (("outputs", self.outputs), ("alternative", self.alternative))


def sweep_tuples(
    backend: Backend, job: Job, inputs: InputSet, judge_one: Callable[[Job, Outcome], Judgement], chunk: int = CHUNK
) -> Swept:
    """Run and judge every tuple of a set that `ptxdiff.inputs.sets.all_words` makes.

    If a piece does not run, the sweep ends with its outcome.
    """
    generator, pack = inputs.generator, inputs.group
    assert isinstance(generator, CountedTuples)
    elements, last = _elements(backend, job, generator, judge_one)
    if elements is None:
        return Swept(last, Judgement(), inputs=inputs.take(0, pack))
    run = _Sweep(job, elements, judge_one)
    for first in range(0, inputs.count, chunk):
        units = _piece(inputs, generator, first, min(chunk, inputs.count - first))
        last = backend.run(
            replace(job, setup=replace(job.setup, shape=(len(next(iter(units.values()))),)), inputs=units)
        )
        if last.status != "ran" or not last.outputs:
            return Swept(last, run.total, inputs=units)
        run.take(first, units, last)
        if run.enough:
            break
    return run.swept(inputs, last)


def _elements(
    backend: Backend, job: Job, generator: CountedTuples, judge_one: Callable[[Job, Outcome], Judgement]
) -> tuple[_Elements | None, Outcome]:
    """Every element in every lane; None if it does not run."""
    single = CountedTuples(generator.formats, 1)
    bits = sum(f.unit_bits for f in generator.formats.values())
    numbers = np.arange(1 << bits, dtype=np.int64)
    formats = generator.formats.items()
    inputs = {n: single.units(n, numbers).astype(f.numpy_dtype()) for n, f in formats}
    units = {n: np.repeat(u, generator.pack) for n, u in inputs.items()}
    part = replace(job, setup=replace(job.setup, shape=(generator.pack << bits,)), inputs=units)
    outcome = backend.run(part)
    if outcome.status != "ran" or not outcome.outputs:
        return None, outcome
    made = [
        {n: np.ascontiguousarray(_words(u).reshape(-1, generator.pack).T) for n, u in side.items()}
        for side in (outcome.outputs, outcome.alternative)
    ]
    found = judge_one(part, outcome)
    wrong = np.zeros((1 << bits, generator.pack), dtype=bool)
    for output in found.compared.values():
        wrong |= output.failing.reshape(1 << bits, generator.pack, -1).any(axis=2)
    if found.different and not wrong.any():
        wrong[:] = True  # failing for another reason than single codes
    counted = Judgement(judged=found.judged, ulps=found.ulps, ranges=found.ranges, worst=found.worst)
    return _Elements(made[0], made[1], np.ascontiguousarray(wrong.T), counted), outcome


def _piece(inputs: InputSet, generator: CountedTuples, first: int, count: int) -> dict[str, NDArray[Any]]:
    """Some inputs of the set. A word of one input counts up, in the order of a processor with the low byte first."""
    (name, *others), pack = generator.formats, generator.pack
    fmt = generator.formats[name]
    width = pack * fmt.unit_bits
    if others or width not in (16, 32, 64) or np.dtype(np.uint16).newbyteorder("<") != np.uint16:
        return inputs.take(first, count)
    words = np.arange(first // pack, (first + count) // pack, dtype=np.int64).astype(f"u{width // 8}")
    return {name: words.view(fmt.numpy_dtype())}


class _Sweep:
    """The findings about the pieces so far."""

    def __init__(self, job: Job, elements: _Elements, judge_one: Callable[[Job, Outcome], Judgement]) -> None:
        self.job, self.elements, self.judge_one, self.total = job, elements, judge_one, elements.judgement
        self.findings: dict[str, None] = {}
        self.sums: list[int] = []
        self.witness: Units | None = None
        self.place = self.differing = self.compared = 0

    @property
    def enough(self) -> bool:
        """Whether more pieces would show no more."""
        return len(self.findings) >= 8 or (self.differing >= JUDGED and self.total.different > 0)

    def take(self, first: int, units: Units, outcome: Outcome) -> None:
        """Compare the results of a piece with those of its elements, and judge the tuples that differ.

        first: the number of the piece's first input.
        """
        self.findings |= dict.fromkeys(outcome.findings)
        size, pack = len(next(iter(units.values()))), self.job.setup.pack
        self.sums += [0] * (-(-(first + size) // ROW) - len(self.sums))
        _add_sums(self.job, outcome.outputs, first, self.sums)
        self.compared += sum(np.size(outcome.outputs[n]) * codes_per_unit(self.job, n) for n in self.job.case.outputs)
        differing = np.flatnonzero(self._unlike(units, outcome, size // pack))
        if not len(differing):
            return
        chosen = (differing[:, None] * pack + np.arange(pack)).reshape(-1)
        self.differing += len(chosen)
        sides = [{n: np.asarray(u).reshape(-1)[chosen] for n, u in side.items()}
                 for side in (units, outcome.outputs, outcome.alternative)]  # fmt: skip
        part = replace(self.job, setup=replace(self.job.setup, shape=(len(chosen),)), inputs=sides[0])
        found = self.judge_one(part, replace(outcome, outputs=sides[1], alternative=sides[2]))
        self.compared -= found.total
        if self.witness is None and found.offenders:
            one = found.offenders[0]
            self.witness, self.place = pack_around(
                sides[0], one.index // codes_per_unit(self.job, one.output.partition(" ")[0]), pack
            )
        self.total = self.total.merged(renumbered(self.job, found, first + chosen))

    def _unlike(self, units: Units, outcome: Outcome, count: int) -> NDArray[np.bool_]:
        """Which tuples have a result that its element does not have in its lane."""
        numbers = self._numbers(units)
        pack = self.job.setup.pack
        found = np.zeros(count, dtype=bool)
        for lane in range(pack) if self.elements.wrong.any() else ():
            found |= self.elements.wrong[lane].take(numbers[lane::pack])
        for side, made in self.elements.readings:
            for name, table in made.items():
                got = _words(getattr(outcome, side)[name]).reshape(-1, pack) if getattr(outcome, side) else None
                for lane in range(pack):
                    if got is None:
                        return np.ones(count, dtype=bool)
                    found |= table[lane].take(numbers[lane::pack]) != got[:, lane]
        return found if self.elements.alternative or not outcome.alternative else np.ones(count, dtype=bool)

    def _numbers(self, units: Units) -> NDArray[Any]:
        """The number of each element."""
        arrays = [_words(u) for u in units.values()]
        if len(arrays) == 1:
            return arrays[0]
        found = np.zeros(arrays[0].shape, dtype=np.int64)
        for array in arrays:
            found = (found << (8 * array.itemsize)) | array
        return found

    def swept(self, inputs: InputSet, last: Outcome) -> Swept:
        """The result of the sweep. last: the outcome of the last piece."""
        complete = len(self.sums) == -(-inputs.count // ROW)
        total = replace(self.total, total=self.total.total + self.compared)
        outcome = replace(last, outputs={}, alternative={}, findings=tuple(self.findings))
        blocks = blocks_of(self.sums, inputs.count) if complete else ()
        witness = self.witness if self.witness is not None else inputs.take(0, inputs.group)
        return Swept(outcome, total, blocks, witness, self.place)


def _add_sums(job: Job, outputs: Units, first: int, sums: list[int]) -> None:
    """As `ptxdiff.sweep.chunks.add_sums`, in a tenth of the time: in place, and row by row, which stays in the cache.

    first: the number of the first input.
    """
    size = len(next(iter(outputs.values())))
    if first % ROW or size % ROW or any(_words(u).itemsize > 4 for u in outputs.values()):
        add_sums(job, outputs, first, sums, 0)
        return
    with np.errstate(over="ignore"):
        steps = np.arange(ROW, dtype=np.int32) * np.int32(PLACES)
        for k, name in enumerate(job.case.outputs):
            units = _words(outputs[name])
            for row in range(size // ROW):
                start = np.int64((first + row * ROW) * PLACES + output_salt(k)).astype(np.int32)
                hashes = units[row * ROW : (row + 1) * ROW].astype(np.uint32).view(np.int32)
                hashes ^= steps + start
                sums[first // ROW + row] += int(mixed(hashes).sum(dtype=np.int64))


def _words(units: Any) -> NDArray[Any]:
    """Units as unsigned integers, in one dimension."""
    array = np.ascontiguousarray(units).reshape(-1)
    return array.view(f"u{array.itemsize}")
