"""Records with their JSON: both are equal for all texts, and changed JSON is refused."""

import json
from dataclasses import replace

import pytest

from ptxdiff.records import (
    Key,
    RecordError,
    Result,
    Run,
    Text,
    Writer,
    of_run,
    packed,
    read_lines,
    received,
    sent,
    to_json,
    unpacked,
)

KEY = Key("flip", "right", "sm_90a", "emulator")
RECORDS = [
    Result(key=KEY, verdict="fail", words="line one\nline two\r\n\x0b\x0c\x1c\x85\u2028", ulps={str(-(1 << 33)): 1}),
    Result(key=replace(KEY, pack=2), verdict="pass", total=1 << 40, ranges={"-126": (-(1 << 34), 1 << 34)}),
    Text("0123456789abcdef", "ptx", '.file 1 "a\\b.py"\n// é \x00 "quoted"\n'),
]


def test_packed_records_are_unpacked_unchanged():
    """Each record is one line: no character of a text, and no line separator of Unicode, begins a new line."""
    out = unpacked(packed(map(sent, RECORDS)))
    assert [s.record for s in out] == RECORDS
    assert [json.loads(s.text) for s in out] == [json.loads(json.dumps(to_json(r))) for r in RECORDS]
    assert unpacked("") == []


def test_half_a_surrogate_pair_does_not_end_a_run():
    (out,) = unpacked(packed([sent(Result(key=KEY, verdict="fail", words="half \ud800"))]))
    assert out.record.words == "half ?"


def test_a_file_of_sent_records_is_that_of_the_records(tmp_path):
    head = Run("id", "2026-01-01T00:00:00+00:00", "quick", 0, {})
    for name, records in (("plain", RECORDS), ("sent", unpacked(packed(map(sent, RECORDS))))):
        writer = Writer(tmp_path / f"{name}.jsonl")
        writer.write(head, *records)
        writer.close()
    assert (tmp_path / "plain.jsonl").read_bytes() == (tmp_path / "sent.jsonl").read_bytes()
    assert list(read_lines(tmp_path / "sent.jsonl")) == [head, *RECORDS]


@pytest.mark.parametrize("run", ["20260101T000000Z", 'a "run"\n\\', "é"])
def test_a_stored_result_names_its_run(run):
    for record in RECORDS[:2]:
        again = received(of_run(sent(record).text, run))
        assert again.record == replace(record, reused=run)
        assert json.loads(again.text)["reused"] == run


def test_a_result_that_names_a_run_already_is_refused():
    text = sent(replace(RECORDS[1], reused="another run")).text
    with pytest.raises(RecordError, match="two members called 'reused'"):
        received(of_run(text, "this run"))


@pytest.mark.parametrize("text", [b"", b"[]", b'{"record":"result"}', b"\xff", b'{"record":"result","key":{}}'])
def test_text_that_is_no_record_is_refused(text):
    with pytest.raises(RecordError):
        received(text)
