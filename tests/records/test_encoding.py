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
    Text("2de86fc035ae5efd", "ptx", '.file 1 "a\\b.py"\n// é \x00 "quoted"\n'),
]


def unmade(record):
    """A record as it is before a run encodes it."""
    return replace(record, made="") if isinstance(record, Result) else record


def test_packed_records_are_unpacked_unchanged():
    """Each record is one line: no character of a text, and no line separator of Unicode, begins a new line."""
    out = unpacked(packed(map(sent, RECORDS)))
    assert [unmade(s.record) for s in out] == RECORDS
    texts = [json.loads(s.text) for s in out]
    assert [text.pop("made", "") != "" for text in texts] == [True, True, False]
    assert texts == [json.loads(json.dumps(to_json(r))) for r in RECORDS]
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
    plain, made = (list(read_lines(tmp_path / f"{name}.jsonl")) for name in ("plain", "sent"))
    assert list(map(unmade, made)) == plain == [head, *RECORDS]


@pytest.mark.parametrize("run", ["20260101T000000Z", 'a "run"\n\\', "é"])
def test_a_stored_result_names_its_run(run):
    for record in RECORDS[:2]:
        again = received(of_run(sent(record).text, run))
        assert unmade(again.record) == replace(record, reused=run)
        assert json.loads(again.text)["reused"] == run


def test_a_result_that_names_a_run_already_is_refused():
    text = sent(replace(RECORDS[1], reused="another run")).text
    with pytest.raises(RecordError, match="two members called 'reused'"):
        received(of_run(text, "this run"))


@pytest.mark.parametrize("text", [b"", b"[]", b'{"record":"result"}', b"\xff", b'{"record":"result","key":{}}'])
def test_text_that_is_no_record_is_refused(text):
    with pytest.raises(RecordError):
        received(text)
