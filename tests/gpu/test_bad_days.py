"""A kernel that misbehaves on a device gives its own item the verdict `error`, and does not affect other items."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import bad_kernels
import numpy as np
import pytest

from ptxdiff.backends import create
from ptxdiff.backends.sanitizer import missing
from ptxdiff.jobs import Job, Setup
from ptxdiff.processes.child import of_target
from ptxdiff.processes.gpus import gpus, share, worker_number
from ptxdiff.records import read

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpus(), reason="needs an NVIDIA GPU: CUDA finds no device")]

FILE = Path(bad_kernels.__file__)
ROOT = FILE.parents[2]


def run_pytest(folder, *options, cases=str(FILE), code=1):
    words = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--ptx-backend=gpu"]
    words += [cases, f"--ptx-records={folder / 'run.jsonl'}", "--ptx-require-gpu", *options]
    installed = subprocess.run(
        [sys.executable, "-c", "import importlib.metadata as m; m.version('ptxdiff')"], capture_output=True
    )
    words += ["-p", "ptxdiff.plugin"] if installed.returncode else []
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == code, done.stdout + done.stderr
    return read(folder / "run.jsonl"), done.stdout


def by_variant(records):
    found = {}
    for r in records.results:
        found.setdefault((r.key.case.partition(".")[2], r.key.variant), []).append(r)
    return found


def test_each_misbehaving_kernel_is_an_error_with_its_reason_and_later_items_run(tmp_path):
    records, _ = run_pytest(tmp_path, "--ptx-limit=6", "-k", "not past and not sanitized")
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
    used = (share(gpus(), g.target, worker_number()) for g in gpus())  # with several GPUs a worker's own
    assert {r.device for r in records.results} == {gpu.uuid for gpu in used}
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
    """Runs in the GPU's process: leave it only this fraction of the memory."""
    import torch

    torch.cuda.empty_cache()
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


@pytest.mark.parametrize("where", ["child", "here"])
def test_the_cost_of_a_tiny_job(backend, benchmark, where):
    """The job runs in the GPU's process ("child"), or in this process."""
    from ptxdiff.backends.gpu import GpuBackend

    chosen = backend if where == "child" else GpuBackend()
    assert chosen.run(a_job()).status == "ran"
    benchmark.pedantic(chosen.run, (a_job(),), rounds=30, warmup_rounds=3)


def test_the_cost_of_restarting_the_gpu_process(backend, benchmark):
    """Starts a process with torch and a CUDA context, and launches one kernel in it."""

    def start_over():
        of_target(gpus()[0].target).close()
        return backend.run(a_job())

    assert benchmark.pedantic(start_over, rounds=2).status == "ran"


# ---- Under compute-sanitizer -------------------------------------------------------------------------------------

needs_sanitizer = pytest.mark.skipif(bool(missing()), reason="needs compute-sanitizer, which is not installed")


@needs_sanitizer
def test_a_read_past_the_end_is_found_and_fails(tmp_path):
    """The kernel reads one element past the end of its input."""
    records, _ = run_pytest(tmp_path, "--ptx-sanitize=memcheck", "-k", "words and not nowhere")
    found = by_variant(records)
    assert {r.verdict for v in ("right before", "right after") for r in found["words", v]} == {"pass"}
    wrong = found["words", "reads past the end"]
    assert {r.verdict for r in wrong} == {"fail"}
    for result in wrong:
        (finding,) = (f for f in result.findings if f.startswith("memcheck: "))
        assert "Invalid __global__ read of size 4 bytes in reads_far+0x" in finding
        assert "(bad_kernels.py:" in finding
        assert "1 bytes after the nearest allocation" in finding
        assert result.words


@needs_sanitizer
@pytest.mark.parametrize(
    ("tool", "variant", "words"), [("racecheck", "races", "Race"), ("synccheck", "diverges", "Barrier")]
)
def test_racecheck_and_synccheck_find_their_faults(tmp_path, tool, variant, words):
    records, _ = run_pytest(tmp_path, f"--ptx-sanitize={tool}", "-k", f"sanitized and {variant}")
    assert {r.verdict for r in records.results} <= {"pass", "fail"}  # harmless in a block of one thread
    assert all(r.verdict == "fail" for r in records.results if r.findings)
    assert any(words in f and f.startswith(tool) for r in records.results for f in r.findings)
