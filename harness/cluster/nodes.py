"""The nodes of a cluster: the resources of each, and whether its environment equals the driver's.

A node reports its GPUs and its facts (`ptxdiff.cluster.machine_facts`) when it is first seen. If a fact differs from
the driver's, the node is refused with the difference in words, and no task is placed there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ptxdiff.cluster.machine_facts import NodeFacts, difference, here

ANSWER = 180.0
"""Seconds within which a node must report its facts; it unpacks the job's files first."""

GPU_SHARES = 4
"""The number of tasks that share one GPU. Most of an item's time is compiling and judging, on the CPU."""


@dataclass(frozen=True)
class Needs:
    """The resources that a task needs. gpus: a number, or a share of one. target: of these GPUs."""

    cpus: float = 1.0
    gpus: float = 0.0
    target: str = ""

    @property
    def words(self) -> str:
        """The resource that tasks wait for: the GPUs' target, such as `sm_90a`, or `CPU`."""
        return self.target if self.gpus else "CPU"


CPU = Needs()


def gpu(target: str, *, alone: bool = False) -> Needs:
    """The needs of a task on a GPU of a target. alone: whether it needs a whole GPU, not shared with other tasks."""
    return Needs(1.0, 1.0 if alone else 1.0 / GPU_SHARES, target)


@dataclass(frozen=True)
class Node:
    """One node. targets: of its GPUs. refused: the reason why it gets no work; "" if it does."""

    id: str
    host: str
    cpus: float
    gpus: float
    targets: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    refused: str = ""
    remark: str = ""

    def serves(self, needs: Needs) -> bool:
        """Whether a task with these needs can ever run here."""
        if self.refused or self.cpus < needs.cpus or self.gpus < needs.gpus:
            return False
        return not needs.gpus or needs.target in self.targets

    def as_record(self) -> dict[str, Any]:
        """The node as JSON, for the head of a records file."""
        fields: dict[str, Any] = {"node": self.id[:12], "host": self.host, "cpus": self.cpus, "gpus": [*self.devices]}
        fields |= {"targets": [*self.targets]} if self.targets else {}
        return fields | ({"refused": self.refused} if self.refused else {})


class Nodes:
    """The nodes of the cluster that `ray` is connected to.

    mine: the facts that nodes must have; None for the facts of this machine.
    """

    def __init__(self, ray: Any, mine: Mapping[str, str] | None = None) -> None:
        self._ray = ray
        self.mine = dict(here().environment if mine is None else mine)
        self.known: dict[str, Node] = {}
        self.alive: frozenset[str] = frozenset()
        self._asked: dict[str, _Question] = {}

    def look(self, patience: float = ANSWER) -> list[Node]:
        """List living nodes, query new ones, and return those that have newly answered.

        patience: seconds to wait for answers; later calls return answers that come later. A node that has not answered
        after `ANSWER` seconds is refused.
        """
        listed = {n["NodeID"]: n for n in self._ray.nodes() if n["Alive"]}
        self.alive = frozenset(listed)
        self._asked = {i: question for i, question in self._asked.items() if i in listed}
        self._ask([i for i in listed if i not in self.known and i not in self._asked])
        until = time.monotonic() + patience
        made = []
        for ident in [*self._asked]:
            if (answer := self._answer(ident, until)) is not None:
                del self._asked[ident]
                made.append(_node(listed[ident], answer, self.mine))
        self.known |= {n.id: n for n in made}
        return made

    def refuse(self, ident: str, words: str) -> None:
        """Place no more tasks on a node. words: the reason."""
        self.known[ident] = replace(self.known[ident], refused=words)

    @property
    def refused(self) -> list[Node]:
        """The nodes that get no work."""
        return [n for n in self.known.values() if n.refused]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of living, usable nodes' GPUs."""
        return tuple(
            sorted({t for n in self.known.values() if n.id in self.alive and not n.refused for t in n.targets})
        )

    def serving(self, needs: Needs) -> list[Node]:
        """The living nodes that can run a task with these needs."""
        return [n for n in self.known.values() if n.id in self.alive and n.serves(needs)]

    def slots(self, needs: Needs) -> int:
        """How many tasks with these needs the cluster can run at once."""
        found = self.serving(needs)
        counts = [min(n.cpus / needs.cpus, n.gpus / needs.gpus if needs.gpus else float("inf")) for n in found]
        return sum(int(count) for count in counts)

    def _ask(self, ids: Collection[str]) -> None:
        """Start a task on each of these nodes that reports its facts."""

        # A nested function, so that Ray sends its code: a node with another ptxdiff still answers.
        def probe() -> Any:
            try:
                from ptxdiff.cluster.machine_facts import here

                return here()
            except Exception as error:
                return f"ptxdiff does not work there: {type(error).__name__}: {error}"

        remote = self._ray.remote(num_cpus=0, max_retries=1)(probe)
        for i in ids:
            answer = remote.options(name="ptxdiff: facts of a node", label_selector=selector([i])).remote()
            self._asked[i] = _Question(answer, time.monotonic() + ANSWER)

    def _answer(self, ident: str, until: float) -> NodeFacts | str | None:
        """A node's facts, or the reason why it has none; None if it may still answer after the time `until`."""
        question = self._asked[ident]
        wait = min(until, question.deadline) - time.monotonic()
        try:
            found: NodeFacts | str = self._ray.get(question.answer, timeout=max(0.01, wait))
        except self._ray.exceptions.GetTimeoutError:
            if time.monotonic() < question.deadline:
                return None
            self._ray.cancel(question.answer, force=True)
            return f"it did not report its facts within {ANSWER:g} s"
        except Exception as error:  # for example: it died, could not unpack the files, has another version of Ray
            return f"it could not report its facts: {' '.join(str(error).split())[:300]}"
        return found


@dataclass(frozen=True)
class _Question:
    """A node's pending answer, and its deadline."""

    answer: Any
    deadline: float


def _node(listed: Mapping[str, Any], answer: NodeFacts | str, mine: Mapping[str, str]) -> Node:
    resources = listed["Resources"]
    amounts = (float(resources.get("CPU", 0)), float(resources.get("GPU", 0)))
    ident, host = listed["NodeID"], listed["NodeManagerHostname"]
    if isinstance(answer, str):
        return Node(ident, host, *amounts, refused=answer)
    refused = difference(mine, answer.environment)
    found = tuple(sorted({g.target for g in answer.devices}))
    declared = {name for name in resources if name.startswith("sm_")}
    if not refused and declared - set(found):
        refused = f"it declares {', '.join(sorted(declared))}, but its GPUs are {', '.join(found) or 'none'}"
    targets, remark = found, ""
    if amounts[1] and len(found) > 1:
        targets = ()
        remark = (
            f"its GPUs have several targets ({', '.join(found)}), and Ray does not distinguish them: start one Ray "
            "node for each target, with CUDA_VISIBLE_DEVICES"
        )
    names = tuple(f"{g.name} {g.target} {g.uuid}" for g in answer.devices)
    offered = targets if amounts[1] else ()
    return Node(ident, host, *amounts, offered, answer.environment, names, refused, remark)


def selector(ids: Collection[str]) -> dict[str, str]:
    """Ray's label selector for any one of these nodes."""
    return {"ray.io/node-id": f"in({','.join(sorted(ids))})"}
