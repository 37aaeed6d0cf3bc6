"""Functions that a sweep's processes run in tests: some return a result, others abort, hang or raise."""

import os
import time

from ptxdiff.sweep.shards import ShardResult


def answer(task, shard):
    """Aborts for shard 3, hangs for shard 5, raises for shard 7."""
    if shard == 3:
        os.abort()
    if shard == 5:
        time.sleep(60)
    if shard == 7:
        raise ValueError("no such luck")
    return always(task, shard)


def always(task, shard):
    return ShardResult(shard, "pass", os.environ.get("CUDA_VISIBLE_DEVICES", ""), total=65536)
