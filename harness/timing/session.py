"""A timing session: one case on the device here, at every size, as records."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton

from ptxdiff.backends.gpu import device_target
from ptxdiff.inputs.sets import seed_of
from ptxdiff.model.compilers import PtxasChoice
from ptxdiff.model.load import LoadedCase, load
from ptxdiff.processes.child import SWEEP_LIMIT, of_target
from ptxdiff.processes.gpus import current
from ptxdiff.records import Key, Timing
from ptxdiff.records import statistics as speed
from ptxdiff.timing import CannotTime, NoGpuToTime, Session
from ptxdiff.timing.candidates import INPUT_SET, Arms, Size, arms_of, sized, sizes_of
from ptxdiff.timing.rounds import COPY, EMPTY, LEAST, TWIN, Samples, TimedCall, Timer, bounded_by_clock, measure
from ptxdiff.triton.templates import ptxdiff_flush

# ---- Timers of launches: CUPTI's record of their kernels, or, without CUPTI, events around them ----------------------

FLUSH_BLOCK = 4096
QUEUED = 20  # launches that the timer of events queues at a time
SLEEP = 2_000_000  # cycles, about a millisecond: enough time to queue them


class Flush:
    """Empties the L2 by reading twice its size."""

    def __init__(self, l2: int) -> None:
        self._words = torch.zeros(2 * l2 // 4, dtype=torch.int32, device="cuda")
        self._out = torch.zeros(1, dtype=torch.int32, device="cuda")

    def __call__(self) -> None:
        """Queue it."""
        n = self._words.numel()
        ptxdiff_flush[(triton.cdiv(n, FLUSH_BLOCK),)](self._words, self._out, n, BLOCK=FLUSH_BLOCK)


class EventTimer:
    """Events around launches that are queued while the device sleeps, so that it never waits for the host.

    On an H200 they add 3 us to every launch, an empty kernel's included.
    """

    name = "events"

    def __init__(self, flush: Callable[[], Any]) -> None:
        self._flush = flush

    def times(self, launches: Sequence[TimedCall]) -> list[float]:
        """See `ptxdiff.timing.rounds.Timer`."""
        seconds: list[float] = []
        for start in range(0, len(launches), QUEUED):
            events = [(_event(), _event(), launch) for launch in launches[start : start + QUEUED]]
            torch.cuda._sleep(SLEEP)  # type: ignore[no-untyped-call]
            for begin, end, launch in events:
                self._flush()
                begin.record()
                launch()
                end.record()
            torch.cuda.synchronize()
            seconds += [round(begin.elapsed_time(end) / 1e3, 9) for begin, end, _ in events]
        return seconds


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class CuptiTimer:
    """CUPTI's record, read through torch.profiler: from the start of a launch's first kernel to the end of its last."""

    name = "cupti"

    def __init__(self, flush: Callable[[], Any]) -> None:
        self._flush = flush

    def times(self, launches: Sequence[TimedCall]) -> list[float]:
        """See `ptxdiff.timing.rounds.Timer`. Raises LostRecords if CUPTI has no record of a launch."""
        with _recording() as recorded:
            for launch in launches:
                self._flush()
                launch()
            torch.cuda.synchronize()
        return spans(_activities(recorded), len(launches))


class LostRecords(RuntimeError):
    """CUPTI's record lacks a launch."""


def spans(activities: Sequence[tuple[str, int, int]], count: int) -> list[float]:
    """Seconds of each of `count` launches, from (name, begin, end) in integer nanoseconds; a flush precedes each
    launch.

    The times count from 1970: as floating-point numbers they would be multiples of 256 ns.
    """
    launch_spans: list[tuple[int, int] | None] = []
    for name, begin, end in sorted(activities, key=lambda a: a[1]):
        if "ptxdiff_flush" in name:
            launch_spans.append(None)
        elif launch_spans:
            before = launch_spans[-1]
            launch_spans[-1] = (begin, end) if before is None else (before[0], max(end, before[1]))
    if len(launch_spans) != count or None in launch_spans:
        kept = sum(span is not None for span in launch_spans)
        raise LostRecords(f"CUPTI's record has {kept} of {count} launches; another profiler may be attached")
    return [round((end - begin) / 1e9, 9) for begin, end in filter(None, launch_spans)]


@contextlib.contextmanager
def _recording() -> Iterator[Any]:
    from torch.profiler import ProfilerActivity, profile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.profiler announces changes of its own
        with profile(activities=[ProfilerActivity.CUDA]) as recorded:
            yield recorded


def _activities(recorded: Any) -> list[tuple[str, int, int]]:
    """The device's activities: name, begin and end in nanoseconds."""
    cuda = torch.autograd.DeviceType.CUDA  # type: ignore[attr-defined]
    results = recorded.profiler.kineto_results.events()  # its own `events()` is 50 times slower
    return [
        (e.name(), e.start_ns(), e.start_ns() + e.duration_ns())
        for e in results
        if e.device_type() == cuda and e.duration_ns() > 0
    ]


def timer(l2: int) -> tuple[Timer, str]:
    """The best timer that works here, and, if it is not CUPTI's, the reason."""
    flush = Flush(l2)
    cupti = CuptiTimer(flush)
    try:
        cupti.times([lambda: torch.zeros(1, device="cuda")] * 3)
    except (LostRecords, RuntimeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        return EventTimer(flush), f"events around launches instead of CUPTI's record: {reason}"
    return cupti, ""


# ---- Sessions --------------------------------------------------------------------------------------------------------

BUDGET = 1.0  # seconds of rounds at each size
WARM_UP = 0.2  # seconds of work before anything is timed: an idle GPU's clocks are low


def time_case(
    path: str,
    attribute: str,
    target: str,
    assemblers: Sequence[PtxasChoice | None] = (None,),
    variants: Sequence[str] = (),
    sizes: Sequence[str | int] = (),
    budget: float = BUDGET,
    least: int = LEAST,
) -> Session:
    """Time a case on torch's current CUDA device. All arguments are plain values, so that any process can be called.

    path, attribute: the case file and the case's name in it. target: the device's. assemblers: of the machine code,
    each timed in rounds of its own, with an A/A run of its own; None is Triton's. variants: those to time, by default
    all, with the case's expression in PyTorch if it has one. sizes: names ("small", "L2", "large") or numbers of
    elements; by default the three. budget: seconds of rounds at each size. least: rounds. Raises CannotTime.
    """
    if not torch.cuda.is_available():
        raise NoGpuToTime("torch finds no CUDA device")
    if target != device_target():
        raise NoGpuToTime(f"the device is {device_target()}")
    loaded = next(c for c in load(Path(path)) if c.attribute == attribute)
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    launch_timer, reason = timer(l2)
    room = _Room(loaded, target, launch_timer, Clocks(current()), budget, least)
    _warm_up(Flush(l2))
    timings_made: list[Timing] = []
    notes = [reason] if reason else []
    for size in _chosen(loaded, l2, sizes):
        free, _ = torch.cuda.mem_get_info()
        if 2.2 * size.bytes > free:  # the tensors, and those of the copy
            notes.append(f"{size.elements} elements: {size.bytes >> 20} MiB and a copy do not fit into the device")
            continue
        for assembler in assemblers:
            try:
                timed, arms = room.at(size, variants, assembler)
            except CannotTime as error:
                if len(assemblers) == 1:
                    raise
                notes.append(f"{assembler.name if assembler else 'Triton'}: {error}")
                continue
            timings_made += timed
            notes += [n for n in arms.notes if n not in notes]
            torch.cuda.empty_cache()
    if not timings_made and len(assemblers) > 1:
        raise CannotTime("; ".join(notes))
    return Session(tuple(timings_made), tuple(notes))


def _chosen(loaded: LoadedCase, l2: int, wanted: Sequence[str | int]) -> list[Size]:
    standard = {s.name: s for s in sizes_of(loaded.case, l2)}
    return [standard[w] if isinstance(w, str) else sized(loaded.case, w) for w in wanted or standard]


def _warm_up(work: Callable[[], Any]) -> None:
    started = time.perf_counter()
    while time.perf_counter() - started < WARM_UP:
        for _ in range(20):
            work()
        torch.cuda.synchronize()


@dataclass
class _Room:
    """The parts of a session that all its sizes share."""

    loaded: LoadedCase
    target: str
    timer: Timer
    clocks: Clocks
    budget: float
    least: int

    def at(self, size: Size, variants: Sequence[str], assembler: PtxasChoice | None) -> tuple[list[Timing], Arms]:
        """The case at one size, with one assembler."""
        name = self.loaded.name
        try:
            arms = arms_of(self.loaded, self.target, size, variants, assembler)
        except (ValueError, TypeError) as error:
            raise CannotTime(str(error)) from error
        seed = seed_of(f"{INPUT_SET} {size.elements}")
        judged = [arm for arm in arms.launches if arm != EMPTY]
        self.clocks.readings.clear()
        self.clocks.read()
        samples = measure(
            arms.launches, self.timer, seed=seed, budget=self.budget, least=self.least, judged=judged,
            after_batch=self.clocks.read,
        )  # fmt: skip
        clocks = self.clocks
        common = Common(
            size, self.timer.name, seed, self.budget, clocks.summary, clocks.limits, clocks.uuid, arms.ptxas
        )
        by = assembler.label if assembler else ""
        keys = {
            arm: Key(
                name, arm, self.target, "gpu", pack=s.pack, shape=s.shape_text, alignment=s.alignment,
                num_warps=s.num_warps, fusion=s.fusion, input_set=INPUT_SET, assembler=by,
            )
            for arm, s in arms.setups.items()
        }  # fmt: skip
        return timings(keys, samples, common), arms


@dataclass(frozen=True)
class Common:
    """The values that all timings of one case at one size share.

    limits: reasons why clocks were reduced. device: the GPU's UUID. ptxas: the assembler of each arm.
    """

    size: Size
    timer: str
    seed: int
    budget: float
    clocks: Mapping[str, int]
    limits: tuple[str, ...] = ()
    device: str = ""
    ptxas: Mapping[str, str] = field(default_factory=dict)


def timings(keys: Mapping[str, Key], samples: Samples, common: Common) -> list[Timing]:
    """The records of the arms in `keys`. samples: of all arms of the session."""
    first = next(iter(keys))
    noise = speed.noise_of(samples.seconds[first], samples.seconds[TWIN])
    copy, empty = (speed.median(samples.seconds[arm]).value for arm in (COPY, EMPTY))
    records = []
    for arm, key in keys.items():
        seconds = samples.seconds[arm]
        known = speed.median(seconds)
        notes = []
        if arm in samples.wide:
            notes.append(_noisy(known, seconds, common.budget))
        if common.limits:
            notes.append(f"clocks reduced: {', '.join(common.limits)}")
        timing = Timing(
            key, common.size.elements, common.size.bytes, tuple(seconds), known.value, known.low, known.high,
            copy=copy, noise=noise, launch=empty, clocks=dict(common.clocks), throttled=bool(common.limits),
            size=common.size.name, timer=common.timer, seed=common.seed, notes=tuple(notes), device=common.device,
            ptxas=common.ptxas.get(arm, ""),
        )  # fmt: skip
        records.append(timing)
    return records


def _noisy(known: speed.Median, seconds: Sequence[float], budget: float) -> str:
    """Why an interval stayed wide, in words."""
    wide = f"the 95% interval is {100 * known.width:.1f}% wide"
    if bounded_by_clock(known, seconds):
        return f"{wide}, a step of the clock ({1e9 * speed.step(seconds):.0f} ns)"
    return f"{wide} after {len(seconds)} samples, when the budget of {budget:g} s was used up"


# The device's clocks during a timing, and reasons why they were reduced, from NVML or nvidia-smi -------------------

# nvml.h, nvmlClocksEventReason*. Others are not limits: idle, a clock that a user set, another GPU's.
LIMITS = {
    0x04: "power cap", 0x08: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)",
    0x80: "power brake",
}  # fmt: skip
_SM, _MEMORY = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM


@dataclass(frozen=True)
class Reading:
    """The clocks at one moment in MHz, and the reasons why they are reduced."""

    sm: int
    memory: int
    reasons: int = 0


@dataclass
class Clocks:
    """The clocks of one device; unknown if neither NVML nor nvidia-smi works.

    uuid: as NVML names it, `GPU-...`.
    """

    uuid: str
    readings: list[Reading] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._nvml = _nvml(self.uuid)

    def read(self) -> None:
        """Take a reading while the device is busy or shortly after."""
        reading = _by_nvml(*self._nvml) if self._nvml else _by_command(self.uuid) if len(self.readings) < 2 else None
        if reading is not None:
            self.readings.append(reading)

    @property
    def summary(self) -> dict[str, int]:
        """Lowest and highest SM clock, and the memory's clock, in MHz; empty if unknown."""
        if not self.readings:
            return {}
        sm = [r.sm for r in self.readings]
        return {"sm_min": min(sm), "sm_max": max(sm), "memory": min(r.memory for r in self.readings)}

    @property
    def limits(self) -> tuple[str, ...]:
        """The reasons why the clocks were reduced at any reading."""
        seen = 0
        for reading in self.readings:
            seen |= reading.reasons
        return tuple(name for bit, name in LIMITS.items() if seen & bit)


def _nvml(uuid: str) -> tuple[Any, Any] | None:
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old package of that name warns that it is deprecated
        pynvml = importlib.import_module("pynvml")  # may be missing, and has no type information
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return None


def _by_nvml(nvml: Any, handle: Any) -> Reading | None:
    with contextlib.suppress(Exception):
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons  # its name until NVML 12
        return Reading(
            nvml.nvmlDeviceGetClockInfo(handle, _SM), nvml.nvmlDeviceGetClockInfo(handle, _MEMORY), reasons(handle)
        )
    return None


def _by_command(uuid: str) -> Reading | None:
    fields = "clocks.sm,clocks.mem,clocks_event_reasons.active"
    for query in (fields, fields.replace("event", "throttle")):  # the second spelling is the older name
        command = ["nvidia-smi", "-i", uuid, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
            if done.returncode == 0:
                sm, memory, reasons = done.stdout.strip().split(",")
                return Reading(int(sm), int(memory), int(reasons, 16))
    return None


# ---- In the process that owns the GPU, under its watchdog ------------------------------------------------------------
#
# A kernel that hangs ends only the session.


def time_on_device(limit: float | None, path: str, attribute: str, target: str, *words: Any) -> Session:
    """`time_case` in the process that owns the GPU, which no other ptxdiff process uses meanwhile.

    limit: seconds allowed; None for those of a sweep. Raises NoGpuToTime without a GPU of the target, CannotTime, and
    DeviceFault if the process does not answer.
    """
    device = of_target(target)
    if device is None:
        raise NoGpuToTime(f"no GPU here is {target}")
    function = "ptxdiff.timing.session:time_case"
    made: Session = device.call(function, path, attribute, target, *words, limit=limit or SWEEP_LIMIT, alone=True)
    return made
