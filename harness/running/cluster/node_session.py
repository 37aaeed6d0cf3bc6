"""A pytest session in a worker process of Ray. It stays for all batches of a run, and collects each file once.

It works as a worker of pytest-xdist does, without a channel: it has the driver's plugins, conftest files and options,
and no terminal, and it serialises reports as pytest-xdist does.
"""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxdiff.cluster.shipping import project
from ptxdiff.model.identity.dependencies import take_parts
from ptxdiff.processes import child
from ptxdiff.processes.gpus import gpus
from ptxdiff.running.cluster.messages import ItemReport, NodeRun
from ptxdiff.running.collection import OFFERED, RUN_ID

_WORDS = 500
OURS = "ptxdiff.plugin"


def run(order: NodeRun, file: str, nodeids: tuple[str, ...]) -> Iterator[ItemReport]:
    """Run items of one case file here, in order. file: its path, relative to the project."""
    session = _session(order)
    take_parts(session.root / file, order.parts)
    if any(nodeid.endswith("-gpu]") for nodeid in nodeids):
        session.see_devices()
    items = session.items_of(file)
    for index, nodeid in enumerate(nodeids):
        if nodeid not in items:
            yield ItemReport(nodeid, words=session.missing(file))
            continue
        following = nodeids[index + 1] if index + 1 < len(nodeids) else ""
        yield session.run(items[nodeid], items.get(following))


_sessions: dict[str, NodeSession] = {}


def _session(order: NodeRun) -> NodeSession:
    if order.ident not in _sessions:
        _sessions[order.ident] = NodeSession(order, project())
    return _sessions[order.ident]


class NodeSession:
    """A session without pytest's loop: the driver chooses the items."""

    def __init__(self, order: NodeRun, root: Path) -> None:
        self.root, self.order = root, order
        os.chdir(root / order.invoked)
        # Ray's processes inherit it if a worker of pytest-xdist started Ray. This session is no such worker, for which
        # plugins may warn: pytest-benchmark 5.2 does. A project may make each warning an error.
        os.environ.pop("PYTEST_XDIST_WORKER", None)
        installed = any(e.name == "ptxdiff" for e in importlib.metadata.entry_points(group="pytest11"))
        plugin = [] if installed else ["-p", OURS]
        # ptxdiff was imported before pytest could rewrite its asserts; a project may make that warning an error.
        plugin += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        arguments = [*plugin, "-p", "no:terminal", "-p", "no:cacheprovider", f"--rootdir={root}"]
        plugins = [name for name in order.options.get("plugins") or () if name != OURS]
        options = {**order.options, "ptx_cases": self._cases(), "plugins": plugins}
        self.config = pytest.Config.fromdictargs(options, arguments)
        self.config.workerinput = {RUN_ID: order.run_id}  # type: ignore[attr-defined]  # as in pytest-xdist
        self.config.stash[OFFERED] = order.targets
        self.config._do_configure()
        self._reports: list[pytest.TestReport] = []
        self._faults: dict[str, str] = {}
        self._files: dict[str, dict[str, pytest.Item]] = {}
        self._visible: str | None = None
        self.config.pluginmanager.register(self, "ptxdiff-node")
        self.session = pytest.Session.from_config(self.config)
        self.config.hook.pytest_sessionstart(session=self.session)

    def _cases(self) -> list[str] | None:
        named = self.order.options.get("ptx_cases")
        return [str(self.root / path) for path in named] if named else None

    def see_devices(self) -> None:
        """List the GPUs that Ray has given to this task. If they changed, end the process that used the old ones."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible != self._visible:
            gpus.cache_clear()
            child.close_all()
            self._visible = visible

    def items_of(self, file: str) -> dict[str, pytest.Item]:
        """The items of a file, by their names on the driver."""
        if file not in self._files:
            self._faults.pop(file, None)
            try:
                collected = self.session.perform_collect([str(self.root / file)])
            except pytest.UsageError as error:  # the file was not sent
                collected = []
                self._faults[file] = str(error)
            self._files[file] = {item.nodeid: item for item in collected}
        return self._files[file]

    def missing(self, file: str) -> str:
        """Why an item of the file was not collected here."""
        reason = " ".join(self._faults.get(file, "it collects other items there").split())
        return f"the node could not collect it from {file}: {reason[:_WORDS]}"

    def run(self, item: pytest.Item, following: pytest.Item | None) -> ItemReport:
        """Run one item."""
        self._reports.clear()
        began = time.monotonic()
        self.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        send = self.config.hook.pytest_report_to_serializable
        sent = tuple(send(config=self.config, report=report) for report in self._reports)
        return ItemReport(item.nodeid, sent, round(time.monotonic() - began, 4))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report for the driver."""
        self._reports.append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a file could not be collected."""
        if report.failed:
            self._faults[report.nodeid.partition("::")[0]] = str(report.longrepr)


def sent_options(option: Any) -> dict[str, Any]:
    """The driver's options of pytest as a node gets them: some are replaced by `_DRIVERS`."""
    kept = (str, int, float, bool, type(None))
    plain_options = {
        name: value
        for name, value in vars(option).items()
        if isinstance(value, kept) or (isinstance(value, list) and all(isinstance(v, kept) for v in value))
    }
    return plain_options | _DRIVERS


_DRIVERS: dict[str, Any] = {
    "ptx_cluster": None, "ptx_records": None, "ptx_resume": False,
    "file_or_dir": [], "rootdir": None, "inifilename": None, "basetemp": None, "maxfail": 0, "collectonly": False,
    "lf": False, "failedfirst": False, "newfirst": False, "stepwise": False, "stepwise_skip": False,
    "numprocesses": None, "dist": "no", "tx": [], "looponfail": False, "usepdb": False, "trace": False,
    "xmlpath": None, "pastebin": None, "log_file": None, "keyword": "", "markexpr": "", "deselect": None,
}  # fmt: skip
"""Options with other values on a node: it chooses no items, and writes no files."""
