"""Under pytest-xdist: the controller settles items whose results are known, so that workers get only the others.

Runs without pytest-xdist import this module too: they note here what a run with it may reuse.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

from ptxdiff.diskcache import DiskCache
from ptxdiff.model.identity.definition import harness
from ptxdiff.processes.gpus import gpus
from ptxdiff.running.collection import VariantItem, known_as

ONLY = "ptxdiff_only"
"""The key in a worker's input for its items, by their names in the controller."""

_WORKER_FILES = "ptxdiff_files"
"""The key in a worker's input for the files that hold those items; it collects no others."""

_SPREAD = ("load", "loadscope", "loadfile", "loadgroup", "worksteal")
_runs = DiskCache("runs")


def settles(config: pytest.Config) -> bool:
    """Whether the controller is to settle items: something may be reused, and an earlier run left it."""
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
    """Note that this run left something to reuse. This decides only whether the next run's controller looks for it."""
    _runs.put(b"", *_run(config))


def _run(config: pytest.Config) -> tuple[bytes, ...]:
    command = (harness(), str(config.rootpath), str(config.invocation_params.dir), *config.args)
    return tuple(word.encode("utf-8", "surrogateescape") for word in command)


def take_over(config: pytest.Config) -> None:
    """Start the session without workers."""
    option = config.option
    config.pluginmanager.register(Settling(option.dist, list(option.tx)), "ptxdiff-settling")
    option.dist, option.tx = "no", []


class Settling:
    """The plugin of the controller. dist, tx: pytest-xdist's options as they were given."""

    def __init__(self, dist: str, tx: list[str]) -> None:
        self.dist, self.tx = dist, tx
        self.rest: dict[str, pytest.Item] = {}
        self.reported: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Settle known items, and run the rest in workers. Leaves the loop to pytest if a file was not collected."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None
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
            """pytest-xdist's session, which counts the settled items as collected."""

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
        node.workerinput[_WORKER_FILES] = list(dict.fromkeys(str(item.path) for item in self.rest.values()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the items that were reported."""
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
    for index, item in enumerate(chosen):
        following = chosen[index + 1] if index + 1 < len(chosen) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        stop_if_asked(session)


def stop_if_asked(session: pytest.Session) -> None:
    """End the loop if `-x`, or a plugin, asks for it."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _lost(item: pytest.Item) -> None:
    """Fail an item that no worker ran. Without a report it would look as if nobody had chosen it."""
    message = "no worker of pytest-xdist ran it: they collected other items than the controller"
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
    item.config.hook.pytest_runtest_logreport(report=report)


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, keep only the items that it was given."""
    only = set(config.workerinput[ONLY])  # type: ignore[attr-defined]
    items[:] = [item for item in items if known_as(item.nodeid) in only]
