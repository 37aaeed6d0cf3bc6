"""What processes of a sweep do in tests: calls that are answered, and calls that are not."""

import os
import time

from harness.sweep.shards import ShardResult


def answer(task, shard):
    """Shards 3, 5 and 7 go wrong."""
    if shard == 3:
        os.abort()
    if shard == 5:
        time.sleep(60)
    if shard == 7:
        raise ValueError("no such luck")
    return always(task, shard)


def always(task, shard):
    return ShardResult(shard, "pass", os.environ.get("CUDA_VISIBLE_DEVICES", ""), total=65536)
