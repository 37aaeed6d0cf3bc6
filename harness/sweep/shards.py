"""Sweep all inputs of one variant in shards on every GPU. A stopped sweep can be continued.

A journal holds one line for each finished shard, so that only shards in progress can be lost. Its lines end in
checksums, like those of records (`ptxdiff.records.seal`). Each shard also has a digest of its fields and of the
journal's head, so that a line that was edited, or is of another sweep, is refused even where a program wrote right
checksums. This is no signature: who computes these digests anew can write what they like.

A watched process owns the GPU under the GPU's lock (`ptxdiff.processes.child`). The emulator runs in a watched process
too. If a process dies or hangs, its shard gets an `error` line and the process is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ptxdiff.cluster.connect import ClusterError, served
from ptxdiff.cluster.nodes import CPU, Needs, gpu
from ptxdiff.cluster.tasks import Ended, Event, Tasks, Yielded
from ptxdiff.model.identity.definition import harness
from ptxdiff.model.identity.dependencies import changed_files
from ptxdiff.processes.child import Device, Process
from ptxdiff.processes.gpus import Gpu
from ptxdiff.records import FileLock, WriteError
from ptxdiff.records.seal import Seal

SHARD_BITS = 36
TIMEOUT = 900.0
WORK = "ptxdiff.running.shard_worker:run_here"


class JournalError(ValueError):
    """A file is no journal of this sweep, or is in use; the message says which."""


@dataclass(frozen=True)
class Task:
    """The variant to sweep, by names that a worker resolves. bits: those of all inputs together. shard_bits: those of a
    shard. fingerprint, around: digests of its definition, and of what stands around it (`model/identity/dependencies`).
    """

    path: str
    case: str
    variant: str
    backend: str
    target: str
    pack: int
    bits: int
    shard_bits: int
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    around: Mapping[str, str] = field(default_factory=dict)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return 1 << (self.bits - self.shard_bits)


@dataclass(frozen=True)
class ShardResult:
    """One finished shard. verdict: pass, fail or error. digest: of all its output bits. offenders: the first ones.

    judged: by output, the fields of `ptxdiff.records.Share`. given: a digest of the inputs and the definition that ran.
    node: on a cluster, the node that ran it: host and the beginning of Ray's name of the node. opened: digests of the
    files that the case's code had opened by then, by path. unknown: why such files are not known, or "". made: in a
    journal, the digest of the other fields and of the journal's head.
    """

    shard: int
    verdict: str
    words: str = ""
    total: int = 0
    different: int = 0
    classes: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""
    seconds: float = 0.0
    offenders: Sequence[Any] = ()
    replay: str = ""
    judged: Mapping[str, Any] = field(default_factory=dict)
    given: str = ""
    node: str = ""
    opened: Mapping[str, str] = field(default_factory=dict)
    unknown: str = ""
    made: str = ""


class Journal:
    """The finished shards on disk: a head line that identifies the sweep, then one line per shard.

    No other process can write it until `close`. Raises JournalError.
    """

    def __init__(self, path: Path, task: Task, *, resume: bool) -> None:
        self.path = path
        self.done: dict[int, ShardResult] = {}
        self._task, self._shards = task, task.shards
        self._seal = Seal()
        self._head = b""
        try:
            self._lock = FileLock(path)
        except WriteError as error:
            raise JournalError(str(error)) from None
        try:
            self._begin(path, task, resume=resume)
        except BaseException:
            self.close()
            raise

    def _begin(self, path: Path, task: Task, *, resume: bool) -> None:
        # In the form of parsed JSON, which has no tuples.
        head = json.loads(json.dumps({"sweep": asdict(task), "harness": harness()}))
        self._head = json.dumps(head).encode()
        if path.exists():
            if not resume:
                raise JournalError(f"{path} is there already; --resume goes on with it")
            self._take_up(head)
        elif resume:
            raise JournalError(f"{path}: there is no journal to go on with")
        partial = path.with_suffix(path.suffix + ".partial")
        whole = [head, *map(asdict, self.done.values())]
        partial.write_bytes(b"".join(map(self._line, whole)))
        partial.replace(path)  # without an incomplete last line, and without errors, which are retried

    def _take_up(self, head: Mapping[str, Any]) -> None:
        """Read the shards in the file."""
        records = list(_objects(self.path))
        if records[:1] != [head]:
            raise JournalError(
                f"{self.path} belongs to another sweep, or the variant, its reference, its policies, a module that its "
                "file imports, or ptxdiff itself were changed; start a new journal"
            )
        for number, obj in enumerate(records[1:], 2):
            result = _shard_of(obj, f"{self.path}:{number}")
            self._check(result)
            contradiction = _contradiction(result, self._task.shard_bits)
            if words := contradiction or self._edited(result) or self._opened(result):
                raise JournalError(f"{self.path}:{number}: {words}; start a new journal")
            self.done[result.shard] = result
        self.done = {n: r for n, r in self.done.items() if r.verdict != "error"}

    def _opened(self, result: ShardResult) -> str:
        """Why a shard may have another result now: the files that the case's code opened for it; "" if it has not."""
        if result.verdict == "error":
            return ""
        if result.unknown:
            return f"shard {result.shard} cannot be carried over: {result.unknown}"
        changed = changed_files(Path(self._task.path), result.opened)
        return f"{changed[0]}, which the case's code opened for shard {result.shard}, was changed" if changed else ""

    def _check(self, result: ShardResult) -> None:
        """Raise JournalError for a shard that already has a result, or that the sweep does not have."""
        if result.shard in self.done:
            raise JournalError(f"{self.path}: shard {result.shard} has two results; start a new journal")
        if not 0 <= result.shard < self._shards:
            raise JournalError(f"{self.path}: there is no shard {result.shard}; the sweep has {self._shards}")

    def _line(self, obj: Mapping[str, Any]) -> bytes:
        return self._seal.close(json.dumps(obj).encode())

    def write(self, result: ShardResult) -> None:
        """Append a shard and write it to disk before returning.

        Raises JournalError for one that already has a result.
        """
        self._check(result)
        result = replace(result, made=self._made(result))
        with self.path.open("ab") as file:
            file.write(self._line(asdict(result)))
            file.flush()
            os.fsync(file.fileno())
        self.done[result.shard] = result

    def _edited(self, result: ShardResult) -> str:
        """Why a line is not the one that this sweep wrote, in words; "" if it is."""
        if result.made == self._made(result):
            return ""
        return (
            f"the line of shard {result.shard} was edited, or is of another sweep: its digest is not that of its fields"
        )

    def _made(self, result: ShardResult) -> str:
        """The digest of a shard's fields, beside those of the sweep."""
        text = json.dumps(asdict(replace(result, made=""))).encode()
        return hashlib.sha256(self._head + text).hexdigest()[:12]

    def missing(self, wanted: Iterable[int]) -> list[int]:
        """The wanted shards that have no result, not even an error."""
        return [s for s in wanted if s not in self.done]

    def close(self) -> None:
        """Close the file, so that another process can write it."""
        self._lock.release()


def _shard_of(obj: Any, place: str) -> ShardResult:
    """The result on a journal's line. Raises JournalError for one that no `ShardResult` has written."""
    names = {f.name for f in fields(ShardResult)}
    if not isinstance(obj, dict) or not {"shard", "verdict"} <= obj.keys() <= names:
        raise JournalError(f"{place}: no result of a shard; start a new journal")
    counts = [obj[n] for n in ("shard", "total", "different") if n in obj]
    if not all(type(n) is int and n >= 0 for n in counts) or obj["verdict"] not in ("pass", "fail", "error"):
        raise JournalError(f"{place}: a result with an unknown verdict, or with counts that are none")
    return ShardResult(**obj)


def _contradiction(result: ShardResult, bits: int) -> str:
    """Why a shard of 2^bits inputs cannot have passed as it says, in words; "" if it can."""
    if result.verdict != "pass":
        return ""
    if result.different:
        return f"the verdict of shard {result.shard} is pass, but {result.different} codes differ"
    return f"judged {result.total} codes of 2^{bits} inputs" if result.total < 1 << bits else ""


def _objects(path: Path) -> Iterator[Any]:
    """The JSON objects of a journal's lines, without an incomplete last line. Raises JournalError."""
    seal = Seal()
    *lines, _cut_off = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(seal.open(line))
        except ValueError as error:  # a SealError is one
            raise JournalError(f"{path}:{number}: {error}") from None


def sweep(
    task: Task,
    journal: Journal,
    wanted: Sequence[int],
    *,
    places: Sequence[Gpu | None],
    on_result: Callable[[ShardResult], None],
    timeout: float = TIMEOUT,
    work: str = WORK,
) -> None:
    """Run the wanted shards that are not in the journal, with one process for each place: a GPU, or None for the CPU.

    timeout: seconds after which a shard is aborted. work: the function that runs a shard, given the task and its
    number.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for shard in wanted:
        if shard not in journal.done:
            waiting.put(shard)
    finished: queue.SimpleQueue[ShardResult | BaseException | None] = queue.SimpleQueue()
    servers = [_Server(task, process_for(device), work, timeout) for device in places]
    threads = [threading.Thread(target=s.serve, args=(waiting, finished), daemon=True) for s in servers]
    for thread in threads:
        thread.start()
    alive = len(threads)
    try:
        while alive:
            result = finished.get()
            if result is None:
                alive -= 1
            elif isinstance(result, BaseException):
                raise result
            else:
                journal.write(result)  # only here: a full disk ends the sweep and keeps the shards so far
                on_result(result)
    finally:
        for server in servers:
            server.stop()
        for thread in threads:
            thread.join(timeout=2)  # a thread that waits for a GPU does not notice the stop


def process_for(place: Gpu | None) -> Process:
    """The watched process for a GPU; None: for the CPU."""
    if place is None:
        return Process(os.environ, option="--limit")
    return Device(place, option="--limit")


def one_shard(process: Process, work: str, task: Task, shard: int, timeout: float) -> ShardResult:
    """Run a shard in a watched process; gives an error result if that died or hung, or the case file was changed,
    ..."""
    started = time.monotonic()
    try:
        result: ShardResult = process.call(work, task, shard, limit=timeout)
    except Exception as error:
        message = str(error) or type(error).__name__
        return ShardResult(shard, "error", message, seconds=round(time.monotonic() - started, 3))
    return result


class _Server:
    """A thread's work: one shard after another in the process of one place."""

    def __init__(self, task: Task, process: Process, work: str, timeout: float) -> None:
        self.task, self.process, self.work, self.timeout = task, process, work, timeout
        self._stopped = False

    def serve(self, waiting: queue.SimpleQueue[int], finished: queue.SimpleQueue[Any]) -> None:
        """Take shards until there are none."""
        try:
            while not self._stopped:
                try:
                    shard = waiting.get_nowait()
                except queue.Empty:
                    return
                finished.put(one_shard(self.process, self.work, self.task, shard, self.timeout))
        except BaseException as error:  # passed to the thread that waits for results
            finished.put(error)
        finally:
            self.process.close()
            finished.put(None)

    def stop(self) -> None:
        """End the process, whatever it does. Called from another thread."""
        self._stopped = True
        self.process.stop()


def part_of(shards: int, part: str) -> Iterator[int]:
    """The shards of part "k/n" (from 1): every n-th, so that several machines share them. Raises ValueError."""
    number, _, of = part.partition("/")
    k, n = int(number), int(of or "1")
    if not 1 <= k <= n:
        raise ValueError(f"--part {part}: expected k/n with 1 <= k <= n")
    return iter(range(k - 1, shards, n))


# The shards of a sweep as tasks on a cluster -----------------------------------------------------------------------
#
# The shards of a sweep as tasks on a cluster. The driver checks each result and writes it to the sweep's journal.
#
# Ray repeats tasks of nodes that died. The driver checks that a result is for the requested shard, inputs and
# definition of the variant. Otherwise it becomes an `error`, never a result.

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
        return _contradiction(result, self.task.shard_bits)

    def _write(self, result: ShardResult) -> None:
        self.journal.write(result)
        self._on_result(result)


def needs_of(task: Task) -> Needs:
    """The resources of a node that a shard needs: a whole GPU of its target, or one processor."""
    return gpu(task.target, alone=True) if task.backend == "gpu" else CPU
