"""Under pytest-xdist: items whose results are known are settled by the controller, and workers get the others alone.

A worker imports torch, Triton and all case files, and collects every item again, before it reuses the first result.
So the controller collects, looks up results as any process does (`running/reuse`), and starts no more workers than the
rest has variants; they collect the files of the rest alone. Where less than two variants are left, they run here.

This is for runs of case files of which an earlier run with the same harness left something to reuse. In any other run
the controller would only delay the workers. What no worker reports, though it was handed out, is a failure.
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Iterable
from typing import Any

import pytest

from harness.diskcache import DiskCache
from harness.model.identity.experiment import harness
from harness.processes.gpus import gpus
from harness.running.collection import VariantItem, known_as

ONLY = "ptxdiff_only"
"""Under this name workers are told which items are theirs, by the names that the controller knows them by."""

FILES = "ptxdiff_files"
"""Likewise, the files that hold those items: all that workers collect."""

_SPREAD = ("load", "loadscope", "loadfile", "loadgroup", "worksteal")
_runs = DiskCache("runs")


def settles(config: pytest.Config) -> bool:
    """Whether the controller is to settle what it can: where something may be reused, and an earlier run left it."""
    option = config.option
    if option.dist not in _SPREAD or any(spec != "popen" for spec in option.tx) or option.collectonly:
        return False
    if option.ptx_fresh or option.ptx_replay is not None or option.ptx_dump or os.environ.get("PTXDIFF_REUSE") == "0":
        return False
    if option.ptx_timing or getattr(option, "benchmark_only", False) or option.usepdb:
        return False
    backends = set(option.ptx_backend or ["auto"])
    if backends & {"auto", "gpu"} and gpus():
        return False
    return _runs.get(*_run(config)) is not None


def remember(config: pytest.Config) -> None:
    """Note that this run left something to reuse. It decides nothing but where the next run looks for it first."""
    _runs.put(b"", *_run(config))


def _run(config: pytest.Config) -> tuple[bytes, ...]:
    words = (harness(), str(config.rootpath), str(config.invocation_params.dir), *config.args)
    return tuple(word.encode("utf-8", "surrogateescape") for word in words)


def take_over(config: pytest.Config) -> None:
    """Let the session begin without workers."""
    option = config.option
    config.pluginmanager.register(Settling(option.dist, list(option.tx)), "ptxdiff-settling")
    option.dist, option.tx = "no", []


class Settling:
    """The plugin of the controller. dist, tx: how pytest-xdist was to spread items, and over what."""

    def __init__(self, dist: str, tx: list[str]) -> None:
        self.dist, self.tx = dist, tx
        self.rest: dict[str, pytest.Item] = {}
        self.reported: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Settle what is known, and have the rest run. Leaves the loop to pytest where a file was not collected."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None
        gc.freeze()  # torch and Triton have a million objects, which every collection would walk through again
        atexit.register(gc.unfreeze)  # else Triton's binding takes what is left for leaked, and says so
        self.rest = {known_as(item.nodeid): item for item in session.items if not _known(item)}
        known = [item for item in session.items if known_as(item.nodeid) not in self.rest]
        workers = min(len(self.tx), len({_group(item) for item in self.rest.values()}))
        if workers < 2:
            run_here(session, [*known, *self.rest.values()])
        else:
            distributed = self._started(session, workers)
            run_here(session, known)  # while the workers import and collect
            distributed.countfailures = session.testsfailed
            distributed.pytest_runtestloop()
            for name in self.rest.keys() - self.reported:
                _lost(self.rest[name])
        return True

    def _started(self, session: pytest.Session, workers: int) -> Any:
        """The session of pytest-xdist that runs the rest, with its workers started."""
        from xdist.dsession import DSession

        config, total = session.config, len(session.items)
        config.option.dist, config.option.tx = self.dist, self.tx[:workers]

        class Rest(DSession):  # type: ignore[misc]
            """pytest-xdist's session, in which the settled items count as collected."""

            def worker_collectionfinish(self, node: Any, ids: Any) -> None:
                super().worker_collectionfinish(node, ids)
                session.testscollected = total

        distributed = Rest(config)
        config.pluginmanager.register(distributed, "dsession")
        distributed.pytest_sessionstart(session)
        return distributed

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker which items are its own."""
        node.workerinput[ONLY] = list(self.rest)
        node.workerinput[FILES] = list(dict.fromkeys(str(item.path) for item in self.rest.values()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what was reported."""
        if report.when != "setup" or not report.passed:
            self.reported.add(known_as(report.nodeid))


def _known(item: pytest.Item) -> bool:
    return isinstance(item, VariantItem) and item.is_known()


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker is not None else item.nodeid


def run_here(session: pytest.Session, items: Iterable[pytest.Item]) -> None:
    """Run items in this process, as pytest's own loop does."""
    chosen = list(items)
    for place, item in enumerate(chosen):
        following = chosen[place + 1] if place + 1 < len(chosen) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        stop_if_asked(session)


def stop_if_asked(session: pytest.Session) -> None:
    """End the loop where `-x`, or a plugin, asks for it."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _lost(item: pytest.Item) -> None:
    """Fail an item that workers collected otherwise: without a report it would look like one that nobody asked for."""
    words = "no worker of pytest-xdist ran it: they collected other items than the controller"
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
    item.config.hook.pytest_runtest_logreport(report=report)


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker: keep the items that were handed out."""
    only = set(config.workerinput[ONLY])  # type: ignore[attr-defined]
    items[:] = [item for item in items if known_as(item.nodeid) in only]
