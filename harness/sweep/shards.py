"""All inputs of one variant, however many: in shards, on every GPU, and on from where it was stopped.

A journal holds one line for each finished shard, so that nothing is lost but the shards in progress. Workers are
processes, one a GPU: one that dies or hangs costs its shard an `error` line, and is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SHARD_BITS = 36
TIMEOUT = 900.0


class JournalError(ValueError):
    """A journal of another sweep, or none; the message says what differs."""


@dataclass(frozen=True)
class Task:
    """What is swept, as a worker finds it again. bits: of all inputs together. shard_bits: of the inputs of a shard."""

    path: str
    case: str
    variant: str
    backend: str
    target: str
    pack: int
    bits: int
    shard_bits: int
    fingerprint: Mapping[str, str] = field(default_factory=dict)

    @property
    def shards(self) -> int:
        """How many there are."""
        return 1 << (self.bits - self.shard_bits)


@dataclass(frozen=True)
class ShardResult:
    """One finished shard. verdict: pass, fail or error. digest: of all its output bits. offenders: the first ones.

    judged: by output, the fields of `harness.records.Share`; empty in journals of earlier versions.
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


class Journal:
    """The finished shards on disk: a head line that says of which sweep, then a line a shard."""

    def __init__(self, path: Path, task: Task, *, resume: bool) -> None:
        self.path = path
        self.done: dict[int, ShardResult] = {}
        head = json.dumps({"sweep": asdict(task)})
        whole = [head]
        if path.exists():
            if not resume:
                raise JournalError(f"{path} is there already; --resume goes on with it")
            whole = self._take_up(head)
        elif resume:
            raise JournalError(f"{path}: there is no journal to go on with")
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(path.suffix + ".partial")
        partial.write_text("".join(line + "\n" for line in whole), encoding="utf-8")
        partial.replace(path)  # without a line that was cut off, and without errors, which are tried again

    def _take_up(self, head: str) -> list[str]:
        lines = self.path.read_text(encoding="utf-8").split("\n")
        if lines[0] != head:
            raise JournalError(
                f"{self.path} belongs to another sweep, or the variant, its reference or its policies were changed"
            )
        for line in lines[1:]:
            with contextlib.suppress(ValueError):  # the last line, cut off
                found = ShardResult(**json.loads(line))
                if found.verdict != "error":
                    self.done[found.shard] = found
        return [head, *(json.dumps(asdict(r)) for r in self.done.values())]

    def write(self, result: ShardResult) -> None:
        """Append a shard; on the disk before this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.done[result.shard] = result


def sweep(
    task: Task,
    journal: Journal,
    wanted: Sequence[int],
    *,
    places: Sequence[str],
    on_result: Callable[[ShardResult], None],
    command: Sequence[str] = (sys.executable, "-m", "harness.sweep.shardworker"),
    timeout: float = TIMEOUT,
) -> None:
    """Run the wanted shards that the journal has not, one worker a place (a GPU's name, "" for the CPU)."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for shard in wanted:
        if shard not in journal.done:
            waiting.put(shard)
    finished: queue.SimpleQueue[ShardResult | BaseException | None] = queue.SimpleQueue()
    workers = [_Worker(task, place, command, timeout) for place in places]
    threads = [threading.Thread(target=w.serve, args=(waiting, finished), daemon=True) for w in workers]
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
                journal.write(result)  # here only: a full disk ends the sweep with what is there already
                on_result(result)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that sweeps one shard after another, watched."""

    def __init__(self, task: Task, place: str, command: Sequence[str], timeout: float) -> None:
        self.task, self.place, self.command, self.timeout = task, place, command, timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def serve(self, waiting: queue.SimpleQueue[int], finished: queue.SimpleQueue[Any]) -> None:
        """Take shards until there are none."""
        try:
            while not self._stopped:
                try:
                    shard = waiting.get_nowait()
                except queue.Empty:
                    return
                finished.put(self._one(shard))
        except BaseException as error:  # told to the thread that waits for results
            finished.put(error)
        finally:
            self.stop()
            finished.put(None)

    def _one(self, shard: int) -> ShardResult:
        started = time.monotonic()
        if self._process is None:
            self._process = self._start()
        try:
            answer = self._ask(shard)
        except (OSError, ValueError, _Silent) as error:
            words = str(error) or type(error).__name__
            self.stop(for_good=False)
            return ShardResult(shard, "error", words, seconds=round(time.monotonic() - started, 3))
        return ShardResult(**answer)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if self.place:
            environment["CUDA_VISIBLE_DEVICES"] = self.place
        here = str(Path(__file__).resolve().parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (here, environment.get("PYTHONPATH"))))
        words = [*self.command, json.dumps(asdict(self.task))]
        return subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )

    def _ask(self, shard: int) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{shard}\n".encode())
        process.stdin.flush()
        line = b""
        deadline = time.monotonic() + self.timeout
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise _Silent(f"the worker gave no answer in {self.timeout:g} s")
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                raise _Silent(f"the worker ended with status {process.wait()}")
            line += part
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self, *, for_good: bool = True) -> None:
        """End the process and what it started."""
        self._stopped = self._stopped or for_good
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class _Silent(RuntimeError):
    """A worker died or hung."""


def part_of(shards: int, part: str) -> Iterator[int]:
    """The shards of part "k/n" (from 1): every n-th, so that several machines share them. Raises ValueError."""
    number, _, of = part.partition("/")
    k, n = int(number), int(of or "1")
    if not 1 <= k <= n:
        raise ValueError(f"--part {part}: expected k/n with 1 <= k <= n")
    return iter(range(k - 1, shards, n))
