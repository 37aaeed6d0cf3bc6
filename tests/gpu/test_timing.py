"""Timing sessions on a device: equal kernels are "same", a kernel with extra work is "slower"; pytest-benchmark."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch finds no CUDA device"),
]

ROOT = Path(__file__).resolve().parents[2]

CASE = '''
"""A copy with work planted in it."""
import triton
import triton.language as tl
from ptxdiff import Case, asm, kernel, plain
from ptxdiff.references.formats import F32

@triton.jit
def once(x):
    """The bits as they are."""
    return x

@triton.jit
def two_passes(x, y, n, BLOCK: tl.constexpr):
    """Every element copied twice, the second time by a program far from the first."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
    far = (at + n // 2) % n
    tl.store(y + far, tl.load(x + far, mask=at < n), mask=at < n)

case = Case(
    inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, pytorch=lambda x: x + 0, nan="payload",
    variants={
        "plain": plain(once),
        "asm": asm("mov.b32 $0, $1;", packs=(1,)),
        "two-passes": kernel(two_passes, grid=lambda v: (triton.cdiv(v["n"], 1024),), meta={"BLOCK": 1024}),
        "refused": asm("mov.b32 $0, $1; bar.nonsense;", pack=1),
    },
)
'''

HANGS = '''
"""A kernel without an end."""
import triton
import triton.language as tl
from ptxdiff import Case, kernel
from ptxdiff.references.formats import F32

@triton.jit
def endless(x, y, n, BLOCK: tl.constexpr):
    """Waits for a word that nobody writes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    while tl.load(x, volatile=True) != 12345.0:
        pass
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

case = Case(
    inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x,
    variants={"endless": kernel(endless, grid=lambda v: (triton.cdiv(v["n"], 1024),), meta={"BLOCK": 1024})},
)
'''


IN_PLACE = '''
"""Programs that loop as often as the tensor says that they change."""
import numpy as np
import triton
import triton.language as tl
from ptxdiff import Case, kernel
from ptxdiff.references.formats import I32

@triton.jit
def loops(x, n, STORED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    steps = tl.max(tl.load(x + at, mask=at < n, other=0))
    word = steps
    for _ in range(steps):
        word = word * 1664525 + 1013904223
    tl.store(x + at, STORED + tl.where(word == 12345, 1, 0), mask=at < n)

def stores(number):
    return kernel(loops, grid="ceil(n/1024)", meta={"STORED": number, "BLOCK": 1024})

case = Case(
    inputs={"x": I32["n"]}, outputs={"x": I32["n"]}, reference=lambda x: x, sizes=[{"n": 1024}],
    generate=lambda sizes, rng: {"x": np.zeros(sizes["n"], np.uint32)},
    variants={"zeros": stores(0), "many": stores(1 << 20)},
)
'''


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("cases") / "planted.py"
    found.write_text(CASE)
    return found


@pytest.fixture(scope="module")
def session(path):
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.timing.session import time_case

    return time_case(str(path), "case", device_target())


def test_another_level_is_timed_with_an_a_a_run_of_its_own(path):
    """At -O0 the same PTX is timed by the driver API; the record names program and level."""
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.running.assemblers import tritons_own
    from ptxdiff.timing.session import time_case

    pytest.importorskip("cuda.bindings", reason="needs cuda-python")
    target = device_target()
    lowest = tritons_own(target, level=0)
    found = time_case(str(path), "case", target, (None, lowest), (), ("L2",)).timings
    by = {label: [t for t in found if t.key.assembler == label] for label in ("", lowest.label)}
    assert {t.key.variant for t in by[lowest.label]} == {"plain", "asm", "two-passes"}
    assert all(t.ptxas == lowest.label for t in by[lowest.label])
    assert all(t.key.variant == "torch.compile" or t.ptxas not in ("", lowest.label) for t in by[""])
    for timings in by.values():
        assert len({t.noise for t in timings}) == 1
        assert 0 < timings[0].noise < 0.1


def test_every_variant_is_timed_at_every_size(session):
    assert {(t.key.variant, t.size) for t in session.timings} == {
        (v, s) for v in ("plain", "asm", "two-passes", "torch.compile") for s in ("small", "L2", "large")
    }
    (note,) = session.notes
    assert note.startswith("refused: ")
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    sizes = {t.size: t.bytes for t in session.timings}
    assert sizes["L2"] <= l2
    assert sizes["large"] >= 4 * l2
    for t in session.timings:
        assert t.bytes == 8 * t.elements
        assert 0 < t.low <= t.median <= t.high
        assert len(t.samples) >= 32
        assert 0 < t.launch < t.median


def test_extra_work_is_called_slower_and_another_copy_the_same(session):
    large = {t.key.variant: t for t in session.timings if t.size == "large"}
    assert large["two-passes"].beside(large["plain"]).verdict == "slower"
    assert large["asm"].beside(large["plain"]).verdict == "same"
    assert large["plain"].beside(large["two-passes"]).verdict == "faster"


def test_a_kernel_that_updates_in_place_is_timed_on_the_original_tensor(tmp_path):
    """On its own output "many" would loop a million times, which takes milliseconds instead of microseconds."""
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.timing.session import time_case

    path = tmp_path / "in_place.py"
    path.write_text(IN_PLACE)
    found = time_case(str(path), "case", device_target(), sizes=("small",))
    times = {t.key.variant: t.median for t in found.timings}
    assert times["many"] < 3 * times["zeros"]


def test_the_clock_rates_of_the_device_are_recorded(session):
    clocks = session.timings[0].clocks
    assert clocks["sm_min"] <= clocks["sm_max"]
    assert clocks["memory"] > 0


def test_events_and_cupti_differ_by_a_constant():
    """Events add the time that they measure for an empty kernel."""
    from ptxdiff.timing import session

    flush = session.Flush(torch.cuda.get_device_properties(0).L2_cache_size)
    x = torch.rand(1 << 25, device="cuda")
    y = torch.empty_like(x)
    launches = [lambda: y.copy_(x)] * 20
    by_cupti, by_event = (sorted(t.times(launches)) for t in (session.CuptiTimer(flush), session.EventTimer(flush)))
    assert 0 <= by_event[10] - by_cupti[10] < 2e-5


def test_the_flush_empties_the_l2():
    """A small tensor that was just read is read again faster than after a flush."""
    from ptxdiff.timing import session

    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    x = torch.rand(l2 // 16, device="cuda")
    cold = session.EventTimer(session.Flush(l2)).times([lambda: x.amax()] * 20)
    warm = session.EventTimer(lambda: x.amax()).times([lambda: x.amax()] * 20)
    assert sorted(warm)[10] < sorted(cold)[10]


def run(folder, *words, timeout=300):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", "-q", str(folder)]
    from ptxdiff.cli.run import plugin_words

    command += [*words, *plugin_words()]
    # The inner pytest is not a worker of pytest-xdist.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
    env["PYTEST_ADDOPTS"] = ""  # pytest-benchmark stays
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout, check=False)


def test_the_option_writes_timings_beside_results(path, tmp_path):
    from ptxdiff.records import read

    done = run(path, "--ptx-timing", "--ptx-backend=gpu", f"--ptx-records={tmp_path / 'r.jsonl'}", "-k", "not refused")
    assert "timings: 12, A/A noise" in done.stdout, done.stdout + done.stderr
    found = read(tmp_path / "r.jsonl")
    assert len(found.timings) == 12
    assert {r.verdict for r in found.results} == {"pass"}


def test_a_kernel_that_hangs_costs_its_own_timing_only(path, tmp_path):
    from ptxdiff.records import read

    folder = tmp_path / "cases"
    folder.mkdir()
    (folder / "a_hangs.py").write_text(HANGS)
    (folder / "b_plain.py").write_text(CASE.replace("pytorch=lambda x: x + 0, ", ""))
    words = ["--ptx-timing", "--ptx-backend=gpu", "-k", "timing", "--ptx-limit=15"]
    done = run(folder, *words, f"--ptx-records={tmp_path / 'r.jsonl'}")
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "a_hangs: timing failed: DeviceFault: no end after 15 s" in done.stdout
    assert {t.key.case for t in read(tmp_path / "r.jsonl").timings} == {"b_plain"}


def test_pytest_benchmark_times_stores_and_compares(path, tmp_path):
    pytest.importorskip("pytest_benchmark")
    words = ["--benchmark-only", f"--benchmark-storage={tmp_path}", "--benchmark-max-time=0.2", "-k", "large"]
    first = run(path, *words, "--benchmark-save=one", f"--benchmark-json={tmp_path / 'one.json'}")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "benchmark 'planted large': 3 tests" in first.stdout
    stored = json.loads((tmp_path / "one.json").read_text())
    assert {b["name"] for b in stored["benchmarks"]} == {f"{v}[large]" for v in ("plain", "asm", "two-passes")}
    assert stored["machine_info"]["gpu"]["gpus"]
    medians = {b["name"]: b["stats"]["median"] for b in stored["benchmarks"]}
    assert medians["plain[large]"] < medians["two-passes[large]"]
    again = run(path, *words, "--benchmark-compare=0001")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "planted large" in again.stdout
    assert "(0001_one)" in again.stdout
