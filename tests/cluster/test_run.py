"""Runs on a Ray cluster of two nodes: records equal those of a local run; GPUs by target, faults, and a new
driver."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time

import pytest

from ptxdiff.cli.run import plugin_words
from ptxdiff.records import read
from ptxdiff.running.cluster import driver
from ptxdiff.timing import in_registers
from tests.cluster.conftest import ROOT, node
from tests.cluster.same import differences
from tests.support.case_sources import MIXED, RIGHT

pytest.importorskip("torch")
pytest.importorskip("triton")

ADD = '''"""Add."""

from ptxdiff import Case, asm
from ptxdiff.references.formats import I32

case = Case(
    inputs={"x": I32, "y": I32},
    outputs={"z": I32},
    reference=lambda x, y: (x + y) & 0xFFFFFFFF,
    variants={"right": asm("add.s32 $0, $1, $2;")},
)
'''
HANGS = ADD.replace('"right"', '"hangs"')
DIES = RIGHT.replace("    return x ^ 1\n", "    import os\n    os._exit(1)\n")
DIES_ONCE = RIGHT.replace(
    "def flipped(x):\n",
    """def flipped(x):
    import os, pathlib
    marker = pathlib.Path("MARKER")
    if not marker.exists():
        marker.touch()
        os._exit(1)
""",
)
HERE = ("--ptx-backend=emulator", "--ptx-target=sm_90a")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A function that makes a folder with case files the project and the working directory of runs."""
    folder = tmp_path / "project"
    (folder / "cases").mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")  # compiling takes most of the time, and has its own tests

    def made(**sources):
        for name, source in sources.items():
            (folder / "cases" / f"{name}.py").write_text(source)
        return folder

    return made


def run(*words, cases="cases"):
    """Run pytest on the project in this process. Returns its exit status and output."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main([cases, "-q", "--no-header", "-p", "no:cacheprovider", *map(str, words)])
    return int(code), said.getvalue()


def verdicts(path):
    """For each item, the verdicts of its results, joined by "and"."""
    found = {}
    for r in read(path).results:
        found.setdefault(r.key.item, set()).add(r.verdict)
    return {item: " and ".join(sorted(values)) for item, values in found.items()}


CONFTEST = """
from ptxdiff.timing import inregisters

inregisters.time_in_registers = lambda loaded, target, limit=None: ()  # no stand-in has its machine code
"""


def test_a_report_on_an_item_that_was_not_given_is_an_error(address, shipped, tmp_path, monkeypatch):
    monkeypatch.chdir(shipped)
    monkeypatch.setattr(driver, "WORK", "lies:run")
    records = tmp_path / "records.jsonl"
    words = [*HERE, f"--ptx-records={records}", f"--ptx-cluster={address}"]
    code, said = run(*words, cases="cases/flip.py")
    assert code == 1
    assert set(verdicts(records).values()) == {"error"}
    assert "it reported on cases/flip.py::another[sm_90a-emulator], which it was not given" in said
    assert "gets no work: it reported on" in said


def test_records_equal_those_of_a_run_here(own_connection, project, tmp_path):
    project(flip=RIGHT, mixed=MIXED)
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    code, _ = run(*HERE, f"--ptx-records={here}")
    away, said = run(*HERE, f"--ptx-records={there}", f"--ptx-cluster={own_connection}")
    assert (code, away) == (1, 1), said
    assert differences(here, there) == []
    assert {r.verdict for r in read(there).results} == {"pass", "fail"}
    nodes = {n["node"][:8] for n in read(there).run.environment["nodes"]}
    assert {r.node.rpartition("/")[2] for r in read(there).results} <= nodes
    assert len(nodes) == 2


@pytest.mark.slow
def test_items_run_on_their_targets_and_a_hanging_kernel_is_an_error(
    own_connection, two_nodes, project, tmp_path, monkeypatch
):
    """Slow: Triton compiles, three processes stand in for GPUs, and a kernel hangs for four seconds."""
    monkeypatch.setattr(in_registers, "time_in_registers", None)  # restored here, because the conftest replaces it
    (project(add=ADD, hangs=HANGS) / "conftest.py").write_text(CONFTEST)
    records = tmp_path / "records.jsonl"
    words = ["--ptx-backend=gpu", "--ptx-target=sm_80", "--ptx-target=sm_90a", "--ptx-timing", "--ptx-limit=4"]
    code, said = run(*words, f"--ptx-records={records}", f"--ptx-cluster={two_nodes.address}")
    assert code == 1
    assert "no node has sm_80: the emulator runs what was asked of those GPUs" in said
    found = read(records)
    assert verdicts(records) == {
        ("add", "right", "sm_90a", "gpu"): "pass",
        ("add", "right", "sm_80", "emulator"): "pass",
        ("hangs", "hangs", "sm_90a", "gpu"): "error",
        ("hangs", "hangs", "sm_80", "emulator"): "pass",
    }
    on_gpu = [r for r in found.results if r.key.backend == "gpu"]
    assert {r.evidence for r in on_gpu if r.verdict == "pass"} == {"hardware"}
    assert "no end after 4 s: the kernel hangs" in next(r.words for r in on_gpu if r.verdict == "error")
    third = next(n["node"][:8] for n in found.run.environment["nodes"] if n.get("targets") == ["sm_90a"])
    assert {r.node.rpartition("/")[2] for r in [*on_gpu, *found.timings]} == {third}
    assert {t.key.case for t in found.timings} == {"add", "hangs"}
    uses = [line.split() for line in two_nodes.stand_in_log.read_text().splitlines()]
    timings = [u for u in uses if u[1] == "timing"]
    assert len(timings) == 2
    for device, _, began, ended in timings:
        meanwhile = [u for u in uses if u[0] == device and u[2] < ended and began < u[3]]
        assert len(meanwhile) == 1, "a GPU was used while it was timed"


@pytest.mark.slow
def test_an_item_is_repeated_once_after_its_process_died_and_then_an_error(
    own_connection, two_nodes, project, tmp_path, monkeypatch
):
    """Slow: five processes import torch one after another."""
    monkeypatch.setattr(driver, "RETRIES", 1)
    project(dies=DIES, once=DIES_ONCE.replace("MARKER", str(tmp_path / "died")), flip=RIGHT)
    records = tmp_path / "records.jsonl"
    words = ["--ptx-backend=emulator", "--ptx-target=sm_90a", f"--ptx-records={records}"]
    code, said = run(*words, f"--ptx-cluster={two_nodes.address}")
    assert code == 1
    assert (tmp_path / "died").exists()
    assert verdicts(records) == {
        ("dies", "right", "sm_90a", "emulator"): "error",
        ("once", "right", "sm_90a", "emulator"): "pass",
        ("flip", "right", "sm_90a", "emulator"): "pass",
    }
    keys = [r.key for r in read(records).results]
    assert len(keys) == len(set(keys)), "a result counts twice"
    assert "the process that ran it died" in said
    assert read(records).end is not None


MANY = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8


def flipped(x):
    import time
    time.sleep(0.4)
    return x ^ 1


variants = {f"v{k}": asm("xor.b32 $0, $1, 0x01010101;", constraints="=r,r", pack=4) for k in range(24)}
case = Case(inputs={"x": U8}, outputs={"y": U8}, reference=flipped, variants=variants)
"""


def start_driver(records, address, *words):
    command = [sys.executable, "-m", "pytest", "cases", "-q", *plugin_words(), "--ptx-backend=emulator"]
    command += ["--ptx-target=sm_90a", f"--ptx-records={records}", f"--ptx-cluster={address}", *words]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)


def lines_of(path):
    return path.read_text().count('"record":"result"') if path.exists() else 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ray's, of a node that was killed
def test_a_killed_node_and_a_killed_driver_leave_the_same_report(two_nodes, project, tmp_path):
    """Slow: three runs of 24 long items."""
    project(many=MANY)
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    assert run("--ptx-backend=emulator", "--ptx-target=sm_90a", f"--ptx-records={here}")[0] == 0
    doomed = two_nodes.add_node(**node(ROOT))
    first = start_driver(there, two_nodes.address)
    deadline = time.monotonic() + 120
    while lines_of(there) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    two_nodes.remove_node(doomed, allow_graceful=False)
    before = lines_of(there)
    while lines_of(there) < before + 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert read(there).end is None
    assert 0 < len(read(there).results) < len(read(here).results)
    second = start_driver(there, two_nodes.address, "--ptx-resume")
    said = second.communicate(timeout=180)[0]
    assert second.returncode == 0, said
    assert differences(here, there) == []


@pytest.mark.slow
def test_ctrl_c_ends_the_run_and_leaves_the_cluster(own_connection, two_nodes, project, tmp_path):
    """Slow: a separate driver process, and long items."""
    project(many=MANY)
    records = tmp_path / "records.jsonl"
    process = start_driver(records, two_nodes.address)
    deadline = time.monotonic() + 120
    while lines_of(records) < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 2, said
    assert read(records).end is None
    import ray

    ray.init(address=two_nodes.address, log_to_driver=False)
    try:
        assert len([n for n in ray.nodes() if n["Alive"]]) >= 2
        free = ray.available_resources()["CPU"]
        deadline = time.monotonic() + 20
        while free < 3 and time.monotonic() < deadline:
            time.sleep(0.2)
            free = ray.available_resources()["CPU"]
        assert free == 3, "tasks of the run still run"
    finally:
        ray.shutdown()
