"""The case file that a sweep on a cluster runs."""

import json


def written(path):
    """A journal's entries of the shards, without where and how long they ran."""
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    elsewhere = ("seconds", "node", "made", "sum")
    shards = {r.pop("shard"): {k: v for k, v in r.items() if k not in elsewhere} for r in lines}
    assert len(shards) == len(lines)
    return shards
