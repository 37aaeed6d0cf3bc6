"""pytest's own output for a failure: the whole message once, and its first line in the short summary."""

import xml.etree.ElementTree as ElementTree

import pytest

CASE = '''"""Negation."""
from ptxdiff import Case, asm
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32

case = Case(
    inputs={"x": F32}, outputs={"y": F32}, reference=arithmetic.negate,
    variants={"right": asm("neg.f32 $0, $1;"), "wrong": asm("abs.f32 $0, $1;"), "none": asm("neg.f32 $0;")},
)
'''
BROKEN = '''"""No case."""
from ptxdiff import Case

case = Case(
    inputs={}, outputs={}, reference=abs, variants={},
)
'''


@pytest.fixture
def as_in_ci(monkeypatch):
    """Set CI=true, as GitHub does: then pytest shortens nothing."""
    monkeypatch.setenv("CI", "true")


def summary(result):
    lines = result.outlines
    begin = next(n for n, line in enumerate(lines) if "short test summary info" in line)
    return [line for line in lines[begin + 1 :] if line.startswith(("FAILED", "ERROR"))], lines[begin + 1 :]


@pytest.mark.sample(3)
@pytest.mark.parametrize("options", [(), ("-n1", "-p", "xdist"), ("-vv",)], ids=["here", "workers", "verbose"])
def test_a_log_has_each_message_once_and_its_first_line_in_the_summary(run_cases, as_in_ci, options):
    result = run_cases(*options, "--junitxml=junit.xml", negation=CASE)
    failed, rest = summary(result)
    assert failed[0].startswith("FAILED cases/negation.py::wrong[sm_100a-emulator] - ")
    words = failed[0].partition(" - ")[2]
    assert " codes differ (" in words
    assert words.startswith("all results are right with neg.f32 instead of abs.f32 on line 1; 61 of ")
    assert failed[1].startswith("FAILED cases/negation.py::none[sm_100a-emulator] - error: ")
    assert len(rest) == 3  # and the line of counts
    text = result.stdout.str()
    assert text.count("  policy    exact") == 1
    assert text.count("  repeat    pytest") == 2, "a failure and an error"
    assert f"negation::wrong[sm_100a-emulator]: {words}\n" in text
    faults = ElementTree.parse("junit.xml").getroot().findall(".//failure")
    assert [f.get("message") for f in faults] == [line.partition(" - ")[2] for line in failed]
    assert "repeat    pytest" in faults[0].text


def test_a_file_that_is_no_case_is_reported_in_the_summary(run_cases, as_in_ci):
    result = run_cases(broken=BROKEN)
    (failed,), _ = summary(result)
    assert failed.startswith("ERROR cases/broken.py - ")
    assert "a case has at least one output" in failed
    assert result.stdout.str().count("outputs={'y': F32}") == 2  # the message, and its first line
