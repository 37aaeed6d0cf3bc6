"""Other outputs of the same records: terminal, JUnit, GitHub, SARIF, CSV and Parquet, conformance ledger."""

import csv
import dataclasses
import importlib.util
import json
import re
from html import unescape
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from ptxdiff.cli import main
from ptxdiff.records import escaping
from ptxdiff.reports import github, html, junit, sarif, summary, tabular
from ptxdiff.reports.conformance import LedgerError, ledger
from ptxdiff.reports.history import history
from ptxdiff.reports.model import view
from tests.support.reports import hostile, synthetic


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue(8, ("sm_80", "sm_86", "sm_90a", "sm_100a"), per_cell=9)


@pytest.fixture(scope="module")
def failed(base):
    """rcp::asm.rn is wrong, prmt::asm.packed cannot be assembled, u8_to_i32_max::asm.rn fails as declared."""

    def changed(r):
        k = r.key
        if (k.case, k.variant) == ("rcp", "asm.rn") and k.backend != "assembler":
            return synthetic.failing(r)
        if (k.case, k.variant) == ("prmt", "asm.packed"):
            return dataclasses.replace(r, verdict="error", evidence="none", words="ptxas: Unknown modifier '.approxx'")
        if (k.case, k.variant, k.backend) == ("u8_to_i32_max", "asm.rn", "emulator"):
            return dataclasses.replace(synthetic.failing(r), expected_failure=True, diagnosis="missing early clobber")
        if (k.case, k.backend) == ("tanh", "gpu"):
            return dataclasses.replace(r, verdict="not run", evidence="none", words="no NVIDIA GPU")
        return r

    return dataclasses.replace(base, results=[changed(r) for r in base.results])


def terminal(run, **options):
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(summary.terminal(run, **options))
    console.file.close()
    return console.export_text()


def test_the_terminal_ends_with_the_verdict_and_names_what_failed(failed):
    text = terminal(failed)
    tail = text[text.rindex("FAILED") :]
    assert "rcp::asm.rn" in tail
    assert "prmt::asm.packed" in tail
    counts = r"[\d,]+ pass \(.* hardware.*\) 28 fail \(5 items\) 108 unsupported 36 error \(9 items\) 12 not run"
    assert re.search(counts + r" \d+ expected failures", " ".join(tail.split()))
    assert "--ptx-replay=" in text
    assert "not run: 12 results (gpu): no NVIDIA GPU" in text


def test_a_wide_matrix_has_the_numbers_of_targets(failed, monkeypatch):
    target = view(failed).shown_targets[0]
    [heading] = [row for row in terminal(failed).splitlines() if row.startswith("case ")]
    assert target in heading
    monkeypatch.setattr(summary, "WIDE", 0)
    text = terminal(failed)
    [heading] = [row for row in text.splitlines() if row.startswith("case ")]
    assert "sm_" not in heading
    assert target.removeprefix("sm_") in heading.split()
    assert f"{target.removeprefix('sm_')} is {target}" in text


def test_the_terminal_counts_the_failures_it_does_not_show(failed):
    assert "and 1 more causes of failure" in terminal(failed, failures=1)


@pytest.mark.parametrize("change", [{"results": []}, {"end": None}])
def test_the_terminal_is_never_green_without_a_result(base, change):
    text = terminal(dataclasses.replace(base, **change))
    assert "PASSED" not in text


def test_markup_in_names_is_no_markup_in_the_terminal():
    assert "[bold red]x[/]" in terminal(hostile.run("[bold red]x[/]"))


def test_junit_counts_and_reasons(failed):
    root = ET.fromstring(junit.text(failed))
    cases = root.findall("./testsuite/testcase")
    assert len(cases) == int(root.get("tests"))
    for tag, total in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert len(root.findall(f"./testsuite/testcase/{tag}")) == int(root.get(total)) > 0
        assert sum(int(s.get(total)) for s in root.findall("testsuite")) == int(root.get(total))
    one = root.find("./testsuite/testcase[@name='asm.rn[sm_90a-gpu]']/failure")
    assert "codes differ" in one.get("message")
    assert "replay" in one.text
    kinds = {e.get("type") for e in root.findall("./testsuite/testcase/skipped")}
    assert kinds == {"unsupported", "not run", "expected failure"}


@pytest.mark.parametrize(
    ("change", "kind"), [({"results": []}, "nothing ran"), ({"end": None}, "cut short"), ({}, None)]
)
def test_junit_of_a_run_without_results_is_red(base, change, kind):
    root = ET.fromstring(junit.text(dataclasses.replace(base, **change)))
    errors = [e.get("type") for e in root.findall("./testsuite[@name='run']/testcase/error")]
    assert errors == ([kind] if kind else [])


def test_junit_of_hostile_texts_is_still_xml(tmp_path):
    root = ET.parse(junit.write(hostile.run(), tmp_path / "a" / "junit.xml")).getroot()
    assert "window.pwned=1" in root.find("./testsuite/testcase/failure").text
    assert "\x1b" not in ET.tostring(root, encoding="unicode")


def test_step_summary_has_verdict_failures_matrix_and_changes(failed, base):
    past, _ = history(synthetic.nights(base))
    text = github.step_summary(failed, history=past)
    assert text.startswith("## ❌ Failed: 1 variant gives wrong bits: rcp::asm.rn; 1 variant cannot run as written")
    assert "| `rcp` | `asm.rn` | ✗ |" in text
    assert "no longer runs" in text
    assert "no NVIDIA GPU" in text


def test_step_summary_stays_below_githubs_limit_and_names_omissions(base):
    results = [
        dataclasses.replace(synthetic.failing(r), message=f"{r.key}\n" + "x" * 2000, findings=(f"cause {n}",))
        for n, r in enumerate(base.results)
    ]
    text = github.step_summary(dataclasses.replace(base, results=results))
    assert len(text.encode()) < 1_000_000
    assert re.search(r"_\d+ further parts did not fit here", text)


def test_texts_cannot_close_markdown_spans_and_fences():
    assert escaping.markdown_code("a`b``c") == "```a`b``c```"
    assert escaping.markdown_code("`") == "`` ` ``"
    assert "|" not in escaping.markdown_code("a|b\nc")
    assert escaping.markdown_fence("```\nx").startswith("````text\n")
    assert escaping.markdown_text("<b> *x* [y](z)") == r"&lt;b&gt; \*x\* \[y\](z)"


def test_no_html_of_a_case_reaches_the_step_summary():
    text = github.step_summary(hostile.run())
    outside = re.sub(r"(`+)(?s:.*?)\1", "", text)
    tags = set(re.findall(r"<\w+", outside))
    assert tags <= {"<details", "<summary"}


def test_each_cause_has_one_annotation(failed):
    found = github.annotations(failed)
    assert [a.split(",")[0] for a in found] == ["::error file=cases/prmt.py", "::error file=cases/rcp.py"]
    assert all("\n" not in a for a in found)


def test_annotations_point_at_the_variants_line_and_give_no_command(failed):
    info = failed.cases["rcp"]
    variants = {n: dataclasses.replace(v, line=17) for n, v in info.variants.items()}
    cases = {**failed.cases, "rcp": dataclasses.replace(info, variants=variants)}
    assert ",line=17," in github.annotations(dataclasses.replace(failed, cases=cases))[1]
    for planted in github.annotations(hostile.run()):
        assert "\n" not in planted
        assert "::error::pwned" not in planted.removeprefix("::error file=")[:40]


def test_sarif_has_one_result_for_each_case_with_a_stable_fingerprint(failed):
    log = sarif.log(failed)
    results = log["runs"][0]["results"]
    assert [r["ruleId"] for r in results] == ["cannot-run", "wrong-bits", "expected-failure"]
    uris = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results]
    assert uris == ["cases/prmt.py", "cases/rcp.py", "cases/u8_to_i32_max.py"]
    fewer = dataclasses.replace(failed, results=[r for r in failed.results if r.key.target != "sm_75"])
    again = sarif.log(fewer)["runs"][0]["results"]
    assert [r["partialFingerprints"] for r in again] == [r["partialFingerprints"] for r in results]
    assert results[2]["suppressions"][0]["justification"] == "missing early clobber"
    assert "suppressions" not in results[0]


def test_sarif_of_a_run_that_was_cut_short_is_unsuccessful(base):
    log = sarif.log(dataclasses.replace(base, end=None))
    assert log["runs"][0]["invocations"][0]["executionSuccessful"] is False
    assert log["runs"][0]["results"] == []


def test_sarif_is_written_as_json(failed, tmp_path):
    path = sarif.write(failed, tmp_path / "a" / "x.sarif")
    assert json.loads(path.read_text())["version"] == "2.1.0"


def test_csv_has_a_row_for_each_result_and_timing(failed, tmp_path):
    with tabular.write_csv(failed, tmp_path / "a" / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(failed.results) + len(failed.timings)
    wrong = next(r for r in rows if r["verdict"] == "fail" and r["case"] == "rcp")
    assert wrong["offender_got"] == "0x3f800001"
    assert json.loads(wrong["offender_inputs"]) == {"x": "0x3f800001"}
    timed = next(r for r in rows if r["kind"] == "timing")
    assert float(timed["median"]) > 0
    assert timed["verdict"] == ""


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed here")
def test_parquet_without_pyarrow_says_what_to_install(failed, tmp_path):
    with pytest.raises(RuntimeError, match="pip install"):
        tabular.write_parquet(failed, tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


def test_parquet_has_the_same_rows(failed, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    table = parquet.read_table(tabular.write_parquet(failed, tmp_path / "x.parquet"))
    assert table.num_rows == len(failed.results) + len(failed.timings)
    assert table.column_names == list(tabular.COLUMNS)


@pytest.mark.parametrize(
    "content",
    [
        [{"form": "rcp.rn.f32", "status": "hardware", "inputs": 1 << 32, "mismatches": 0}],
        {"forms": [{"instruction": "rcp.rn.f32", "status": "hardware", "inputs": 1 << 32, "mismatches": 0}]},
        {"rcp.rn.f32": {"status": "hardware", "inputs": 1 << 32, "mismatches": 0}},
    ],
)
def test_ledgers_of_each_shape(content, tmp_path):
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(content))
    for source in (content, path, str(path)):
        book = ledger(source)
        assert book.columns == ("form", "status", "inputs", "mismatches")
        assert book.rows == (("rcp.rn.f32", "hardware", "4,294,967,296", "0"),)
        assert book.statuses == {"hardware": 1}


def test_a_ledger_file_names_the_device_behind_each_form(tmp_path):
    lines = [
        {"ledger": 1, "runs": {"a": {"device": "NVIDIA H200", "target": "sm_90a", "driver": "570", "ptxas": "12.9"}}},
        {"form": "ex2.approx.f32", "status": "measured", "run": "a", "inputs": 7, "ulp": 2, "definition": "x"},
        {"form": "cvt.rs.e2m1x4.f32", "status": "specification only", "why": "sm_100a only"},
    ]
    path = tmp_path / "ledger.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    book = ledger(path)
    first, second = (dict(zip(book.columns, row, strict=True)) for row in book.rows)
    assert first["device"] == "NVIDIA H200"
    assert first["greatest distance, ulp"] == "2"
    assert second["device"] == ""
    assert second["why"] == "sm_100a only"
    assert not {"definition", "run"} & set(book.columns)
    assert book.statuses == {"measured": 1, "specification only": 1}


@pytest.mark.parametrize(("text", "match"), [("{", "not JSON"), ("3", "expected a list"), ('["x"]', "expected a list")])
def test_a_faulty_ledger_is_refused_by_name(text, match, tmp_path):
    path = tmp_path / "ledger.json"
    path.write_text(text)
    with pytest.raises(LedgerError, match=f"ledger.json(:1)?: {match}"):
        ledger(path)
    with pytest.raises(LedgerError, match="No such file"):
        ledger(tmp_path / "none.json")


@pytest.fixture(scope="module")
def partly_reused(failed):
    """The results of two variants are reused from two earlier runs."""
    runs = {"asm.rn": "20260228T010203Z", "triton": "20260227T000000Z"}
    return synthetic.with_results(failed, lambda r: dataclasses.replace(r, reused=runs.get(r.key.variant, "")))


def test_every_summary_says_how_much_was_reused_and_from_which_runs(partly_reused, failed, tmp_path):
    count = sum(bool(r.reused) for r in partly_reused.results)
    assert 0 < count < len(partly_reused.results)
    words = (
        f"{count:,} of {len(partly_reused.results):,} results reused from 20260228T010203Z (2026-02-28), "
        "20260227T000000Z (2026-02-27); --ptx-fresh runs everything."
    )
    page = html.write([partly_reused], tmp_path / "x.html").read_text()
    for text in (terminal(partly_reused), github.step_summary(partly_reused), page):
        plain = unescape(text).replace("\\", "")
        assert words in " ".join(plain.split())
    assert "reused" not in terminal(failed)
    assert "reused" not in github.step_summary(failed)


def test_an_item_says_from_which_run_it_was_reused(partly_reused):
    said = {}
    for element in ET.fromstring(junit.text(partly_reused)).iter("testcase"):
        variant = element.get("name").partition("[")[0]
        said.setdefault(variant, []).extend(p.get("value") for p in element.iter("property"))
    assert all("reused from 20260228T010203Z (2026-02-28)" in words for words in said["asm.rn"])
    assert {variant for variant, words in said.items() if words} == {"asm.rn", "triton"}
    row = next(r for r in view(partly_reused).rows if r.variant == "asm.rn")
    assert all("reused from 20260228T010203Z" in words for *_, words in row.by_backend)
    assert [bool(g.reused) for g in view(partly_reused).failures] == [
        g.variant == "asm.rn" for g in view(partly_reused).failures
    ]


def test_errors_of_approximate_forms_are_shown_in_words():
    profile = [0.1] * 512
    at = {"measure": "relative elsewhere", "error": 2.0**-22, "at": ["0x3ef3ffde"]}
    table = ledger([
        {"form": "lg2", "errors": {"inputs": 1 << 32, "largest": [{**at, "measure": "ulp", "error": 2.0}, at],
                                   "profile": profile}},
        {"form": "div", "errors": {"inputs": 1 << 26, "largest": [at], "profile": []}},
    ])  # fmt: skip
    assert table.columns == ("form", "largest error over all inputs", "other generations")
    assert table.rows == (
        ("lg2", "2 ulp at 0x3ef3ffde; relative 2^-22.000 elsewhere at 0x3ef3ffde", "model, with these bits"),
        ("div", "relative 2^-22.000 elsewhere at 0x3ef3ffde (of 67,108,864 inputs)", "model, with these bits"),
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("junit", "<?xml"),
        ("sarif", "{"),
        ("csv", ""),
        ("html", "<!"),
        ("github-comment", "##"),
        ("github-summary", "##"),
    ],
)
def test_a_dash_prints_every_form_that_is_text(form, start, base, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ptxdiff.cli.report.one_run", lambda paths, **_: base)
    (tmp_path / "r.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["report", "r.jsonl", "--format", form, "-o", "-"]) == 0
    printed = capsys.readouterr().out
    assert printed.lstrip().lower().startswith(start.lower()), printed[:80]
    assert not (tmp_path / "-").exists()


def test_a_dash_is_refused_for_bytes(base, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ptxdiff.cli.report.one_run", lambda paths, **_: base)
    (tmp_path / "r.jsonl").touch()
    assert main(["report", str(tmp_path / "r.jsonl"), "--format", "parquet", "-o", "-"]) == 2
    assert "parquet is no text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [({"end": None}, "The run was cut short"), ({"results": []}, "Nothing ran")],
    ids=["cut short", "nothing ran"],
)
def test_annotations_and_sarif_say_that_a_run_came_to_no_result(base, change, words):
    """A reader of their lines alone would take it for a run without failures."""
    run = dataclasses.replace(base, **change)
    (annotation,) = github.annotations(run)
    assert annotation.startswith(f"::error title=ptxdiff::{words}")
    assert sarif.log(run)["runs"][0]["invocations"][0]["executionSuccessful"] is False
    assert github.annotations(base) == []
    assert sarif.log(base)["runs"][0]["invocations"][0]["executionSuccessful"] is True
