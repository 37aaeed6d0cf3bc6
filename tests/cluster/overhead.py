"""Measure the driver's costs for Ray and for records on this machine, in processor time, which other load affects less.

Ray is started with one CPU, so that tasks do not run in parallel: this measures the work of the driver, not of the
cluster. The records come from a run of `cases/rcp.py` by emulator and assembler, which takes half a minute.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxdiff.locations import ROOT
from ptxdiff.records import Result, Writer, from_json, unpacked
from ptxdiff.sweep.shards import Journal, ShardResult, Task

CASE = "cases/rcp.py"
SENT, BACK = 600, 2000
"""Bytes of an item's description, and of a result. A line of records has two kilobytes."""
RESULTS = 12
FEW, MANY = 100, 2000
"""The numbers of tasks in flight, for 50 and for 1,000 GPUs."""
TASK = Task("case.py", "case", "v", "emulator", "sm_90a", 1, 36, 16)


@dataclass(frozen=True)
class Overhead:
    """Seconds of the driver's processor time, except `worker` and `shard_wall`, which are on the clock.

    watch: what each further task in flight adds to the cost of a task, because the driver waits for all at once.
    task: a task of one item (`ptxdiff.cluster.tasks`), from sending to fetching. item: one more item in a task, with 12
    results. record: a result and its part of the texts: read from JSON, checked, sealed and written.
    shard: a shard's line. shard_wall: until the line is on the disk. worker: from one task to the next on a worker.
    """

    task: float
    watch: float
    item: float
    record: float
    worker: float
    shard: float
    shard_wall: float
    results: float

    def __str__(self) -> str:
        us = {n: f"{1e6 * getattr(self, n):.1f} us" for n in ("task", "watch", "item", "record", "worker", "shard")}
        return (
            f"measured here: a task {us['task']} of the driver, {us['watch']} more for each in flight, {us['item']} "
            f"for an item in it, {us['record']} for a result ({self.results:.1f} an item of {CASE}); from task to task "
            f"on a worker {us['worker']}; a shard's line {us['shard']}, {1e6 * self.shard_wall:.0f} us until stored"
        )


def measured() -> Overhead:
    """Measure everything. Raises ClusterError if Ray is not installed."""
    few, item, worker = of_ray(FEW)
    many, _, _ = of_ray(MANY)
    watch = max(0.0, (many - few) / (MANY - FEW))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        record, results = of_records(_sample(place), place / "written.jsonl")
        shard, wall = of_shards(place / "journal.jsonl")
    return Overhead(few - FEW * watch, watch, item, record, worker, shard, wall, results)


def of_ray(tasks: int) -> tuple[float, float, float]:
    """Seconds for a task with so many in flight, for one more item in a task, and of a worker between two tasks."""
    from ptxdiff.cluster.connect import LOCAL, connected
    from ptxdiff.cluster.nodes import CPU, Nodes
    from ptxdiff.cluster.shipping import shipment
    from ptxdiff.cluster.tasks import Ended, Lost, Tasks

    with connected(LOCAL, shipment(ROOT / "tests" / "cluster", []), num_cpus=1, include_dashboard=False) as ray:
        nodes = Nodes(ray)
        nodes.look()
        running = Tasks(ray, nodes)

        def batches(size: int, count: int) -> tuple[float, float]:
            began, used, left = time.monotonic(), time.process_time(), count
            for number in range(count):
                items = ["x" * SENT] * size
                running.submit(number, "overhead:answer", items, RESULTS * BACK, needs=CPU, name=f"measured {number}")
            while left:
                for event in running.events(60.0):
                    if isinstance(event, Lost):
                        raise RuntimeError(event.words)
                    left -= isinstance(event, Ended)
            return (time.process_time() - used) / count, (time.monotonic() - began) / count

        batches(1, 20)  # starts the worker
        one, pause = batches(1, tasks)
        many, _ = batches(20, max(1, tasks // 20))
    return one, (many - one) / 19, pause


def answer(items: list[str], size: int) -> Iterator[bytes]:
    """The values of a task: a text for each item."""
    for item in items:
        yield bytes([len(item) % 251]) * size


def of_records(sample: Path, output: Path) -> tuple[float, float]:
    """Seconds for a result of a run with its texts, and the results of an item."""
    lines = sample.read_text(encoding="utf-8").splitlines()
    sums = [json.loads(line) for line in lines]
    objects = [{k: v for k, v in o.items() if k != "sum"} for o in sums if o["record"] in ("result", "text", "case")]
    sent = [json.dumps(o, ensure_ascii=False, separators=(",", ":")) for o in objects]  # as a worker sends them
    results = [r for r in map(from_json, objects) if isinstance(r, Result) and r.key.backend == "emulator"]
    items = {r.key.item for r in results}
    with closing(Writer(output)) as writer:
        used = time.process_time()
        for text in sent:
            writer.write(*unpacked(text))
        spent = time.process_time() - used
    count = sum(o["record"] == "result" for o in objects)
    return spent / count, len(results) / len(items)


def _sample(folder: Path) -> Path:
    output = folder / "run.jsonl"
    command = [sys.executable, "-m", "ptxdiff", "run", CASE, "--target=sm_90a", "--records", str(output)]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return output


def of_shards(path: Path, count: int = 200) -> tuple[float, float]:
    """Seconds for a line of a sweep's journal: of the processor, and on the clock until the disk has the line."""
    with closing(Journal(path, TASK, resume=False)) as journal:
        return _each(lambda n: journal.write(ShardResult(n, "pass", total=1 << 16, digest="0" * 16)), count)


def _each(work: Callable[[int], Any], count: int) -> tuple[float, float]:
    began, used = time.monotonic(), time.process_time()
    for number in range(count):
        work(number)
    return (time.process_time() - used) / count, (time.monotonic() - began) / count
