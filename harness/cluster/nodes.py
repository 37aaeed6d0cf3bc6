"""The nodes of a cluster: what each offers, and whether its environment is the driver's.

A node's generation is taken from its GPUs when it is first seen. One that differs from the driver in what decides bits
is refused, with the difference in words, and no task is placed there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.cluster.facts import NodeFacts, difference, here

ANSWER = 180.0
"""Seconds that a node has to say what it is; it unpacks the job's files first."""

GPU_SHARES = 4
"""Tasks that share one GPU: compiling and judging take most of an item's time, and happen on the CPU."""


@dataclass(frozen=True)
class Needs:
    """What a task takes of a node. gpus: how many, or a share of one; of the generation `target`."""

    cpus: float = 1.0
    gpus: float = 0.0
    target: str = ""

    @property
    def words(self) -> str:
        """`a GPU sm_90a`, or `CPU`: what tasks wait for."""
        return self.target if self.gpus else "CPU"


CPU = Needs()


def gpu(target: str, *, alone: bool = False) -> Needs:
    """A GPU of a generation, whole or shared with other tasks."""
    return Needs(1.0, 1.0 if alone else 1.0 / GPU_SHARES, target)


@dataclass(frozen=True)
class Node:
    """One node. targets: the generation of its GPUs. refused: why it gets no work; "" where it does."""

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
        """What the head of a records file says of it."""
        told: dict[str, Any] = {"node": self.id[:12], "host": self.host, "cpus": self.cpus, "gpus": [*self.devices]}
        told |= {"targets": [*self.targets]} if self.targets else {}
        return told | ({"refused": self.refused} if self.refused else {})


class Nodes:
    """The nodes of the cluster that `ray` is connected to. mine: what nodes are held to; None for the facts of here."""

    def __init__(self, ray: Any, mine: Mapping[str, str] | None = None) -> None:
        self._ray = ray
        self.mine = dict(here().environment if mine is None else mine)
        self.known: dict[str, Node] = {}
        self.alive: frozenset[str] = frozenset()
        self._asked: dict[str, _Question] = {}

    def look(self, patience: float = ANSWER) -> list[Node]:
        """Find out who is alive, ask those that are new, and return those that have answered by now.

        patience: seconds to wait for answers; 0 for none: a later look takes them. A node that has not answered after
        `ANSWER` seconds is refused.
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
        """Place nothing on a node any more."""
        self.known[ident] = replace(self.known[ident], refused=words)

    @property
    def refused(self) -> list[Node]:
        """The nodes that get no work."""
        return [n for n in self.known.values() if n.refused]

    @property
    def targets(self) -> tuple[str, ...]:
        """The generations that living nodes have."""
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
        """Have each of these nodes say what it is."""

        # Nested, so that Ray sends the code itself: a node with another ptxdiff still answers.
        def probe() -> Any:
            try:
                from harness.cluster.facts import here

                return here()
            except Exception as error:
                return f"ptxdiff cannot be used there: {type(error).__name__}: {error}"

        remote = self._ray.remote(num_cpus=0, max_retries=1)(probe)
        for i in ids:
            answer = remote.options(name="ptxdiff: what a node is", label_selector=selector([i])).remote()
            self._asked[i] = _Question(answer, time.monotonic() + ANSWER)

    def _answer(self, ident: str, until: float) -> NodeFacts | str | None:
        """What a node says it is, or why it says nothing; None where it may still answer after the time `until`."""
        question = self._asked[ident]
        wait = min(until, question.deadline) - time.monotonic()
        try:
            found: NodeFacts | str = self._ray.get(question.answer, timeout=max(0.01, wait))
        except self._ray.exceptions.GetTimeoutError:
            if time.monotonic() < question.deadline:
                return None
            self._ray.cancel(question.answer, force=True)
            return f"it did not say what it is within {ANSWER:g} s"
        except Exception as error:  # it died, could not unpack the files, holds another version
            return f"it could not say what it is: {' '.join(str(error).split())[:300]}"
        return found


@dataclass(frozen=True)
class _Question:
    """A node's answer that is awaited, and the time by which it must come."""

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
        refused = f"it declares {', '.join(sorted(declared))}, and its GPUs are {', '.join(found) or 'none'}"
    targets, remark = found, ""
    if amounts[1] and len(found) > 1:
        targets = ()
        remark = (
            f"its GPUs are of several generations ({', '.join(found)}), and Ray hands out any of them: start one Ray "
            "node for each generation, under CUDA_VISIBLE_DEVICES"
        )
    names = tuple(f"{g.name} {g.target} {g.uuid}" for g in answer.devices)
    offered = targets if amounts[1] else ()
    return Node(ident, host, *amounts, offered, answer.environment, names, refused, remark)


def selector(ids: Collection[str]) -> dict[str, str]:
    """Ray's label selector for one of these nodes."""
    return {"ray.io/node-id": f"in({','.join(sorted(ids))})"}
