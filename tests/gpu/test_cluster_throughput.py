"""A sweep on two GPUs through Ray has at least 1.9 times the throughput of one. It has not been run so far."""

import contextlib
import time
from pathlib import Path

import pytest

from harness.processes.gpus import gpu_visible, gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs two NVIDIA GPUs: none is visible"),
]
CASE = '''
"""Exclusive or of a word and a half."""
from harness import Case, asm
from references.formats import U16, U32

case = Case(
    inputs={"x": U32, "y": U16}, outputs={"z": U32}, reference=lambda x, y: x ^ y,
    variants={"xor": asm("{ .reg .b32 t; cvt.u32.u16 t, $2; xor.b32 $0, $1, t; }", "=r,r,h", pack=1)},
)
'''
BITS = 34
"""Inputs of a shard: about 0.1 s on a Hopper GPU."""
SHARDS = 200


@pytest.fixture
def pair():
    pytest.importorskip("ray", reason="the extra ptxdiff[cluster] is not installed")
    alike = [g for g in gpus() if g.target == gpus()[0].target]
    if len(alike) < 2:
        pytest.skip(f"needs two GPUs of one target; there are {', '.join(g.target for g in gpus())}")
    return alike[:2]


def throughput(chosen, folder, monkeypatch):
    """Shards a second, from when every GPU has given its first result."""
    from harness.cluster.joining import joined
    from harness.running.shardworker import fingerprint_of, giver, item_of
    from harness.sweep.oncluster import ClusterSweep
    from harness.sweep.shards import Journal, Task

    path, target = folder / "xor.py", chosen[0].target
    path.write_text(CASE)
    fingerprint = fingerprint_of(item_of(path, ["case", "xor"], "gpu", target))
    task = Task(str(path.resolve()), "case", "xor", "gpu", target, 1, 48, BITS, fingerprint)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(g.visible for g in chosen))
    came = []
    with (
        contextlib.closing(Journal(folder / "journal", task, resume=False)) as journal,
        joined("local", folder) as tasks,
    ):
        assert tasks.nodes.targets == (target,)
        told = {"root": folder, "given": giver(task), "on_result": lambda r: came.append((time.monotonic(), r))}
        ClusterSweep(tasks, task, journal, range(SHARDS), **told).run()
    assert {r.verdict for _, r in came} == {"pass"}
    warm = came[len(came) // 4 :]  # behind starting and compiling, on every GPU
    return (len(warm) - 1) / (warm[-1][0] - warm[0][0])


def test_two_gpus_have_nearly_twice_the_throughput_of_one(pair, tmp_path: Path, monkeypatch):
    found = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(throughput(pair[:number], folder, monkeypatch))
    one, two = found
    assert two >= 1.9 * one, f"{one:.2f} shards a second on one GPU, {two:.2f} on two"
