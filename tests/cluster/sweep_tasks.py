"""What nodes do with shards in tests: right work, and the work of broken nodes."""

import os
import time
from dataclasses import replace
from pathlib import Path

from ptxdiff.sweep.shards import ShardResult


def result(task, shard):
    return ShardResult(shard, "pass", total=1 << task.shard_bits, digest=f"{shard:016x}", given=f"given {shard}")


def right(task, shards, timeout):
    for shard in shards:
        yield result(task, shard)


def slow(task, shards, timeout):
    for shard in shards:
        time.sleep(0.4)
        yield result(task, shard)


def dies_once(task, shards, timeout):
    """Ends its process at shard 2, but only the first time."""
    for shard in shards:
        marker = Path(task.variant)
        if shard == 2 and not marker.exists():
            marker.touch()
            os._exit(1)
        yield result(task, shard)


def dies_at_two(task, shards, timeout):
    for shard in shards:
        if shard == 2:
            os._exit(1)
        yield result(task, shard)


def another_shard(task, shards, timeout):
    for shard in shards:
        yield result(task, shard + 1 if shard == 2 else shard)


def another_definition(task, shards, timeout):
    for shard in shards:
        found = result(task, shard)
        yield replace(found, given="that of another definition") if shard == 2 else found


def fewer_inputs(task, shards, timeout):
    for shard in shards:
        found = result(task, shard)
        yield replace(found, total=found.total - 1) if shard == 2 else found


def no_result(task, shards, timeout):
    for shard in shards:
        yield "pass" if shard == 2 else result(task, shard)


def loses_one(task, shards, timeout):
    for shard in shards:
        if shard != 2:
            yield result(task, shard)


def twice(task, shards, timeout):
    for shard in shards:
        yield result(task, shard)
    yield result(task, shards[-1])
