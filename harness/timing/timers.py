"""Timers of launches: CUPTI's record of their kernels, or, without CUPTI, events around them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import triton

from ptxdiff.timing.rounds import TimedCall, Timer
from ptxdiff.triton.templates import ptxdiff_flush

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
