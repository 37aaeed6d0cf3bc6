"""The compiler processes: they return answers or die, and the pool continues."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

from ptxdiff.processes.pool import Pool, changes_compilers, default_size, shared_pool

pytestmark = pytest.mark.usefixtures("new_processes")


@pytest.fixture(scope="module")
def pool():
    made = Pool(2)
    yield made
    made.close()


def test_a_call_is_answered_from_another_process(pool):
    outcome = pool.submit("os:getpid").result()
    assert outcome.reply.value in pool.pids()
    assert outcome.reply.value != os.getpid()
    assert outcome.ended == ""


def test_an_exception_of_a_call_is_raised_here_with_its_trace(pool):
    reply = pool.submit("math:sqrt", -1.0).result().reply
    assert reply.raised == "ValueError"
    assert "math domain error" in reply.message
    assert "Traceback" in reply.trace


@pytest.mark.parametrize(
    ("function", "arguments", "ended"),
    [
        ("os:abort", (), "aborted (SIGABRT)"),
        ("os:_exit", (3,), "exited with status 3"),
        ("signal:raise_signal", (signal.SIGSEGV,), "was killed (SIGSEGV)"),
    ],
)
def test_the_pool_outlives_a_worker(pool, function, arguments, ended):
    dead = pool.submit(function, *arguments).result()
    assert dead.reply is None
    assert dead.ended == ended
    assert pool.submit("os:getpid").result().reply is not None


def test_a_late_answer_ends_the_worker_and_its_processes(pool):
    started = time.monotonic()
    outcome = pool.submit("subprocess:run", ["sleep", "60"], timeout=0.5).result()
    assert outcome.reply is None
    assert outcome.ended == "gave no answer in 0.5 s"
    assert time.monotonic() - started < 20


def test_standard_error_belongs_to_the_call_that_wrote_it(pool):
    lone = Pool(1)
    try:
        first = lone.submit("os:write", 2, b"said by the first").result()
        second = lone.submit("os:getpid").result()
    finally:
        lone.close()
    assert first.stderr == "said by the first"
    assert second.stderr == ""


def test_standard_output_disturbs_nothing(pool):
    outcome = pool.submit("builtins:print", "x" * 100_000).result()
    assert outcome.reply is not None
    assert outcome.stderr == ""


def test_python_warnings_are_kept_apart_from_standard_error(pool):
    outcome = pool.submit("warnings:warn", "old spelling").result()
    assert outcome.reply.warnings == ("UserWarning: old spelling",)
    assert outcome.stderr == ""


def test_modules_that_the_parent_finds_later_are_found(pool, tmp_path, monkeypatch):
    pool.submit("os:getpid").result()
    (tmp_path / "a_late_module.py").write_text("def answer():\n    return 42\n")
    assert pool.submit("a_late_module:answer").result().reply.raised == "ModuleNotFoundError"
    monkeypatch.syspath_prepend(tmp_path)
    assert pool.submit("a_late_module:answer").result().reply.value == 42


def test_answers_larger_than_a_pipe_come_whole(pool):
    text = pool.submit("operator:mul", "y", 3_000_000).result().reply.value
    assert len(text) == 3_000_000


def test_calls_run_at_the_same_time(pool, tmp_path):
    """Opening a pipe for reading waits until another process opens it for writing, and the reverse."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = pool.submit("os:open", fifo, os.O_RDONLY)
    writer = pool.submit("os:open", fifo, os.O_WRONLY)
    assert reader.result(30).reply is not None
    assert writer.result(30).reply is not None
    assert len(pool.pids()) == 2


def test_workers_start_only_when_needed():
    four = Pool(4)
    try:
        answered = {four.submit("os:getpid").result().reply.value for _ in range(5)}
        assert four.pids() == list(answered)
    finally:
        four.close()


def test_arguments_that_do_not_pickle_are_the_callers_error(pool):
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        pool.submit("os:getpid", lambda: None).result()
    assert pool.submit("os:getpid").result().reply is not None


def test_closing_ends_running_calls_cancels_waiting_ones_and_leaves_no_process():
    closing = Pool(1)
    running = closing.submit("time:sleep", 60)
    waiting = closing.submit("os:getpid")
    while not closing.pids():
        time.sleep(0.01)
    pids = closing.pids()
    closing.close()
    assert running.result(timeout=10).ended == "was stopped"
    assert waiting.cancelled()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="closed"):
        closing.submit("os:getpid")


def test_workers_end_with_their_interpreter(tmp_path):
    script = (
        "from ptxdiff.processes.pool import shared_pool\n"
        "p = shared_pool()\n"
        "print(p.submit('os:getpid').result().reply.value, flush=True)\n"
        "p.submit('time:sleep', 60)\n"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert time.monotonic() - started < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_workers_end_with_a_killed_parent():
    script = (
        "import os, signal\n"
        "from ptxdiff.processes.pool import shared_pool\n"
        "print(shared_pool().submit('os:getpid').result().reply.value, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    worker = int(done.stdout)
    deadline = time.monotonic() + 10
    while _alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(worker)


def _alive(pid):
    """Whether a process runs. A process that has ended does not, even if its parent has not collected its status."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_settings_that_change_tritons_behaviour_do_not_reach_workers(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("MLIR_ENABLE_DUMP", "1")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/opt/ptxas")
    lone = Pool(1)
    try:
        seen = {name: lone.submit("os:getenv", name).result().reply.value for name in os.environ}
    finally:
        lone.close()
    assert seen["TRITON_INTERPRET"] is None
    assert seen["MLIR_ENABLE_DUMP"] is None
    assert seen["TRITON_PTXAS_PATH"] == "/opt/ptxas"


# By which Triton tells its cache that code may differ, in any release so far; some are read by LLVM.
OF_TRITON = (
    "ALLOW_LHS_TMEM_LAYOUT_CONVERSION", "AMDGCN_USE_BUFFER_OPS", "DISABLE_FAST_REDUCTION", "DISABLE_LLVM_OPT",
    "DISABLE_MMA_V3", "DISABLE_MMA_V5", "DISABLE_PTXAS_OPT", "LLVM_IR_ENABLE_DUMP", "LLVM_PASS_PLUGIN_PATH",
    "MLIR_DUMP_PATH", "MLIR_ENABLE_DUMP", "NVPTX_ENABLE_DUMP", "TRITON_DEFAULT_FP_FUSION", "TRITON_DISABLE_LINE_INFO",
    "TRITON_F32_DEFAULT", "TRITON_FORCE_DISABLE_FP_FUSION", "TRITON_OVERRIDE_ARCH", "TRITON_PLUGIN_PATHS", "USE_IR_LOC",
)  # fmt: skip


def test_what_triton_says_changes_its_code_stays_outside(monkeypatch):
    """Kernels compiled under such a setting would be kept, and used again without it."""
    triton = pytest.importorskip("triton._C.libtriton")
    for name in OF_TRITON:
        monkeypatch.setenv(name, "1")
    named = triton.get_cache_invalidating_env_vars()
    assert len(named) > 10
    assert [n for n in (*named, *OF_TRITON) if not changes_compilers(n)] == []


def test_xdist_workers_share_the_machine(monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "1000")
    assert default_size() == 1


def test_there_is_one_shared_pool():
    assert shared_pool() is shared_pool()


def test_importing_the_package_loads_neither_triton_nor_torch():
    script = (
        "import sys, ptxdiff.triton, ptxdiff.triton.compile, ptxdiff.triton.targets, ptxdiff.triton.launch\n"
        "import ptxdiff.backends.assembler, ptxdiff.backends.gpu\n"
        "sys.exit(any(m in sys.modules for m in ('triton', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
