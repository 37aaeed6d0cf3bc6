"""Writes a run's records as its reports come in, and says at the end what ran. Lives in xdist's controller only."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.records import VERDICTS, End, Result, Run, Writer, from_json, read


class Recorder:
    """Receives every report that carries records; writes them where --ptx-records says."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = time.time()
        self.writer: Writer | None = None
        self.verdicts: Counter[str] = Counter()
        self.items: Counter[str] = Counter()
        self.path = records_path(config.option.ptx_records) if config.option.ptx_records else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what the report carries."""
        for obj in getattr(report, "ptxdiff_records", ()):
            record = from_json(obj)
            if isinstance(record, Result):
                self.verdicts["expected failure" if record.expected_failure else record.verdict] += 1
                self.items[record.verdict] += 1
            if self.path is not None:
                self._open().write(record)

    def _open(self) -> Writer:
        if self.writer is None:
            assert self.path is not None
            resumed = self.config.option.ptx_resume and self.path.is_file()
            if resumed:
                for result in read(self.path).results:
                    self.verdicts["expected failure" if result.expected_failure else result.verdict] += 1
            self.writer = Writer(self.path, resume=resumed)
            if not resumed:
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
            self.writer.write(End(finished, round(time.time() - self.started, 1), dict(self.verdicts)))
            self.writer.close()
        if self.verdicts and set(self.verdicts) <= {"not run"} and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line of verdicts, and where the records are."""
        if not self.verdicts:
            return
        terminalreporter.section("ptxdiff")
        words = [f"{self.verdicts[v]} {v}" for v in (*VERDICTS, "expected failure") if self.verdicts[v]]
        terminalreporter.write_line("results: " + ", ".join(words))
        if set(self.verdicts) <= {"not run"}:
            terminalreporter.write_line("nothing ran, so nothing passed")
        if self.writer is not None:
            terminalreporter.write_line(f"records: {self.path}")


def records_path(argument: str) -> Path:
    """The file to write: the argument itself where it ends in .jsonl, else a new file in that folder, named by time."""
    path = Path(argument)
    if path.suffix == ".jsonl":
        return path
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    return next(p for n in range(10_000) if not (p := path / f"{stamp}{f'-{n}' * bool(n)}.jsonl").exists())
