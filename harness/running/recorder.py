"""Writes a run's records as its reports come in, and sums them up at the end. It lives in xdist's controller only."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxdiff.backends import BACKENDS
from ptxdiff.processes.gpus import gpu_visible
from ptxdiff.records import (
    COMPRESSED,
    PLAIN,
    SKIPPED,
    UNPROVED,
    VERDICTS,
    CaseInfo,
    Disagreement,
    End,
    FileLock,
    Key,
    RecordError,
    Result,
    Run,
    RunRecords,
    Sent,
    Split,
    Timing,
    WriteError,
    Writer,
    beside,
    brief_counts,
    by_assembler,
    evidence_of_passes,
    explained,
    is_records_name,
    resumable,
    sent,
    splits,
    unpacked,
)
from ptxdiff.records.causes import FailureBlock, blocks, shown_first
from ptxdiff.records.escaping import terminal
from ptxdiff.records.lock import lock_of
from ptxdiff.running.environment import environment, other_environment

if TYPE_CHECKING:
    from ptxdiff.jobs import Backend
    from ptxdiff.running.assemblers import Chosen
    from ptxdiff.running.item import Item

REASONS_SHOWN = 3
"""Reasons for results that were not run, the most frequent first, which the end of a run prints."""
DIED = "the process that ran it died: killed, out of memory, or crashed; --ptx-resume runs it again"


class Recorder:
    """Receives every report that carries records, and writes them to the file that --ptx-records names."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = time.time()
        self.writer: Writer | None = None
        self.broken = False  # whether the file could not be written
        self.verdicts: Counter[str] = Counter()
        self.not_run: Counter[tuple[str, str]] = Counter()
        self.evidence: Counter[str] = Counter()
        self.reused: Counter[str] = Counter()
        self.reusable = False  # whether this run stored something that a later run may reuse
        self.timings: list[Timing] = []
        self.results: list[Result] = []
        self.assembled: list[Result] = []
        self.cases: dict[str, CaseInfo] = {}
        self.splits: list[Split] = []
        self.remarks: dict[str, None] = {}  # of a replay, and what passes leave open, each once
        self.brief: tuple[int, ...] = (0, 0)  # runs, and those of the whole plans, of items with a smaller plan
        self.fault = ""
        self.blocks = FailureBlocks()
        self.progress = Progress()
        self.overruled: list[str] = []  # items with failures that a mark or a plugin reported otherwise
        self.known: set[tuple[str, ...]] = set()  # items that failed by the records of the resumed file
        self.earlier: dict[tuple[str, ...], list[Result]] = {}  # results of the resumed file, by item
        named = config.option.ptx_records
        self.path = records_path(named) if named else None
        # `ptxdiff run` names the new file itself, and says so by sharing texts
        self.shared = bool(named) and (config.option.ptx_share_texts or not is_records_name(named))
        self.lock = FileLock(self.path) if self.path else None
        try:
            self._go_on()
        except BaseException:
            self.pytest_unconfigure()
            raise

    def _go_on(self) -> None:
        """Continue a resumed run: take over what its file holds."""
        config = self.config
        self.resumed = bool(config.option.ptx_resume and self.path and self.path.is_file())
        if self.resumed:
            assert self.path is not None
            earlier = resumable(self.path)
            if earlier.run.effort != config.option.ptx_effort:
                raise RecordError(f"{self.path} was begun with --ptx-effort={earlier.run.effort}; use the same effort")
            if changed := other_environment(earlier.run.environment, self._head().environment):
                raise RecordError(f"{self.path} was begun with {changed}; start a new records file")
            self._count(earlier.results)
            self.progress.resumed(earlier)
            for r in earlier.results:
                self.earlier.setdefault(r.key.item, []).append(r)
            self.known = {r.key.item for r in earlier.results if r.verdict in ("fail", "error")}
            self.cases |= earlier.cases
            self.timings += earlier.timings

    @property
    def run_id(self) -> str:
        """The id of the run: when it began."""
        return datetime.fromtimestamp(self.started, UTC).strftime("%Y%m%dT%H%M%SZ")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist the id of the run."""
        node.workerinput["ptxdiff_run"] = self.run_id

    def pytest_unconfigure(self) -> None:
        """Release the file's lock."""
        if self.lock is not None:
            self.lock.release()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the records that the report carries."""
        self.progress.reported(report)
        carried: list[Sent] | str = vars(report).pop("ptxdiff_records", [])  # pytest keeps every report
        came = unpacked(carried) if isinstance(carried, str) else carried
        if report.failed:
            came = _with_failure(report, came, self.known)
            self.blocks.add(report, (r for r, _ in came if isinstance(r, Result)))
        elif report.skipped and not came and report.when != "teardown":
            came = self._skipped(report)
        elif wrong := _failing(came):
            self.overruled.append(f"{_label(wrong[0].key.item)}: {wrong[0].verdict}")
        if came and self.path is not None:
            self._write(came)
        records = [r for r, _ in came]
        results = [r for r in records if isinstance(r, Result)]
        self._count(results)
        self.cases |= {r.case: r for r in records if isinstance(r, CaseInfo)}
        self.timings += (replace(r, samples=()) for r in records if isinstance(r, Timing))

    def _skipped(self, report: pytest.TestReport) -> list[Sent]:
        """The record of an item that a mark, a conftest or a plugin skipped; without one nothing would name it."""
        item = _item(report.nodeid)
        if item is None or item in self.earlier:
            return []
        return [sent(Result(key=Key(*item), verdict="not run", words=f"{SKIPPED}{_reason(report)}"))]

    def _count(self, results: Iterable[Result]) -> None:
        results = list(results)
        if not results:
            return
        from ptxdiff.running.carry_over import carried_nowhere

        self.evidence += evidence_of_passes(results)
        self.brief = tuple(map(sum, zip(self.brief, brief_counts(results), strict=True)))
        for r in results:
            self.remarks |= dict.fromkeys(n for n in r.notes if n.startswith("--ptx-replay:"))
            opened = (n for n in r.notes if n.startswith(UNPROVED))
            self.remarks |= dict.fromkeys(f"{r.key.case}::{r.key.variant}: {n}" for n in opened)
            if r.padding_alone:
                self.remarks[f"{r.key.case}::{r.key.variant}: fails by undefined padding alone: see its message"] = None
            if reason := carried_nowhere(r):
                self.remarks[f"{r.key.case}::{r.key.variant}: carried over to no later run: {reason}"] = None
            self.reused[r.reused] += bool(r.reused)
            self.reusable |= BACKENDS[r.key.backend].reusable
            if r.ptxas:
                named = ("key", "verdict", "expected_failure", "diagnosis", "ptxas")
                self.assembled.append(Result(**{name: getattr(r, name) for name in named}))
            self.verdicts["expected failure" if r.expected_failure else r.verdict] += 1
            if r.verdict == "not run":
                self.not_run[r.key.backend, r.words.replace(r.key.target, "sm_…")] += 1
            if r.outputs_digest:  # of each result, only what the comparison of outputs needs
                kept = ("key", "verdict", "expected_failure", "inputs_digest", "outputs_digest", "fingerprint")
                self.results.append(Result(**{name: getattr(r, name) for name in kept}))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Report the item whose pytest-xdist worker died as an error; a resumed run runs it again."""
        if _item(crashitem):
            report.longrepr = DIED

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the items that are to run."""
        self.progress.planned(item.nodeid for item in session.items)
        self._replace_earlier()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the items that are to run, if the workers of pytest-xdist collect them."""
        self.progress.planned(ids)
        self._replace_earlier()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that a case was collected, even if a conftest drops its items, and a file that could not be collected,
        so that its items are unknown."""
        self.progress.is_ours = self.progress.is_ours or any(_item(node.nodeid) for node in report.result or ())
        name = report.nodeid or "the session"
        if report.failed and name not in self.progress.uncollected:  # every worker of pytest-xdist reports it
            self.progress.uncollected.append(name)

    def pytest_internalerror(self) -> None:
        """Note that pytest, or a plugin, raised an internal error."""
        self.progress.broken = True

    def _replace_earlier(self) -> None:
        """Begin the file now if a gate would else take an earlier run's for this one's, because this one dies, or
        because a conftest drops all items: that run is in the same file, or in the same folder."""
        if self.path is None or self.resumed or self.config.option.collectonly or self.writer is not None:
            return
        if self.path.exists() or (self.shared and (self.config.option.ptx_cases or self.progress.is_ours)):
            self._write([])

    def _write(self, records: Iterable[Sent]) -> None:
        """Write records. If that fails, end the run with one line: its further results could not be kept.

        Nothing is written after that: another writer would begin the file anew.
        """
        if self.broken:
            return
        try:
            self._open().write(*records)
        except WriteError as e:
            self.broken = True
            if self.writer is not None:
                self.writer.close()
            self.writer = None
            message = f"records: {e}; the file can be read up to there, and --ptx-resume continues it"
            pytest.exit(message, returncode=pytest.ExitCode.INTERNAL_ERROR)

    def _open(self) -> Writer:
        if self.writer is None:
            assert self.path is not None
            planned = self.progress.items
            self.writer = Writer(self.path, resume=self.resumed, lock=self.lock, planned=planned, shared=self.shared)
            if not self.resumed:
                self.writer.write(self._head())
        return self.writer

    def _head(self) -> Run:
        from ptxdiff.running.assemblers import AssemblerChoice

        option = self.config.option
        chosen = AssemblerChoice.of(option.ptx_assembler, option.ptx_opt, option.ptx_effort)
        here = environment(
            self.config.rootpath, gpu=gpu_visible(), approximate=option.ptx_approximate, assemblers=chosen.words
        )
        cluster = self.config.pluginmanager.getplugin("ptxdiff-cluster")
        nodes = {"nodes": cluster.head()} if cluster is not None else {}
        return Run(
            run_id=self.run_id,
            started=datetime.fromtimestamp(self.started, UTC).isoformat(timespec="seconds"),
            effort=option.ptx_effort,
            seed=0,
            environment=here | nodes,
            arguments=tuple(str(a) for a in self.config.invocation_params.args),
            planned=self.progress.items,
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Find where outputs of targets or variants differ, and close the file. A run in which nothing ran fails.

        A run that was cut short gets no `end` record, whatever the exit status is.
        """
        if self.config.option.collectonly:  # nothing ran, so nothing is compared, and no file is written
            return
        if self.writer is None:
            self._replace_earlier()
        found_splits = splits(self.results)
        missing = self.progress.missing or self._changed_meanwhile()
        differing = (
            self._disagreements(found_splits)
            if not missing and found_splits and not self.config.option.ptx_replay
            else []
        )
        self.splits = explained(found_splits, differing)
        if differing and self.path is not None:
            self._write(map(sent, differing))
        if missing and (self.writer is not None or self.resumed):
            self.fault = f"{self.path} (cut short: {missing}; --ptx-resume continues it)"
            self._leave_open()
        elif self.writer is not None:
            finished = datetime.now(UTC).isoformat(timespec="seconds")
            try:
                self.writer.write(End(finished, round(time.time() - self.started, 1), dict(self.verdicts)))
            except WriteError as e:
                self.fault = f"{e}: the file lacks its last line, which says that the run has finished"
                session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
            self.writer.close()
        if self.reusable:
            from ptxdiff.running.xdist import remember

            remember(self.config)
        if exitstatus == pytest.ExitCode.OK and self.overruled:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif exitstatus == pytest.ExitCode.OK and self._nothing_ran:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def _changed_meanwhile(self) -> str:
        """Which results of the resumed file belong to another text of their case, in words; "" if none does.

        Items that this start runs compare their own results. The others are compared here.
        """
        left = {item: rs for item, rs in self.earlier.items() if self.progress.is_elsewhere(item)}
        if not left:
            return ""
        from ptxdiff.model.variants import CaseError
        from ptxdiff.running.carry_over import changed_since
        from ptxdiff.running.collection import item_in

        for item, results in left.items():
            try:
                change = changed_since(item_in(self.config, self.cases[item[0]].path, item), results)
            except (KeyError, LookupError, CaseError) as e:
                change = f"it cannot be loaded: {e}"
            if change:
                return f"{_label(item)}, which was not chosen this time, has results of an earlier definition: {change}"
        return ""

    def _leave_open(self) -> None:
        """Close the file without an `end` record. A resumed file without new records loses its old `end`."""
        try:
            if self.writer is None and self.progress.collected and not self.broken:
                self._open()
        except WriteError as e:
            self.fault = str(e)
        if self.writer is not None:
            self.writer.close()

    def _disagreements(self, found_splits: list[Split]) -> list[Disagreement]:
        from ptxdiff.running.collection import assemblers_of, backend_of, deciding
        from ptxdiff.running.reuse import Agreement

        def backend(name: str) -> Backend:
            return backend_of(self.config, name)

        effort = self.config.option.ptx_effort

        def assemblers(item: Item) -> Sequence[Chosen]:
            return assemblers_of(self.config, item)

        settings = deciding(self.config)
        agreement = Agreement(self.config.rootpath, self.cases.values(), backend, effort, assemblers, settings)
        return agreement.disagreements(self.results, found_splits)

    def _left_out(self) -> list[str]:
        """The backends that `auto` leaves out, in lines."""
        from ptxdiff.running.collection import left_out

        return [f"{name}: not part of auto here: {why}" for name, why in left_out(self.config).items()]

    @property
    def _nothing_ran(self) -> bool:
        return bool(self.verdicts) and set(self.verdicts) <= {"not run", "unsupported"}

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the counts of verdicts, and where the records are."""
        if not self.verdicts and not self.timings:
            return
        terminalreporter.section("ptxdiff")
        evidence = {"pass": beside(self.evidence)}
        verdicts = [v for v in (*VERDICTS, "expected failure") if self.verdicts[v]]
        counts = [f"{self.verdicts[v]} {v}{evidence.get(v, '')}" for v in verdicts]
        if counts:
            terminalreporter.write_line("results: " + ", ".join(counts))
        for (backend, reason), count in self.not_run.most_common(REASONS_SHOWN):
            terminalreporter.write_line(terminal(f"not run: {count} ({backend}): {reason or 'no reason recorded'}"))
        if len(self.not_run) > REASONS_SHOWN:
            terminalreporter.write_line(f"and {len(self.not_run) - REASONS_SHOWN} more reasons, which -rs shows")
        if self.brief[1]:
            words = "sass: {} of the {} runs of the whole plans; --ptx-backend=sass, or full effort, has all of them"
            terminalreporter.write_line(words.format(*self.brief))
        for words in self._left_out():
            terminalreporter.write_line(terminal(words))
        if self.blocks.words and self.config.get_verbosity() < 2:
            terminalreporter.write_line(self.blocks.words)
        if count := self.reused.total():
            runs = ", ".join(sorted(run for run in self.reused if run))
            terminalreporter.write_line(f"{count} results reused from {runs}; --ptx-fresh runs everything")
        tallies = by_assembler(self.assembled)
        if any(t.faults for t in tallies) or any(r.key.assembler for r in self.assembled):
            for tally in tallies:
                terminalreporter.write_line(terminal(str(tally)))
        if self.splits:
            terminalreporter.write_line(_splits_line(self.splits))
        for remark in self.remarks:
            terminalreporter.write_line(terminal(remark))
        if self.timings:
            terminalreporter.write_line(f"timings: {_timed(self.timings)}")
        if self.overruled:
            what = "1 item was" if len(self.overruled) == 1 else f"{len(self.overruled)} items were"
            by = "by a mark, a conftest or a plugin"
            words = f"{what} reported as passed or skipped {by}, but failed: {self.overruled[0]}"
            terminalreporter.write_line(terminal(words))
        if self._nothing_ran:
            terminalreporter.write_line("nothing ran, so nothing passed")
        if self.path is not None:
            terminalreporter.write_line(f"records: {self.fault or self.path}")


class Progress:
    """Whether every planned item has run. `pytest -x`, Ctrl-C, `pytest.exit` and a broken plugin stop a run early."""

    def __init__(self) -> None:
        self.uncollected: list[str] = []
        self.broken = False
        self.is_ours = False  # whether an item of ptxdiff was collected
        self._addresses: set[str] | None = None  # of the items to run
        self._reported: set[str] = set()
        self._earlier: set[str] = set()  # the items that earlier starts of a resumed run had planned
        self._known: set[str] = set()

    def resumed(self, earlier: RunRecords) -> None:
        """Add an earlier start of this run: the items that it planned belong to this run."""
        self._known = {_label(r.key.item) for r in earlier.results}
        self._earlier = self._known.union(earlier.run.planned)

    @property
    def items(self) -> tuple[str, ...]:
        """All items of the run, sorted by name, with those of earlier starts."""
        return tuple(sorted(self._earlier.union(self._planned or ())))

    def planned(self, nodeids: Iterable[str]) -> None:
        """Note items that are to run. Every worker of pytest-xdist lists all of them."""
        self._addresses = (self._addresses or set()).union(nodeids)
        self.__dict__.pop("_planned", None)

    @cached_property
    def _planned(self) -> set[str] | None:
        """The labels of the items to run, which nothing asks for where they are only listed; None: not known yet."""
        if self._addresses is None:
            return None
        return {_label(item) for n in self._addresses if (item := _item(n))}

    def reported(self, report: pytest.TestReport) -> None:
        """Note the report on an item. After its set-up alone, an item has no result yet."""
        if report.when != "setup" or not report.passed:
            item = _item(report.nodeid)
            self._reported |= {_label(item)} if item else set()

    def is_elsewhere(self, item: Sequence[str]) -> bool:
        """Whether an item of an earlier start was not chosen this time."""
        return self._planned is not None and _label(item) not in self._planned

    @property
    def collected(self) -> bool:
        """Whether the items to run are known."""
        return self._addresses is not None

    @property
    def missing(self) -> str:
        """What the run lacks, in words; "" if it is complete."""
        if self.uncollected:
            more = f" and {len(self.uncollected) - 1} more" if len(self.uncollected) > 1 else ""
            return f"{self.uncollected[0]}{more} could not be collected"
        if self._planned is None:
            return "it was stopped before anything was collected"
        if left := self._planned - self._reported:
            return f"{len(left)} of {len(self._planned)} items have no result"
        done = self._known | self._reported
        if elsewhere := [item for item in self.items if item not in done]:
            which = f"of which {elsewhere[0]} is the first; they were not chosen this time"
            return f"{len(elsewhere)} of {len(self.items)} items have no result, {which}"
        return "pytest broke down" if self.broken else ""


def _with_failure(report: pytest.TestReport, records: list[Sent], known: Collection[tuple[str, ...]]) -> list[Sent]:
    """The records of an item. If it failed and neither they nor the resumed file have a failure, an error is added.

    Without that error the records would lack a failure in pytest itself, and the report would call the run passed.
    """
    results = [r for r, _ in records if isinstance(r, Result)]
    item = _item(report.nodeid)
    if item is None or item in known or any(r.verdict in ("fail", "error") for r in results):
        return records
    message_line = _words(report)
    message = f"{item[0]}::{item[1]}[{item[2]}-{item[3]}]: error: {message_line}"
    ran = [s for s in records if not (isinstance(s.record, Result) and s.record.verdict == "not run")]
    return [*ran, sent(Result(key=Key(*item), verdict="error", words=message_line, message=message))]


def _failing(records: Iterable[Sent]) -> list[Result]:
    """The failures and errors among records that their case does not declare."""
    results = (r for r, _ in records if isinstance(r, Result))
    return [r for r in results if r.verdict in ("fail", "error") and not r.expected_failure]


def _reason(report: pytest.TestReport) -> str:
    """Why pytest skipped an item, in one line."""
    place = report.longrepr
    words = place[2] if isinstance(place, tuple) else str(place or "")
    return next((line.strip() for line in words.splitlines() if line.strip()), "no reason is given")


def _item(nodeid: str) -> tuple[str, str, str, str] | None:
    """See `collection.item_of`, which is imported only for ids that look like ptxdiff's."""
    if not any(f"-{backend}]" in nodeid for backend in BACKENDS):
        return None
    from ptxdiff.running.collection import item_of

    return item_of(nodeid)


def _label(item: Sequence[str]) -> str:
    """`rcp::rcp.rn[sm_90a-emulator]`."""
    case, variant, target, backend = item
    return f"{case}::{variant}[{target}-{backend}]"


def _words(report: pytest.TestReport) -> str:
    """Why an item failed, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    # Without a crash entry, the first line may name the worker.
    text = crash.message if crash is not None else str(report.longrepr or "")
    return next((line.strip() for line in text.splitlines() if line.strip()), "it failed, and pytest gives no reason")


def _splits_line(found: Sequence[Split]) -> str:
    """The number of splits (targets or variants with different bits for the same inputs), and the first one."""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"targets or variants with different bits: {found[0]}{more}"


def _timed(timings: Sequence[Timing]) -> str:
    """The number of timings, the A/A noise, and how many timings were noisy or taken under reduced clocks."""
    noise = [100 * t.noise for t in timings]
    text = f"{len(timings)}, A/A noise {min(noise):.2f} to {max(noise):.2f}%"
    noted = sum(bool(t.notes) for t in timings)
    return text + (f", {noted} noisier than 1% or under reduced clocks" if noted else "")


def records_path(argument: str) -> Path:
    """The file to write: the argument itself if it ends in .jsonl or .jsonl.zst; else a new one in that folder.

    A file that the user names holds all of a run; one in a folder is compressed, named by the time, and its texts lie
    in the folder's store.

    Raises RecordError for a file of another kind.
    """
    path = Path(argument)
    if is_records_name(argument):
        return path
    if path.is_file() or path.suffix in (".json", ".txt", ".html", ".xml", ".zst"):
        raise RecordError(f"{path}: name a file that ends in {PLAIN} or {COMPRESSED}, or a folder, for the records")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    # `_` sorts after the dot: of two runs that began in one second, the later has the later name.
    files = (path / f"{stamp}{f'_{n}' * bool(n)}{COMPRESSED}" for n in range(10_000))
    return next(p for p in files if not p.exists() and not lock_of(p).exists())


# pytest's list of failures with one block for each mistake, and not one for each target that shows it --------------
#
# `-vv` prints every failure. Counts, exit code, JUnit files and records always have every item.


class FailureBlocks:
    """A plugin that receives the failed reports of items, and shows one of each block at the end of the run."""

    def __init__(self) -> None:
        self._reports: dict[int, pytest.TestReport] = {}
        self._failures: list[Result] = []

    def add(self, report: pytest.TestReport, results: Iterable[Result]) -> None:
        """Note a failed report and the results of its item."""
        wrong = [r for r in results if r.verdict in ("fail", "error") and not r.expected_failure]
        if wrong:
            worst = [r for r in wrong if r.verdict == "error"] or wrong
            first = shown_first(worst)
            self._failures.append(first)
            self._reports[id(first)] = report

    @property
    def words(self) -> str:
        """A sentence on what is not printed; "" if everything is."""
        causes = blocks(self._failures)
        left_out = len(self._failures) - len(causes)
        what = "one cause" if len(causes) == 1 else f"{len(causes)} causes"
        return f"{len(self._failures)} failed items have {what}; -vv prints each item" if left_out else ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> Iterator[Any]:
        """While pytest prints failures and the short summary, leave out those that are shown with another."""
        failed = terminalreporter.stats.get("failed")
        if not failed or config.get_verbosity() > 1 or not self.words:
            return (yield)
        replaced: dict[int, pytest.TestReport | None] = {}
        for block in blocks(self._failures):
            replaced[id(self._reports[id(block.first)])] = self._with_others(block)
            replaced |= {id(self._reports[id(other)]): None for other in block.others}
        shown = [replaced.get(id(report), report) for report in failed]
        terminalreporter.stats["failed"] = [report for report in shown if report is not None]
        try:
            return (yield)
        finally:
            terminalreporter.stats["failed"] = failed

    def _with_others(self, block: FailureBlock) -> pytest.TestReport:
        """The report of a block's first failure, with the places of the others in its text and its summary line."""
        report = self._reports[id(block.first)]
        if not block.others:
            return report
        shown = copy.copy(report)
        shown.longrepr = longrepr = copy.deepcopy(report.longrepr)
        if isinstance(longrepr, str):
            shown.longrepr = f"{longrepr}\n\n{block.elsewhere}"
            return shown
        entries: Any = getattr(getattr(longrepr, "reprtraceback", None), "reprentries", [])
        if entries:
            entries[-1].lines += ["", block.elsewhere]
        if (crash := getattr(longrepr, "reprcrash", None)) is not None:
            crash.message += f"; {block.elsewhere.partition(':')[0]}"
        return shown
