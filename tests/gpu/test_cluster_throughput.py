"""A sweep on two GPUs through Ray has at least 1.9 times the throughput of one, with shards of the usual size."""

import contextlib
import time
from pathlib import Path

import pytest

from ptxdiff.processes.gpus import gpu_visible, gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs two NVIDIA GPUs: none is visible"),
]
CASE = '''
"""Exclusive or of a word and a half."""
from ptxdiff import Case, asm
from ptxdiff.references.formats import U16, U32

case = Case(
    inputs={"x": U32, "y": U16}, outputs={"z": U32}, reference=lambda x, y: x ^ y,
    variants={"xor": asm("{ .reg .b32 t; cvt.u32.u16 t, $2; xor.b32 $0, $1, t; }", "=r,r,h", pack=1)},
)
'''
SHARDS = 48
"""Shards of `SHARD_BITS` inputs, 0.4 s each on a Hopper GPU."""


@pytest.fixture
def pair():
    pytest.importorskip("ray", reason="the extra ptxdiff[cluster] is not installed")
    alike = [g for g in gpus() if g.target == gpus()[0].target]
    if len(alike) < 2:
        pytest.skip(f"needs two GPUs of one target; there are {', '.join(g.target for g in gpus())}")
    return alike[:2]


def throughput(chosen, folder, monkeypatch):
    """Shards a second while all GPUs are busy: without starting and compiling, and without the last shards."""
    from ptxdiff.cluster.connect import joined
    from ptxdiff.running.shard_worker import fingerprint_of, item_of, shard_digests
    from ptxdiff.sweep.shards import SHARD_BITS, ClusterSweep, Journal, Task

    path, target = folder / "xor.py", chosen[0].target
    path.write_text(CASE)
    fingerprint = fingerprint_of(item_of(path, ["case", "xor"], "gpu", target))
    task = Task(str(path.resolve()), "case", "xor", "gpu", target, 1, 48, SHARD_BITS, fingerprint)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(g.visible for g in chosen))
    done = []
    with (
        contextlib.closing(Journal(folder / "journal", task, resume=False)) as journal,
        joined("local", folder) as tasks,
    ):
        assert tasks.nodes.targets == (target,)
        args = {"root": folder, "given": shard_digests(task), "on_result": lambda r: done.append((time.monotonic(), r))}
        ClusterSweep(tasks, task, journal, range(SHARDS), **args).run()
    assert {r.verdict for _, r in done} == {"pass"}
    busy = done[len(done) // 4 : -2 * len(chosen)]
    return (len(busy) - 1) / (busy[-1][0] - busy[0][0])


def test_two_gpus_have_nearly_twice_the_throughput_of_one(pair, tmp_path: Path, monkeypatch):
    found = []
    for number, chosen in enumerate((pair[:1], pair[1:], pair)):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(throughput(chosen, folder, monkeypatch))
    first, second, both = found
    words = f"{first:.3f} and {second:.3f} shards a second on either GPU alone, {both:.3f} on both"
    print(words)
    assert both >= 1.9 * (first + second) / 2, words
