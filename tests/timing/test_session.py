"""From samples to records, and from records to the page, the table and the comparison."""

import csv
import dataclasses
import io

import numpy as np
import pytest

from ptxdiff.diskcache import cache_folder
from ptxdiff.gating.gate import Policy, gate
from ptxdiff.model.compilers import PtxasChoice
from ptxdiff.records import PYTORCH, End, Key, Run, RunRecords, Writer, read
from ptxdiff.records.compare import compare
from ptxdiff.records.rules import ContradictionError, check
from ptxdiff.reports import html, tabular
from ptxdiff.reports.history import history
from ptxdiff.reports.timing import measured
from ptxdiff.timing.candidates import Size
from ptxdiff.timing.rounds import COPY, EMPTY, TWIN, Samples, measure
from ptxdiff.timing.session import Common, timings
from tests.support.case_sources import FLIP
from tests.support.reports import synthetic

SIZE = Size("large", 1 << 25, 8 << 25)
LEVELS = {"rcp.approx": 62e-6, "rcp.rn": 62.1e-6, "slow": 66e-6, TWIN: 62e-6, COPY: 61e-6, EMPTY: 0.5e-6}


class Model:
    """A timer with known noise: given levels, a spread of 0.3%, and a clock of 32 ns."""

    name = "cupti"

    def __init__(self, seed, spread=0.003):
        self.rng, self.spread = np.random.default_rng(seed), spread

    def times(self, launches):
        times = np.array([launch() for launch in launches])
        times *= 1 + self.spread * self.rng.standard_normal(len(times))
        return [float(t) for t in np.round(np.round(times / 32e-9) * 32e-9, 9)]


def session(seed=1, spread=0.003, budget=5.0, limits=(), factors=None):
    levels = {n: level * (factors or {}).get(n, 1.0) for n, level in LEVELS.items()}
    arms = {n: (lambda level=level: level) for n, level in levels.items()}
    judged = [n for n in arms if n != EMPTY]
    samples = measure(arms, Model(seed, spread), seed=seed, budget=budget, judged=judged)
    keys = {
        n: Key("rcp", n, "sm_90a", "gpu", pack=4, shape=str(SIZE.elements), input_set="timing/1")
        for n in LEVELS if not n.startswith("/")
    }  # fmt: skip
    common = Common(SIZE, "cupti", seed, budget, {"sm_min": 1965, "sm_max": 1980, "memory": 3201}, limits, "GPU-1",
                    {n: f"ptxas of {n}" for n in keys})  # fmt: skip
    return timings(keys, samples, common)


def test_a_record_has_all_measurements():
    found = session()
    assert [t.key.variant for t in found] == ["rcp.approx", "rcp.rn", "slow"]
    first = found[0]
    assert first.median == pytest.approx(62e-6, rel=0.002)
    assert first.low <= first.median <= first.high
    assert first.copy == pytest.approx(61e-6, rel=0.002)
    assert first.launch == pytest.approx(0.5e-6, abs=16e-9)
    assert 0 < first.noise < 0.01
    assert {t.noise for t in found} == {first.noise}
    assert (first.size, first.timer, first.seed, first.notes, first.throttled) == ("large", "cupti", 1, (), False)
    assert len(first.samples) >= 32
    assert {t.device for t in found} == {"GPU-1"}


def test_noise_and_limits_are_in_the_notes():
    found = session(spread=0.2, budget=0.0, limits=("power cap",))[0]
    assert found.throttled
    assert "wide after 32 samples, when the budget of 0 s was used up" in found.notes[0]
    assert found.notes[1] == "clocks reduced: power cap"


def test_samples_of_the_twin_set_the_noise():
    samples = {name: [1.0, 1.001, 0.999, 1.0] * 10 for name in LEVELS}
    samples[TWIN] = [1.05, 1.051, 1.049, 1.05] * 10
    key = Key("rcp", "rcp.approx", "sm_90a", "gpu")
    (found,) = timings({"rcp.approx": key}, Samples(samples), Common(SIZE, "cupti", 1, 1.0, {}))
    assert found.noise == pytest.approx(0.05, abs=0.002)


@pytest.fixture
def run():
    """A run of one case with timings, as a session records them."""

    def made(**words):
        base = synthetic.catalogue(1, per_cell=2)
        timed = session(**words)
        return dataclasses.replace(base, timings=timed)

    return made


def test_the_page_shows_intervals_noise_and_notes(run, tmp_path):
    found = run(spread=0.2, budget=0.0)
    page = html.write_history(*history([found]), tmp_path / "r.html", cache=cache_folder())
    text = page.read_text()
    t = found.timings[0]
    assert f"{t.low * 1e6:.3g} µs – {t.high * 1e6:.3g} µs" in text
    assert "samples, when the budget of 0 s was used up" in text
    assert "too noisy to say" in text
    assert "33,554,432" in text


def test_the_page_names_what_is_slower_and_what_is_the_same(run):
    rows = {m.timing.key.variant: m for m in measured(run())["rcp"]}
    assert rows["slow"].against.verdict == "slower"
    assert rows["rcp.rn"].against.verdict == "same"
    assert rows["rcp.approx"].bandwidth == pytest.approx(SIZE.bytes / rows["rcp.approx"].timing.median)


def test_the_table_has_a_row_for_each(run, tmp_path):
    path = tabular.write_csv(run(), tmp_path / "r.csv")
    rows = [r for r in csv.DictReader(io.StringIO(path.read_text())) if r["kind"] == "timing"]
    assert [r["variant"] for r in rows] == ["rcp.approx", "rcp.rn", "slow"]
    assert {(r["size"], r["timer"], r["bytes"]) for r in rows} == {("large", "cupti", str(SIZE.bytes))}


def test_records_are_read_back_from_the_file(run, tmp_path):
    found = run()
    writer = Writer(tmp_path / "r.jsonl")
    writer.write(Run("1", "2026-01-01T00:00:00+00:00", "quick", 0, {}), *found.timings, End("x", 1.0, {}))
    writer.close()
    assert read(tmp_path / "r.jsonl").timings == found.timings


def test_a_planted_slowdown_is_named_by_comparison_and_gate(run):
    """5% between two runs, each with its own noise, is reported; a change of less than 1% is not."""
    before, after = run(seed=1), run(seed=2, factors={"rcp.rn": 1.05, "slow": 1.005})
    found = compare(before, after).of("speed")
    assert [(d.key.variant, d.worse) for d in found] == [("rcp.rn", True)]
    refused = gate(after, before, Policy(speed=True, allow_model=True))
    assert [f.subject for f in refused.findings if f.code == 3] == ["rcp::rcp.rn"]


def test_a_gate_on_speed_states_what_was_not_timed_and_what_is_too_noisy(run):
    policy = Policy(speed=True, allow_model=True)
    before = run()
    nothing = gate(dataclasses.replace(before, timings=[]), before, policy)
    assert ("run", 3) in [(f.subject, f.code) for f in nothing.findings]
    assert any("nothing was timed; the baseline has 3 timings" in f.text for f in nothing.findings)
    gone = gate(dataclasses.replace(before, timings=before.timings[:2]), before, policy)
    assert [(f.subject, f.text) for f in gone.findings if f.code == 3] == [
        ("rcp::slow", "timed in the baseline but not in the run: 33554432")
    ]
    noisy = gate(run(seed=3, spread=0.2, budget=0.0), before, policy)
    assert any(f.code == 0 and "too noisy to say on sm_90a" in f.text for f in noisy.findings)
    first = gate(before, dataclasses.replace(before, timings=[]), policy)
    assert any("the baseline has no timings" in f.text for f in first.findings)
    assert not [f for f in gate(before, before, policy).findings if f.code == 3]


def test_pytorchs_own_speed_is_shown_and_not_gated(run):
    before, after = run(), run(seed=2, factors={"rcp.rn": 1.05})
    for r in (before, after):
        r.timings[:] = [dataclasses.replace(t, key=dataclasses.replace(t.key, variant=PYTORCH)) for t in r.timings[1:2]]
    decided = gate(after, before, Policy(speed=True, allow_model=True))
    assert not [f for f in decided.findings if f.code == 3]
    assert any("slower" in f.text and "PyTorch is not gated" in f.text for f in decided.findings)


def test_times_by_different_timers_are_not_compared(run):
    before, after = run(), run(factors={"rcp.rn": 1.5})
    after = dataclasses.replace(after, timings=[dataclasses.replace(t, timer="events") for t in after.timings])
    found = compare(before, after).of("speed")
    assert {d.worse for d in found} == {None}
    assert "timed by cupti, then by events" in found[0].detail
    decided = gate(after, before, Policy(speed=True, allow_model=True))
    assert not [f for f in decided.findings if f.code == 3]


def test_page_and_comparison_give_one_verdict(run):
    """The same samples as two variants of a run, and as one variant of two runs."""
    found = run()
    page = {m.timing.key.variant: m.against for m in measured(found)["rcp"]}["slow"]
    first, slow = found.timings[0], found.timings[2]
    before = RunRecords(found.run, timings=[first])
    after = RunRecords(found.run, timings=[dataclasses.replace(slow, key=first.key)])
    (difference,) = compare(before, after).of("speed")
    assert difference.worse is (page.verdict == "slower")
    assert difference.detail.startswith(f"{100 * (page.ratio - 1):+.1f}% ")


def test_each_timing_names_the_assembler_of_its_kernel():
    assert {(t.key.variant, t.ptxas) for t in session()} == {(n, f"ptxas of {n}") for n in LEVELS if n[0] != "/"}


@pytest.fixture
def device(monkeypatch):
    """A device in place of torch's, on which nothing is launched."""
    pytest.importorskip("torch")
    import torch

    from ptxdiff.timing import session as timed

    said = {"is_available": True, "current_device": 0, "empty_cache": None, "mem_get_info": (1 << 40, 0)}
    for name, value in said.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("Device", (), {"L2_cache_size": 1 << 20}))
    monkeypatch.setattr(timed, "device_target", lambda: "sm_90a")
    monkeypatch.setattr(timed, "_warm_up", lambda work: None)
    monkeypatch.setattr(timed, "Clocks", lambda gpu: None)
    monkeypatch.setattr(timed, "current", lambda: None)
    monkeypatch.setattr(timed, "timer", lambda size: (None, ""))
    monkeypatch.setattr(timed, "Flush", lambda size: None)
    return timed


def test_each_assembler_is_measured_by_itself(device, tmp_path, monkeypatch):
    """If some assemblers cannot be timed, notes say so; if none can, there is no session."""
    (tmp_path / "flip.py").write_text(FLIP)
    lowest = PtxasChoice("/no/ptxas", "13.0.1", 0, "0123456789ab")
    broken = dataclasses.replace(lowest, digest="f" * 12, level=1)
    calls = []

    def at(room, size, variants, assembler):
        calls.append((size.name, assembler))
        if assembler == broken:
            raise device.CannotTime("ptxas crashed")
        return [assembler], device.Arms({}, {}, ())

    monkeypatch.setattr(device._Room, "at", at)
    words = (str(tmp_path / "flip.py"), "case", "sm_90a")
    found = device.time_case(*words, (None, broken, lowest), (), ("small",))
    assert calls == [("small", None), ("small", broken), ("small", lowest)]
    assert found.timings == (None, lowest)
    assert found.notes == ("ptxas 13.0.1 -O1: ptxas crashed",)
    with pytest.raises(device.CannotTime, match="ptxas crashed"):
        device.time_case(*words, (broken,), (), ("small",))


def test_a_timing_by_another_assembler_than_its_key_names_is_refused():
    timing = session()[0]
    key = dataclasses.replace(timing.key, assembler="ptxas 13.0.1 -O0 (0123456789ab)")
    wrong = dataclasses.replace(timing, key=key)
    with pytest.raises(ContradictionError, match="the key names"):
        check(wrong)
