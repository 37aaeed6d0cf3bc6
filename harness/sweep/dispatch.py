"""How a sweep is run: by the process that owns the GPU, in chunks, or tuple by tuple on a processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends import gpu
from ptxdiff.backends.assembler import artifacts, refused
from ptxdiff.inputs import InputSet
from ptxdiff.inputs.generated import CountedTuples
from ptxdiff.inputs.sets import generated_set
from ptxdiff.jobs import Backend, DeviceBackend, Job, Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.model.arguments import format_of
from ptxdiff.model.policies import Policies, policies
from ptxdiff.model.reference import runs_on_host
from ptxdiff.processes.footprint import give_back
from ptxdiff.records import Offender
from ptxdiff.references.formats import as_codes
from ptxdiff.sweep import OracleFault
from ptxdiff.sweep.device import DeviceSweep, built_ahead, chunk_job, copy_floor, unit_bytes
from ptxdiff.sweep.fusion import NotFused
from ptxdiff.sweep.kernels import asm_in_registers, sweep_in_registers
from ptxdiff.sweep.result import PLACES, ROW, Swept, blocks_of, hashed, mixed, output_salt
from ptxdiff.triton.build import Built
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.launch import Launch, launch_of


def run(job: Job, policy: Policies, inputs: InputSet, made: Built | None = None) -> Swept:
    """Sweep a set that has a generator. Raises OracleFault if the fast judge and the plain one disagree.

    made: the kernel under test, if another process has built it (`ptxdiff.sweep.device.built_ahead`).

    The judge is one kernel if one can be made of the reference; otherwise it runs as eager operations.
    """
    try:
        return _run(job, policy, inputs, compiled=gpu.DEVICE != "cpu", made=made)
    except NotFused as error:
        swept = _run(job, policy, inputs, compiled=False)
        note = f"no kernel can be made of the reference, which ran as eager operations, slower: {_line(error)}"
        return replace(swept, notes=(note, *swept.notes))


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _run(job: Job, policy: Policies, inputs: InputSet, *, compiled: bool, made: Built | None = None) -> Swept:
    assert inputs.generator is not None
    job = chunk_job(job, inputs, compiled=compiled)
    try:
        launch = launch_of(job)
        if made is not None and gpu.is_of(launch, job.target, made):
            launch = replace(launch, made=made)
        built = launch.build(job.target)
    except (ValueError, TypeError) as error:
        return Swept(Outcome("error", str(error)), Judgement())
    if isinstance(built, Refusal):
        return Swept(refused(built), Judgement())
    views = {t.name: gpu.torch_dtype(t.format) for t in launch.tensors}
    asm = asm_in_registers(job, inputs) if compiled else None

    try:
        swept = DeviceSweep(
            job, policy, inputs.generator, inputs.count, starter(job, launch), launch.tensors, views,
            device=gpu.DEVICE, compiled=compiled, first=inputs.first,
            in_registers=None if asm is None else partial(sweep_in_registers, asm),
        ).run()  # fmt: skip
        floor = copy_floor(inputs.count * unit_bytes(job) // 2, gpu.DEVICE)
    except (OracleFault, NotFused):
        raise
    except Exception as error:
        return Swept(Outcome("error", gpu.fault_words(error), artifacts=artifacts(built)), Judgement())
    outcome = Outcome(
        "ran",
        findings=tuple(swept.faults),
        evidence="hardware",
        contraction_open=job.setup.fusion and gpu.may_contract(built.compilation.ptx),
        artifacts=artifacts(built),
    )
    witness, lane = _witness(inputs, swept.failing, job.setup.pack)
    measured = {"seconds": round(swept.seconds, 6), "copy": round(floor, 6)} if swept.seconds else {}
    return Swept(
        outcome, swept.judgement, blocks_of(swept.sums, inputs.count), witness, lane, tuple(swept.notes), measured
    )


def starter(job: Job, launch: Launch) -> Callable[[Mapping[str, Any]], None]:
    """A function that launches the kernel on tensors by name.

    Preparing a launch takes longer than many kernels, so that of an elementwise kernel is kept for the same tensors; a
    whole kernel may have scratch memory, which must be new for each launch.
    """
    kept: list[tuple[list[Any], Callable[[], Any]]] = []

    def start(pointers: Mapping[str, Any]) -> None:
        tensors = list(pointers.values())
        if not (kept and all(a is b for a, b in zip(kept[0][0], tensors, strict=True))):
            kept[:] = [(tensors, gpu.prepared(job, launch, pointers))]
        kept[0][1]()
        if launch.elementwise is None:
            kept.clear()

    return start


def _witness(inputs: InputSet, failing: int | None, pack: int) -> tuple[Mapping[str, Any], int]:
    """The pack of the first failing input, or the first pack."""
    number = 0 if failing is None else failing - inputs.first
    return inputs.take(number - number % pack, pack), number % pack


@dataclass(frozen=True)
class SetRef:
    """A description of an input set that is computed from numbers, without its functions."""

    name: str
    count: int
    seed: int
    generator: Any
    first: int

    def input_set(self) -> InputSet:
        """The set."""
        return generated_set(self.name, self.count, self.seed, self.generator, self.first)


def sweep(
    backend: Backend, job: Job, policy: Policies, inputs: InputSet, judge: Callable[[Job, Outcome], Judgement]
) -> Swept:
    """Run and judge a large set: on the backend's device if possible, else in pieces with `judge`.

    Raises OracleFault if the fast judge on a device and the plain one disagree.
    """
    swept = _on_device(backend, job, policy, inputs) if isinstance(backend, DeviceBackend) else None
    if swept is None and isinstance(inputs.generator, CountedTuples) and inputs.group == job.setup.pack:
        return sweep_tuples(backend, job, inputs, judge)
    return swept if swept is not None else sweep_in_chunks(backend, job, inputs, judge)


def _on_device(backend: DeviceBackend, job: Job, policy: Policies, inputs: InputSet) -> Swept | None:
    """The sweep on the device; None if its inputs or its reference exist only on the host."""
    if inputs.generator is None or any(runs_on_host(r) for r in (policy.reference, job.case.reference)):
        return None
    if reason := backend.unavailable(job.target):
        return Swept(Outcome("not run", reason), Judgement())
    named = SetRef(inputs.name, inputs.count, inputs.seed, inputs.generator, inputs.first)
    outcome, swept = backend.on_device(f"{__name__}:sweep_here", job, named, built_ahead(job, inputs))
    assert swept is None or isinstance(swept, Swept)
    return replace(swept, outcome=outcome) if swept else Swept(outcome, Judgement())


def sweep_here(job: Job, named: SetRef, made: Built | None = None) -> tuple[Outcome, Swept]:
    """Sweep in the process that owns the device. made: see `run`."""

    swept = run(job, policies(job.case, job.variant), named.input_set(), made)
    return swept.outcome, swept


# A sweep through any backend: one chunk of inputs after another, in bounded memory ---------------------------------

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
    lane = 0
    for first in range(0, inputs.count, chunk):
        units = inputs.take(first, chunk)
        size = min(chunk, inputs.count - first)
        part = replace(job, setup=replace(job.setup, shape=(size,)), inputs=units)
        last = backend.run(part)
        if last.status != "ran":
            return Swept(last, total, inputs=units)
        findings |= dict.fromkeys(last.findings)
        if last.outputs:
            judgement = judge_one(part, last)
            if witness is None and judgement.offenders:
                worst = judgement.offenders[0]
                lane = worst.index // codes_per_unit(job, worst.output.partition(" ")[0])
                witness, lane = pack_around(units, lane, job.setup.pack)
            numbers = np.arange(inputs.first + first, inputs.first + first + size)
            total = total.merged(renumbered(job, judgement, numbers))
            add_sums(job, last.outputs, first, sums, inputs.first)
            digested += size
        give_back()
        if len(findings) >= 8:
            break
    return Swept(
        replace(last, outputs={}, alternative={}, orders={}, findings=tuple(findings)),
        total,
        blocks_of(sums, inputs.count) if digested == inputs.count else (),
        witness if witness is not None else inputs.take(0, job.setup.pack),
        lane,
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


# Run every tuple that one invocation reads: 2^32 words, on a processor, in bounded memory --------------------------
#
# The plain judge takes minutes for as many results. So it judges each element once in each lane, in tuples whose
# elements are all equal. Every other result must have the bits that its element has there, in its lane; tuples with any
# other result go to the plain judge. A judgement of an element depends on its inputs and outputs alone, so equal bits
# have equal judgements.

TUPLE_CHUNK = 1 << 19
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
    backend: Backend,
    job: Job,
    inputs: InputSet,
    judge_one: Callable[[Job, Outcome], Judgement],
    chunk: int = TUPLE_CHUNK,
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
        give_back()
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
    judgement = judge_one(part, outcome)
    wrong = np.zeros((1 << bits, generator.pack), dtype=bool)
    for output in judgement.compared.values():
        wrong |= output.failing.reshape(1 << bits, generator.pack, -1).any(axis=2)
    if judgement.different and not wrong.any():
        wrong[:] = True  # failing for another reason than single codes
    counted = Judgement(judged=judgement.judged, ulps=judgement.ulps, ranges=judgement.ranges, worst=judgement.worst)
    return _Elements(made[0], made[1], np.ascontiguousarray(wrong.T), counted), outcome


def _piece(inputs: InputSet, generator: CountedTuples, first: int, count: int) -> dict[str, NDArray[Any]]:
    """Some inputs of the set. A word of one input counts up, in the order of a processor with the low byte first."""
    (name, *others), pack = generator.formats, generator.pack
    fmt = generator.formats[name]
    width = pack * fmt.unit_bits
    if others or width not in (16, 32, 64) or np.dtype(np.uint16).newbyteorder("<") != np.uint16:
        return inputs.take(first, count)
    counted = np.arange(first // pack, (first + count) // pack, dtype=np.int64).astype(f"u{width // 8}")
    return {name: counted.view(fmt.numpy_dtype())}


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
        judgement = self.judge_one(part, replace(outcome, outputs=sides[1], alternative=sides[2]))
        self.compared -= judgement.total
        if self.witness is None and judgement.offenders:
            one = judgement.offenders[0]
            self.witness, self.place = pack_around(
                sides[0], one.index // codes_per_unit(self.job, one.output.partition(" ")[0]), pack
            )
        self.total = self.total.merged(renumbered(self.job, judgement, first + chosen))

    def _unlike(self, units: Units, outcome: Outcome, count: int) -> NDArray[np.bool_]:
        """Which tuples have a result that its element does not have in its lane."""
        numbers = self._numbers(units)
        pack = self.job.setup.pack
        unlike = np.zeros(count, dtype=bool)
        for lane in range(pack) if self.elements.wrong.any() else ():
            unlike |= self.elements.wrong[lane].take(numbers[lane::pack])
        for side, made in self.elements.readings:
            for name, table in made.items():
                got = _words(getattr(outcome, side)[name]).reshape(-1, pack) if getattr(outcome, side) else None
                for lane in range(pack):
                    if got is None:
                        return np.ones(count, dtype=bool)
                    unlike |= table[lane].take(numbers[lane::pack]) != got[:, lane]
        return unlike if self.elements.alternative or not outcome.alternative else np.ones(count, dtype=bool)

    def _numbers(self, units: Units) -> NDArray[Any]:
        """The number of each element."""
        arrays = [_words(u) for u in units.values()]
        if len(arrays) == 1:
            return arrays[0]
        numbers = np.zeros(arrays[0].shape, dtype=np.int64)
        for array in arrays:
            numbers = (numbers << (8 * array.itemsize)) | array
        return numbers

    def swept(self, inputs: InputSet, last: Outcome) -> Swept:
        """The result of the sweep. last: the outcome of the last piece."""
        complete = len(self.sums) == -(-inputs.count // ROW)
        total = replace(self.total, total=self.total.total + self.compared)
        outcome = replace(last, outputs={}, alternative={}, findings=tuple(self.findings))
        blocks = blocks_of(self.sums, inputs.count) if complete else ()
        witness = self.witness if self.witness is not None else inputs.take(0, inputs.group)
        return Swept(outcome, total, blocks, witness, self.place)


def _add_sums(job: Job, outputs: Units, first: int, sums: list[int]) -> None:
    """As `add_sums`, in a tenth of the time: in place, and row by row, which stays in the cache.

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
