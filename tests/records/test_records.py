"""Records are written at once, read back unchanged, resumed, and independent of the order of items."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import sys
import typing
from dataclasses import replace
from pathlib import Path

import pytest

from ptxdiff.records import (
    Bits,
    InRegisters,
    Key,
    Record,
    RecordError,
    StoredText,
    Timing,
    Writer,
    from_json,
    read,
    resumable,
    to_json,
)
from tests.support.case_sources import FLIP, RIGHT
from tests.support.reports.record_samples import KEY, RESULT, RUN, SAMPLES


@pytest.mark.parametrize("record", SAMPLES, ids=lambda r: type(r).__name__)
def test_every_type_is_read_back_unchanged(record):
    assert from_json(json.loads(json.dumps(to_json(record)))) == record


@pytest.mark.parametrize("record", SAMPLES, ids=lambda r: type(r).__name__)
def test_the_sample_of_every_type_fills_every_field(record):
    """So that fields added later are tested too."""
    for f in dataclasses.fields(record):
        if isinstance(record, InRegisters) and f.name == "words":  # empty wherever there are figures
            continue
        if f.name == "made":  # a digest of the others, which a run adds
            continue
        if f.default is not dataclasses.MISSING and f.name not in ("schema", "chained"):
            assert getattr(record, f.name) != f.default, f.name


def test_every_record_type_has_a_sample():
    assert {type(s) for s in SAMPLES} == set(typing.get_args(Record))


def write(path: Path, *records: Record) -> None:
    writer = Writer(path)
    writer.write(*records)
    writer.close()


def test_a_file_reads_back_sorted_by_kind(tmp_path):
    path = tmp_path / "new" / "folder" / "run.jsonl"
    write(path, *[s for s in SAMPLES if not isinstance(s, StoredText)])
    found = read(path)
    assert (found.run, found.results, found.end) == (RUN, [RESULT], SAMPLES[-1])
    assert list(found.cases) == ["rcp"]
    assert read(path.parent).run == RUN, "a folder gives its newest file"


def test_texts_and_cases_are_stored_once(tmp_path):
    path = tmp_path / "run.jsonl"
    write(path, *SAMPLES[:3], *SAMPLES[1:3])
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_last_line_cut_off_in_mid_write_is_dropped(tmp_path, cut):
    path = tmp_path / "run.jsonl"
    write(path, RUN, RESULT)
    path.write_bytes(path.read_bytes()[:-cut])
    assert read(path).results == ([RESULT] if cut == 1 else [])


def test_a_cut_within_a_character_is_a_cut_too(tmp_path):
    path = tmp_path / "run.jsonl"
    write(path, RUN, SAMPLES[2])
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index("–".encode()) + 1])
    assert read(path).run == RUN


def test_json_has_no_nan(tmp_path):
    writer = Writer(tmp_path / "run.jsonl")
    with pytest.raises(RecordError, match="timing: NaN and infinities are written as bits"):
        writer.write(dataclasses.replace(next(s for s in SAMPLES if isinstance(s, Timing)), median=math.nan))
    writer.close()


def test_a_resumed_writer_continues_the_file_and_drops_its_end(tmp_path):
    path = tmp_path / "run.jsonl"
    write(path, RUN, SAMPLES[2], RESULT, SAMPLES[-1])
    writer = Writer(path, resume=True)
    other = dataclasses.replace(RESULT, key=dataclasses.replace(KEY, variant="other"))
    writer.write(SAMPLES[2], other)
    writer.close()
    found = read(path)
    assert (len(found.results), len(found.texts), found.end) == (2, 1, None)


@pytest.mark.parametrize("cut", [0, 3])
def test_the_case_in_which_a_run_was_interrupted_is_run_again(tmp_path, cut):
    """Otherwise its results so far would count as all of its results."""
    path = tmp_path / "run.jsonl"
    done = dataclasses.replace(RESULT, key=dataclasses.replace(KEY, case="done"))
    write(path, RUN, done, RESULT, dataclasses.replace(RESULT, key=dataclasses.replace(KEY, pack=4)))
    path.write_bytes(path.read_bytes()[: -cut or None])
    assert resumable(path).results == [done]
    Writer(path, resume=True).close()
    assert read(path).results == [done]


def records_of(pytester: pytest.Pytester, name: str = "run.jsonl") -> typing.Any:
    return read(pytester.path / name)


def test_a_run_records_everything(run_cases, pytester):
    run_cases("--ptx-records=run.jsonl", flip=FLIP)
    found = records_of(pytester)
    assert found.run.effort == "quick"
    assert "numpy" in found.run.environment
    assert found.cases["flip"].path == "cases/flip.py"
    assert found.cases["flip"].variants["wrong"].constraints == {"4": "=r,r"}
    assert found.cases["flip"].variants["wrong"].line == 17
    assert found.end is not None
    assert found.end.verdicts == {"pass": 10, "fail": 10}
    assert len({r.key for r in found.results}) == len(found.results) == 20
    failed = next(r for r in found.results if r.verdict == "fail")
    assert failed.total == 256
    assert failed.different == 64
    assert failed.offenders[0].got == Bits("0x81", "129")
    assert "--ptx-replay=" in failed.message
    assert found.texts[failed.asm].text == "xor.b32 $0, $1, 0x01010181;"
    assert failed.inputs_digest
    assert failed.outputs_digest[0].count == 256


def digests(pytester: pytest.Pytester, name: str) -> dict[Key, tuple[str, int]]:
    return {r.key: (r.inputs_digest, r.seed) for r in records_of(pytester, name).results}


def test_no_way_of_running_changes_an_input(run_cases, pytester):
    """Seeds come from the key, so that -k, --lf and the order of files give the same inputs."""
    wide = FLIP.replace("U8", "U32").replace(", pack=4", ", pack=1").replace("0x01010181", "0x01010101")
    wide = wide.replace("x ^ 1", "x ^ 0x01010101")
    run_cases("--ptx-records=all.jsonl", flip=FLIP, wide=wide)
    everything = digests(pytester, "all.jsonl")
    assert {digest for digest, _ in everything.values() if digest}
    for name, words in (
        ("k", ["-k", "wrong"]),
        ("lf", ["--lf"]),
        ("reversed", ["cases/wide.py", "cases/flip.py"]),
        ("one", ["cases/wide.py::right[sm_100a-emulator]"]),
    ):
        run_cases(f"--ptx-records={name}.jsonl", *words)
        some = digests(pytester, f"{name}.jsonl")
        assert some
        assert some.items() <= everything.items()


def test_a_resumed_run_runs_the_missing_items(run_cases, pytester):
    run_cases("--ptx-records=run.jsonl", "-k", "right", flip=FLIP)
    first = records_of(pytester)
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", flip=FLIP)
    result.assert_outcomes(passed=1, failed=1)
    found = records_of(pytester)
    assert found.run == replace(first.run, planned=("flip::right[sm_100a-emulator]", "flip::wrong[sm_100a-emulator]"))
    assert found.results[: len(first.results)] == first.results
    assert len({r.key for r in found.results}) == len(found.results) == 20
    assert found.end.verdicts == {"pass": 10, "fail": 10}
    again = run_cases("--ptx-records=run.jsonl", "--ptx-resume", flip=FLIP)
    again.assert_outcomes(passed=1, failed=1)
    again.stdout.fnmatch_lines(["flip::wrong*64 of 256 codes differ*", "results: 10 pass (10 confirmed), 10 fail"])
    assert records_of(pytester).results == found.results


def test_results_of_another_form_of_the_variant_are_refused(run_cases):
    run_cases("--ptx-records=run.jsonl", flip=RIGHT)
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", folder="same/cases", flip="# A comment.\n" + RIGHT)
    result.assert_outcomes(passed=1)
    changed = RIGHT.replace("0x01010101;", "0x02020202;")
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", "-kright", folder="more/cases", flip=changed)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*--ptx-resume: the records hold results of an earlier definition *changed*"])


def test_results_of_an_edited_file_that_a_resumed_run_leaves_out_are_noticed(run_cases, pytester):
    """Otherwise the pass of the old text would stay, and the run would count as whole."""
    run_cases("--ptx-records=run.jsonl", one=RIGHT, two=RIGHT)
    run_cases("--ptx-records=run.jsonl", "--ptx-resume", "-k", "two")
    assert records_of(pytester).end is not None  # nothing was edited
    wrong = RIGHT.replace("0x01010101", "0x03010101")
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", "-k", "two", one=wrong)
    result.stdout.fnmatch_lines(["records: * (cut short: one::right*not chosen this time*asm*changed*"])
    assert records_of(pytester).end is None


def test_a_file_with_one_more_variant_is_another_file(run_cases):
    """The new text may do anything to the variant that has results: it may replace a function of torch."""
    run_cases("--ptx-records=run.jsonl", flip=RIGHT)
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", "-kright", flip=FLIP)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*results of an earlier definition of this variant: case file, kernels in it changed*"]
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('ONE = ""\nOTHER = "x;"', 'ONE = "x;"\nOTHER = ""'),
        (
            "if TYPES:\n    @jit\n    def f():\n        return 1\nelse:\n    pass",
            "if TYPES:\n    pass\nelse:\n    @jit\n    def f():\n        return 1",
        ),
    ],
    ids=["a text", "a function"],
)
def test_a_kernel_in_another_place_of_the_file_is_another_file(run_cases, before, after):
    """What is left without it looks alike: an empty text, or `pass`, in both places."""
    around = "\nTYPES, jit = 1, lambda function: function\n{}\n"
    run_cases("--ptx-records=run.jsonl", flip=RIGHT + around.format(before))
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", flip=RIGHT + around.format(after))
    result.stdout.fnmatch_lines(["*an earlier definition of this variant: kernels in it changed*"])


ELSEWHERE = '''"""A case whose reference, domain and constants lie in a module beside it."""

from helpers_of_elsewhere import changed, small

from ptxdiff import Case, asm, ulp
from ptxdiff.model.match import Domain
from ptxdiff.references.formats import U8

case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=lambda x: changed(x),
    match=ulp(0, on=Domain("small inputs", small)),
    where=Domain("not seven", lambda v: v["x"] != 7),
    hard_cases=[(3,)],
    variants={"right": asm("xor.b32 $0, $1, 0x01010101;", constraints="=r,r", pack=4)},
)
'''

HELPERS = """
MASK = 1


def changed(x):
    return flipped(x)


def flipped(x):
    return x ^ MASK


def small(values):
    return values["x"] < 256
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x ^ MASK", "x ^ MASK ^ 2"),
        ("MASK = 1", "MASK = 3"),
        ("< 256", "< 25"),
        ("!= 7", "!= 8"),
        ("ulp(0", "ulp(9"),
        ("(3,)", "(4,)"),
        ("0x01010101", "0x01010103"),
        ("pack=4", "pack=4, carry={'y': 'x'}"),
        ("pack=4", "pack=4, nan='payload'"),
        ("pack=4", "pack=4, targets=['sm_100a']"),
    ],
)
def test_a_resumed_run_notices_any_edit_of_a_case_or_of_what_it_imports(run_cases, pytester, monkeypatch, old, new):
    assert old in ELSEWHERE + HELPERS
    for folder, edit in (("before", lambda text: text), ("after", lambda text: text.replace(old, new))):
        monkeypatch.syspath_prepend(pytester.mkdir(folder))
        (pytester.path / folder / "helpers_of_elsewhere.py").write_text(edit(HELPERS))
        sys.modules.pop("helpers_of_elsewhere", None)
        importlib.invalidate_caches()
        options = ["--ptx-records=run.jsonl", *["--ptx-resume"] * (folder == "after")]
        result = run_cases(*options, folder=f"{folder}/cases", elsewhere=edit(ELSEWHERE))
    sys.modules.pop("helpers_of_elsewhere", None)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*--ptx-resume: the records hold results of an earlier definition *changed*"])


def test_a_run_is_not_resumed_in_another_environment(run_cases, monkeypatch):
    run_cases("--ptx-records=run.jsonl", flip=RIGHT)
    monkeypatch.setattr("ptxdiff.running.environment.harness", lambda: "edited")
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", flip=RIGHT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --ptx-records: run.jsonl was begun with the harness's own code; here is another*"]
    )


def test_a_run_is_not_resumed_with_other_ledgers(run_cases, monkeypatch):
    """What machine code was believed then may have been refuted since."""
    run_cases("--ptx-records=run.jsonl", flip=RIGHT)
    monkeypatch.setattr("ptxdiff.running.environment.ledgers", lambda: "taught again")
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", flip=RIGHT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*was begun with the harness's own ledgers of evidence; here are others*"])


def test_a_run_is_not_resumed_with_another_effort(run_cases):
    run_cases("--ptx-records=run.jsonl", flip=RIGHT)
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", "--ptx-effort=full", flip=RIGHT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --ptx-records: run.jsonl was begun with --ptx-effort=quick; use the same effort"]
    )


SIGN = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import F32

case = Case(
    inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x,
    variants={"negated": asm("xor.b32 $0, $1, 0x80000000;", constraints="=r,r", pack=1)},
)
"""


def test_under_xdist_the_controller_writes(run_cases, pytester):
    """Two workers write one file, with each key once, the same inputs, and repeat commands that work.

    Workers send distances of any size: a float32 of the wrong sign is up to 2**32 codes away.
    """
    options = ["--ptx-target=sm_100a", "--ptx-target=sm_90a", "--ptx-records=run.jsonl", "-n2", "--dist=loadgroup"]
    parallel = run_cases(*options, "cases", flip=FLIP, sign=SIGN)
    parallel.assert_outcomes(passed=2, failed=4)
    found = records_of(pytester)
    assert len({r.key for r in found.results}) == len(found.results) == sum(found.end.verdicts.values())
    failed = next(r for r in found.results if r.verdict == "fail" and r.key.variant == "wrong")
    assert f"pytest 'cases/flip.py::wrong[{failed.key.target}-emulator]' --ptx-replay=" in failed.message
    worst = [r.worst.ulp for r in found.results if r.key.variant == "negated" and r.worst is not None]
    assert max(map(abs, worst)) > 1 << 31
