"""Batches of items for a node: a task costs milliseconds, and items of one variant share compiled code and runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from ptxdiff.cluster.nodes import CPU, Needs, gpu
from ptxdiff.running.collection import VariantItem
from ptxdiff.timing.items import TimingItem

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
    found = []
    for needs, groups in made.items():
        pieces = [(file, piece) for (file, _), all_ in groups.items() for piece in _pieces(all_)]
        found.append(Queue(needs, deque(pieces)))
    return found


def _group(item: pytest.Item) -> str:
    return item.item.variant_name if isinstance(item, VariantItem) else item.nodeid


def _pieces(items: Sequence[pytest.Item]) -> Iterator[list[pytest.Item]]:
    yield from (list(items[k : k + LARGEST]) for k in range(0, len(items), LARGEST))
