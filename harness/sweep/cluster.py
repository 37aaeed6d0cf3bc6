"""The shards of a sweep as tasks on a cluster. The driver checks each result and writes it to the sweep's journal.

Ray repeats tasks of nodes that died. The driver checks that a result is for the requested shard, inputs and definition
of the variant. Otherwise it becomes an `error`, never a result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptxdiff.cluster.connect import ClusterError
from ptxdiff.cluster.join import served
from ptxdiff.cluster.nodes import CPU, Needs, gpu
from ptxdiff.cluster.tasks import Ended, Event, Tasks, Yielded
from ptxdiff.sweep.shards import TIMEOUT, Journal, ShardResult, Task

ON_NODE = "ptxdiff.running.shard_worker:on_node"

SECONDS = 20.0
"""The intended seconds of a task, once the time of a shard is known, because sending a task costs the driver
milliseconds."""

LARGEST = 64
"""The most shards of a task, which run again if a node dies."""

AHEAD = 2
"""Tasks for each place: one runs and one waits."""

LOSSES = 3
"""How often shards are sent again after Ray has given up because their nodes died (not because of the shards' code)."""


@dataclass(eq=False)
class _Piece:
    """Shards of one task that have no result yet, in order. lost: how often their nodes were lost."""

    shards: deque[int]
    lost: int = 0


class ClusterSweep:
    """Runs the wanted shards that are not in the journal.

    root: the project's folder on the nodes. given: by shard number, the expected digest for `ShardResult.given`.
    timeout: seconds after which a shard is aborted. work: the function that runs shards on a node.
    """

    def __init__(
        self,
        tasks: Tasks,
        task: Task,
        journal: Journal,
        wanted: Sequence[int],
        *,
        root: Path,
        given: Callable[[int], str],
        on_result: Callable[[ShardResult], None],
        timeout: float = TIMEOUT,
        work: str = ON_NODE,
    ) -> None:
        self.tasks, self.task, self.journal = tasks, task, journal
        self._given, self._on_result, self._timeout, self._work = given, on_result, timeout, work
        self._sent = replace(task, path=Path(task.path).relative_to(root.resolve()).as_posix())
        self._needs = needs_of(task)
        self._waiting = deque(s for s in dict.fromkeys(wanted) if s not in journal.done)
        self._again: deque[_Piece] = deque()
        self._seconds, self._count = 0.0, 0

    def run(self) -> None:
        """Run until every shard has a result. Raises ClusterError if no node is left that could run them."""
        served(self.tasks.nodes, self._needs)
        try:
            while self._waiting or self._again or self.tasks.running:
                self._send()
                for event in self.tasks.events(1.0):
                    self._took(event)
        finally:
            self.tasks.close()

    def _send(self) -> None:
        places = AHEAD * self.tasks.nodes.slots(self._needs)
        while len(self.tasks.running) < max(1, places) and (piece := self._next(places)):
            first, last = piece.shards[0], piece.shards[-1]
            shards = f"shard {first}" if first == last else f"{len(piece.shards)} shards from {first}"
            name = f"sweep {self.task.variant} {self._needs.words}: {shards}"
            arguments = (self._sent, tuple(piece.shards), self._timeout)
            if self.tasks.submit(piece, self._work, *arguments, needs=self._needs, name=name) is None:
                self._again.appendleft(piece)
                if self.tasks.running:
                    return  # the next round asks their nodes again
                served(self.tasks.nodes, self._needs)

    def _next(self, places: int) -> _Piece | None:
        """The next shards for one task; fewer towards the end, so that all places end at the same time."""
        if self._again:
            return self._again.popleft()
        if not self._waiting:
            return None
        paid = int(SECONDS * self._count / self._seconds) if self._seconds else 1
        share = -(-len(self._waiting) // max(1, places))
        size = max(1, min(LARGEST, paid, share))
        return _Piece(deque(self._waiting.popleft() for _ in range(size)))

    def _took(self, event: Event) -> None:
        piece: _Piece = event.task.label
        if isinstance(event, Yielded):
            self._accept(piece, event)
        elif isinstance(event, Ended):
            for shard in piece.shards:
                self._write(ShardResult(shard, "error", "its task ended without a result of it"))
        elif not event.blamed and piece.lost < LOSSES:
            self._again.append(_Piece(piece.shards, piece.lost + 1))
        elif len(piece.shards) == 1:
            self._write(ShardResult(piece.shards.popleft(), "error", event.words))
        else:  # any of them may be at fault: a process that ends may take results with it that were on their way
            self._again.extend(_Piece(deque([shard])) for shard in piece.shards)

    def _accept(self, piece: _Piece, event: Yielded) -> None:
        """Write a result if it is the requested one, else an error."""
        if not piece.shards:
            raise ClusterError(f"{event.host} sent a result more than its task has shards; nothing of it was kept")
        shard = piece.shards.popleft()
        wrong, node = self._wrong(shard, event.value), f"{event.host} {event.node[:12]}"
        if wrong:
            self._write(ShardResult(shard, "error", f"{event.host}: {wrong}", node=node))
            return
        result: ShardResult = event.value
        self._seconds += result.seconds
        self._count += 1
        self._write(replace(result, node=node))

    def _wrong(self, shard: int, result: Any) -> str:
        """What is wrong with the result for a shard, in words."""
        if not isinstance(result, ShardResult) or result.shard != shard:
            which = f"shard {result.shard}" if isinstance(result, ShardResult) else repr(result)[:100]
            return f"sent {which} where shard {shard} was due"
        if result.verdict == "error":
            return ""
        if result.given != self._given(shard):
            return "ran other inputs than those of the shard, or another definition of the variant"
        if result.verdict == "pass" and result.total < 1 << self.task.shard_bits:
            return f"judged {result.total} codes of 2^{self.task.shard_bits} inputs"
        return ""

    def _write(self, result: ShardResult) -> None:
        self.journal.write(result)
        self._on_result(result)


def needs_of(task: Task) -> Needs:
    """The resources of a node that a shard needs: a whole GPU of its target, or one processor."""
    return gpu(task.target, alone=True) if task.backend == "gpu" else CPU
