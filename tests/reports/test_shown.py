"""Texts of records in every medium: a hostile text is shown and has no effect."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import unicodedata
from xml.etree import ElementTree as ET

import pytest

from ptxdiff.cli import main
from ptxdiff.gating import baseline
from ptxdiff.records import RunRecords, Writer, escaping
from ptxdiff.reports import github, html, junit, sarif, tabular
from ptxdiff.reports.history import history
from tests.support.reports import hostile, synthetic


def commands(text: str) -> list[str]:
    """The lines that GitHub's runner would run as commands. A line ends at any kind of newline."""
    lines = re.split(r"\r\n|[\r\n]", text)
    return [x for x in lines if x.lstrip().startswith("::") or re.search(r"##\w*\[", x)]


def unseen(text: str) -> set[str]:
    """The characters that are not shown as themselves: controls except newlines and tabs, and characters that reorder
    or hide."""
    hidden = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")}
    return hidden - set("\n\t\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}")


@pytest.mark.parametrize("attack", hostile.ATTACKS)
def test_an_attack_in_a_terminal_is_text(attack):
    for text in (attack, f"\n{attack}", f"rcp: {attack}\n"):
        assert commands(escaping.terminal(text)) == []
        assert unseen(escaping.terminal(text)) == set()
        assert "\n" not in escaping.line(text)
        data, named = escaping.workflow_data(text), escaping.workflow_property(text)
        assert unseen(data) == set()
        assert not set("\r\n") & set(data)
        assert not set("\r\n:,") & set(named)
        assert commands(f"::error file={named}::{data}")[0].startswith("::error file=")


def test_ordinary_texts_stay_as_they_are():
    for text in ("rcp::asm.rn on sm_90a, 3 results", "a\n  b\tc", "± 1 ulp → 2 “µs” é", "\U0001f3f3\ufe0f"):
        assert escaping.terminal(text) == escaping.visible(text) == text
    assert escaping.terminal("  ::error::x") == "  \\x3a:error::x"
    assert escaping.terminal("a ##[error]") == "a #\\x23[error]"
    assert escaping.line("a\nb\x1b[31m\u202e") == r"a\nb\x1b[31m\u202e"
    assert escaping.workflow_property("50%, a:b\n") == "50%25%2C a%3Ab%0A"
    assert escaping.sarif_text("[a](b) c[0]") == r"\[a\](b) c\[0\]"
    assert escaping.sarif_text("[%rd1], c[0]") == "[%rd1], c[0]"


@pytest.mark.parametrize("formula", hostile.FORMULAS)
def test_a_cell_that_would_be_a_formula_is_text(formula):
    cell = escaping.csv_cell(formula)
    assert isinstance(cell, str)
    assert cell.startswith("'")


@pytest.mark.parametrize("value", [-1, -0.5, 0, True, None, "1023", "7x129", "rcp-1", ""])
def test_numbers_and_plain_texts_are_unchanged_in_their_cells(value):
    assert escaping.csv_cell(value) is value


def test_csv_of_hostile_names_has_no_formula_and_no_unseen_character(tmp_path):
    for formula in hostile.FORMULAS:
        text = tabular.write_csv(hostile.run(formula), tmp_path / "x.csv").read_text()
        rows = list(csv.reader(io.StringIO(text)))
        assert not [c for row in rows for c in row if c.lstrip()[:1] in tuple("=+-@\uff1d")]
    text = tabular.write_csv(hostile.run(), tmp_path / "x.csv").read_text()
    assert unseen(text) == set()


def test_negative_numbers_of_a_csv_are_numbers(tmp_path):
    run = synthetic.catalogue(1, per_cell=1, targets=("sm_90a",))
    run.results = [dataclasses.replace(run.results[0], seconds=-0.5)]
    (row, *_) = csv.DictReader(io.StringIO(tabular.write_csv(run, tmp_path / "x.csv").read_text()))
    assert float(row["seconds"]) == -0.5


def hostile_files(tmp_path) -> tuple[str, str]:
    """A file of a run whose texts are attacks, and a baseline from another such run with other bits."""
    found = hostile.run()
    results = {}
    for r in found.results:
        kept = r.verdict != "pass"
        evidence = "specification" if r.verdict == "pass" else "none"
        fields = {"different": 3 * kept, "findings": r.findings * kept, "total": 10, "evidence": evidence}
        results[r.key] = dataclasses.replace(r, **fields)
    run = synthetic.finished(dataclasses.replace(found, results=list(results.values())))
    moved = [dataclasses.replace(r, resources={"registers": 99}, words=r.words + "!") for r in run.results]
    baseline.write(dataclasses.replace(run, results=moved), tmp_path / "baseline")
    return stored(run, tmp_path), str(tmp_path / "baseline")


def stored(run: RunRecords, tmp_path) -> str:
    writer = Writer(tmp_path / "run.jsonl")
    writer.write(run.run, *run.cases.values(), *run.texts.values(), *run.results, *run.timings)
    writer.write(*run.disagreements, run.end)
    writer.close()
    return str(tmp_path / "run.jsonl")


@pytest.mark.parametrize("verb", ["gate", "accept", "accept failures", "compare", "report", "summary", "fault"])
def test_no_verb_prints_a_command_or_an_unseen_character(tmp_path, capsys, monkeypatch, verb):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    run, accepted = hostile_files(tmp_path)
    words = {
        "gate": ["gate", run, "--baseline", accepted],
        "accept": ["gate", run, "--baseline", accepted, "--accept"],
        "accept failures": ["gate", run, "--baseline", accepted, "--accept", "--accept-failures"],
        "compare": ["compare", accepted, run],
        "report": ["report", run, "-o", str(tmp_path / "page.html")],
        "summary": ["report", run, "-f", "github-summary"],
        "fault": ["gate", str(tmp_path / "\n::error::x\x1b[31m"), "--baseline", accepted],
    }[verb]
    if verb == "compare":
        (case,) = (tmp_path / "baseline").glob("*.jsonl")
        words[1] = str(case)
    assert main(words) == {"gate": 1, "accept": 1, "compare": 1, "fault": 2}.get(verb, 0)
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert "error::" in text, "the attack is shown"
    assert commands(text) == []
    assert unseen(text) == set()


def test_an_annotation_is_the_only_command_in_its_line():
    found = github.annotations(hostile.run())
    assert found
    for planted in found:
        assert unseen(planted) == set()
        assert planted.count("::") - planted.split("::", 2)[2].count("::") == 2
        assert not re.search(r"##\w*\[", planted)


def test_pages_and_files_show_hidden_characters(tmp_path):
    run = hostile.run()
    page = html.write([run], tmp_path / "page.html").read_text()
    outside = re.sub(r"(?s)<script.*?</script>", "", page)
    assert unseen(outside) == set()
    assert r"\u202e" in outside
    root = ET.fromstring(junit.text(run))
    texts = [t for e in root.iter() for t in (*e.attrib.values(), e.text or "", e.tail or "")]
    assert not [t for t in texts if unseen(t) or commands(t)]
    assert unseen(json.dumps(sarif.log(run), ensure_ascii=False)) == set()
    assert unseen(github.step_summary(run, history=history([run])[0])) == set()
