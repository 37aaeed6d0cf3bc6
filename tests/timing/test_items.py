"""Timing as pytest items: --ptx-timing, and pytest-benchmark's options, tables, storage and comparison.

The device is a model: `time_case` gives samples of known levels, and everything else is real.
"""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from ptxdiff.processes.gpus import Gpu
from ptxdiff.records import InRegisters, Key, Timing, read
from ptxdiff.records.statistics import median
from ptxdiff.timing import CannotTime, Session
from ptxdiff.timing.session import time_on_device

pytest.importorskip("pytest_benchmark")

SOURCE = '''
"""A move."""
from ptxdiff import Case, asm
from ptxdiff.references.formats import F32

case = Case(
    inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, nan="payload",
    variants={"plain": asm("mov.b32 $0, $1;"), "or": asm("or.b32 $0, $1, $1;")},
)
other = case
'''
LEVELS = {"plain": 1e-5, "or": 1.3e-5}


def model(path, attribute, target, assemblers=(None,), variants=(), sizes=(), budget=1.0, least=32):
    """A session with invented figures."""
    if attribute == "broken":
        raise RuntimeError("an illegal memory access was encountered")
    found = []
    for size, by in itertools.product(sizes or ("small", "L2", "large"), assemblers):
        for variant in variants or LEVELS:
            rng = np.random.default_rng(len(found))
            samples = tuple(LEVELS[variant] * (1 + 0.002 * rng.standard_normal(least)))
            known = median(samples)
            name, label = "move" if attribute == "case" else f"move.{attribute}", by.label if by else ""
            key = Key(name, variant, target, "gpu", shape=size, assembler=label)
            found.append(Timing(key, 1 << 20, 8 << 20, samples, known.value, known.low, known.high, 9e-6, 0.003,
                                5e-7, {"sm_min": 1980}, size=size, timer="cupti", ptxas=label))  # fmt: skip
    return Session(tuple(found))


def in_registers(loaded, target, variants=(), limit=None):
    """Invented records of a case's loops: figures for one variant, and a reason for the other."""
    key = Key(loaded.name, "plain", target, "gpu", shape="throughput", num_warps=16, context="held")
    timed = InRegisters(key, 4096, (99.0, 100.0, 101.0), 100.0, 99.0, 101.0, 0.01, {"MOV": 1.0}, 8.0, 16.0, 1755.0)
    return timed, InRegisters(replace(key, variant="or"), words="the loop holds LDG.E")


@pytest.fixture
def device(monkeypatch):
    """A machine with one sm_90a, whose sessions come from the model."""
    monkeypatch.setattr("ptxdiff.running.collection.places", lambda config: [("gpu", "sm_90a")])
    monkeypatch.setattr("ptxdiff.timing.items.time_on_device", lambda limit, *words: model(*words))
    monkeypatch.setattr("ptxdiff.timing.in_registers.time_in_registers", in_registers)


def test_without_a_gpu_benchmarks_are_skipped_with_a_reason(run_cases, no_gpu):
    done = run_cases("--benchmark-only", "--ptx-backend=gpu", "-rs", move=SOURCE)
    done.assert_outcomes(skipped=12)
    done.stdout.fnmatch_lines(["*not run: no NVIDIA GPU on this machine*"])
    assert done.ret == 0


def test_without_a_gpu_timing_is_skipped_with_a_reason_or_fails_if_required(run_cases, no_gpu):
    run_cases("--ptx-timing", "--ptx-backend=gpu", "-k", "timing", move=SOURCE).assert_outcomes(skipped=2)
    done = run_cases("--ptx-timing", "--ptx-backend=gpu", "--ptx-require-gpu", "-k", "timing", move=SOURCE)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*--ptx-require-gpu, but this was not timed: no NVIDIA GPU on this machine*"])


def test_a_gpu_of_another_target_does_not_satisfy_a_required_one(run_cases, device, monkeypatch):
    """It is as for other items: what is required fails, and is not skipped."""
    words = ("--ptx-backend=gpu", "-rs", "-Wignore:Benchmark fixture was not used")
    monkeypatch.setattr("ptxdiff.timing.items.time_on_device", time_on_device)
    monkeypatch.setattr("ptxdiff.processes.child.gpus", lambda: (Gpu("0", "a GPU", "GPU-0", "sm_80", 1 << 30),))
    for kind in (
        ("--ptx-timing", "-k", "timing and not other"),
        ("--benchmark-only", "-k", "plain and L2 and not other"),
    ):
        done = run_cases(*kind, *words, move=SOURCE)
        done.assert_outcomes(skipped=1)
        done.stdout.fnmatch_lines(["*not run: no GPU here is sm_90a*"])
        done = run_cases(*kind, *words, "--ptx-require-gpu", move=SOURCE)
        done.assert_outcomes(failed=1)
        done.stdout.fnmatch_lines(["*--ptx-require-gpu, but this was not timed: no GPU here is sm_90a*"])


def test_timing_without_the_gpu_backend_is_a_contradiction(run_cases):
    done = run_cases("--ptx-timing", "--ptx-backend=emulator", move=SOURCE)
    done.stderr.fnmatch_lines(["*--ptx-timing needs a GPU, but --ptx-backend=emulator leaves it out*"])
    assert done.ret == pytest.ExitCode.USAGE_ERROR


def test_timings_go_into_the_records_and_the_summary(run_cases, device, pytester):
    done = run_cases("--ptx-timing", "--ptx-backend=gpu", "-k", "timing", "--ptx-records=r.jsonl", move=SOURCE)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["timings: 12, A/A noise 0.30 to 0.30%"])
    found = read(pytester.path / "r.jsonl")
    assert {(t.key.case, t.key.variant, t.size) for t in found.timings} == {
        (c, v, s) for c in ("move", "move.other") for v in LEVELS for s in ("small", "L2", "large")
    }
    assert all(len(t.samples) == 32 for t in found.timings)
    assert set(found.cases) == {"move", "move.other"}
    assert [(t.key.case, t.key.variant, t.words) for t in found.in_registers] == [
        (c, v, w) for c in ("move", "move.other") for v, w in (("plain", ""), ("or", "the loop holds LDG.E"))
    ]


def test_a_failure_to_time_in_registers_fails_the_item(run_cases, device, pytester, monkeypatch):
    def broken(*words, **more):
        raise RuntimeError("an illegal instruction was encountered")

    def cannot(*words, **more):
        raise CannotTime("plain: 64 more steps of the loop took no more clocks")

    words = ("--ptx-timing", "--ptx-backend=gpu", "-k", "timing and not other", "--ptx-records=r.jsonl")
    monkeypatch.setattr("ptxdiff.timing.in_registers.time_in_registers", broken)
    done = run_cases(*words, move=SOURCE)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["move: timing in registers failed: RuntimeError: an illegal instruction*"])
    assert len(read(pytester.path / "r.jsonl").timings) == 6
    monkeypatch.setattr("ptxdiff.timing.in_registers.time_in_registers", cannot)
    done = run_cases(*words, move=SOURCE)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["move: not timed in registers: plain: 64 more steps*"])


def test_a_resumed_run_times_only_what_is_missing(run_cases, device, pytester, monkeypatch):
    words = ("--ptx-timing", "--ptx-backend=gpu", "--ptx-records=r.jsonl")
    run_cases(*words, "-k", "timing and not other", move=SOURCE).assert_outcomes(passed=1)
    calls = []
    monkeypatch.setattr(
        "ptxdiff.timing.items.time_on_device", lambda limit, *words: calls.append(words[1]) or model(*words)
    )
    run_cases(*words, "-k", "timing", "--ptx-resume", move=SOURCE).assert_outcomes(passed=2)
    assert calls == ["other"]
    assert len(read(pytester.path / "r.jsonl").timings) == 12


def test_incomplete_timings_are_measured_again(run_cases, device, pytester):
    words = ("--ptx-timing", "--ptx-backend=gpu", "--ptx-records=r.jsonl", "-k", "timing and not other")
    run_cases(*words, move=SOURCE)
    path = pytester.path / "r.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert b'"timing"' in lines[4]
    path.write_bytes(b"".join(lines[:4]) + lines[4][:100])
    run_cases(*words, "--ptx-resume", move=SOURCE)
    assert sorted(t.key for t in read(path).timings) == sorted({t.key for t in read(path).timings})
    assert len(read(path).timings) == 6


def test_a_case_that_cannot_be_timed_is_skipped_and_an_exception_fails(run_cases, device, monkeypatch):
    def cannot(limit, *words):
        raise CannotTime("the device is sm_80")

    words = ("--ptx-timing", "--ptx-backend=gpu", "-k", "timing", "-rs")
    monkeypatch.setattr("ptxdiff.timing.items.time_on_device", cannot)
    done = run_cases(*words, move=SOURCE)
    done.assert_outcomes(skipped=2)
    done.stdout.fnmatch_lines(["*not run: the device is sm_80*"])
    monkeypatch.setattr("ptxdiff.timing.items.time_on_device", lambda limit, path, *w: model(path, "broken", ""))
    done = run_cases(*words, move=SOURCE)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["move: timing failed: RuntimeError: an illegal memory access was encountered"])


def test_benchmark_only_collects_benchmarks_alone_grouped_by_case_and_size(run_cases, device, pytester):
    done = run_cases("--benchmark-only", "--ptx-backend=gpu", "--benchmark-json=b.json", move=SOURCE)
    done.assert_outcomes(passed=12)
    done.stdout.fnmatch_lines(["*benchmark 'move large': 2 tests*", "plain?large? *", "or?large? *"])
    stored = json.loads((pytester.path / "b.json").read_text())
    found = {(b["group"], b["name"]): b for b in stored["benchmarks"]}
    assert len(found) == 12
    one = found["move large", "or[large]"]
    assert one["stats"]["median"] == pytest.approx(1.3e-5, rel=0.002)
    assert one["stats"]["rounds"] == 32
    assert one["options"]["timer"].endswith("device_time")
    assert one["extra_info"]["bytes_per_second"] == pytest.approx((8 << 20) / 1.3e-5, rel=0.002)
    assert one["fullname"] == "cases/move.py::or[large]"


def test_benchmarks_follow_pytest_benchmarks_options(run_cases, device, pytester, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "ptxdiff.timing.items.time_on_device", lambda limit, *words: calls.append(words[3:]) or model(*words)
    )
    words = ("--benchmark-only", "--ptx-backend=gpu", "--benchmark-max-time=0.25", "--benchmark-min-rounds=100")
    run_cases(*words, "-k", "plain and L2 and not other", move=SOURCE).assert_outcomes(passed=1)
    assert calls == [((None,), ("plain",), ("L2",), 0.25, 100)]


def test_benchmarks_are_saved_and_compared(run_cases, device, pytester, monkeypatch):
    words = ("--benchmark-only", "--ptx-backend=gpu", "--benchmark-storage=store", "-k", "large and not other")
    run_cases(*words, "--benchmark-save=one", move=SOURCE).assert_outcomes(passed=2)
    done = run_cases(*words, "--benchmark-compare=0001", "--benchmark-compare-fail=median:10%", move=SOURCE)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["*plain?large? (0001_one)*"])
    monkeypatch.setitem(LEVELS, "plain", 1.2e-5)
    done = run_cases(*words, "--benchmark-compare=0001", "--benchmark-compare-fail=median:10%", move=SOURCE)
    assert done.ret != 0
    assert "Performance has regressed" in done.stdout.str() + done.stderr.str()


def test_an_ordinary_run_has_no_timing_items(run_cases, device):
    done = run_cases("--collect-only", "-q", "--ptx-backend=gpu", move=SOURCE)
    assert "timing" not in done.stdout.str()
    assert "large" not in done.stdout.str()


@pytest.mark.parametrize("chosen", [["--ptx-opt=0"], ["--ptx-assembler=PATH"], ["--ptx-assembler=PATH", "--ptx-opt=1"]])
def test_a_named_assembler_is_timed_and_named(run_cases, chosen, device, tmp_path, monkeypatch):
    """Loops in registers, which Triton assembles, are then omitted."""
    from ptxdiff.running.assemblers import tritons_own

    path = tritons_own("sm_90a").path
    words = [w.replace("PATH", path) for w in chosen]
    monkeypatch.setattr("ptxdiff.timing.in_registers.time_in_registers", None)
    records = tmp_path / "run.jsonl"
    run_cases("--ptx-timing", "--ptx-backend=gpu", "-k", "timing", f"--ptx-records={records}", *words, move=SOURCE)
    level = int(next((w[-1] for w in chosen if "opt" in w), "3"))
    assert {t.key.assembler for t in read(records).timings} == {t.ptxas for t in read(records).timings}
    (label,) = {t.key.assembler for t in read(records).timings}
    assert f" -O{level}" in label
    assert not read(records).in_registers


def test_benchmarks_of_two_assemblers_are_in_two_tables(run_cases, device, pytester):
    done = run_cases(
        "--benchmark-only", "--ptx-backend=gpu", "--ptx-opt=0", "--ptx-opt=3", "--benchmark-json=b.json",
        "-k", "large and not other", move=SOURCE,
    )  # fmt: skip
    done.assert_outcomes(passed=4)
    stored = json.loads((pytester.path / "b.json").read_text())["benchmarks"]
    groups = {b["group"] for b in stored}
    assert len(groups) == 2
    assert "move large" in groups
    assert {b["extra_info"]["ptxas"] for b in stored if " by ptxas" in b["group"]} == {
        g.partition(" by ")[2] for g in groups if " by " in g
    }


def test_a_resumed_run_times_only_with_assemblers_that_have_no_timings(run_cases, device, pytester, monkeypatch):
    """Timings with Triton's own ptxas do not count for another level, so a resumed run still times that level."""
    words = ("--ptx-timing", "--ptx-backend=gpu", "--ptx-records=r.jsonl", "-k", "timing and not other")
    both = ("--ptx-opt=0", "--ptx-opt=3")
    run_cases(*words, *both, move=SOURCE).assert_outcomes(passed=1)
    monkeypatch.setattr("ptxdiff.timing.items.time_on_device", None)
    run_cases(*words, *both, "--ptx-resume", move=SOURCE).assert_outcomes(passed=1)
    assert len({t.key.assembler for t in read(pytester.path / "r.jsonl").timings}) == 2
    done = run_cases(*words, "--ptx-resume", move=SOURCE)
    assert "was begun with" in done.stderr.str()


def test_tritons_own_assembler_is_timed_beside_others(run_cases, device, tmp_path):
    words = ("--ptx-opt=0", "--ptx-opt=3", "-k", "timing", f"--ptx-records={tmp_path / 'run.jsonl'}")
    assert run_cases("--ptx-timing", "--ptx-backend=gpu", *words, move=SOURCE).ret == 0
    found = {t.key.assembler.partition(" (")[0] for t in read(tmp_path / "run.jsonl").timings}
    assert len(found) == 2
    assert "" in found
