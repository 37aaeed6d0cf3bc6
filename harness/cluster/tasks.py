"""Ray tasks: generator functions, called by name, whose values are streamed back.

Ray places a task on a node that has the resources, and repeats it on another if its worker or node dies. It keeps the
order of the yielded values: a repeated task yields its first values again, and Ray passes on only new ones. Each value
carries its number and its node. A number out of order is an error, so no value counts twice.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptxdiff.cluster.nodes import Needs, Nodes, difference, here, selector
from ptxdiff.cluster.shipping import arrived
from ptxdiff.processes import gpus
from ptxdiff.processes.gpus import Gpu
from ptxdiff.processes.pool import CPUS_VARIABLE
from ptxdiff.processes.worker import resolve

RETRIES = 2
"""The most repetitions of a task whose worker or node died."""

LOOK = 5.0
"""Seconds between two queries of the living nodes."""


@dataclass(frozen=True)
class Made:
    """A value on its way to the driver: its number among the values of the task, and the node that made it."""

    number: int
    node: str
    host: str
    value: Any


@dataclass(eq=False)
class Submitted:
    """One submitted task.

    label: the caller's name for it. tries: the most runs by Ray. received: the number of values received so far.
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
    """A task has yielded a value. node, host: where it ran."""

    task: Submitted
    value: Any
    node: str
    host: str


@dataclass(frozen=True)
class Ended:
    """A task has ended normally."""

    task: Submitted


@dataclass(frozen=True)
class Lost:
    """A task has failed and gives no more values. words: the reason.

    blamed: whether the task's own work may be the cause, because its process died each time. raised: whether it raised
    an exception.
    """

    task: Submitted
    words: str
    blamed: bool = False
    raised: bool = False


Event = Yielded | Ended | Lost


class Misreported(RuntimeError):
    """A task reported a value twice, or one that was not asked for."""


class Tasks:
    """The tasks that this driver has started. `close` ends them, and no others on the cluster."""

    def __init__(self, ray: Any, nodes: Nodes, retries: int = RETRIES) -> None:
        self._ray, self.nodes, self._tries = ray, nodes, retries + 1
        self._running: dict[Any, Submitted] = {}
        self._looked = time.monotonic()
        self._remote = ray.remote(num_returns="streaming", max_retries=retries, max_calls=0)(call)
        self._mine = ray.put(nodes.mine)

    def submit(self, label: Any, function: str, *arguments: Any, needs: Needs, name: str) -> Submitted | None:
        """Start a generator function ("module:name") on a node with the resources; None if no node has them.

        name: for Ray's dashboard. The arguments and the yielded values must pickle.
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
        """The tasks that have not ended."""
        return [*self._running.values()]

    def events(self, timeout: float) -> Iterator[Event]:
        """The latest events, at most one value of each task. Waits up to `timeout` seconds for the first."""
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
            return self.given_up(task, error)
        if made.number != task.received:
            self.cancel(task)
            raise Misreported(f"a task sent value number {made.number}, but number {task.received} was expected")
        task.received += 1
        return Yielded(task, made.value, made.node, made.host)

    def given_up(self, task: Submitted, error: Exception) -> Lost:
        """The event for a task that Ray gave up, or that raised an exception."""
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, OtherEnvironment):
            node, reason = cause.args
            self.nodes.refuse(node, reason)
            return Lost(task, reason)
        for name, (reason, blamed) in REASONS.items():
            if isinstance(error, getattr(self._ray.exceptions, name)):
                return Lost(task, reason, blamed=blamed)
        return Lost(task, f"{type(cause).__name__}: {' '.join(str(cause).split())[:500]}", raised=True)

    def _look(self) -> Iterator[Event]:
        """Query new nodes, and give up tasks if none of their nodes is alive."""
        self.nodes.look(patience=0)  # without waiting: a slow node must not delay the results of others
        self._looked = time.monotonic()
        for task in self.running:
            if not task.nodes & self.nodes.alive:
                self.cancel(task)
                yield Lost(task, f"all nodes that could run it are gone ({task.needs.words})")

    def cancel(self, task: Submitted) -> None:
        """End a task, and forget it."""
        self._running.pop(task.stream, None)
        try:
            self._ray.cancel(task.stream, force=True)
        except Exception:  # the task has already ended, or the cluster is gone
            return

    def close(self) -> None:
        """End all tasks that were started here."""
        for task in self.running:
            self.cancel(task)


# By the name of Ray's exception: why the task was given up, and whether its own work may be the cause.
REASONS: Mapping[str, tuple[str, bool]] = {
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
    """A task ran on a node whose environment differs from the driver's. args: the node's id, and the difference."""


_checked: dict[tuple[tuple[str, str], ...], str] = {}


def call(mine: Mapping[str, str], function: str, arguments: tuple[Any, ...]) -> Iterator[Made]:
    """Run a generator function here, and number the values that it yields.

    mine: the driver's facts. Raises OtherEnvironment if this node's facts differ.
    """
    import ray

    context = ray.get_runtime_context()
    node = context.get_node_id()
    os.environ[CPUS_VARIABLE] = str(max(1, int(context.get_assigned_resources().get("CPU", 1))))
    key = tuple(mine.items())
    if key not in _checked:
        arrived()
        _checked[key] = difference(mine, here().environment)
    if _checked[key]:
        raise OtherEnvironment(node, f"the node has changed since it reported its facts: {_checked[key]}")
    host = socket.gethostname()
    for number, value in enumerate(resolve(function)(*arguments)):
        yield Made(number, node, host, value)


# ---- The GPU that Ray gave to the task that runs in this process -----------------------------------------------------


def given_gpu(target: str) -> Gpu:
    """The one GPU that this task may use. Raises RuntimeError for none or several, or for another target."""
    gpus.gpus.cache_clear()  # Ray may give this process another GPU than for its previous task
    devices = gpus.gpus()
    if len(devices) != 1 or devices[0].target != target:
        there = ", ".join(f"{g.name} {g.target}" for g in devices) or "no GPU"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        raise RuntimeError(f"expected one GPU {target}; Ray gave CUDA_VISIBLE_DEVICES={visible!r}: {there}")
    return devices[0]
