"""Records of speed in registers: their rules, and the intensity above which the faster variant is worth its use."""

import json
from dataclasses import replace

import pytest

from ptxdiff.records import (
    ALONE,
    End,
    InRegisters,
    RecordError,
    Run,
    Seal,
    Writer,
    from_json,
    merged,
    read,
    resumable,
    to_json,
)
from ptxdiff.records.compare import compare
from ptxdiff.records.in_registers import Pays, lost, pays, pays_lines, undecided
from ptxdiff.records.statistics import Beside
from tests.support.reports.register_timings import loop, untimed

HEAD = Run("one", "2026-11-01T00:00:00Z", "quick", 0, {})


def written(path, *records, end=True):
    """A file with the records."""
    writer = Writer(path)
    writer.write(HEAD, *records, *([End("", 0.0, {})] if end else []))
    writer.close()
    return path


def test_values_are_results_per_clock_or_clocks_per_application():
    rate, chain = loop(), loop(mode="latency", clocks=40.0)
    assert rate.value == 16
    assert rate.interval[0] < 16 < rate.interval[1]
    assert chain.value == 40
    assert chain.interval == (chain.low, chain.high)


@pytest.mark.parametrize("record", [loop(), loop(mode="latency"), untimed(), loop(ALONE)])
def test_a_record_reads_as_it_was_written(record):
    assert from_json(json.loads(json.dumps(to_json(record)))) == record


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (replace(loop(), key=replace(loop().key, shape="1024")), "shape '1024'; expected throughput or latency"),
        (replace(loop(), low=0.0), "median 256.0 clocks is not within 0.0"),
        (replace(loop(), median=0.0, low=0.0, high=0.0), "median 0.0 clocks"),
        (replace(loop(), opcodes={}), "a loop without instructions"),
        (replace(loop(), opcodes={"MUFU.RCP": 0.0}), "a loop without instructions"),
        (replace(loop(), results=0), "an application without results"),
        (replace(loop(), words="the loop holds LDG.E"), "figures of a loop that was not timed"),
        (InRegisters(loop().key), "median 0.0 clocks"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(record, said):
    with pytest.raises(RecordError, match=said):
        from_json(to_json(record))


def test_files_keep_these_records_and_older_files_have_none(tmp_path):
    new, old = written(tmp_path / "new.jsonl", loop(), untimed("div")), written(tmp_path / "old.jsonl")
    assert sorted(t.key.variant for t in read(new).in_registers) == ["div", "rcp"]
    assert read(old).in_registers == []


def test_a_version_that_does_not_know_a_kind_of_record_says_so(tmp_path):
    seal = Seal()
    lines = [json.dumps(r, separators=(",", ":")) for r in (to_json(HEAD), {**to_json(loop()), "record": "in caches"})]
    (tmp_path / "r.jsonl").write_bytes(b"".join(seal.close(line.encode()) for line in lines))
    with pytest.raises(RecordError, match="no kind of record is called 'in caches'; there are run,"):
        read(tmp_path / "r.jsonl")


def test_a_run_that_was_cut_short_times_again(tmp_path):
    assert resumable(written(tmp_path / "r.jsonl", loop(), loop("div"), end=False)).in_registers == []


def test_a_merged_run_has_the_records_of_both_machines(tmp_path):
    runs = [read(written(tmp_path / f"{name}.jsonl", loop(device=name))) for name in ("one", "other")]
    assert [t.device for t in merged(runs).in_registers] == ["one", "other"]


def test_a_difference_must_exceed_the_noise_with_and_without_samples():
    slow, first = loop("div", clocks=512.0), loop()
    for a, b in ((first, slow), (replace(first, samples=()), replace(slow, samples=()))):
        assert b.beside(a).verdict == "slower"
        assert round(b.beside(a).ratio, 2) == 2
        assert b.beside(a, least=1.5).verdict != "slower"


@pytest.mark.parametrize(
    ("found", "noise", "expected"),
    [
        (Beside(1.0, 0.99, 1.02, "too noisy to say"), 0.01, False),
        (Beside(1.0, 0.9, 1.06, "too noisy to say"), 0.01, True),
        (Beside(1.3, 0.8, 2.0, "too noisy to say"), 1.5, True),
        (Beside(1.0, 0.999, 1.001, "too noisy to say"), 0.06, True),
        (Beside(1.3, 1.29, 1.31, "slower"), 0.01, False),
    ],
)
def test_noise_that_could_hide_a_loss_leaves_the_verdict_open(found, noise, expected):
    assert undecided(found, noise) is expected


def test_instructions_that_a_loop_lost_are_listed():
    assert lost(loop(), loop()) == {}
    assert lost(loop(), loop(opcodes={"LOP3.LUT": 1.0, "FMUL": 3.0})) == {"MUFU.RCP": (1.0, 0.0)}
    assert lost(loop(), loop(opcodes={"MUFU.RCP": 0.5, "LOP3.LUT": 1.0})) == {"MUFU.RCP": (1.0, 0.5)}
    assert lost(loop(), loop(opcodes={"MUFU.RCP": 0.99, "LOP3.LUT": 2.0})) == {}


def test_a_comparison_lists_slower_variants_and_lost_instructions(tmp_path):
    before = read(written(tmp_path / "a.jsonl", loop(), untimed("div")))
    after = read(written(tmp_path / "b.jsonl", loop(clocks=512.0, opcodes={"LOP3.LUT": 1.0}), loop("div")))
    found = compare(before, after).differences
    assert [(d.kind, d.worse, d.before, d.after) for d in found] == [
        ("speed", True, "16 results a clock and SM", "8 results a clock and SM"),
        ("loop", None, "", ""),
    ]
    assert found[1].detail == "MUFU.RCP 1 → 0"


def test_the_faster_variant_pays_where_the_slower_one_is_slower_than_memory():
    timed = [loop("div", clocks=512.0), loop("rcp"), loop("like-div", clocks=512.2), loop(ALONE, clocks=100.0)]
    timed += [loop("div", "latency"), untimed("kernel")]
    assert list(pays(timed)) == [Pays("rcp", "div", 0.5, 4.0, 8.0), ("like-div", "div", "same")]
    assert pays_lines(timed) == [
        "memory: 16.00 bytes a clock and SM at 1755 MHz, by a copy",
        "rcp pays over div above 0.50 results for each byte of memory traffic: "
        "4.0 for each element of 8 bytes read and written",
        "like-div beside div: same; neither is faster",
    ]


def test_nothing_pays_where_nothing_was_timed():
    assert pays_lines([untimed()]) == []
    assert list(pays([untimed(), loop()])) == []
