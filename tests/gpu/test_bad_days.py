"""What kernels can do to a device costs their own item a verdict of `error`, and nobody else anything."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import bad_kernels
import numpy as np
import pytest

from harness.backends import Job, Setup, create
from harness.backends.device import of_target
from harness.gpus import gpus
from harness.records import read

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpus(), reason="needs an NVIDIA GPU: CUDA finds no device")]

FILE = Path(bad_kernels.__file__)
ROOT = FILE.parents[2]


def run_pytest(folder, *options, cases=str(FILE), code=1):
    words = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--ptx-backend=gpu"]
    words += [cases, f"--ptx-records={folder / 'run.jsonl'}", "--ptx-require-gpu", *options]
    installed = subprocess.run(
        [sys.executable, "-c", "import importlib.metadata as m; m.version('ptxdiff')"], capture_output=True
    )
    words += ["-p", "harness.plugin"] if installed.returncode else []
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == code, done.stdout + done.stderr
    return read(folder / "run.jsonl"), done.stdout


def by_variant(records):
    found = {}
    for r in records.results:
        found.setdefault((r.key.case.partition(".")[2], r.key.variant), []).append(r)
    return found


def test_every_bad_day_is_an_error_in_words_and_what_comes_after_runs(tmp_path):
    records, _ = run_pytest(tmp_path, "--ptx-limit=6", "-k", "not past")
    found = by_variant(records)
    for name in ("bytes_case", "words"):
        for variant in ("right before", "right after"):
            assert {r.verdict for r in found[name, variant]} == {"pass"}, found[name, variant]
    hangs = "no end after 6 s: the kernel hangs, or needs a greater --ptx-limit; its process was killed"
    expected = {
        ("bytes_case", "traps"): "the kernel trapped",
        ("bytes_case", "loops"): hangs,
        ("bytes_case", "deadlocks"): hangs,
        ("words", "reads nowhere"): "an illegal memory access was encountered",
    }
    for key, words in expected.items():
        (result,) = found[key]
        assert result.verdict == "error", (key, result)
        assert words in result.words, (key, result.words)
        assert "\n" not in result.words
    assert {r.device for r in records.results} == {gpus()[0].uuid}
    assert records.end is not None


@pytest.fixture(scope="module")
def backend():
    return create("gpu", limit=60)


def a_job(variant="right before"):
    case, target = bad_kernels.bytes_case, gpus()[0].target
    inputs = {"x": np.arange(256, dtype=np.uint8)}
    return Job(case, "bytes_case", FILE, variant, case.variants[variant], target, Setup(pack=4, shape=(256,)), inputs)


def test_a_process_killed_at_work_is_an_error_and_the_next_job_runs(backend):
    assert backend.run(a_job()).status == "ran"
    device = of_target(gpus()[0].target)
    threading.Timer(2.0, os.kill, (device._worker.pid, signal.SIGKILL)).start()
    outcome = backend.run(a_job("loops"))
    assert outcome.status == "error"
    assert outcome.words.startswith("the process on the GPU was killed (SIGKILL)")
    assert backend.run(a_job()).status == "ran"


def leave(fraction):
    """In the GPU's process: take away all of its memory but this."""
    import torch

    torch.cuda.set_per_process_memory_fraction(fraction)


def test_out_of_memory_is_an_error_and_the_next_job_runs(backend):
    backend.run(a_job())
    device = of_target(gpus()[0].target)
    device.call("test_bad_days:leave", 1e-9, limit=60)
    outcome = backend.run(a_job())
    assert outcome.status == "error"
    assert "OutOfMemoryError: CUDA out of memory" in outcome.words
    device.call("test_bad_days:leave", 1.0, limit=60)
    assert backend.run(a_job()).status == "ran"


def test_the_way_through_the_process_is_short(backend, benchmark):
    """What an item costs that does next to nothing on the device."""
    backend.run(a_job())
    benchmark.pedantic(backend.run, (a_job(),), rounds=20, warmup_rounds=2)


def test_starting_over_is_told(backend):
    device = of_target(gpus()[0].target)
    device.close()
    began = time.perf_counter()
    assert backend.run(a_job()).status == "ran"
    print(f"a new process and its context: {device.started:.2f} s of {time.perf_counter() - began:.2f} s")
