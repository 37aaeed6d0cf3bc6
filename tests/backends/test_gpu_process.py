"""The process that owns a GPU: if it dies or hangs, one call fails, and the next call gets a new process."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.backends import gpu_process
from ptxdiff.backends.gpu_process import WatchedGpu
from ptxdiff.jobs import Job, Setup
from ptxdiff.processes.child import Device, DeviceFault
from ptxdiff.processes.gpus import Gpu, names_of, share
from tests.backends import backend_cases

pytest.importorskip("torch")
pytest.importorskip("triton")

GPU = Gpu("GPU-7", "a GPU", "GPU-0-test", "sm_90a", 1 << 30)
HERE = "tests.backends.device_stand_in"


@pytest.fixture(scope="module")
def device():
    """A device for calls that run no job."""
    made = Device(GPU, begin="ptxdiff.processes.child:ready")
    yield made
    made.close()


@pytest.fixture(scope="module")
def device_for_jobs():
    made = Device(GPU, begin=f"{HERE}:begin")
    yield made
    made.close()


def test_calls_are_answered_by_one_process_that_sees_one_gpu(device):
    first, visible = device.call(f"{HERE}:process", limit=60)
    assert first != os.getpid()
    assert visible == "GPU-7"
    assert device.call(f"{HERE}:process", limit=60)[0] == first


def test_variables_that_change_the_level_of_ptxas_do_not_reach_it(monkeypatch, new_processes):
    """Otherwise Triton would assemble at another level than the records state."""
    for name in ("DISABLE_PTXAS_OPT", "PTXAS_OPTIONS"):
        monkeypatch.setenv(name, "1")
    with contextlib.closing(Device(GPU, begin="ptxdiff.processes.child:ready")) as made:
        assert made.call("os:getenv", "DISABLE_PTXAS_OPT", limit=60) is None
        assert made.call("os:getenv", "PTXAS_OPTIONS", limit=60) is None


def test_an_exception_of_the_devices_process_is_raised_here(device):
    with pytest.raises(KeyError, match="missing") as caught:
        device.call(f"{HERE}:raises", limit=60)
    assert "in raises" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="Odd: 1 2"):
        device.call(f"{HERE}:raises_what_does_not_pickle", limit=60)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("killed", r"the process on the GPU was killed \(SIGKILL\); the system does that when its memory runs out"),
        ("exits", "the process on the GPU exited with status 7: the last words"),
        ("hangs", "no end after 0.2 s: the kernel hangs, or needs a greater --ptx-limit; its process was killed"),
    ],
)
def test_a_process_that_dies_or_hangs_is_reported_and_replaced(device, action, words):
    before = device.call(f"{HERE}:process", limit=60)[0]
    with pytest.raises(DeviceFault, match=f"^{words}$"):
        device.call(f"{HERE}:{action}", limit=0.2 if action == "hangs" else 60)
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert device.call(f"{HERE}:later", 0, 5, limit=60) == 5


def test_starting_a_process_does_not_count_as_time_of_a_call():
    with contextlib.closing(Device(GPU, begin=f"{HERE}:begin_late")) as late:
        assert late.call(f"{HERE}:later", 0, 5, limit=1.0) == 5
        assert late.started > 1.0


@pytest.mark.slow
def test_without_a_gpu_there_is_a_reason(new_processes):
    made = Device(GPU)
    with pytest.raises(DeviceFault, match="a GPU: no CUDA context: torch finds no CUDA device"):
        made.call(f"{HERE}:process", limit=60)
    made.close()


def test_a_killed_parent_leaves_no_process_behind():
    """A busy process, which would otherwise never end, ends too."""
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from ptxdiff.processes.child import Device
from ptxdiff.processes.gpus import Gpu
device = Device(Gpu("0", "", "GPU-0-test", "sm_90a", 0), begin="ptxdiff.processes.child:ready")
print(device.call("{HERE}:process", limit=60)[0], flush=True)
device.call("{HERE}:hangs", limit=600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        time.sleep(0.2)
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- The backend -------------------------------------------------------------------------------------------------


@pytest.fixture
def backend(device_for_jobs, monkeypatch):
    monkeypatch.setattr(gpu_process, "gpus", lambda: (GPU,))
    monkeypatch.setattr(gpu_process, "of_target", lambda target: device_for_jobs)
    return WatchedGpu(limit=20)


def job(action=None, path=Path(backend_cases.__file__), name="addition"):
    case = backend_cases.addition
    inputs = {n: np.arange(33, dtype=np.float32).view(np.uint32) for n in ("x", "y")}
    return Job(case, name, path, "asm", case.variants["asm"], "sm_90a", Setup(shape=(33,), padding=action), inputs)


def test_a_job_is_sent_by_name_and_its_bits_are_returned(backend):
    outcome = backend.run(job())
    assert (outcome.status, outcome.words, outcome.findings) == ("ran", "", ())
    assert (outcome.evidence, outcome.device) == ("hardware", "GPU-0-test")
    assert outcome.artifacts.resources["registers"] > 0
    np.testing.assert_array_equal(outcome.outputs["z"].view(np.float32), 2 * np.arange(33, dtype=np.float32))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (1, "the process on the GPU was killed (SIGKILL); the system does that when its memory runs out"),
        (3, "the process on the GPU exited with status 7: the last words"),
        (4, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 TiB."),
    ],
)
def test_a_job_that_goes_wrong_is_an_error_and_the_next_one_runs(backend, action, words):
    outcome = backend.run(job(action))
    assert (outcome.status, outcome.words, outcome.device) == ("error", words, "GPU-0-test")
    assert outcome.artifacts.ptx
    assert backend.run(job()).status == "ran"


def test_a_job_that_hangs_is_given_up(backend):
    hanging = WatchedGpu(limit=0.2)
    outcome = hanging.run(job(2))
    assert outcome.status == "error"
    assert outcome.words.startswith("no end after 0.2 s: the kernel hangs")


def test_a_case_that_no_file_binds_is_refused_with_a_message(backend):
    outcome = backend.run(job(name="subtraction"))
    assert outcome.status == "error"
    assert "binds no case 'subtraction' with a variant 'asm'" in outcome.words


def test_a_file_that_was_changed_meanwhile_is_detected(backend, tmp_path):
    path = tmp_path / "other.py"
    path.write_text(Path(backend_cases.__file__).read_text().replace("add.rn.f32", "sub.rn.f32"))
    outcome = backend.run(job(path=path))
    assert outcome.words == f"{path} has changed since the run began: of asm, asm changed"


def test_another_target_than_the_devices_is_not_run(backend):
    assert backend.unavailable("sm_90a") is None
    assert backend.unavailable("sm_100a") == "the device is sm_90a"


# ---- Which GPU ---------------------------------------------------------------------------------------------------


def gpu(visible, target="sm_90a"):
    return Gpu(visible, visible, visible, target, 0)


@pytest.mark.parametrize(
    ("variable", "count", "expected"),
    [
        (None, 2, ["0", "1"]),
        ("3,1", 2, ["3", "1"]),
        ("GPU-ab12, MIG-cd34", 2, ["GPU-ab12", "MIG-cd34"]),
        ("0,-1,2", 1, ["0"]),  # CUDA ignores the first invalid entry and all after it
    ],
)
def test_gpus_keep_their_given_names(variable, count, expected):
    assert names_of(variable, count) == expected


def test_workers_share_the_gpus_of_a_target_in_turn():
    host = [gpu("0"), gpu("1"), gpu("2", "sm_80")]
    assert [share(host, "sm_90a", k).visible for k in range(5)] == ["0", "1", "0", "1", "0"]
    assert [share(host, "sm_80", k).visible for k in range(2)] == ["2", "2"]
    assert share(host, "sm_100a", 0) is None
    assert share([], "sm_90a", 3) is None
