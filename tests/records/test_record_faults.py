"""Changed or impossible records: every command refuses them with one line."""

# ruff: noqa: E501 (tables of one line an entry)

from __future__ import annotations

import dataclasses
import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxdiff.cli import main
from ptxdiff.gating import baseline
from ptxdiff.records import (
    End,
    Mutation,
    Proof,
    RecordError,
    Result,
    RunRecords,
    StoredText,
    Writer,
    encoding,
    read,
    resumable,
)
from tests.support.reports import synthetic
from tests.support.reports.record_samples import GRID, RESULT, RUN, SAMPLES
from tests.support.sampling import sizes
from tests.support.sealed import sealed, unsealed

# Runs have no mutations: `ptxdiff mutate` writes them to other files. A file that is named has no stored texts.
RUNS = [s for s in SAMPLES if not isinstance(s, Mutation | Proof | StoredText)]
RECORDS = [*RUNS[:-1], dataclasses.replace(SAMPLES[-1], verdicts={"expected failure": 1, "pass": 1})]
PASS = Result(dataclasses.replace(RESULT.key, variant="plain"), "pass", evidence="hardware", total=10)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    """A file with every kind of record that a run writes, and every field."""
    path = tmp_path_factory.mktemp("whole") / "run.jsonl"
    writer = Writer(path)
    writer.write(*RECORDS[:-1], PASS, RECORDS[-1])
    writer.close()
    return path.read_bytes()


def refusal(path: Path, data: bytes) -> str:
    """The error with which a file is refused; "" if it can be read."""
    path.write_bytes(data)
    try:
        read(path)
    except RecordError as e:
        return str(e)
    return ""


Edit = Callable[[dict[str, Any]], Any]


def put(value: Any, *path: Any) -> Edit:
    """Set a member, at any depth."""

    def edit(obj: dict[str, Any]) -> None:
        inner: Any = obj
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value

    return edit


def drop(name: str) -> Edit:
    return lambda obj: obj.pop(name)


# The fault in a line of that kind, and words of the refusal.
CORRUPTIONS: dict[str, tuple[str, Edit, str]] = {
    "an unknown kind": ("result", put("resultat", "record"), "no kind of record is called 'resultat'"),
    "no kind": ("result", drop("record"), "no kind of record is called null"),
    "a kind that is a list": ("result", put(["result"], "record"), "no kind of record is called ['result']"),
    "an unknown field": ("result", put(1, "colour"), "result: unknown field 'colour'"),
    "an unknown field within": ("result", put(1, "key", "colour"), "result: key: unknown field 'colour'"),
    "a key without its case": ("result", lambda o: o["key"].pop("case"), "result: key: without case"),
    "no key": ("result", drop("key"), "result: without key"),
    "a key that is text": ("result", put("rcp", "key"), "result: key: expected an object, found 'rcp'"),
    "a pack that is text": ("result", put("2", "key", "pack"), "result: key: pack: expected a whole number, found '2'"),
    "a negative pack": ("result", put(-2, "key", "pack"), "expected a count, found -2"),
    "a fraction of a pack": ("result", put(2.5, "key", "pack"), "expected a whole number, found 2.5"),
    "a verdict in capitals": ("result", put("FAIL", "verdict"), "result: verdict: expected one of pass, fail"),
    "no verdict": ("result", put(None, "verdict"), "expected one of pass, fail, unsupported, error, not run, found null"),
    "a verdict that is true": ("result", put(True, "verdict"), "found True"),
    "an unknown evidence": ("result", put("hearsay", "evidence"), "result: evidence: expected one of none, model"),
    "a truth that is text": ("result", put("false", "expected_failure"), "expected true or false, found 'false'"),
    "a truth that is a number": ("result", put(1, "contraction_open"), "expected true or false, found 1"),
    "a count that is true": ("result", put(True, "total"), "result: total: expected a whole number, found True"),
    "a count that is null": ("result", put(None, "different"), "result: different: expected a whole number, found null"),
    "a negative count": ("result", put(-1, "different"), "result: different: expected a count, found -1"),
    "more different than compared": ("result", put(21, "different"), "21 codes differ, of 10 compared"),
    "more unchecked than compared": ("result", put(11, "unchecked"), "11 codes unchecked, of 10 compared"),
    "a pass of no code": ("pass", drop("total"), "pass by evidence hardware, but no code was compared"),
    "a pass that differs": ("pass", put(1, "different"), "the verdict is pass, but 1 codes differ"),
    "a pass with a finding": ("pass", put(["a guard zone hit"], "findings"), "pass, but there are 1 findings"),
    "a pass that was expected to fail": ("pass", put(True, "expected_failure"), "an expected failure with the verdict"),
    "words that are a number": ("result", put(5, "words"), "result: words: expected a string, found 5"),
    "findings that are text": ("result", put("none", "findings"), "result: findings: expected a list, found 'none'"),
    "classes that are a list": ("result", put([], "classes"), "result: classes: expected an object, found []"),
    "a class that is no count": ("result", put("2", "classes", "NaN"), "expected a whole number, found '2'"),
    "a negative class": ("result", put(-2, "classes", "NaN"), "expected a count, found -2"),
    "more failing than counted": (
        "result", put({"-1": 3}, "ulps_failing"), "4 failing or unchecked codes at '-1', of 3",
    ),
    "a range of three": ("result", put([1, 2, 3], "ranges", "sub"), "ranges: a value of it: expected 2 values, found 3"),
    "a range upside down": ("result", put([2, 1], "ranges", "sub"), "ranges: 'sub' from 2 to 1"),
    "an offender without bits": ("result", put(None, "worst", "got"), "worst: got: expected an object, found null"),
    "an ulp that is text": ("result", put("1", "worst", "ulp"), "result: worst: ulp: expected a whole number"),
    "an offender that is null": ("result", put([None], "offenders"), "offenders: expected an object, found null"),
    "a block without a digest": ("result", lambda o: o["outputs_digest"][0].pop("digest"), "without digest"),
    "a hash that is a list": ("result", put(["x"], "fingerprint", "asm"), "fingerprint: a value of it: expected a string"),
    "seconds below zero": ("result", put(-0.5, "seconds"), "result: seconds: expected a number of at least 0"),
    "infinite seconds": ("result", put(float("1e999"), "seconds"), "Infinity is no number of a record"),
    "seconds that are no number": ("result", put(float("nan"), "seconds"), "NaN is no number of a record"),
    "a grid of other size": ("result", put([4, 4], "grid", "shape"), "grid: counts do not fill 4 rows of 4"),
    "a grid of one side": ("result", put([2], "grid", "shape"), "grid: shape (2,); rows and columns must"),
    "a grid that is no base64": ("result", put("?", "grid", "counts"), "grid: counts: "),
    "a grid that is not deflated": ("result", put("AAAA", "grid", "counts"), "grid: counts: "),
    "half a character": ("result", put("\ud800", "words"), "not UTF-8: surrogates not allowed"),
    "an effort that is a number": ("run", put(3, "effort"), "run: effort: expected a string, found 3"),
    "another schema": ("run", put(1, "schema"), "schema 1, and this version reads 3"),
    "a schema that is text": ("run", put("2", "schema"), "run.jsonl:1: schema '2'; this version reads 3"),
    "an environment that is a list": ("run", put([], "environment"), "run: environment: expected an object, found []"),
    "machines that are none": ("run", put(3, "environment", "machines"), "environment: machines must be a list"),
    "an argument that is null": ("run", put([None], "arguments"), "run: arguments: expected a string, found null"),
    "a text of an unknown kind": ("text", put("cubin", "kind"), "text: kind: expected one of asm, ptx, sass"),
    "a variant that is null": ("case", put(None, "variants", "v"), "variants: a value of it: expected an object"),
    "a negative line": ("case", put(-1, "variants", "v", "line"), "line: expected a count, found -1"),
    "a sample that is text": ("timing", put([1, "2"], "samples"), "timing: samples: expected a whole number"),
    "no median": ("timing", drop("median"), "timing: without median"),
    "a median of nothing": ("timing", put(0.0, "median"), "median 0.0 s is not within 1.0 to 2.0"),
    "a median outside its interval": ("timing", put(9.0, "median"), "median 9.0 s is not within 1.0 to 2.0"),
    "a disagreement with nobody": ("disagreement", put(None, "other"), "disagreement: other: expected an object"),
    "an end of other counts": ("end", put(2, "verdicts", "pass"), "the run ended with 2 pass and not 1: lines were lost"),
    "an end of failures": ("end", put({"fail": 1, "pass": 1}, "verdicts"), "1 fail and not 0, 0 expected failure and not 1"),
    "an unknown verdict counted": ("end", put(0, "verdicts", "past"), "end: verdicts: unknown verdict 'past'"),
    "a count that is no number": ("end", put("1", "verdicts", "pass"), "expected a whole number, found '1'"),
}  # fmt: skip


def number_of(objects: list[dict[str, Any]], kind: str) -> int:
    if kind == "pass":
        return next(n for n, o in enumerate(objects) if o.get("verdict") == "pass")
    return next(n for n, o in enumerate(objects) if o["record"] == kind)


def corrupted(whole: bytes, kind: str, edit: Edit) -> tuple[int, bytes]:
    """A file with one changed line and corrected checksums, and the number of that line."""
    lines = unsealed(whole)
    objects = [json.loads(line) for line in lines]
    number = number_of(objects, kind)
    edit(objects[number])
    lines[number] = json.dumps(objects[number], separators=(",", ":")).encode()
    return number + 1, sealed(lines)


def test_there_are_enough_corruptions():
    assert len(CORRUPTIONS) >= 40


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_invalid_record_is_refused_with_its_line(whole, tmp_path, name):
    kind, edit, words = CORRUPTIONS[name]
    number, data = corrupted(whole, kind, edit)
    said = refusal(tmp_path / "run.jsonl", data)
    assert said.startswith(f"{tmp_path}/run.jsonl:{number}: ")
    assert words in said
    assert "\n" not in said


def test_the_file_itself_is_read(whole, tmp_path):
    (tmp_path / "run.jsonl").write_bytes(whole)
    found = read(tmp_path / "run.jsonl")
    assert (found.run, found.results, found.end) == (RUN, [PASS, RESULT], RECORDS[-1])
    assert sealed(unsealed(whole)) == whole


def edited(line: bytes, choose: random.Random) -> bytes:
    """A line with a member twice, another spelling of a number, or one byte changed, lost or added."""
    at = choose.randrange(20, len(line) - 1)
    members = [m.span() for m in re.finditer(rb'"[a-z_]+":("[^"]*"|-?[0-9.e-]+|true|false)(?=[,}])', line)]
    begin, end = choose.choice(members)
    byte = choose.choice(b'0123456789-+.eE,:{}[]" atn\\\xff').to_bytes()
    return choose.choice([
        line[:at] + byte + line[at + 1 :],
        line[:at] + line[at + 1 :],
        line[:at] + byte + line[at:],
        line[:begin] + line[begin:end] + b"," + line[begin:],
        line[:begin] + b'"colour":1,' + line[begin:],
        line[:end] + b".0" + line[end:],
        line[:end] + b" " + line[end:],
        line[:begin] + line[begin:end].replace(b":", b":-") + line[end:],
        line[:begin] + line[min(end + 1, len(line) - 1) :],
    ])  # fmt: skip


def test_the_fast_reader_takes_no_line_that_the_careful_one_refuses_or_reads_otherwise():
    pytest.importorskip("msgspec")
    lines = [encoding.to_text(r) for r in (RESULT, PASS, *synthetic.catalogue(cases=2).results[::7])]
    for line in lines:
        assert repr(encoding._as_written(line)) == repr(encoding.carefully_parsed(line))
    choose, taken = random.Random(5), 0
    for _ in range(6000):
        line = edited(choose.choice(lines), choose)
        fast = encoding._as_written(line)
        if fast is not None:
            assert repr(fast) == repr(encoding.carefully_parsed(line)), line  # 1, 1.0 and True are equal, not alike
            taken += 1
    assert taken > 100  # letters within texts may change


def test_two_members_with_the_same_name_are_refused(whole, tmp_path):
    lines = unsealed(whole)
    number = next(n for n, line in enumerate(lines) if b'"verdict":"fail"' in line)
    lines[number] = lines[number].replace(b'"verdict":"fail"', b'"verdict":"fail","verdict":"pass"')
    assert f"run.jsonl:{number + 1}: two members called 'verdict' in one object" in refusal(
        tmp_path / "run.jsonl", sealed(lines)
    )


Change = Callable[[list[bytes]], bytes]


def joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def at(number: int, change: Callable[[bytes], bytes]) -> Change:
    return lambda lines: joined([change(x) if n == number else x for n, x in enumerate(lines)])


# Changes of a file of eight lines, which keeps its checksums, and words of the refusal.
DAMAGE: dict[str, tuple[Change, str]] = {
    "a line lost": (lambda x: joined(x[:3] + x[4:]), ":4: the checksum is wrong"),
    "the first line lost": (lambda x: joined(x[1:]), ":1: the checksum is wrong"),
    "a line twice": (lambda x: joined([*x[:4], x[3], *x[4:]]), ":5: the checksum is wrong"),
    "two lines exchanged": (lambda x: joined([*x[:3], x[4], x[3], *x[5:]]), ":4: the checksum is wrong"),
    "two files": (lambda x: joined(x + x), ":10: the checksum is wrong"),
    "a line after the end": (lambda x: sealed([*unsealed(joined(x)), b"{}"]), ":10: not a record"),
    "two runs": (lambda x: sealed(unsealed(joined([x[0], *x]))), ":2: two runs in one file"),
    "a result twice": (lambda x: sealed(unsealed(joined([*x[:4], x[3], *x[4:]]))), ":5: a second result of rcp::rcp.rn"),
    "a case twice": (lambda x: sealed(unsealed(joined([*x[:2], x[1], *x[2:]]))), ":3: a second case rcp"),
    "no head": (lambda x: sealed(unsealed(joined(x[1:]))), ":1: the first line is no run record"),
    "a result lost": (lambda x: sealed(unsealed(joined(x[:3] + x[4:]))), ":8: the run ended with 1 expected"),
    "an empty line": (lambda x: joined([*x[:3], b"", *x[3:]]), ":4: an empty line"),
    "an empty line at the end": (lambda x: joined([*x, b""]), ":10: an empty line"),
    "CR LF": (lambda x: b"".join(line + b"\r\n" for line in x), ":1: the line ends in CR LF"),
    "a byte order mark": (lambda x: b"\xef\xbb\xbf" + joined(x), ":1: a byte order mark"),
    "UTF-16": (lambda x: joined(x).decode().encode("utf-16"), ":1: UTF-16"),
    "gzip": (lambda x: gzip.compress(joined(x)), ":1: a file compressed with gzip; unpack it first"),
    "no UTF-8": (at(3, lambda line: line.replace(b"words", b"w\xffrds")), ":4: the checksum is wrong"),
    "no UTF-8, with its sum": (
        lambda x: sealed([line.replace(b'"words":"words"', b'"words":"w\xff"') for line in unsealed(joined(x))]),
        ":4: not UTF-8",
    ),
    "text behind the last line": (lambda x: joined(x)[:-1] + b" ", ":9: "),
    "no checksum": (at(3, lambda line: unsealed(line)[0]), ":4: the line does not end in its checksum"),
    "a checksum in capitals": (at(3, lambda line: line[:-18] + line[-18:-2].upper() + b'"}'), ":4: the checksum is wrong"),
    "a checksum of less": (at(3, lambda line: line[:-3] + b'"}'), ":4: the line does not end in its checksum"),
    "another version's": (
        lambda x: joined([line.replace(b'"schema":3', b'"schema":1') for line in unsealed(joined(x))]),
        ":1: schema 1, and this version reads 3: another version of ptxdiff wrote this file; run the cases again",
    ),
    "a deep nest": (lambda x: sealed([*unsealed(joined(x[:1])), b'{"record":' + b"[" * 200_000 + b"}"]), ":2: not JSON"),
    "a long number": (
        lambda x: sealed([*unsealed(joined(x[:1])), b'{"record":"text","hash":' + b"9" * 10_000 + b"}"]),
        ":2: not JSON",
    ),
    "a huge line": (at(3, lambda line: line + b"x" * 20_000_000), ":4: the line does not end in its checksum"),
    "nothing": (lambda x: b"", ": empty; a records file begins with a run record"),
    "a head cut off": (lambda x: x[0][:40], ": empty; a records file begins with a run record"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused_with_its_line(whole, tmp_path, name):
    change, words = DAMAGE[name]
    said = refusal(tmp_path / "run.jsonl", change(whole.splitlines()))
    assert f"run.jsonl{words}" in said
    assert "\n" not in said
    assert len(said) < 500


def test_a_lost_line_of_a_run_that_was_cut_short_is_detected(whole, tmp_path):
    """Without an `end` line there are no counts, and a resumed run would take the remaining results for the whole
    item."""
    lines = whole.splitlines()[:-1]
    path = tmp_path / "run.jsonl"
    path.write_bytes(joined([*lines[:3], *lines[4:]]))
    with pytest.raises(RecordError, match=r"run.jsonl:4: the checksum is wrong"):
        resumable(path)


@pytest.mark.sample(3)
@pytest.mark.parametrize("cut", range(0, 2600, 100))
def test_a_file_without_its_end_is_a_run_cut_short(whole, tmp_path, cut):
    path = tmp_path / "run.jsonl"
    path.write_bytes(whole[: len(whole) - 1 - cut])
    found = read(path)
    assert (found.end is None) == (cut > 0)
    assert found.run == RUN


def test_a_resumed_file_continues_its_checksums(tmp_path):
    path = tmp_path / "run.jsonl"
    writer = Writer(path)
    writer.write(RUN, RESULT, End("", 1.0, {"expected failure": 1}))
    writer.close()
    for n in range(2):
        writer = Writer(path, resume=True)
        writer.write(dataclasses.replace(PASS, key=dataclasses.replace(PASS.key, case=f"c{n}")))
        writer.write(End("", 1.0, {"pass": n + 1, "expected failure": 1}))
        writer.close()
    assert len(read(path).results) == 3


def test_a_baseline_cannot_be_resumed(tmp_path):
    (path, *_) = baseline.write(small(), tmp_path)
    with pytest.raises(RecordError, match="this is a baseline, which no run can continue"):
        Writer(path, resume=True)


def small() -> RunRecords:
    return synthetic.catalogue(1, per_cell=4, targets=("sm_90a",))


def stored(run: RunRecords, path: Path) -> Path:
    writer = Writer(path)
    writer.write(run.run, *run.cases.values(), *run.texts.values(), *run.results, *run.timings, run.end)
    writer.close()
    return path


def flips(data: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    rng = random.Random(7)
    for _ in range(count):
        bit = rng.randrange(8 * len(data))
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << (bit % 8)
        yield bit, bytes(flipped)


@pytest.mark.parametrize("count", sizes(400, 4000))
@pytest.mark.parametrize("of", ["run", "baseline"])
def test_every_flipped_bit_is_refused(tmp_path, of, count):
    """The same number of bits of a run and of a baseline. Each is refused, without any other exception."""
    run = small()
    if of == "run":
        data = stored(run, tmp_path / "whole.jsonl").read_bytes()
    else:
        (path,) = baseline.write(run, tmp_path / "baseline")
        data = path.read_bytes()
    path = tmp_path / "run.jsonl"
    taken = [bit for bit, flipped in flips(data, count) if not refusal(path, flipped)]
    assert taken == []


def test_a_flipped_bit_near_the_end_of_a_line_is_detected(whole, tmp_path):
    """All bits of the last 30 bytes of each line: newline, checksum and its marks."""
    path = tmp_path / "run.jsonl"
    ends = [n for n, byte in enumerate(whole) if byte == ord("\n")]
    for end in ends:
        for place in range(end - 29, end + 1):
            for bit in range(8):
                flipped = bytearray(whole)
                flipped[place] ^= 1 << bit
                assert refusal(path, bytes(flipped)), (place, bit)


@pytest.mark.parametrize("change", ["lost", "twice", "exchanged"])
def test_lost_repeated_or_exchanged_lines_of_a_baseline_are_detected(tmp_path, change):
    (path,) = baseline.write(small(), tmp_path)
    lines = path.read_bytes().splitlines()
    changed = {
        "lost": [*lines[:3], *lines[4:]],
        "twice": [*lines[:4], *lines[3:]],
        "exchanged": [*lines[:3], lines[4], lines[3], *lines[5:]],
    }[change]
    path.write_bytes(joined(changed))
    with pytest.raises(baseline.BaselineError, match=r"jsonl:\d+: .*; restore the file from git"):
        baseline.load(tmp_path)


def test_one_changed_result_changes_two_lines_of_a_baseline(tmp_path):
    """A diff then shows only the changed line, and the last line, whose checksum covers the whole file."""
    run = small()
    (path,) = baseline.write(run, tmp_path)
    before = path.read_bytes().splitlines()
    run.results[0] = dataclasses.replace(run.results[0], resources={"registers": 99})
    baseline.write(run, tmp_path)
    after = path.read_bytes().splitlines()
    differ = [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert len(differ) == 2
    assert differ[-1] == len(before) - 1


VERBS: dict[str, Callable[[str, str], list[str]]] = {
    "gate": lambda bad, good: ["gate", bad, "--baseline", good],
    "accept": lambda bad, good: ["gate", bad, "--baseline", f"{good}-new", "--accept"],
    "report": lambda bad, good: ["report", bad, "-o", f"{good}.html"],
    "junit": lambda bad, good: ["report", bad, "-f", "junit", "-o", f"{good}.xml"],
    "merge": lambda bad, good: ["report", bad, bad, "-o", f"{good}.html"],
    "annotations": lambda bad, good: ["report", bad, "-f", "github-annotations"],
    "before": lambda bad, good: ["compare", bad, bad],
    "resume": lambda bad, good: ["run", f"{good}.py", "--records", bad, "--", "--ptx-resume"],
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["a verdict in capitals", "an environment that is a list", "half a character"])
def test_every_verb_refuses_in_one_line_with_exit_2(whole, tmp_path, capfd, verb, name):
    kind, edit, words = CORRUPTIONS[name]
    number, data = corrupted(whole, kind, edit)
    (tmp_path / "run.jsonl").write_bytes(data)
    baseline.write(small(), tmp_path / "good")
    (tmp_path / "good.py").write_text("")
    assert main(VERBS[verb](str(tmp_path / "run.jsonl"), str(tmp_path / "good"))) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"run.jsonl:{number}: " in err
    assert words in err


def test_a_field_that_older_files_lack_may_be_missing(whole, tmp_path):
    """Such a field has a default."""
    number, data = corrupted(whole, "result", drop("device"))
    assert refusal(tmp_path / "run.jsonl", data) == ""
    assert number == 4
    assert GRID.more == 1
