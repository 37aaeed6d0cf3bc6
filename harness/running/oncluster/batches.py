"""Which items go together: a task costs milliseconds, and items of one variant share compiled code and runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from harness.cluster.nodes import CPU, Needs, gpu
from harness.running.collection import VariantItem
from harness.timing.items import TimingItem

LARGEST = 64
"""Items of a batch at most: what is lost, and run again, where a node dies."""

SECONDS = 20.0
"""What a batch should take, once it is known what items take."""


@dataclass(eq=False)
class ItemBatch:
    """Items of one file with the same needs. lost: how often the node that ran it was lost."""

    file: str
    needs: Needs
    items: tuple[pytest.Item, ...]
    lost: int = 0

    @property
    def nodeids(self) -> tuple[str, ...]:
        """The items' names."""
        return tuple(item.nodeid for item in self.items)

    @property
    def name(self) -> str:
        """What Ray's dashboard calls it: `rcp.py sm_90a: rcp.rn[sm_90a-gpu] and 11 more`."""
        first = self.items[0].nodeid.partition("::")[2]
        more = f" and {len(self.items) - 1} more" if len(self.items) > 1 else ""
        return f"{self.file.rpartition('/')[2]} {self.needs.words}: {first}{more}"

    def without(self, count: int) -> ItemBatch | None:
        """What is left after its first items; None for nothing."""
        return ItemBatch(self.file, self.needs, self.items[count:], self.lost) if count < len(self.items) else None


def needs_of(item: pytest.Item) -> Needs:
    """What an item needs of a node."""
    if isinstance(item, TimingItem):
        return gpu(str(item.target), alone=True)
    if isinstance(item, VariantItem) and item.item.backend == "gpu":
        return gpu(item.item.target)
    return CPU


@dataclass
class Queue:
    """Items that wait for nodes with certain needs: per file, in groups that stay together."""

    needs: Needs
    groups: deque[tuple[str, list[pytest.Item]]] = field(default_factory=deque)
    again: deque[ItemBatch] = field(default_factory=deque)
    done: int = 0
    seconds: float = 0.0

    @property
    def waiting(self) -> int:
        """How many items wait."""
        return sum(len(items) for _, items in self.groups) + sum(len(b.items) for b in self.again)

    @property
    def mean(self) -> float:
        """Seconds that an item has taken, on average; 0 where none is done."""
        return self.seconds / self.done if self.done else 0.0

    def next(self, slots: int) -> ItemBatch | None:
        """The next batch, smaller towards the end, so that all nodes end together. slots: how many run at once."""
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
        """Everything that waits."""
        while batch := self.next(1):
            yield batch


def queues(items: Iterable[pytest.Item], group: Callable[[pytest.Item], str] | None = None) -> list[Queue]:
    """The items, sorted by what they need. group: the name of those that share work; a variant's own by default."""
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
