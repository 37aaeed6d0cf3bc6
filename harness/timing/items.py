"""Timing as pytest items: one a case for `--ptx-timing`, and one a variant and size for pytest-benchmark."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ptxdiff.model.compilers import PtxasChoice
from ptxdiff.model.describe import case_info
from ptxdiff.model.load import LoadedCase
from ptxdiff.records import InRegisters, Record, Sent, Timing, resumable, sent
from ptxdiff.records.escaping import OwnWords
from ptxdiff.timing import CannotTime, NoGpuToTime, Session
from ptxdiff.timing.rounds import LEAST
from ptxdiff.timing.session import time_on_device

Chosen = PtxasChoice | None
"""An assembler; None for Triton's own."""
NO_GPU = "no NVIDIA GPU on this machine"
SIZES = ("small", "L2", "large")


class TimingFailure(Exception):
    """A timing that raised an exception; the text is the whole message."""


class TimingItem(OwnWords, pytest.Item):
    """All variants of a case on the device here, at every size. target: None if there is no device.

    assemblers: of the machine code that is timed; None is Triton's own.
    """

    own_error = TimingFailure

    def __init__(
        self, *, loaded: LoadedCase, target: str | None, assemblers: Sequence[Chosen] = (None,), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.loaded, self.target, self.assemblers = loaded, target, tuple(assemblers)
        self.session_of_case: Session | None = None
        self.in_registers: tuple[InRegisters, ...] = ()
        self.add_marker("gpu")

    def runtest(self) -> None:
        """Time the case. If it cannot be timed here, skip with the reason."""
        if not (left := untimed(self)):
            return
        self.session_of_case = timed(self.config, self.loaded, self.target, left)
        if None in left:  # loops in registers are timed with Triton's own ptxas alone
            self.in_registers = timed_in_registers(self.config, self.loaded, self.target)

    def ptxdiff_records(self) -> list[Sent]:
        """The item's records, for its report."""
        if self.session_of_case is None:
            return []
        root = Path(os.path.commonpath([self.config.rootpath, self.path]))
        info = case_info(self.loaded, self.path.relative_to(root).as_posix())
        records: list[Record] = [info, *self.session_of_case.timings, *self.in_registers]
        return [sent(r) for r in records]

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The item's file, and its id within the file, as pytest prints them."""
        return self.path, None, self.name


def timing_item(
    parent: pytest.Collector, loaded: LoadedCase, target: str | None, assemblers: Sequence[Chosen] = (None,)
) -> TimingItem:
    """The item that times a case."""
    name = f"timing[{target or 'device'}-gpu]"
    # With the whole id: newer pytest splits ids for --lf at `::`, also within brackets.
    nodeid = f"{parent.nodeid}::{name}"
    what = {"loaded": loaded, "target": target, "assemblers": assemblers}
    made: TimingItem = TimingItem.from_parent(parent, name=name, nodeid=nodeid, **what)
    return made


_BEFORE = pytest.StashKey[set[tuple[str, str, str]]]()


def _timed_before(config: pytest.Config) -> set[tuple[str, str, str]]:
    """The timings that the resumed records have: case, target, and the assembler that was chosen."""
    if _BEFORE not in config.stash:
        path = Path(config.option.ptx_records or "")
        before = resumable(path).timings if config.option.ptx_resume and path.is_file() else []
        config.stash[_BEFORE] = {(t.key.case, t.key.target, t.key.assembler) for t in before}
    return config.stash[_BEFORE]


def is_timed(item: TimingItem) -> bool:
    """Whether the resumed records have the item's timings by every assembler that was chosen."""
    return not untimed(item)


def untimed(item: TimingItem) -> tuple[Chosen, ...]:
    """The assemblers by which the resumed records have no timings of the item's case."""
    before, case = _timed_before(item.config), (item.loaded.name, item.target or "")
    return tuple(a for a in item.assemblers if (*case, a.label if a else "") not in before)


def timed(
    config: pytest.Config, loaded: LoadedCase, target: str | None, assemblers: Sequence[Chosen], *words: Any
) -> Session:
    """A timing session alone on the device. Without one of the target it skips, or fails under --ptx-require-gpu."""
    limit = config.getoption("ptx_limit", None)
    try:
        if target is None:
            raise NoGpuToTime(NO_GPU)
        return time_on_device(limit, str(loaded.path), loaded.attribute, target, tuple(assemblers), *words)
    except CannotTime as error:
        if isinstance(error, NoGpuToTime) and config.option.ptx_require_gpu:
            raise TimingFailure(f"{loaded.name}: --ptx-require-gpu, but this was not timed: {error}") from None
        pytest.skip(f"not run: {error}")
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        raise TimingFailure(f"{loaded.name}: timing failed: {type(error).__name__}: {first}") from error


def timed_in_registers(config: pytest.Config, loaded: LoadedCase, target: str | None) -> tuple[InRegisters, ...]:
    """A case's variants timed in registers; none for a case that is not elementwise. Raises TimingFailure."""
    from ptxdiff.timing.in_registers import time_in_registers

    assert target is not None
    try:
        return time_in_registers(loaded, target, limit=config.getoption("ptx_limit", None))
    except CannotTime as error:
        if not loaded.case.elementwise or not loaded.case.inputs:
            return ()
        raise TimingFailure(f"{loaded.name}: not timed in registers: {error}") from error
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        raise TimingFailure(f"{loaded.name}: timing in registers failed: {type(error).__name__}: {first}") from error


# ---- pytest-benchmark ---------------------------------------------------------------------------------------


class DeviceClock:
    """A clock of device time: each launch advances it by the device's time for that launch."""

    def __init__(self) -> None:
        self._launches: Iterator[float] = iter(())
        self._now = 0.0

    def load(self, samples: tuple[float, ...]) -> None:
        """Set the seconds of the launches that follow."""
        self._launches = iter(samples)

    def launch(self) -> None:
        """Advance by the next launch's time."""
        self._now += next(self._launches)

    def device_time(self) -> float:
        """Seconds since the clock was made."""
        return self._now


class BenchmarkItem(OwnWords, pytest.Function):
    """One variant at one size, with pytest-benchmark's fixture, options, tables and storage."""

    own_error = TimingFailure


def benchmark_items(
    parent: pytest.Collector, loaded: LoadedCase, target: str | None, assemblers: Sequence[Chosen] = (None,)
) -> Iterator[pytest.Item]:
    """The variants of a case as benchmarks, grouped by case, size and assembler."""
    named = [(by, f" by {by.label}" if by else "") for by in assemblers]
    for size, (assembler, suffix) in itertools.product(SIZES, named):
        for variant in loaded.case.variants:
            clock = DeviceClock()
            item = BenchmarkItem.from_parent(
                parent,
                name=f"{variant}[{size}{suffix}]",
                callobj=_benchmark_of(parent.config, loaded, target, (variant, size, assembler), clock),
            )
            group = f"{loaded.name} {size}{suffix}"  # two assemblers never share a table
            item.add_marker(pytest.mark.benchmark(group=group, timer=clock.device_time))
            item.add_marker("gpu")
            yield item


def _benchmark_of(
    config: pytest.Config, loaded: LoadedCase, target: str | None, what: tuple[str, str, Chosen], clock: DeviceClock
) -> Any:
    """The function of a benchmark item. what: the variant, the size, and the assembler.

    The launches are measured first, with the L2 emptied before each and the device awaited. Then pytest-benchmark
    counts them by a clock that shows device time.
    """

    variant, size, assembler = what

    def time_variant(benchmark: Any) -> None:
        budget, least = (config.getoption(f"benchmark_{name}") for name in ("max_time", "min_rounds"))
        session = timed(
            config, loaded, target, (assembler,), (variant,), (size,), float(budget), max(LEAST, int(least))
        )
        if not session.timings:
            pytest.skip(f"not run: {'; '.join(session.notes)}")
        timing = session.timings[0]
        clock.load(timing.samples)
        benchmark.extra_info.update(facts(timing))
        benchmark.pedantic(clock.launch, rounds=len(timing.samples))

    return time_variant


def facts(timing: Timing) -> dict[str, Any]:
    """Facts that pytest-benchmark's own statistics lack."""
    return {
        "elements": timing.elements,
        "bytes": timing.bytes,
        "bytes_per_second": round(timing.bytes / timing.median),
        "elements_per_second": round(timing.elements / timing.median),
        "copy_seconds": timing.copy,
        "noise": timing.noise,
        "empty_kernel_seconds": timing.launch,
        "clocks": dict(timing.clocks),
        "timer": timing.timer,
        "ptxas": timing.ptxas,
        "notes": list(timing.notes),
    }
