"""The driver of a run on a cluster: a plugin that sends items to nodes and passes their reports to pytest.

pytest's recorder, its counting and its `-x` get the reports as if the items had run here. Every report is checked: it
must be about the item that is due, and its results must have that item's key and its variant's definition here.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ptxdiff.cluster.connect import LOCAL, ClusterError, check_address, connected
from ptxdiff.cluster.nodes import CPU, FILES_VARIABLE, Needs, Node, Nodes, gpu
from ptxdiff.cluster.shipping import Shipment, shipment
from ptxdiff.cluster.tasks import RETRIES, Ended, Lost, Misreported, Submitted, Tasks, Yielded
from ptxdiff.model.identity.dependencies import OF_THE_SESSION, dependencies
from ptxdiff.running.assemblers import BUNDLED
from ptxdiff.running.cluster.messages import ItemReport, NodeRun, checked
from ptxdiff.running.cluster.node_session import sent_options
from ptxdiff.running.collection import EMULATED_INSTEAD, OFFERED, VariantItem, is_done, run_id
from ptxdiff.running.xdist import run_here, stop_if_asked
from ptxdiff.timing.items import TimingItem, is_timed

EVERY = 20.0
"""Seconds between two such lines."""


@dataclass(frozen=True)
class QueueState:
    """The progress of items with the same needs.

    needs: in words. running: how many run now. left: how many have no report. slots: how many can run at once. mean:
    seconds that one has taken on average; 0 if none is done.
    """

    needs: str
    running: int
    left: int
    slots: int
    mean: float


def line(done: int, failing: int, states: Sequence[QueueState]) -> str:
    """The line."""
    running, waiting = Counter[str](), Counter[str]()
    for state in states:
        running[state.needs] += state.running
        waiting[state.needs] += state.left - state.running
    total = done + sum(s.left for s in states)
    message = (
        f"cluster: {done} of {total} done, {failing} failing; running {_counts(running)}; waiting {_counts(waiting)}"
    )
    seconds = estimate(states)
    return f"{message}; about {_time(seconds)} left" if seconds is not None else message


def estimate(states: Sequence[QueueState]) -> float | None:
    """Seconds until the slowest kind is done; None if one kind has no finished item yet."""
    waiting = [s for s in states if s.left]
    if any(not s.mean for s in waiting):
        return None
    return max((s.left * s.mean / max(1, s.slots) for s in waiting), default=0.0)


def _counts(counts: Counter[str]) -> str:
    kinds = ", ".join(f"{needs} {count}" for needs, count in sorted(counts.items()) if count)
    return f"{counts.total()} ({kinds})" if kinds else "0"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


WORK = "ptxdiff.running.cluster.node_session:run"

AHEAD = 2
"""Batches submitted per slot: the second waits at its node while the first runs."""

GONE = 3
"""How often a batch is sent again after its node was lost, beyond Ray's own repeats."""

PATIENCE = 60.0
"""Seconds that items wait after the last node that can run them is lost. A preempted node may come back."""


class ClusterRun:
    """The plugin of `--ptx-cluster`."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.address = str(config.option.ptx_cluster)
        self.stack = contextlib.ExitStack()
        self.queues: list[Queue] = []
        self.batches: dict[Submitted, ItemBatch] = {}
        self.done = self.failing = 0
        self.printed = self.served = time.monotonic()
        self.took = 0.0
        self.used: set[str] = set()
        self.ident = uuid.uuid4().hex
        self.nodes: Nodes | None = None
        self.shipped: Shipment | None = None
        self.tasks: Tasks | None = None

    def join(self) -> None:
        """Connect, and list the nodes. Raises ClusterError."""
        check_address(self.address)
        programs = [p for p in self.config.option.ptx_assembler or () if p != BUNDLED]
        os.environ.pop(FILES_VARIABLE, None)
        if programs:
            os.environ[FILES_VARIABLE] = os.pathsep.join(programs)
        self.shipped = shipment(self.config.rootpath)
        self._connect()

    def _connect(self) -> None:
        assert self.shipped is not None
        ray = self.stack.enter_context(connected(self.address, self.shipped))
        self.nodes = Nodes(ray)
        self.nodes.look()
        if all(n.refused for n in self.nodes.known.values()):
            raise ClusterError("no node of the cluster can be used:\n" + "\n".join(_refusals(self.nodes.refused)))
        self.config.stash[OFFERED] = self.nodes.targets
        self.tasks = Tasks(ray, self.nodes, RETRIES)

    def leave(self) -> None:
        """Cancel this run's tasks and disconnect. Tasks of others go on."""
        if self.tasks is not None:
            with contextlib.suppress(Exception):  # the cluster may have ended
                self.tasks.close()
        self.stack.close()

    def head(self) -> list[dict[str, Any]]:
        """The nodes, for the run's first record."""
        return [n.as_record() for n in self.nodes.known.values()] if self.nodes else []

    # ---- pytest's hooks

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Send items to nodes, and run the others here. Leaves the loop to pytest if no item can be sent."""
        if session.config.option.collectonly or (
            session.testsfailed and not session.config.option.continue_on_collection_errors
        ):
            return None
        away = [item for item in session.items if self._goes_away(item)]
        sent = {item.nodeid for item in away}
        here = [item for item in session.items if item.nodeid not in sent]
        self._ship_what_was_imported(away)
        self.queues = queues(away)
        began = time.monotonic()
        try:
            self._run_away(session)
        finally:
            self.took = time.monotonic() - began
            self.leave()
        run_here(session, here)
        return True

    def pytest_unconfigure(self) -> None:
        """Disconnect from the cluster, however the run ended."""
        self.leave()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Report the nodes that were not used, and the GPUs that no node has."""
        for remark in self._remarks():
            terminalreporter.write_line(remark)

    def _remarks(self) -> Iterator[str]:
        if self.nodes is None:
            return
        if self.done:
            took = sum(q.seconds for q in self.queues)
            used = len(self.used)
            yield f"cluster: {self.done} items on {used} nodes in {self.took:.0f} s, {took:.0f} s of work"
        yield from _refusals(self.nodes.refused)
        yield from (f"cluster: node {n.host}/{n.id[:8]}: {n.remark}" for n in self.nodes.known.values() if n.remark)
        if missing := self.config.stash.get(EMULATED_INSTEAD, ()):
            yield f"cluster: no node has {', '.join(missing)}: the emulator runs what was asked of those GPUs"

    # ---- the loop

    def _goes_away(self, item: pytest.Item) -> bool:
        """Whether to send an item to a node: one of ptxdiff's, without a resumed result, that some node can run."""
        assert self.nodes is not None
        if isinstance(item, VariantItem):
            offered = item.item.backend != "gpu" or item.item.target in self.config.stash[OFFERED]
            return offered and not is_done(item)
        return isinstance(item, TimingItem) and item.target in self.config.stash[OFFERED] and not is_timed(item)

    def _ship_what_was_imported(self, away: Iterable[pytest.Item]) -> None:
        """Connect again if the case files imported packages that the nodes do not have yet."""
        assert self.shipped is not None
        outside = sorted({str(item.path) for item in away if not item.path.is_relative_to(self.config.rootpath)})
        if outside:
            raise pytest.UsageError(
                f"--ptx-cluster: {outside[0]} lies outside the project's folder {self.config.rootpath}, and only that "
                "folder is sent to nodes; name a folder that holds both with --rootdir"
            )
        needed = shipment(self.config.rootpath)
        missing = set(needed.modules) - set(self.shipped.modules)
        if self.address == LOCAL:  # its processes have this one's environment variables
            searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
            missing = {m for m in missing if os.path.dirname(m) not in searched}
        if not missing:
            return
        self.leave()
        self.shipped = needed
        try:
            self._connect()
        except ClusterError as error:
            raise pytest.UsageError(f"--ptx-cluster: {error}") from None

    def _run_away(self, session: pytest.Session) -> None:
        assert self.tasks is not None
        while any(q.waiting for q in self.queues) or self.batches:
            self._send()
            for event in self.tasks.events(timeout=1.0):
                if isinstance(event, Yielded):
                    self._received(event)
                elif isinstance(event, Ended):
                    self._ended(event.task)
                else:
                    self._lost(event)
                stop_if_asked(session)
            self._give_up()
            self._print_progress()

    def _send(self) -> None:
        """Keep every slot busy, and a second batch waiting for it."""
        assert self.tasks is not None
        assert self.nodes is not None
        for queue in self.queues:
            slots = self.nodes.slots(queue.needs)
            out = sum(b.needs == queue.needs for b in self.batches.values())
            while out < AHEAD * slots and (batch := queue.next(slots)) is not None:
                task = self._submit(batch)
                if task is None:
                    queue.again.appendleft(batch)
                    break
                self.batches[task] = batch
                out += 1

    def _submit(self, batch: ItemBatch) -> Submitted | None:
        assert self.tasks is not None
        return self.tasks.submit(
            batch, WORK, self._order(batch.file), batch.file, batch.nodeids, needs=batch.needs, name=batch.name
        )

    def _order(self, file: str) -> NodeRun:
        root, invoked = self.config.rootpath, self.config.invocation_params.dir
        inside = invoked.relative_to(root).as_posix() if invoked.is_relative_to(root) else "."
        options = sent_options(self.config.option)
        if named := options.get("ptx_cases"):
            options["ptx_cases"] = [os.path.relpath(invoked / path, root) for path in named]
        mine = dependencies(root / file)
        parts = {part: mine[part] for part in OF_THE_SESSION}
        return NodeRun(self.ident, run_id(self.config), options, inside, self.config.stash[OFFERED], parts)

    def _received(self, event: Yielded) -> None:
        batch = self.batches[event.task]
        due = batch.items[event.task.received - 1]
        try:
            item_report: ItemReport = checked(event.value, due, f"{event.host}/{event.node[:8]}")
        except Misreported as error:
            self._mistrust(event, batch, str(error))
            return
        self.used.add(event.node)
        queue = self._queue(batch)
        queue.done += 1
        queue.seconds += item_report.seconds
        if item_report.words:
            self._error(due, item_report.words)
        else:
            self._report(due, item_report.reports)

    def _mistrust(self, event: Yielded, batch: ItemBatch, words: str) -> None:
        """Accept nothing more from a node that reported on an item other than the one due."""
        assert self.tasks is not None
        assert self.nodes is not None
        self.tasks.cancel(event.task)
        del self.batches[event.task]
        location = f"{event.host}/{event.node[:8]}"
        self.nodes.refuse(event.node, words)
        self._error(batch.items[event.task.received - 1], f"node {location}: {words}")
        self._again(batch.without(event.task.received))

    def _ended(self, task: Submitted) -> None:
        batch = self.batches.pop(task)
        for item in batch.items[task.received :]:
            self._error(item, "its node ended the batch without a report on it")

    def _lost(self, event: Lost) -> None:
        """Send the unreported items of a lost task elsewhere; an item that may have ended its node becomes an error."""
        batch = self.batches.pop(event.task)
        rest = batch.without(event.task.received)
        if rest is None:
            return
        if event.raised:
            for item in rest.items:
                self._error(item, f"its node could not run it: {event.words}")
        elif event.blamed:
            self._error(rest.items[0], f"{event.words}, {_times(event.task)}; --ptx-resume runs it again")
            self._again(rest.without(1))
        elif rest.lost < GONE:
            rest.lost += 1
            self._again(rest)
        else:
            for item in rest.items:
                self._error(item, f"{event.words}, and {rest.lost} times before; --ptx-resume runs it again")

    def _again(self, batch: ItemBatch | None) -> None:
        if batch is not None:
            self._queue(batch).again.append(batch)

    def _queue(self, batch: ItemBatch) -> Queue:
        return next(q for q in self.queues if q.needs == batch.needs)

    def _give_up(self) -> None:
        """Make an error of each waiting item that no node has been able to run for `PATIENCE` seconds."""
        assert self.nodes is not None
        stuck = [q for q in self.queues if q.waiting and not self.nodes.serving(q.needs)]
        if not stuck:
            self.served = time.monotonic()
        elif time.monotonic() - self.served > PATIENCE:
            for queue in stuck:
                for batch in queue.take_all():
                    for item in batch.items:
                        message = f"no node that offers {queue.needs.words} is left; --ptx-resume runs it again"
                        self._error(item, message)

    # ---- reports

    def _report(self, item: pytest.Item, reports: Iterable[Any]) -> None:
        hook = self.config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        failed = False
        for data in reports:
            report = hook.pytest_report_from_serializable(config=self.config, data=dict(data))
            failed |= report.failed
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        self.done += 1
        self.failing += failed

    def _error(self, item: pytest.Item, words: str) -> None:
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self._report(item, [data])

    def _print_progress(self) -> None:
        assert self.nodes is not None
        if time.monotonic() - self.printed < EVERY:
            return
        self.printed = time.monotonic()
        states = []
        for queue in self.queues:
            out = {task: batch for task, batch in self.batches.items() if batch.needs == queue.needs}
            sent = sum(len(batch.items) - task.received for task, batch in out.items())
            slots = self.nodes.slots(queue.needs)
            states.append(QueueState(queue.needs.words, min(len(out), slots), queue.waiting + sent, slots, queue.mean))
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line(self.done, self.failing, states))


def join(config: pytest.Config) -> None:
    """Connect, and register the plugin. Raises UsageError."""
    option = config.option
    for name, clash in {
        "numprocesses": "-n runs items in processes here",
        "ptx_dump": "--ptx-dump writes here",
    }.items():
        if getattr(option, name, None):
            raise pytest.UsageError(f"--ptx-cluster runs items on nodes, and {clash}; leave one of them out")
    if getattr(option, "benchmark_only", False):
        raise pytest.UsageError("--benchmark-only times on this machine; on a cluster, --ptx-timing does")
    run = ClusterRun(config)
    try:
        run.join()
    except ClusterError as error:
        run.leave()
        raise pytest.UsageError(f"--ptx-cluster: {error}") from None
    config.pluginmanager.register(run, "ptxdiff-cluster")


def _refusals(nodes: Iterable[Node]) -> Iterator[str]:
    for node in nodes:
        yield f"cluster: node {node.host}/{node.id[:8]} gets no work: {node.refused}"


def _times(task: Submitted) -> str:
    return f"{task.tries} times" if task.tries > 1 else "once"


# Batches of items for a node ---------------------------------------------------------------------------------------
#
# A task costs milliseconds, and items of one variant share compiled code and runs.

LARGEST = 64
"""The most items of a batch: this many are run again if the node dies."""

SECONDS = 20.0
"""The seconds that a batch should take, once it is known how long items take."""


@dataclass(eq=False)
class ItemBatch:
    """Items of one file with the same needs. lost: how often a node was lost that ran the batch."""

    file: str
    needs: Needs
    items: tuple[pytest.Item, ...]
    lost: int = 0

    @property
    def nodeids(self) -> tuple[str, ...]:
        """The items' pytest ids."""
        return tuple(item.nodeid for item in self.items)

    @property
    def name(self) -> str:
        """The batch's name in Ray's dashboard: `rcp.py sm_90a: rcp.rn[sm_90a-gpu] and 11 more`."""
        first = self.items[0].nodeid.partition("::")[2]
        more = f" and {len(self.items) - 1} more" if len(self.items) > 1 else ""
        return f"{self.file.rpartition('/')[2]} {self.needs.words}: {first}{more}"

    def without(self, count: int) -> ItemBatch | None:
        """The batch without its first `count` items; None if none is left."""
        return ItemBatch(self.file, self.needs, self.items[count:], self.lost) if count < len(self.items) else None


def needs_of(item: pytest.Item) -> Needs:
    """The resources of a node that an item needs."""
    if isinstance(item, TimingItem):
        return gpu(str(item.target), alone=True)
    if isinstance(item, VariantItem) and item.item.backend == "gpu":
        return gpu(item.item.target)
    return CPU


@dataclass
class Queue:
    """Items that wait for nodes with the same resources, by file, in groups that stay together."""

    needs: Needs
    groups: deque[tuple[str, list[pytest.Item]]] = field(default_factory=deque)
    again: deque[ItemBatch] = field(default_factory=deque)
    done: int = 0
    seconds: float = 0.0

    @property
    def waiting(self) -> int:
        """The number of items that wait."""
        return sum(len(items) for _, items in self.groups) + sum(len(b.items) for b in self.again)

    @property
    def mean(self) -> float:
        """Seconds that an item has taken on average; 0 if none is done."""
        return self.seconds / self.done if self.done else 0.0

    def next(self, slots: int) -> ItemBatch | None:
        """The next batch; smaller towards the end, so that all nodes end together. slots: batches that run at once."""
        if self.again:
            return self.again.popleft()
        if not self.groups:
            return None
        share = -(-self.waiting // max(1, 2 * slots))
        paid = int(SECONDS / self.mean) if self.mean else 8
        most = max(1, min(LARGEST, share, paid))
        file, items = self.groups.popleft()
        taken = list(items)
        while self.groups and self.groups[0][0] == file and len(taken) + len(self.groups[0][1]) <= most:
            taken += self.groups.popleft()[1]
        return ItemBatch(file, self.needs, tuple(taken))

    def take_all(self) -> Iterator[ItemBatch]:
        """Every batch that waits."""
        while batch := self.next(1):
            yield batch


def queues(items: Iterable[pytest.Item], group: Callable[[pytest.Item], str] | None = None) -> list[Queue]:
    """The items, sorted by their needs. group: names the items that share work; by default those of one variant."""
    made: dict[Needs, dict[tuple[str, str], list[pytest.Item]]] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        made.setdefault(needs_of(item), {}).setdefault((file, (group or _group)(item)), []).append(item)
    item_queues = []
    for needs, groups in made.items():
        pieces = [(file, piece) for (file, _), all_ in groups.items() for piece in _pieces(all_)]
        item_queues.append(Queue(needs, deque(pieces)))
    return item_queues


def _group(item: pytest.Item) -> str:
    return item.item.variant_name if isinstance(item, VariantItem) else item.nodeid


def _pieces(items: Sequence[pytest.Item]) -> Iterator[list[pytest.Item]]:
    yield from (list(items[k : k + LARGEST]) for k in range(0, len(items), LARGEST))
