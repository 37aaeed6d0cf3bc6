"""Timing as pytest items: one a case for `--ptx-timing`, and one a variant and size for pytest-benchmark."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.model.assemblers import PtxasChoice
from harness.model.describe import case_info
from harness.model.load import LoadedCase
from harness.records import InRegisters, Record, Sent, Timing, resumable, sent
from harness.records.shown import OwnWords
from harness.timing import CannotTime, Session
from harness.timing.ondevice import time_on_device
from harness.timing.rounds import LEAST

Chosen = PtxasChoice | None
"""An assembler; None for Triton's own."""
NO_GPU = "no NVIDIA GPU on this machine"
SIZES = ("small", "L2", "large")


class TimingFailure(Exception):
    """Timing that broke down; the text is the whole message."""


class TimingItem(OwnWords, pytest.Item):
    """All variants of a case on the device here, at every size. target: None where there is no device.

    assemblers: of the machine code that is timed; None is Triton's own.
    """

    told = TimingFailure

    def __init__(
        self, *, loaded: LoadedCase, target: str | None, assemblers: Sequence[Chosen] = (None,), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.loaded, self.target, self.assemblers = loaded, target, tuple(assemblers)
        self.session_of_case: Session | None = None
        self.in_registers: tuple[InRegisters, ...] = ()
        self.add_marker("gpu")

    def runtest(self) -> None:
        """Time the case; what cannot be timed here is skipped, in words."""
        if not (left := untimed(self)):
            return
        self.session_of_case = timed(self.config, self.loaded, self.target, left)
        if None in left:  # loops in registers are Triton's own
            self.in_registers = timed_in_registers(self.config, self.loaded, self.target)

    def ptxdiff_records(self) -> list[Sent]:
        """The item's records, for the report that carries them."""
        if self.session_of_case is None:
            return []
        root = Path(os.path.commonpath([self.config.rootpath, self.path]))
        info = case_info(self.loaded, self.path.relative_to(root).as_posix())
        records: list[Record] = [info, *self.session_of_case.timings, *self.in_registers]
        return [sent(r) for r in records]

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the item comes from."""
        return self.path, None, self.name


def timing_item(
    parent: pytest.Collector, loaded: LoadedCase, target: str | None, assemblers: Sequence[Chosen] = (None,)
) -> TimingItem:
    """The item that times a case."""
    name = f"timing[{target or 'device'}-gpu]"
    # The whole id as text: newer pytest takes it apart as it does for --lf, brackets and all.
    nodeid = f"{parent.nodeid}::{name}"
    what = {"loaded": loaded, "target": target, "assemblers": assemblers}
    made: TimingItem = TimingItem.from_parent(parent, name=name, nodeid=nodeid, **what)
    return made


_BEFORE = pytest.StashKey[set[tuple[str, str, str]]]()


def _timed_before(config: pytest.Config) -> set[tuple[str, str, str]]:
    """The cases that a resumed run's file has timings of, each with its target and the assembler that was chosen."""
    if _BEFORE not in config.stash:
        path = Path(config.option.ptx_records or "")
        before = resumable(path).timings if config.option.ptx_resume and path.is_file() else []
        config.stash[_BEFORE] = {(t.key.case, t.key.target, t.key.assembler) for t in before}
    return config.stash[_BEFORE]


def is_timed(item: TimingItem) -> bool:
    """Whether the file of a resumed run holds the item's timings, by every assembler that is asked for."""
    return not untimed(item)


def untimed(item: TimingItem) -> tuple[Chosen, ...]:
    """The assemblers by which the file of a resumed run has no timings of the item's case."""
    before, case = _timed_before(item.config), (item.loaded.name, item.target or "")
    return tuple(a for a in item.assemblers if (*case, a.label if a else "") not in before)


def timed(
    config: pytest.Config, loaded: LoadedCase, target: str | None, assemblers: Sequence[Chosen], *words: Any
) -> Session:
    """A timing session with the device to itself. Skips, or under --ptx-require-gpu fails, where there is none."""
    if target is None:
        if config.option.ptx_require_gpu:
            raise TimingFailure(f"{loaded.name}: --ptx-require-gpu, and this was not timed: {NO_GPU}")
        pytest.skip(f"not run: {NO_GPU}")
    limit = config.getoption("ptx_limit", None)
    try:
        return time_on_device(limit, str(loaded.path), loaded.attribute, target, tuple(assemblers), *words)
    except CannotTime as error:
        pytest.skip(f"not run: {error}")
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        raise TimingFailure(f"{loaded.name}: timing broke down: {type(error).__name__}: {first}") from error


def timed_in_registers(config: pytest.Config, loaded: LoadedCase, target: str | None) -> tuple[InRegisters, ...]:
    """A case's variants timed in registers; none of a case that is not elementwise. Raises TimingFailure."""
    from harness.timing.inregisters import time_in_registers

    assert target is not None
    try:
        return time_in_registers(loaded, target, limit=config.getoption("ptx_limit", None))
    except CannotTime as error:
        if not loaded.case.elementwise or not loaded.case.inputs:
            return ()
        raise TimingFailure(f"{loaded.name}: not timed in registers: {error}") from error
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        raise TimingFailure(
            f"{loaded.name}: timing in registers broke down: {type(error).__name__}: {first}"
        ) from error


# ---- pytest-benchmark ---------------------------------------------------------------------------------------


def only_benchmarks(config: pytest.Config) -> bool:
    """Whether pytest-benchmark was asked to run benchmarks alone."""
    return bool(config.getoption("benchmark_only", False))


class DeviceClock:
    """A clock that shows device time: each launch advances it by what the device took for that launch."""

    def __init__(self) -> None:
        self._launches: Iterator[float] = iter(())
        self._now = 0.0

    def load(self, samples: tuple[float, ...]) -> None:
        """Seconds of the launches to come."""
        self._launches = iter(samples)

    def launch(self) -> None:
        """The next one."""
        self._now += next(self._launches)

    def device_time(self) -> float:
        """Seconds since the clock was made."""
        return self._now


class BenchmarkItem(OwnWords, pytest.Function):
    """One variant at one size, with pytest-benchmark's fixture, options, tables and storage."""

    told = TimingFailure


def benchmark_items(
    parent: pytest.Collector, loaded: LoadedCase, target: str | None, assemblers: Sequence[Chosen] = (None,)
) -> Iterator[pytest.Item]:
    """The variants of a case as benchmarks, grouped by case, size and assembler."""
    named = [(by, f" by {by.label}" if by else "") for by in assemblers]
    for size, (assembler, words) in itertools.product(SIZES, named):
        for variant in loaded.case.variants:
            clock = DeviceClock()
            item = BenchmarkItem.from_parent(
                parent,
                name=f"{variant}[{size}{words}]",
                callobj=_benchmark_of(parent.config, loaded, target, (variant, size, assembler), clock),
            )
            group = f"{loaded.name} {size}{words}"  # those of two assemblers are never in one table
            item.add_marker(pytest.mark.benchmark(group=group, timer=clock.device_time))
            item.add_marker("gpu")
            yield item


def _benchmark_of(
    config: pytest.Config, loaded: LoadedCase, target: str | None, what: tuple[str, str, Chosen], clock: DeviceClock
) -> Any:
    """The function of a benchmark item. what: the variant, the size, and who assembles it.

    The launches are measured first, as ever: the L2 emptied before each, and the device waited for. Then
    pytest-benchmark counts them by a clock that shows what the device took.
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
    """What pytest-benchmark's own statistics do not have."""
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
