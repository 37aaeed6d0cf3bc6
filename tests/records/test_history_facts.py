"""The summary at the end of a run's file: it is believed only of the bytes and the code that it was made of."""

import hashlib
from collections import Counter
from dataclasses import replace

import pytest
from backports import zstd

from ptxdiff.records import RecordError, Run, Writer, history_facts, read, read_lines
from ptxdiff.records.history_facts import (
    RANK,
    bits_read,
    bits_stored,
    facts_read,
    facts_stored,
    night_facts,
    summarise,
    summary,
)
from ptxdiff.records.texts import appended, without_appendix
from ptxdiff.reports.model import STATES
from tests.support.reports import synthetic


@pytest.fixture(scope="module")
def run():
    return synthetic.catalogue(cases=2, per_cell=3)


@pytest.fixture(scope="module")
def little(run):
    """A part of the run, for tests that read a file once for each byte of it."""
    return replace(run, results=run.results[::24], timings=run.timings[::12])


def written(run, path, *, end=True):
    writer = Writer(path)
    writer.write(run.run, *run.cases.values(), *run.texts.values(), *run.results, *run.timings)
    if end:
        writer.write(replace(run.end, verdicts=Counter(r.outcome for r in run.results)))
    writer.close()
    return path


def all_fail(run):
    return replace(run, results=[synthetic.failing(r) for r in run.results if r.verdict == "pass" and r.total])


def facts_of(path):
    return as_values(night_facts(read_lines(path)))


def summed(path):
    """The facts of a file's summary, which has no bits."""
    return as_values(facts_read(summary(path), dict))


def as_values(night):
    return {name: value for name, value in vars(night).items() if name != "load"}


def test_a_run_that_ended_has_its_summary_in_its_file(run, tmp_path):
    path = written(run, tmp_path / "run.jsonl.zst")
    assert summed(path) == facts_of(path)
    assert len(summed(path)["items"]) == len({r.key.item for r in run.results})
    plain = written(run, tmp_path / "run.jsonl")
    assert zstd.decompress(path.read_bytes()) == plain.read_bytes()  # other readers of Zstandard pass over it
    assert summary(plain) is None
    assert read(path).results == read(plain).results


def test_a_run_that_was_cut_short_has_none(run, tmp_path):
    assert summary(written(run, tmp_path / "run.jsonl.zst", end=False)) is None


def test_a_continued_run_has_the_summary_of_all_its_lines(run, tmp_path):
    path = written(replace(run, results=run.results[:-9]), tmp_path / "run.jsonl.zst")
    before = summed(path)
    writer = Writer(path, resume=True)
    assert summary(path) is None  # it writes
    writer.write(*run.results[-9:], run.end)
    writer.close()
    assert summed(path) == facts_of(path) != before


def test_every_changed_byte_leaves_no_summary_that_is_believed(little, tmp_path):
    """Of the lines, of the summary, or of how it is found. A changed line is refused; a changed summary costs time."""
    path = written(little, tmp_path / "run.jsonl.zst")
    data, expected = path.read_bytes(), read(path).results
    first = len(without_appendix(data)[0])
    for place in [*range(0, len(data), 37), *range(first, first + 120), *range(len(data) - 8, len(data))]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        assert summary(path) is None, place
        try:
            found = read(path)
        except RecordError:
            continue
        assert found.end is None or found.results == expected


def test_every_prefix_can_be_read_and_only_the_whole_file_has_a_summary(little, tmp_path):
    path = written(little, tmp_path / "run.jsonl.zst")
    data, expected = path.read_bytes(), read(path).results
    first = len(without_appendix(data)[0])
    for length in [*range(first, first + 60), *range(first + 60, len(data), 41), len(data) - 1]:
        path.write_bytes(data[:length])
        assert summary(path) is None
        assert read(path).results == expected


def test_bytes_behind_a_summary_are_refused(run, tmp_path):
    path = written(run, tmp_path / "run.jsonl.zst")
    for more in (b"\0", path.read_bytes()):
        path.write_bytes(path.read_bytes() + more)
        assert summary(path) is None
        with pytest.raises(RecordError, match="bytes after the end"):
            read(path)


def planted(path, night):
    """Put another summary, whose digests are all right, behind the lines of a file."""
    lines = bytes(without_appendix(path.read_bytes())[0])
    path.write_bytes(lines)
    path.write_bytes(lines + summarise(path, night))


def test_the_summary_of_another_file_is_not_believed(run, tmp_path):
    one = written(run, tmp_path / "one.jsonl.zst")
    other = written(all_fail(run), tmp_path / "other.jsonl.zst")
    lines, behind = without_appendix(one.read_bytes())
    other.write_bytes(bytes(without_appendix(other.read_bytes())[0]) + one.read_bytes()[len(lines) :])
    assert summary(other) is None
    assert read(other).results != read(one).results
    assert hashlib.sha256(lines).digest() == behind[:32]


def test_the_summary_of_other_code_is_not_believed(run, tmp_path, monkeypatch):
    path = written(run, tmp_path / "run.jsonl.zst")
    monkeypatch.setattr(history_facts, "code", lambda: b"?" * 32)
    assert summary(path) is None


def test_a_summary_of_nothing_is_none(run, tmp_path):
    path = written(run, tmp_path / "run.jsonl.zst")
    lines = bytes(without_appendix(path.read_bytes())[0])
    for contents in (b"", b"\0" * 64, hashlib.sha256(lines).digest() + b"?" * 40):
        path.write_bytes(lines + appended(contents))
        assert summary(path) is None
        assert read(path).results


def test_results_are_read_from_lines_although_a_summary_says_other(run, tmp_path):
    """A forged summary, with digests that are right: a reader of results, such as a gate, never looks at it."""
    path = written(all_fail(run), tmp_path / "run.jsonl.zst")
    planted(path, [run.run, *run.results, run.end])
    assert summed(path)["counts"]["fail"] == 0
    found = read(path)
    assert {r.verdict for r in found.results} == {"fail"}
    assert found.end is not None


def test_a_full_disk_costs_the_summary_alone(run, tmp_path, monkeypatch):
    monkeypatch.setattr("ptxdiff.records.files.summarise", lambda path, records: (_ for _ in ()).throw(OSError("full")))
    path = written(run, tmp_path / "run.jsonl.zst")
    assert summary(path) is None
    assert read(path).end == run.end


def test_the_facts_do_not_depend_on_the_order_of_items(run):
    records = [run.run, *run.results, *run.timings]
    by_item = [run.run, *sorted(run.results, key=lambda r: r.key.item), *run.timings]
    one, other = night_facts(records), night_facts(by_item)
    assert facts_stored(one) == facts_stored(other)
    assert bits_read(bits_stored(one)) == one.load() == other.load()
    with pytest.raises(RecordError, match="no run record"):
        night_facts(run.results)
    assert isinstance(records[0], Run)


def test_reports_show_every_state_in_its_rank():
    assert list(STATES) == list(RANK)
