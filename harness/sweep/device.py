"""A sweep on the device, which makes the inputs, launches the kernel as in any other run, and judges the results.

A sweep has two passes. The first runs all chunks without waiting for any: make the inputs, launch, tally; or one kernel
does all that in registers, and some chunks beside it. The second examines the few chunks that have flagged results, or
results further from the reference than the tallies count.

Memory: the inputs and outputs of one chunk (`CHUNK_BYTES`), and as much again while eager operations examine a piece of
it, independent of the size of the set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptxdiff.inputs import InputSet
from ptxdiff.inputs.generated import Counted, Generator
from ptxdiff.inputs.sets import seed_of
from ptxdiff.jobs import FILLING_BLOCK, Job
from ptxdiff.judging.judge import Judgement, add_counts
from ptxdiff.judging.offenders import judged_padding
from ptxdiff.model.arguments import format_of
from ptxdiff.model.policies import Policies
from ptxdiff.model.variants import LaunchedVariant
from ptxdiff.sweep.examine import Details, Examiner, judged_plainly, shares_of_sample, signed, whole_packs
from ptxdiff.sweep.fusion import NotFused
from ptxdiff.sweep.kernels import asm_in_registers, own_chunks, plain_tools, rows_of, tools_of
from ptxdiff.sweep.oracle import NEAR, PLACES, Oracle, by_bin, numbers
from ptxdiff.sweep.result import ROW, OracleFault
from ptxdiff.triton.build import Built
from ptxdiff.triton.guarded import PATTERNS, Layout
from ptxdiff.triton.launch import TensorLayout as Argument
from ptxdiff.triton.launch import launch_of

# ---- The kernel under test -------------------------------------------------------------------------------------------
#
# How many inputs each launch has, and building it ahead. A sweep runs in the process that owns the device; the process
# that asks for it has compile workers already.


CHUNK_BYTES = 1 << 30
SMALL_CHUNK_BYTES = 1 << 26
"""Where most inputs exist only in registers, so that the few chunks in memory can lie anywhere in the set."""

PIECE = 1 << 22
"""Inputs examined at a time: int64 temporaries of 32 MiB each."""


def chunk_size(count: int, unit_bytes: int, *, compiled: bool, most: int = CHUNK_BYTES) -> int:
    """Inputs of a chunk: a power of two, at least one row; fewer if eager operations do all the work. most: bytes."""
    size = ROW
    while size * 2 <= count and size * 2 * unit_bytes <= most and (compiled or size * 2 <= PIECE):
        size *= 2
    return size


def unit_bytes(job: Job) -> int:
    """Bytes of the inputs and outputs of one element."""
    return sum(format_of(a).unit_bits // 8 for a in (*job.case.inputs.values(), *job.case.outputs.values()))


def chunk_job(job: Job, inputs: InputSet, *, compiled: bool) -> Job:
    """The launch of one chunk. compiled: whether the judge is a kernel."""
    most = SMALL_CHUNK_BYTES if compiled and asm_in_registers(job, inputs) else CHUNK_BYTES
    size = chunk_size(inputs.count, unit_bytes(job), compiled=compiled, most=most)
    return replace(job, setup=replace(job.setup, shape=(size,), block=max(FILLING_BLOCK, job.setup.block)))


def built_ahead(job: Job, inputs: InputSet) -> Built | None:
    """What a sweep with a kernel as its judge launches; None if it has to be built where it runs, which says why."""
    from ptxdiff.backends.gpu import launches_ready

    try:
        launch = launch_of(chunk_job(job, inputs, compiled=True))
        built = launch.build(job.target)
    except (ValueError, TypeError):
        return None
    return built if isinstance(built, Built) and launches_ready(launch, built) else None


# ---- The two passes --------------------------------------------------------------------------------------------------


StartKernel = Callable[[Mapping[str, Tensor]], Any]
TallyRows = Callable[[Tensor, int], Tensor]
"""Tallies rows without memory: the number of the first input and how many rows; see `ptxdiff.sweep.kernels`."""


@dataclass
class Findings:
    """The findings of a sweep. sums: the hash of each row. seconds: device time of the first pass, 0.0 on a CPU."""

    judgement: Judgement = field(default_factory=Judgement)
    faults: list[str] = field(default_factory=list)
    sums: Any = ()
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    failing: Any = None


@dataclass(frozen=True)
class _FirstPass:
    """What the first pass gives.

    table: tallies of rows, int64[columns, rows]. starts: the chunks that ran as the kernel under test, by the number of
    their first input, with a sampler of their results, and samples of the outputs' units.
    """

    table: Tensor
    seconds: float
    starts: Sequence[int]
    sampler: Sampler
    samples: list[dict[str, Tensor]]


class ChunkTensor:
    """A chunk of one tensor on the device, between guard zones."""

    def __init__(self, tensor: Argument, device: str, view: torch.dtype) -> None:
        layout = Layout(tensor)
        self.raw = torch.full((layout.size,), PATTERNS[0], dtype=torch.uint8, device=device)
        self.bytes = self.raw[layout.span]
        self.units = self.bytes.view(getattr(torch, f"int{tensor.format.unit_bits}"))
        self.pointer = self.bytes.view(view)
        self._outside = (self.raw[: layout.span.start], self.raw[layout.span.stop :])

    def guards_hold(self) -> bool:
        """Whether the guard zones are unchanged."""
        return all(bool((zone == PATTERNS[0]).all()) for zone in self._outside)


class DeviceSweep:
    """One sweep. count must be a multiple of `ROW`.

    launch: starts the kernel on tensors by name, for `chunk` inputs. views: the torch dtype of each pointer.
    in_registers: makes the `TallyRows` of the sweep's oracle; None if all chunks run as `launch`.
    """

    def __init__(
        self, job: Job, policy: Policies, generator: Generator, count: int, launch: StartKernel,
        arguments: tuple[Argument, ...], views: Mapping[str, torch.dtype], *, device: str, compiled: bool,
        first: int = 0, in_registers: Callable[[Oracle], TallyRows] | None = None,
    ) -> None:  # fmt: skip
        if count % ROW or first % ROW:
            raise ValueError(f"a sweep has a multiple of {ROW} inputs, not {count} from {first} on")
        self.job, self.policy, self.count, self.first = job, policy, count, first
        self.oracle = Oracle(job.case, policy, generator)
        self.examiner = Examiner(self.oracle, first, count // ROW, device)
        self.launch, self.device = launch, device
        self.in_registers = None if in_registers is None else in_registers(self.oracle)
        self.chunk = job.setup.shape[0]
        self.buffers = {
            a.name: ChunkTensor(replace(a, shape=(self.chunk,), row_stride=None), device, views[a.name])
            for a in arguments
        }
        self.tools = tools_of(self.oracle, job, self.chunk, device) if compiled else plain_tools(self.oracle)
        self.found = Findings()
        self._filled: dict[str, int] = {}
        self.pattern = PATTERNS[0]

    def run(self) -> Findings:
        """Run both passes."""
        starts = range(self.first, self.first + self.count, self.chunk)
        if self.count % self.chunk:
            raise ValueError(f"{self.count} inputs are no multiple of the chunk's {self.chunk}")
        self._check_writes(starts[0])
        done = self._in_registers(starts)
        if done is None:
            done = self._chunks(starts, self._sampler(starts))
        self.found.seconds = done.seconds
        columns = dict(zip(self.oracle.names, done.table.cpu().numpy(), strict=True))
        self.found.sums = columns["hash"]
        self._look_again(columns, starts)
        self._sample(columns["flagged"], done)
        self._guards()
        return self.found

    def _sampler(self, starts: Sequence[int]) -> Sampler:
        return Sampler(self.chunk, len(starts), self.device)

    def _chunks(self, starts: Sequence[int], sampler: Sampler) -> _FirstPass:
        """The first pass of some chunks, each as the kernel under test."""
        masks = {n: signed(m, 8 * self.buffers[n].units.itemsize) for n, m in judged_padding(self.job.case).items()}
        above: dict[str, list[Tensor]] = {name: [] for name in masks}
        tallies, samples = [], []
        with stopwatch(self.device) as seconds:
            for k, start in enumerate(starts):
                self._chunk(start)
                for name, mask in masks.items():
                    above[name].append((self.outputs()[name] & mask).any())
                tallies.append(self._tallied(start, starts[k + 1] if k + 1 < len(starts) else start + self.chunk))
                samples.append({n: u[sampler.places(k)] for n, u in self.outputs().items()})
            table = torch.cat(tallies, 1)
        self.found.faults += [
            f"{n}: bits above its codes, which must be zero, are set"
            for n, a in above.items()
            if bool(torch.stack(a).any())
        ]
        return _FirstPass(table, seconds(), starts, sampler, samples)

    def _in_registers(self, starts: Sequence[int]) -> _FirstPass | None:
        """The first pass in registers. None if it does not serve here, or is not the kernel under test everywhere."""
        own = own_chunks(len(starts))
        if self.in_registers is None or 2 * len(own) > len(starts):
            return None
        try:
            self.in_registers(self.number(self.first), 1)  # compiles, which is not timed
        except NotFused:
            return None
        chosen = [starts[k] for k in own]
        sampler = self._sampler(chosen)  # its copy waits for the device; later it would keep the host from launching
        with stopwatch(self.device) as seconds, _concurrently(self.device) as stream:
            table = self.in_registers(self.number(self.first), self.count // ROW)
            with stream:
                done = self._chunks(chosen, sampler)
        if not torch.equal(table[:, rows_of(own, self.chunk).to(table.device)], done.table):
            self.found.notes.append(
                "in the sweep's own kernel the asm gives other results than in the variant's, which all inputs ran in"
            )
            return None
        self.found.notes.append(
            f"inputs exist in registers only: {len(own)} of {len(starts)} chunks ran as the variant's kernel too, with "
            "the same results"
        )
        return replace(done, table=table, seconds=seconds())

    # ---- Running a chunk ------------------------------------------------------------------------------------

    def number(self, start: int) -> Tensor:
        """The number of a chunk's first input for the fused functions: an int64 scalar on the device."""
        return torch.full((), start, dtype=torch.int64, device=self.device)

    def outputs(self) -> dict[str, Tensor]:
        """The outputs of the last launch: storage units by name."""
        return {n: self.buffers[n].units for n in self.oracle.outputs}

    def _chunk(self, start: int) -> None:
        for name in self.oracle.inputs:
            self._fill(name, start)
        if isinstance(self.job.variant, LaunchedVariant):  # it may store some results only, by the inputs of a chunk
            for name in self.oracle.outputs:
                self.buffers[name].bytes.fill_(self.pattern)
        self.launch({n: b.pointer for n, b in self.buffers.items()})

    def _tallied(self, start: int, following: int) -> Tensor:
        """The tallies of a chunk. If one kernel can do both, it also makes the inputs of the next one, if the chunk
        that follows is the next."""
        outputs = list(self.outputs().values())
        after = {n: self._state(n, following) for n in self.oracle.inputs}
        changing = tuple(n for n, state in after.items() if state != self._filled[n])
        if following != start + self.chunk:
            changing = ()
        both = self.tools.tally_ahead(changing) if changing else None
        if both is None:
            return self.tools.tally(self.number(start), *outputs)
        table = both(self.number(start), *outputs, *(self.buffers[n].units for n in changing))
        self._filled |= {n: after[n] for n in changing}
        return table

    def _state(self, name: str, start: int) -> int:
        """A number that identifies the contents of an input's buffer.

        In counted sets the first inputs seldom change.
        """
        if not isinstance(self.oracle.generator, Counted):
            return start
        shift = self.oracle.generator.shifts[name]
        span = 1 << (shift + self.oracle.inputs[name].unit_bits)
        return 0 if span <= self.chunk else start % span >> shift

    def _fill(self, name: str, start: int) -> None:
        """Make one input, unless the buffer already holds it."""
        state = self._state(name, start)
        if self._filled.get(name) != state:
            self.tools.fill[name](self.number(start), self.buffers[name].units)
            self._filled[name] = state

    def _check_writes(self, start: int) -> None:
        """Run the first chunk twice, on complementary patterns: a byte that keeps both patterns was never written.

        asm and functions run in the harness's own kernel, so every chunk writes the same bytes as the first. The output
        buffer of a whole kernel holds a pattern before each chunk.
        """
        untouched: dict[str, Tensor] = {}
        for self.pattern in PATTERNS:
            for name in self.oracle.outputs:
                self.buffers[name].bytes.fill_(self.pattern)
            self._filled.clear()
            self._chunk(start)
            for name in self.oracle.outputs:
                still = self.buffers[name].bytes == self.pattern
                untouched[name] = untouched[name] & still if name in untouched else still
        for name, never in untouched.items():
            if bool(never.any()):
                self.found.faults.append(
                    f"{int(never.sum())} of {never.numel()} bytes of {name} were never written, "
                    f"first byte {int(never.to(torch.uint8).argmax())}"
                )
        self._inputs_hold(start)

    def _inputs_hold(self, start: int) -> None:
        for name, fmt in self.oracle.inputs.items():
            for first in range(0, self.chunk, PIECE):
                part = numbers(self.number(start + first), self.buffers[name].units[first : first + PIECE])
                made = self.oracle.generator.units(name, part).to(self.buffers[name].units.dtype)
                if not torch.equal(made, self.buffers[name].units[first : first + PIECE]):
                    self.found.faults.append(f"{name} is an input and was overwritten ({fmt.name})")
                    return

    def _guards(self) -> None:
        self.found.faults += [
            f"bytes outside {n} were overwritten" for n, b in self.buffers.items() if not b.guards_hold()
        ]

    # ---- The second pass ------------------------------------------------------------------------------------

    def _look_again(self, columns: Mapping[str, NDArray[Any]], starts: range) -> None:
        flagged = columns["flagged"]
        near = Near(self.oracle, columns)
        total = Details()
        windows = Windows(self.examiner, self.judge_numbers, self.job.setup.pack)
        rows = self.chunk // ROW
        interesting = (flagged > 0) | near.far
        far = torch.zeros((len(self.oracle.floats), PLACES), dtype=torch.int64, device=self.device)
        for k in np.unique(np.flatnonzero(interesting) // rows):
            self._chunk(starts[int(k)])
            mine = slice(int(k) * rows, int(k) * rows + rows)
            self._flagged(starts[int(k)], flagged[mine], total, windows)
            far = far + self._distances(starts[int(k)], np.flatnonzero(near.far[mine]))
        add_counts(total.ulps, by_bin(far.sum(0).tolist()))
        worst = near.worst_row
        if total.farthest[0] < near.worst and worst >= 0:
            self._chunk(starts[worst // rows])
            self._farthest(starts[worst // rows], worst % rows, total)
        self.found.notes += windows.notes(total)
        self._judgement(columns, near, total, windows)

    def _pieces(self, start: int, places: Tensor) -> Any:
        for first in range(0, places.numel(), PIECE):
            part = places[first : first + PIECE]
            yield part + start, {n: u[part] for n, u in self.outputs().items()}

    def _flagged(self, start: int, flagged: NDArray[Any], total: Details, windows: Windows) -> None:
        if not flagged.any():
            return
        places = self._flagged_places(start, flagged)
        if places.numel() != int(flagged.sum()):
            self.found.faults.append(
                f"{int(flagged.sum())} results of inputs {start} to {start + self.chunk} were flagged, and "
                f"{places.numel()} when run again: the kernel gives other results, or the reference does"
            )
        for number, units in self._pieces(start, places):
            details = self.examiner.look(number, units)
            total.take_up(details)
            assert details.failing is not None
            self.examiner.map_failing(details.failing)
            windows.take(number, details, start, self.outputs())

    def _flagged_places(self, start: int, flagged: NDArray[Any]) -> Tensor:
        rows = np.flatnonzero(flagged)
        outputs = self.outputs()
        if len(rows) * 16 > len(flagged):
            mask = self.tools.mask(self.number(start), *outputs.values())
            return torch.nonzero(mask).reshape(-1)
        flagged_indices = []
        for row in rows.tolist():
            part = slice(row * ROW, row * ROW + ROW)
            mask = self.oracle.mask(self.number(start + row * ROW), *(u[part] for u in outputs.values()))
            flagged_indices.append(torch.nonzero(mask).reshape(-1) + row * ROW)
        return torch.cat(flagged_indices)

    def _distances(self, start: int, rows: NDArray[Any]) -> Tensor | int:
        """Counts of the distances of all unflagged results of some rows, as in `Oracle.histogram`.

        Those of flagged results are counted where they are examined.
        """
        if not rows.size:
            return 0
        chosen = torch.from_numpy(rows).to(self.device)
        return self.tools.histogram(self.number(start), chosen, *self.outputs().values())

    def _farthest(self, start: int, row: int, total: Details) -> None:
        """Find the greatest distance of the unflagged results of a row."""
        part = slice(row * ROW, (row + 1) * ROW)
        units = {n: u[part] for n, u in self.outputs().items()}
        number = numbers(self.number(start + row * ROW), next(iter(units.values())))
        keep = ~self.oracle.flags(self.oracle.codes(number), self.oracle.codes_of_outputs(units)).flagged
        total.take_up(
            Details(farthest=self.examiner.look(number[keep], {n: u[keep] for n, u in units.items()}).farthest)
        )

    # ---- The result of the sweep ----------------------------------------------------------------------------

    def _judgement(self, columns: Mapping[str, NDArray[Any]], near: Near, total: Details, windows: Windows) -> None:
        j = self.found.judgement
        j.total = self.count * sum(f.codes_per_unit for f in self.oracle.outputs.values())
        plain, device = windows.plain, windows.device
        unchecked = sum(int(columns[f"{n}:unchecked"].sum()) for n in self.oracle.open_outputs)
        j.different, j.unchecked = total.different, total.unchecked + unchecked
        j.classes, j.ulps = dict(total.classes), near.histogram()
        add_counts(j.ulps, total.ulps)
        j.ulps_failing, j.ulps_unchecked = dict(total.ulps_failing), dict(total.ulps_unchecked)
        j.ranges = near.ranges(self.first, *self.examiner.extremes())
        j.failing = self.examiner.failing_cells()
        if plain is not None:
            # Results that were judged again get the plain judge's classes, which distinguish flushes and exchanged
            # places.
            j.different += plain.different - device.different
            j.unchecked += plain.unchecked - device.unchecked
            add_counts(j.classes, {name: -count for name, count in device.classes.items()})
            add_counts(j.classes, plain.classes)
            j.classes = {name: count for name, count in j.classes.items() if count}
            for mine, theirs, instead in (
                (j.ulps_failing, device.ulps_failing, plain.ulps_failing),
                (j.ulps_unchecked, device.ulps_unchecked, plain.ulps_unchecked),
            ):
                add_counts(mine, {name: -count for name, count in theirs.items()})
                add_counts(mine, instead)
                for name in [name for name, count in mine.items() if not count]:
                    del mine[name]
            j.offenders, j.notes = plain.offenders, plain.notes
            j.worst, j.worst_failing = plain.worst, plain.worst_failing
        if total.farthest[1] >= 0 and abs((j.worst.ulp if j.worst else 0) or 0) < total.farthest[0]:
            there = self.judge_numbers(np.array([total.farthest[1]]))
            j.worst, j.worst_failing = there.worst or j.worst, there.worst_failing or j.worst_failing
        self.found.failing = windows.first

    def judge_numbers(self, number: NDArray[Any], units: Mapping[str, Any] | None = None) -> Judgement:
        """Judge inputs of one chunk with the plain judge; if their outputs (numpy) are not given, the chunk runs
        again."""
        if units is None:
            start = self.first + (int(number[0]) - self.first) // self.chunk * self.chunk
            self._chunk(start)
            index = torch.from_numpy(number - start).to(self.device)
            units = {n: u[index].cpu().numpy() for n, u in self.outputs().items()}
        return judged_plainly(self.job.case, self.policy, self.oracle, number, units, self.job.setup.pack)

    def _sample(self, flagged: NDArray[Any], done: _FirstPass) -> None:
        """Judge a sample of unflagged results with the plain reference, to detect a miscompiled oracle."""
        numbers = (done.sampler.host + np.array(done.starts)[:, None]).reshape(-1)
        spread = numbers
        if len(done.starts) * self.chunk < self.count:  # a domain may lie between those chunks, or in them alone
            spread = Sampler(self.count, 1, "cpu").host[0] + self.first
        self.found.judgement.judged = shares_of_sample(self.job.case, self.policy, self.oracle, spread)
        units = {n: torch.cat([s[n] for s in done.samples]).cpu().numpy() for n in self.oracle.outputs}
        clean = flagged[(numbers - self.first) // ROW] == 0
        if not clean.any():
            return
        j = judged_plainly(
            self.job.case, self.policy, self.oracle, numbers[clean], {n: u[clean] for n, u in units.items()}, 1
        )
        self.found.notes.append(f"{int(clean.sum())} results that were not flagged judged again by the plain reference")
        if j.different:
            first = j.offenders[0]
            raise OracleFault(
                f"the compiled reference passed input number {first.index} ({first.output}: expected "
                f"{first.expected.bits}, got {first.got.bits}), the plain one calls it {first.difference}; "
                f"{j.different} of {int(clean.sum())} sampled results so"
            )


# Inputs of a sweep that the plain judge checks again: the flagged ones, and a sample of the others -----------------

SAMPLE = 1 << 16
"""The total number of inputs."""


class Sampler:
    """Random places in each chunk, equal at each call. host: int64[chunks, each], ascending in a chunk."""

    def __init__(self, chunk: int, chunks: int, device: str) -> None:
        rng = np.random.default_rng(seed_of("sampled again"))
        each = min(chunk, -(-SAMPLE // chunks))
        apart = chunk // each
        self.host = np.arange(each) * apart + rng.integers(0, apart, (chunks, each))
        self._places = torch.from_numpy(self.host).to(device)

    def places(self, chunk: int) -> Tensor:
        """The places of one chunk, ascending."""
        return self._places[chunk]


REJUDGED = 1 << 16
"""The most flagged inputs that the plain judge judges, besides the doubtful ones."""


class Windows:
    """Failing, doubtful and some other flagged inputs with their packs, judged again by the plain judge.

    plain, device: the findings of the two judges. first: the number of the first failing input, None if none fails.
    """

    def __init__(self, examiner: Examiner, judge_numbers: Callable[..., Judgement], pack: int) -> None:
        self._examiner, self._judge_numbers, self._pack = examiner, judge_numbers, pack
        self.plain: Judgement | None = None
        self.device = Details()
        self.first: int | None = None
        self._left = REJUDGED
        self._done = -1

    def take(self, number: Tensor, details: Details, start: int, outputs: Mapping[str, Tensor]) -> None:
        """Judge findings of a piece again: at most REJUDGED inputs, plus all doubtful ones.

        number: the numbers of the piece's inputs. start: the number of the chunk's first input. outputs: the chunk's
        outputs. Raises OracleFault if the two judges differ.
        """
        assert details.failing is not None
        assert details.doubt is not None
        if details.failing.numel() and self.first is None:
            self.first = int(details.failing[0])
        chosen = torch.cat([details.failing[: self._left], details.doubt, number[: min(self._left, REJUDGED // 16)]])
        host = torch.unique(chosen).cpu().numpy()
        self._left = max(0, self._left - len(host))
        host = whole_packs(host, self._pack)
        host = host[host > self._done]  # count no pack twice
        if not len(host):
            return
        self._done = int(host[-1])
        index = torch.from_numpy(host - start).to(number.device)
        units = {n: u[index] for n, u in outputs.items()}
        seen = self._examiner.look(index + start, units)
        plain = self._judge_numbers(host, {n: u.cpu().numpy() for n, u in units.items()})
        doubt = int(seen.doubt.numel()) if seen.doubt is not None else 0
        if abs(plain.different - seen.different) > doubt:
            raise OracleFault(
                f"of {len(host)} inputs from number {host[0]} on, {seen.different} results differ by the judge on the "
                f"device and {plain.different} by the plain one"
            )
        self.device.take_up(seen)
        self.plain = plain if self.plain is None else self.plain.merged(plain)

    def notes(self, total: Details) -> list[str]:
        """Remarks if not all differences were judged again. total: the findings about all examined results."""
        if self.plain is None or total.different <= self.device.different:
            return []
        return [
            f"{self.device.different} of {total.different} differences judged again by the plain reference; "
            "the classes of the others are the device's, which tells no flush from another difference"
        ]


# Distances of the results that a sweep did not flag, from the tallies of its rows ----------------------------------


class Near:
    """The distances in tallies. columns: the fused function's tallies by the oracle's names, one number for each row of
    inputs.

    far: rows with a distance beyond `NEAR`, which the second pass must count. worst: the greatest distance in ulp, and
    worst_row its row, or -1 if all distances are zero.
    """

    def __init__(self, oracle: Oracle, columns: Mapping[str, NDArray[Any]]) -> None:
        self.oracle, self.columns = oracle, columns
        self.floats = [n for n, f in oracle.outputs.items() if f.is_float]
        rows = len(columns["flagged"])
        self.low, self.high = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        for n in self.floats:
            self.low = np.minimum(self.low, columns[f"{n}:low"])
            self.high = np.maximum(self.high, columns[f"{n}:high"])
        self.far = (self.low < NEAR[0]) | (self.high > NEAR[-1])
        size = np.maximum(-self.low, self.high)
        self.worst = int(size.max()) if rows else 0
        self.worst_row = int(size.argmax()) if self.worst else -1

    def histogram(self) -> dict[str, int]:
        """Counts of the signed distances of rows that are not far."""
        counted: dict[str, int] = {}
        for n in self.floats:
            rest = self.columns[f"{n}:finite"][~self.far].sum()
            for d in NEAR:
                count = int(self.columns[f"{n}:{d}"][~self.far].sum())
                rest -= count
                add_counts(counted, {str(d): count} if count else {})
            add_counts(counted, {"0": int(rest)} if rest else {})
        return counted

    def ranges(self, first: int, low: NDArray[np.int64], high: NDArray[np.int64]) -> dict[str, tuple[int, int]]:
        """Extremes by binary exponent of the first input, for rows with one exponent.

        first: the number of the first row's first input. low, high: by row, the extremes of individually examined
        results.
        """
        low, high = np.minimum(self.low, low), np.maximum(self.high, high)
        generator = self.oracle.generator
        name, fmt = next(iter(self.oracle.inputs.items()))
        fraction = fmt.mantissa_bits + fmt.ignored_bits
        if not isinstance(generator, Counted) or not fmt.is_float or fmt.codes_per_unit > 1 or not self.floats:
            return {}
        if (1 << (generator.shifts[name] + fraction)) < ROW:
            return {}
        field = ((first + np.arange(len(self.low)) * ROW) >> (generator.shifts[name] + fraction)) & (
            (1 << fmt.exponent_bits) - 1
        )
        last = (1 << fmt.exponent_bits) - 1 if fmt.infinity else -1
        extremes = {}
        for e in np.unique(field[field != last]).tolist():
            extremes["sub" if e == 0 else str(e - fmt.bias)] = (int(low[field == e].min()), int(high[field == e].max()))
        return extremes


# The device time of a sweep, and of a copy of as many bytes --------------------------------------------------------


@contextlib.contextmanager
def _concurrently(device: str) -> Iterator[contextlib.AbstractContextManager[Any]]:
    """Gives the context of a stream whose kernels run beside those of the block; the block's stream then waits for it.

    The stream has a high priority: the programs of a large kernel are many, and those of the others would run after it.
    """
    if not device.startswith("cuda"):
        yield contextlib.nullcontext()
        return
    current, other = torch.cuda.current_stream(), torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]
    other.wait_stream(current)
    try:
        yield torch.cuda.stream(other)
    finally:  # after an error, too: its kernels use buffers that are freed then
        current.wait_stream(other)


COPIED = 1 << 29
"""Bytes of one copy: more than any cache holds."""


@contextlib.contextmanager
def stopwatch(device: str) -> Iterator[Callable[[], float]]:
    """Gives a function that returns the device time of the block in seconds, after its end; 0.0 without a device."""
    if not device.startswith("cuda"):
        yield lambda: 0.0
        return
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def seconds() -> float:
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    begin.record()
    yield seconds
    end.record()


def copy_floor(size: int, device: str) -> float:
    """Measures the seconds of a device copy of `size` bytes, which reads and writes them once; 0.0 without a device."""
    if not device.startswith("cuda"):
        return 0.0
    part = min(size, COPIED)
    source = torch.empty(part, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(7):
        with stopwatch(device) as seconds:
            target.copy_(source)
        times.append(seconds())
    return float(np.median(times)) * size / part
