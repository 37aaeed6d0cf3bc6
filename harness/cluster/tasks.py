"""Pieces of work as Ray tasks: generator functions, called by name, whose values come back as they are made.

Ray places a task on a node that serves its needs, repeats it elsewhere where its worker or node dies, and keeps the
order of what it yields: a repeated task gives its first values again, and Ray passes on those that are new. Each value
carries its number and where it was made; a number that is out of order is an error, so nothing counts twice.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.cluster.facts import difference, here
from harness.cluster.nodes import Needs, Nodes, selector
from harness.cluster.shipping import arrived
from harness.processes.pool import CPUS_VARIABLE
from harness.processes.worker import resolve

RETRIES = 2
"""How often Ray repeats a task whose worker or node died."""

LOOK = 5.0
"""Seconds between two looks at which nodes live."""


@dataclass(frozen=True)
class Made:
    """A value as it travels: its number among those of the task, and the node that made it."""

    number: int
    node: str
    host: str
    value: Any


@dataclass(eq=False)
class Submitted:
    """One submitted piece of work.

    label: what the caller knows it by. tries: how often Ray runs it at most. received: how many values have come.
    """

    label: Any
    needs: Needs
    stream: Any
    nodes: frozenset[str]
    tries: int
    began: float = field(default_factory=time.monotonic)
    received: int = 0


@dataclass(frozen=True)
class Yielded:
    """A task has yielded something. node, host: where."""

    task: Submitted
    value: Any
    node: str
    host: str


@dataclass(frozen=True)
class Ended:
    """A task has come to its end."""

    task: Submitted


@dataclass(frozen=True)
class Lost:
    """A task that gives no more values; words: why.

    blamed: what it ran may be the reason, as its process died under it each time. raised: it raised an exception.
    """

    task: Submitted
    words: str
    blamed: bool = False
    raised: bool = False


Event = Yielded | Ended | Lost


class Misreported(RuntimeError):
    """A task reported what it was not asked for, or a value twice."""


class Tasks:
    """The tasks that this driver started; `close` ends them, and nothing else on the cluster."""

    def __init__(self, ray: Any, nodes: Nodes, retries: int = RETRIES) -> None:
        self._ray, self.nodes, self._tries = ray, nodes, retries + 1
        self._running: dict[Any, Submitted] = {}
        self._looked = time.monotonic()
        self._remote = ray.remote(num_returns="streaming", max_retries=retries, max_calls=0)(call)
        self._mine = ray.put(nodes.mine)

    def submit(self, label: Any, function: str, *arguments: Any, needs: Needs, name: str) -> Submitted | None:
        """Start a generator function ("module:name") on a node that serves the needs; None where no node does.

        name: as Ray's dashboard shows it. The arguments and the values must pickle.
        """
        serving = self.nodes.serving(needs)
        if not serving:
            return None
        ids = frozenset(n.id for n in serving)
        options: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "name": name}
        remote = self._remote.options(**options, label_selector=selector(ids))
        stream = remote.remote(self._mine, function, arguments)
        task = self._running[stream] = Submitted(label, needs, stream, ids, self._tries)
        return task

    @property
    def running(self) -> list[Submitted]:
        """Those that have not ended."""
        return [*self._running.values()]

    def events(self, timeout: float) -> Iterator[Event]:
        """What has happened, after at most `timeout` seconds of waiting; at most one value of each task."""
        if time.monotonic() - self._looked > LOOK:
            yield from self._look()
        if not self._running:
            return
        streams = [*self._running]
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(streams, num_returns=1, timeout=timeout)
        for stream in ready:
            if stream in self._running:
                yield self._next(self._running[stream])

    def _next(self, task: Submitted) -> Event:
        try:
            made: Made = self._ray.get(next(task.stream))
        except StopIteration:
            del self._running[task.stream]
            return Ended(task)
        except Exception as error:
            del self._running[task.stream]
            return self._why(task, error)
        if made.number != task.received:
            self.cancel(task)
            raise Misreported(f"a task's value number {made.number} came where number {task.received} was due")
        task.received += 1
        return Yielded(task, made.value, made.node, made.host)

    def _why(self, task: Submitted, error: Exception) -> Lost:
        """What became of a task that Ray gave up, or that raised."""
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, OtherEnvironment):
            node, words = cause.args
            self.nodes.refuse(node, words)
            return Lost(task, words)
        for name, (words, blamed) in _REASONS.items():
            if isinstance(error, getattr(self._ray.exceptions, name)):
                return Lost(task, words, blamed=blamed)
        return Lost(task, f"{type(cause).__name__}: {' '.join(str(cause).split())[:500]}", raised=True)

    def _look(self) -> Iterator[Event]:
        """Ask new nodes what they are; give up tasks that wait for nodes of which none lives."""
        self.nodes.look(patience=0)  # a node that is slow to answer must not keep others' results waiting
        self._looked = time.monotonic()
        for task in self.running:
            if not task.nodes & self.nodes.alive:
                self.cancel(task)
                yield Lost(task, f"every node that could run it is gone ({task.needs.words})")

    def cancel(self, task: Submitted) -> None:
        """End a task, and forget it."""
        self._running.pop(task.stream, None)
        try:
            self._ray.cancel(task.stream, force=True)
        except Exception:  # it has ended meanwhile, or the cluster is gone
            return

    def close(self) -> None:
        """End all tasks that were started here."""
        for task in self.running:
            self.cancel(task)


# By the name of Ray's exception: why a task was given up, and whether what it ran may be the reason.
_REASONS: Mapping[str, tuple[str, bool]] = {
    "OutOfMemoryError": ("its node ran out of memory, and Ray ended it", True),
    "WorkerCrashedError": ("the process that ran it died: killed, out of memory, or crashed", True),
    "NodeDiedError": ("its node died", False),
    "RuntimeEnvSetupError": ("its node could not unpack the job's files", False),
    "ObjectStoreFullError": ("the object store of a node is full", False),
    "OutOfDiskError": ("the disk of a node is full, so that its object store cannot spill", False),
    "ObjectLostError": ("its results were lost with a node", False),
    "TaskCancelledError": ("it was cancelled", False),
    "LocalRayletDiedError": ("the raylet of its node died", False),
}


# ---- What runs on a node -------------------------------------------------------------------------------------------


class OtherEnvironment(RuntimeError):
    """A task came to a node whose environment is not the driver's: the node's id, and the difference in words."""


_checked: dict[tuple[tuple[str, str], ...], str] = {}


def call(mine: Mapping[str, str], function: str, arguments: tuple[Any, ...]) -> Iterator[Made]:
    """Run a generator function here, and number what it yields. Raises OtherEnvironment where this is not `mine`."""
    import ray

    context = ray.get_runtime_context()
    node = context.get_node_id()
    os.environ[CPUS_VARIABLE] = str(max(1, int(context.get_assigned_resources().get("CPU", 1))))
    key = tuple(mine.items())
    if key not in _checked:
        arrived()
        _checked[key] = difference(mine, here().environment)
    if _checked[key]:
        raise OtherEnvironment(node, f"the node is not as it was when it was asked: {_checked[key]}")
    host = socket.gethostname()
    for number, value in enumerate(resolve(function)(*arguments)):
        yield Made(number, node, host, value)
