"""A sweep where the kernel runs: inputs made on the device, the kernel launched as ever, results judged beside it.

Two passes. The first runs all chunks without waiting for any: make the inputs, launch, tally. The second comes back to
the few chunks in which something was flagged, or lies further from the reference than was counted, and looks closely.

Memory: the inputs and outputs of one chunk (`CHUNK_BYTES`), and as much again while eager operations look at a piece of
it, whatever the size of the set.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.backends import Job
from harness.case import Policies
from harness.inputs.generated import Counted, Generator
from harness.judge import Judgement
from harness.sweep import kernels
from harness.sweep.examine import PIECE, Details, Examiner, judged_plainly, packs_of
from harness.sweep.oracle import NEAR, Fused, Oracle, numbers
from harness.sweep.result import ROW, OracleFault
from harness.sweep.writer import NotFused
from harness.triton.launch import Tensor as Argument
from references.formats import Format

CHUNK_BYTES = 1 << 30
SAMPLE = 1 << 16  # inputs that were not flagged and are judged again by the plain reference
REJUDGED = 1 << 16  # flagged inputs that are, besides
GUARD = 256
PATTERNS = (0xA5, 0x5A)

Launch = Callable[[Mapping[str, Tensor]], Any]


@dataclass
class Findings:
    """What a sweep gathers. sums: the hash of each row. seconds: device time of the first pass, 0.0 on a CPU."""

    judgement: Judgement = field(default_factory=Judgement)
    faults: list[str] = field(default_factory=list)
    sums: Any = ()
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    failing: Any = None


class Buffer:
    """A chunk of one tensor on the device between guard zones."""

    def __init__(self, fmt: Format, size: int, device: str, view: torch.dtype) -> None:
        unit = fmt.unit_bits // 8
        self.raw = torch.full((size * unit + 2 * GUARD,), PATTERNS[0], dtype=torch.uint8, device=device)
        self.bytes = self.raw[GUARD : GUARD + size * unit]
        self.units = self.bytes.view(getattr(torch, f"int{fmt.unit_bits}"))
        self.pointer = self.bytes.view(view)

    def guards_hold(self) -> bool:
        """Whether nothing was written outside."""
        outside = torch.cat([self.raw[:GUARD], self.raw[-GUARD:]])
        return bool((outside == PATTERNS[0]).all())


def chunk_size(count: int, unit_bytes: int, *, compiled: bool) -> int:
    """Inputs a chunk: a power of two, at least one row; small pieces where eager operations do all the work."""
    size = ROW
    while size * 2 <= count and size * 2 * unit_bytes <= CHUNK_BYTES and (compiled or size * 2 <= PIECE):
        size *= 2
    return size


class DeviceSweep:
    """One sweep. count must be a multiple of `ROW`.

    launch: starts the kernel on tensors by name, for `chunk` inputs. views: the torch dtype of each pointer.
    """

    def __init__(
        self, job: Job, policy: Policies, generator: Generator, count: int, launch: Launch,
        arguments: tuple[Argument, ...], views: Mapping[str, torch.dtype], *, device: str, compiled: bool,
        first: int = 0,
    ) -> None:  # fmt: skip
        if count % ROW or first % ROW:
            raise ValueError(f"a sweep has a multiple of {ROW} inputs, not {count} from {first} on")
        self.job, self.policy, self.count, self.first = job, policy, count, first
        self.oracle = Oracle(job.case, policy, generator)
        self.examiner = Examiner(self.oracle, first, count // ROW, device)
        self.launch, self.device = launch, device
        self.chunk = job.setup.shape[0]
        self.buffers = {a.name: Buffer(a.format, self.chunk, device, views[a.name]) for a in arguments}
        self.tools = _tools(self.oracle, job, self.chunk, device) if compiled else _plain_tools(self.oracle)
        self.found = Findings()
        self._filled: dict[str, int] = {}

    def run(self) -> Findings:
        """Both passes."""
        starts = range(self.first, self.first + self.count, self.chunk)
        if self.count % self.chunk:
            raise ValueError(f"{self.count} inputs are no multiple of the chunk's {self.chunk}")
        self._check_writes(starts[0])
        sampler = _Sampler(self.chunk, len(starts), self.job.case_name, self.device)
        tallies, samples = [], []
        with _stopwatch(self.device) as seconds:
            for k, start in enumerate(starts):
                self._chunk(start)
                tallies.append(self._tallied(start))
                samples.append({n: u[sampler.places(k)] for n, u in self._outputs().items()})
            table = torch.cat(tallies, 1).cpu().numpy()
        self.found.seconds = seconds()
        columns = dict(zip(self.oracle.names, table, strict=True))
        self.found.sums = columns["hash"]
        self._look_again(columns, starts)
        self._sample(columns["flagged"], sampler, starts, samples)
        self._guards()
        return self.found

    # ---- Running a chunk ------------------------------------------------------------------------------------

    def _number(self, start: int) -> Tensor:
        return torch.full((), start, dtype=torch.int64, device=self.device)

    def _outputs(self) -> dict[str, Tensor]:
        return {n: self.buffers[n].units for n in self.oracle.outputs}

    def _chunk(self, start: int) -> None:
        for name in self.oracle.inputs:
            self._fill(name, start)
        self.launch({n: b.pointer for n, b in self.buffers.items()})

    def _tallied(self, start: int) -> Tensor:
        """Tallies of a chunk; on the way the inputs of the next one are made, where a kernel can do both."""
        outputs = list(self._outputs().values())
        after = {n: self._state(n, start + self.chunk) for n in self.oracle.inputs}
        changing = tuple(n for n, state in after.items() if state != self._filled[n])
        both = self.tools.tally_ahead(changing) if changing else None
        if both is None:
            return self.tools.tally(self._number(start), *outputs)
        table = both(self._number(start), *outputs, *(self.buffers[n].units for n in changing))
        self._filled |= {n: after[n] for n in changing}
        return table

    def _state(self, name: str, start: int) -> int:
        """What tells the contents of an input's buffer: counted up, the first inputs change seldom."""
        if not isinstance(self.oracle.generator, Counted):
            return start
        shift = self.oracle.generator.shifts[name]
        span = 1 << (shift + self.oracle.inputs[name].unit_bits)
        return 0 if span <= self.chunk else start % span >> shift

    def _fill(self, name: str, start: int) -> None:
        """Make one input, unless the buffer holds it still."""
        state = self._state(name, start)
        if self._filled.get(name) != state:
            self.tools.fill[name](self._number(start), self.buffers[name].units)
            self._filled[name] = state

    def _check_writes(self, start: int) -> None:
        """The first chunk twice, on complementary patterns: a byte that holds both was never written.

        Later chunks find the results of the one before, which agree with the reference by accident only. The launch
        is the same for all, so that what one writes, all write.
        """
        untouched: dict[str, Tensor] = {}
        for pattern in PATTERNS:
            for name in self.oracle.outputs:
                self.buffers[name].bytes.fill_(pattern)
            self._filled.clear()
            self._chunk(start)
            for name in self.oracle.outputs:
                still = self.buffers[name].bytes == pattern
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
                part = numbers(self._number(start + first), self.buffers[name].units[first : first + PIECE])
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
        near = _Near(self.oracle, columns)
        total = Details()
        windows = _Windows(self, total)
        rows = self.chunk // ROW
        interesting = (flagged > 0) | near.far
        for k in np.unique(np.flatnonzero(interesting) // rows):
            self._chunk(starts[int(k)])
            mine = slice(int(k) * rows, int(k) * rows + rows)
            self._flagged(starts[int(k)], flagged[mine], total, windows)
            self._far_rows(starts[int(k)], np.flatnonzero(near.far[mine]), total)
        worst = near.worst_row
        if total.farthest[0] < near.worst and worst >= 0:
            self._chunk(starts[worst // rows])
            self._far_rows(starts[worst // rows], np.array([worst % rows]), total, histogram=False)
        windows.close()
        self._judgement(near, total, windows)

    def _pieces(self, start: int, places: Tensor) -> Any:
        for first in range(0, places.numel(), PIECE):
            part = places[first : first + PIECE]
            yield part + start, {n: u[part] for n, u in self._outputs().items()}

    def _flagged(self, start: int, flagged: NDArray[Any], total: Details, windows: _Windows) -> None:
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
            _merge(total, details)
            assert details.failing is not None
            self.examiner.map_failing(details.failing)
            windows.take(number, details, start)

    def _flagged_places(self, start: int, flagged: NDArray[Any]) -> Tensor:
        rows = np.flatnonzero(flagged)
        outputs = self._outputs()
        if len(rows) * 16 > len(flagged):
            mask = self.tools.mask(self._number(start), *outputs.values())
            return torch.nonzero(mask).reshape(-1)
        found = []
        for row in rows.tolist():
            part = slice(row * ROW, row * ROW + ROW)
            mask = self.oracle.mask(self._number(start + row * ROW), *(u[part] for u in outputs.values()))
            found.append(torch.nonzero(mask).reshape(-1) + row * ROW)
        return torch.cat(found)

    def _far_rows(self, start: int, rows: NDArray[Any], total: Details, *, histogram: bool = True) -> None:
        """Distances of all results of some rows that are not flagged; those of flagged ones are known already."""
        for group in np.array_split(rows, -(-len(rows) // (PIECE // ROW))) if len(rows) else ():
            row = torch.arange(ROW, device=self.device)
            places = torch.cat([row + r * ROW for r in group.tolist()])
            units = {n: u[places] for n, u in self._outputs().items()}
            flags, _ = self.oracle.flags(self.oracle.codes(places + start), self.oracle.codes_of_outputs(units))
            keep = ~flags
            details = self.examiner.look(places[keep] + start, {n: u[keep] for n, u in units.items()})
            if not histogram:
                details.ulps = {}
            _merge(total, Details(ulps=details.ulps, farthest=details.farthest))

    # ---- What it amounts to ---------------------------------------------------------------------------------

    def _judgement(self, near: _Near, total: Details, windows: _Windows) -> None:
        j = self.found.judgement
        j.total = self.count * sum(f.codes_per_unit for f in self.oracle.outputs.values())
        plain, device = windows.plain, windows.device
        j.different, j.unchecked = total.different, total.unchecked
        j.classes, j.ulps = dict(total.classes), near.histogram()
        _add(j.ulps, total.ulps)
        j.ranges = near.ranges(self.first, *self.examiner.extremes())
        j.failing = self.examiner.failing_cells()
        if plain is not None:
            # For what was judged again, the plain judge's words: it tells flushes and exchanged places.
            j.different += plain.different - device.different
            j.unchecked += plain.unchecked - device.unchecked
            _add(j.classes, {name: -count for name, count in device.classes.items()})
            _add(j.classes, plain.classes)
            j.classes = {name: count for name, count in j.classes.items() if count}
            j.offenders, j.notes = plain.offenders, plain.notes
            j.worst = plain.worst
        if total.farthest[1] >= 0 and abs((j.worst.ulp if j.worst else 0) or 0) < total.farthest[0]:
            j.worst = self._judge_numbers(np.array([total.farthest[1]])).worst or j.worst
        self.found.failing = windows.first

    def _judge_numbers(self, number: NDArray[Any], units: Mapping[str, Any] | None = None) -> Judgement:
        if units is None:
            start = self.first + (int(number[0]) - self.first) // self.chunk * self.chunk
            self._chunk(start)
            place = torch.from_numpy(number - start).to(self.device)
            units = {n: u[place].cpu().numpy() for n, u in self._outputs().items()}
        return judged_plainly(self.job.case, self.policy, self.oracle, number, units, self.job.setup.pack)

    def _sample(
        self, flagged: NDArray[Any], sampler: _Sampler, starts: range, samples: list[dict[str, Tensor]]
    ) -> None:
        """Results that were not flagged, judged by the plain reference: a miscompiled oracle cannot pass them all."""
        numbers = (sampler.host + np.array(starts)[:, None]).reshape(-1)
        units = {n: torch.cat([s[n] for s in samples]).cpu().numpy() for n in self.oracle.outputs}
        clean = flagged[(numbers - self.first) // ROW] == 0
        if not clean.any():
            return
        j = judged_plainly(
            self.job.case, self.policy, self.oracle, numbers[clean], {n: u[clean] for n, u in units.items()}, 1
        )
        self.found.judgement.promised += j.promised
        if j.meets is not None:
            self.found.judgement.meets = (self.found.judgement.meets or 0) + j.meets
        self.found.notes.append(f"{int(clean.sum())} results that were not flagged judged again by the plain reference")
        if j.different:
            first = j.offenders[0]
            raise OracleFault(
                f"the compiled reference passed input number {first.index} ({first.output}: expected "
                f"{first.expected.bits}, got {first.got.bits}), the plain one calls it {first.difference}; "
                f"{j.different} of {int(clean.sum())} sampled results so"
            )


class _Windows:
    """Failing, doubtful and some other flagged inputs with their packs, put before the plain judge."""

    def __init__(self, sweep: DeviceSweep, total: Details) -> None:
        self.sweep, self.total = sweep, total
        self.plain: Judgement | None = None
        self.device = Details()
        self.first: int | None = None
        self._left = REJUDGED
        self._done = -1

    def take(self, number: Tensor, details: Details, start: int) -> None:
        """Judge again what was found in a piece, as far as there is room; doubtful inputs always."""
        assert details.failing is not None
        assert details.doubt is not None
        if details.failing.numel() and self.first is None:
            self.first = int(details.failing[0])
        chosen = torch.cat([details.failing[: self._left], details.doubt, number[: min(self._left, REJUDGED // 16)]])
        host = torch.unique(chosen).cpu().numpy()
        self._left = max(0, self._left - len(host))
        host = packs_of(host, self.sweep.job.setup.pack)
        host = host[host > self._done]  # a pack is never counted twice
        if not len(host):
            return
        self._done = int(host[-1])
        place = torch.from_numpy(host - start).to(self.sweep.device)
        units = {n: u[place] for n, u in self.sweep._outputs().items()}
        seen = self.sweep.examiner.look(place + start, units)
        plain = self.sweep._judge_numbers(host, {n: u.cpu().numpy() for n, u in units.items()})
        doubt = int(seen.doubt.numel()) if seen.doubt is not None else 0
        if abs(plain.different - seen.different) > doubt:
            raise OracleFault(
                f"of {len(host)} inputs from number {host[0]} on, {seen.different} results differ by the judge on the "
                f"device and {plain.different} by the plain one"
            )
        _merge(self.device, seen)
        self.plain = plain if self.plain is None else self.plain.merged(plain)

    def close(self) -> None:
        """Say so where not everything that differs was judged again."""
        if self.plain is not None and self.total.different > self.device.different:
            self.sweep.found.notes.append(
                f"{self.device.different} of {self.total.different} differences judged again by the plain reference; "
                "the classes of the others are the device's, which tells no flush from another difference"
            )


class _Near:
    """The tallies of the fused function: distances of what was not flagged."""

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
        """Signed distances of the rows that are not far, counted."""
        counted: dict[str, int] = {}
        for n in self.floats:
            rest = self.columns[f"{n}:finite"][~self.far].sum()
            for d in NEAR:
                count = int(self.columns[f"{n}:{d}"][~self.far].sum())
                rest -= count
                _add(counted, {str(d): count} if count else {})
            _add(counted, {"0": int(rest)} if rest else {})
        return counted

    def ranges(self, first: int, low: NDArray[np.int64], high: NDArray[np.int64]) -> dict[str, tuple[int, int]]:
        """Extremes by binary exponent of the first input, where a row has one exponent.

        first: the number of the first row's first input. low, high: by row, of what was examined one by one.
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
        found = {}
        for e in np.unique(field[field != last]).tolist():
            found["sub" if e == 0 else str(e - fmt.bias)] = (int(low[field == e].min()), int(high[field == e].max()))
        return found


class _Sampler:
    """Random places in each chunk, the same whenever asked."""

    def __init__(self, chunk: int, chunks: int, name: str, device: str) -> None:
        from harness.inputs.sets import seed_of

        rng = np.random.default_rng(seed_of(name, "sampled again"))
        each = min(chunk, -(-SAMPLE // chunks))
        apart = chunk // each
        self.host = np.arange(each) * apart + rng.integers(0, apart, (chunks, each))
        self._places = torch.from_numpy(self.host).to(device)

    def places(self, chunk: int) -> Tensor:
        """Those of one chunk, ascending."""
        return self._places[chunk]


def _merge(into: Details, found: Details) -> None:
    into.different += found.different
    into.unchecked += found.unchecked
    _add(into.classes, found.classes)
    _add(into.ulps, found.ulps)
    if found.farthest[0] > into.farthest[0]:
        into.farthest = found.farthest


def _add(into: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        into[name] = into.get(name, 0) + count


# ---- Compiled functions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tools:
    """tally_ahead: for the names of inputs, a tally that makes them for the next chunk besides; None for none."""

    tally: Callable[..., Tensor]
    mask: Callable[..., Tensor]
    fill: Mapping[str, Callable[[Tensor, Tensor], Any]]
    tally_ahead: Callable[[tuple[str, ...]], Callable[..., Tensor] | None] = lambda _: None


def _filler(generator: Generator, name: str) -> Callable[[Tensor, Tensor], Any]:
    def fill(first: Tensor, units: Tensor) -> None:
        units.copy_(generator.units(name, numbers(first, units)).to(units.dtype))

    return fill


def _plain_tools(oracle: Oracle) -> _Tools:
    fill = {n: _filler(oracle.generator, n) for n in oracle.inputs}
    return _Tools(oracle.tally, oracle.mask, fill)


_kept: dict[tuple[Any, ...], _Tools] = {}


def _tools(oracle: Oracle, job: Job, chunk: int, device: str) -> _Tools:
    """The fused functions, kept for the other variants and packs that are judged alike."""
    policy = oracle.policy
    key = (
        id(job.case), repr(oracle.generator), chunk, device, policy.reference, repr(sorted(policy.match.items())),
        repr(sorted(policy.ftz.items())), policy.nan, repr(policy.meets),
    )  # fmt: skip
    if key not in _kept:
        plain = _plain_tools(oracle)
        _kept[key] = _Tools(
            _fused(lambda: kernels.tally_of(oracle), plain.tally),
            _fused(lambda: kernels.mask_of(oracle), plain.mask),
            {n: _fused(functools.partial(kernels.fill_of, oracle, n), f) for n, f in plain.fill.items()},
            _ahead(oracle, chunk, device),
        )
    return _kept[key]


def _ahead(oracle: Oracle, chunk: int, device: str) -> Callable[[tuple[str, ...]], Callable[..., Tensor] | None]:
    @functools.cache
    def made(names: tuple[str, ...]) -> Callable[..., Tensor] | None:
        if not device.startswith("cuda") or not isinstance(oracle.generator, Counted):
            return None
        try:
            return kernels.tally_of(oracle, names, chunk)
        except NotFused:
            return None

    return made


def _fused(make: Callable[[], Callable[..., Any]], plain: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of our own, made when it is first called; what that cannot be made of, torch compiles."""
    made: list[Callable[..., Any]] = []

    def call(*tensors: Tensor) -> Any:
        if not made and tensors[0].device.type == "cuda":
            with contextlib.suppress(NotFused):
                made.append(make())
        if not made:
            made.append(Fused(plain))
        return made[0](*tensors)

    return call


@contextlib.contextmanager
def _stopwatch(device: str) -> Any:
    """Device time of a block in seconds, asked for after it; 0.0 without a device."""
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
    """Seconds that a device copy of `size` bytes takes here and now, reading and writing once; 0.0 without a device."""
    if not device.startswith("cuda"):
        return 0.0
    part = min(size, CHUNK_BYTES // 2)
    source = torch.empty(part, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(7):
        with _stopwatch(device) as seconds:
            target.copy_(source)
        times.append(seconds())
    return float(np.median(times)) * size / part
