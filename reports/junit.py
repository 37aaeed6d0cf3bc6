"""JUnit XML: one test case for each item (variant, target, backend), as other tools of a CI system expect it.

Failures and errors are reported as such. `unsupported` and `not run` are skips with their reason, and an expected
failure is a skip of type `expected failure`. A run that was cut short, or in which nothing ran, has one more test case,
an error, so that no reader of the file counts it as passed. Merged runs that disagree have one more, a skip that says
in what.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

from ptxdiff.records import Result, RunRecords
from ptxdiff.records.escaping import xml_text
from ptxdiff.records.history_facts import Item, state_of
from ptxdiff.reports.model import STATES, View, reused_words, simplicity, view, worst_state
from ptxdiff.reports.verdict import disagreement, overall

RED = {"failed"}


def write(run: RunRecords, output: Path) -> Path:
    """Write the XML and return its path."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text(run), encoding="utf-8")
    return output


def text(run: RunRecords) -> str:
    """The XML as text."""
    shown = view(run)
    root = ET.Element("testsuites", name="ptxdiff")
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for case in shown.cases:
        suite = _suite(shown, case)
        root.append(suite)
        for name in totals:
            totals[name] += int(suite.get(name, 0))
    verdict = overall(shown)
    if not verdict.green and verdict.word not in RED:
        suite = ET.SubElement(root, "testsuite", name="run", tests="1", errors="1", failures="0", skipped="0")
        case_element = ET.SubElement(suite, "testcase", classname="run", name="came to a result", time="0")
        ET.SubElement(case_element, "error", message=xml_text(verdict.sentence), type=verdict.word)
        totals["tests"] += 1
        totals["errors"] += 1
    if words := disagreement(shown):
        suite = ET.SubElement(root, "testsuite", name="merged runs", tests="1", errors="0", failures="0", skipped="1")
        case_element = ET.SubElement(suite, "testcase", classname="merged runs", name="agree", time="0")
        ET.SubElement(case_element, "skipped", message=xml_text(words), type="disagreement")
        totals["tests"] += 1
        totals["skipped"] += 1
    root.attrib.update({name: str(n) for name, n in totals.items()})
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(found: View, case: str) -> ET.Element:
    info = found.info(case)
    path = info.path if info else f"{case}.py"
    items: dict[Item, list[Result]] = defaultdict(list)
    for row in found.case_rows(case):
        for r in row.results:
            items[r.key.item].append(r)
    suite = ET.Element("testsuite", name=xml_text(path), timestamp=xml_text(found.records.run.started))
    counts = dict.fromkeys(("failures", "errors", "skipped"), 0)
    for (_, variant, target, backend), results in items.items():
        element = ET.SubElement(
            suite,
            "testcase",
            classname=xml_text(path.removesuffix(".py").replace("/", ".")),
            name=xml_text(f"{variant}[{target}-{backend}]"),
            file=xml_text(path),
            time=f"{sum(r.seconds for r in results):.4f}",
        )
        if reuse := reused_words(results):
            properties = ET.SubElement(element, "properties")
            ET.SubElement(properties, "property", name="reused", value=xml_text(reuse))
        kind = _outcome(element, results)
        if kind:
            counts[kind] += 1
    suite.attrib.update({"tests": str(len(items)), **{name: str(n) for name, n in counts.items()}})
    return suite


def _outcome(element: ET.Element, results: list[Result]) -> str:
    """Add the outcome to a test case. Returns the total that counts it; "" for a pass."""
    state = worst_state(map(state_of, results))
    if state in ("pass", "assembled"):
        return ""
    members = [r for r in results if state_of(r) == state]
    first = min(members, key=simplicity)
    tag, total = {"error": ("error", "errors"), "fail": ("failure", "failures")}.get(state, ("skipped", "skipped"))
    more = f" ({len(members)} of {len(results)} results)" if len(results) > 1 else ""
    child = ET.SubElement(element, tag, message=xml_text(first.words + more), type=STATES[state].word)
    child.text = xml_text(first.message) or None
    return total
