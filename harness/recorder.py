"""Writes a run's records as its reports come in, and says at the end what ran. Lives in xdist's controller only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.records import (
    VERDICTS,
    End,
    Key,
    Record,
    RecordError,
    Result,
    Run,
    Timing,
    WriteError,
    Writer,
    from_json,
    resumable,
    to_json,
)


class Recorder:
    """Receives every report that carries records; writes them where --ptx-records says."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = time.time()
        self.writer: Writer | None = None
        self.verdicts: Counter[str] = Counter()
        self.timings: list[Timing] = []
        self.disagreeing: list[Result] = []
        self.fault = ""
        self.path = records_path(config.option.ptx_records) if config.option.ptx_records else None
        self.resumed = bool(config.option.ptx_resume and self.path and self.path.is_file())
        if self.resumed:
            assert self.path is not None
            earlier = resumable(self.path)
            if earlier.run.effort != config.option.ptx_effort:
                raise RecordError(f"{self.path} was begun with --ptx-effort={earlier.run.effort}; go on with the same")
            self._count(earlier.results)
            self.timings += earlier.timings

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what the report carries."""
        records = [from_json(obj) for obj in getattr(report, "ptxdiff_records", ())]
        if records and self.path is not None:
            self._write(records)
        results = [r for r in records if isinstance(r, Result)]
        self._count(results)
        self.disagreeing += [r for r in results if r.disagreements]
        self.timings += (replace(r, samples=()) for r in records if isinstance(r, Timing))

    def _count(self, results: Iterable[Result]) -> None:
        self.verdicts.update("expected failure" if r.expected_failure else r.verdict for r in results)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """An item that took its pytest-xdist worker with it: an error, to be tried again when the run is resumed."""
        from harness.collection import item_of

        item = item_of(crashitem)
        if item is not None:
            words = "the process that ran it died: killed, out of memory, or crashed; --ptx-resume runs it again"
            message = f"{item[0]}::{item[1]}[{item[2]}-{item[3]}]: error: {words}"
            lost = Result(key=Key(*item), verdict="error", words=words, message=message)
            report.ptxdiff_records = [to_json(lost)]  # type: ignore[attr-defined]

    def _write(self, records: Sequence[Record]) -> None:
        """Write; where that fails, end the run in one line: results that are not kept need not be made."""
        try:
            self._open().write(*records)
        except WriteError as e:
            if self.writer is not None:
                self.writer.close()
            self.writer = None
            words = f"records: {e}; what was written before can be read, and --ptx-resume goes on with it"
            pytest.exit(words, returncode=pytest.ExitCode.INTERNAL_ERROR)

    def _open(self) -> Writer:
        if self.writer is None:
            assert self.path is not None
            self.writer = Writer(self.path, resume=self.resumed)
            if not self.resumed:
                self.writer.write(self._head())
        return self.writer

    def _head(self) -> Run:
        from harness.environment import environment, gpu_visible

        return Run(
            run_id=datetime.fromtimestamp(self.started, UTC).strftime("%Y%m%dT%H%M%SZ"),
            started=datetime.fromtimestamp(self.started, UTC).isoformat(timespec="seconds"),
            effort=self.config.option.ptx_effort,
            seed=0,
            environment=environment(self.config.rootpath, gpu=gpu_visible()),
            arguments=tuple(str(a) for a in self.config.invocation_params.args),
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Close the file; and a run of ours in which nothing ran is not green."""
        if self.writer is not None:
            finished = datetime.now(UTC).isoformat(timespec="seconds")
            try:
                self.writer.write(End(finished, round(time.time() - self.started, 1), dict(self.verdicts)))
            except WriteError as e:
                self.fault = f"{e}: the last line, that the run was finished, is missing"
                session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
            self.writer.close()
        if self._nothing_ran and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    @property
    def _nothing_ran(self) -> bool:
        return bool(self.verdicts) and set(self.verdicts) <= {"not run", "unsupported"}

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line of verdicts, and where the records are."""
        if not self.verdicts and not self.timings:
            return
        terminalreporter.section("ptxdiff")
        words = [f"{self.verdicts[v]} {v}" for v in (*VERDICTS, "expected failure") if self.verdicts[v]]
        if words:
            terminalreporter.write_line("results: " + ", ".join(words))
        if self.disagreeing:
            terminalreporter.write_line(_disagreeing(self.disagreeing))
        if self.timings:
            terminalreporter.write_line(f"timings: {_timed(self.timings)}")
        if self._nothing_ran:
            terminalreporter.write_line("nothing ran, so nothing passed")
        if self.path is not None:
            terminalreporter.write_line(f"records: {self.fault or self.path}")


def _disagreeing(results: Sequence[Result]) -> str:
    """How many results differ in bits from another target or variant, and the first of them."""
    first = results[0].disagreements[0]
    key, other = results[0].key, first.other
    names = [f"{k.variant}[{k.target}-{k.backend}]" for k in (other, key)]
    where = ", ".join(f"{name}={b.bits}" for name, b in first.first.inputs.items())
    return (
        f"differences between targets or variants: {len(results)} results; first {key.case}::{names[1]} beside "
        f"{names[0]} at {where}: {first.first.got.bits} and {first.first.expected.bits}"
    )


def _timed(timings: Sequence[Timing]) -> str:
    """How many there are, the A/A noise, and how many must not be believed as they stand."""
    noise = [100 * t.noise for t in timings]
    words = f"{len(timings)}, A/A noise {min(noise):.2f} to {max(noise):.2f}%"
    noted = sum(bool(t.notes) for t in timings)
    return words + (f", {noted} noisier than 1% or under held-down clocks" if noted else "")


def records_path(argument: str) -> Path:
    """The file to write: the argument itself where it ends in .jsonl, else a new file in that folder, named by time.

    Raises RecordError for a file of another kind.
    """
    path = Path(argument)
    if path.suffix == ".jsonl":
        return path
    if path.is_file() or path.suffix in (".json", ".txt", ".html", ".xml"):
        raise RecordError(f"{path}: records are written to a file that ends in .jsonl, or to a folder")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    return next(p for n in range(10_000) if not (p := path / f"{stamp}{f'-{n}' * bool(n)}.jsonl").exists())
