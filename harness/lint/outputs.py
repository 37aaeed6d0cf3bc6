"""Write findings as text, JSON, SARIF 2.1.0 and GitHub annotations. Texts from linted files are escaped."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ptxdiff.lint.engine import ungrouped
from ptxdiff.lint.extract import Note
from ptxdiff.lint.files import Report
from ptxdiff.lint.fixes import replacements
from ptxdiff.lint.snippet import Finding
from ptxdiff.records.escaping import line, sarif_text, terminal, workflow_data, workflow_property

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
NOTES = 5
"""How many places that were not examined the text lists."""
PLACES = 8
"""How many further places of a finding the text lists."""


def place(finding: Finding) -> str:
    """`file:line:column`, or the asm's own line and column if there is no file."""
    if finding.path:
        return f"{finding.path}:{finding.line}:{finding.column}"
    return f"asm:{finding.asm_line}:{finding.asm_column}" if finding.asm_line else "asm"


def text(report: Report, verbose: bool = False) -> str:
    """The terminal output: each finding with its place, its line of asm, why it matters and what to write instead."""
    parts = [_text(f) for f in report.findings]
    notes = report.notes if verbose else report.notes[:NOTES]
    parts += [_note(n, "note") for n in notes]
    if len(notes) < len(report.notes):
        parts.append(f"... and {len(report.notes) - len(notes)} more notes of this kind (--verbose lists them)")
    gone = report.gone if verbose else report.gone[:NOTES]
    parts += [f"{n.path}: gone from the baseline's findings: {n.words}" for n in gone]
    if len(gone) < len(report.gone):
        parts.append(f"... and {len(report.gone) - len(gone)} more that are gone (--verbose lists them)")
    if report.gone:
        parts.append("--write-baseline takes what is gone out of the baseline; until then it would hide the same again")
    # A path that the user gave and that was left out is never only counted.
    parts += [_note(n, "note") for n in report.excluded if verbose or n.words.startswith("the given path")]
    if verbose:
        parts += [_note(n, "skipped") for n in report.skipped]
        parts += [f"settings: {file}" for file in report.settings]
    return terminal("\n".join([*parts, summary(report)]))


def _note(note: Note, kind: str) -> str:
    return f"{note.path}:{note.line}: {kind}: {note.words}" if note.line else f"{note.path}: {kind}: {note.words}"


def summary(report: Report) -> str:
    """One line: the number of findings, and how much was examined."""
    counts = Counter(f.severity for f in report.findings)
    tally = ", ".join(_count(counts[s], s) for s in ("error", "warning", "note") if counts[s]) or "nothing found"
    if not report.searched and not report.excluded:
        return tally
    looked = f"{_count(report.snippets, 'block')} of asm in {_count(report.files, 'file')}"
    extra = f"; {report.silenced} silenced" if report.silenced else ""
    extra += f"; {report.ignored} ignored by per-file-ignores" if report.ignored else ""
    extra += f"; {report.known} known from the baseline" if report.known else ""
    extra += f"; {len(report.gone)} gone" if report.gone else ""
    extra += f"; {_count(len(report.notes), 'place')} not looked at" if report.notes else ""
    skipped = Counter(n.words for n in report.skipped)
    extra += "".join(f"; {number} skipped: {reason}" for reason, number in sorted(skipped.items()))
    extra += f"; {_count(len(report.excluded), 'path')} excluded by settings" if report.excluded else ""
    return f"{tally} in {looked} ({report.searched} searched{extra})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _text(finding: Finding) -> str:
    lines = [f"{place(finding)}: {finding.severity} [{finding.rule}] {finding.message}"]
    if finding.asm_line:
        shown = finding.snippet.asm.split("\n")[finding.asm_line - 1]
        lines.append(f"    asm {finding.asm_line}:{finding.asm_column}  {shown.strip()}")
    elif finding.snippet.constraints:
        lines.append(f"    constraints  {finding.snippet.constraints}")
    lines.append(f"    why: {finding.why}")
    if finding.instead:
        lines.append(f"    instead: {finding.instead}")
    if finding.places:
        lines.append(f"    {_more(finding)}")
    if finding.fix:
        lines.append(f"    --fix: {finding.fix.words}")
    return "\n".join(lines)


def _more(finding: Finding) -> str:
    """The other places of a finding, in words; "" for none."""
    numbers = [str(number) for number, _ in finding.places[:PLACES]]
    more = ", ..." if len(finding.places) > PLACES else ""
    where = f"and {_count(len(finding.places), 'more place')} in this file: lines {', '.join(numbers)}{more}"
    return where if finding.places else ""


def as_json(report: Report) -> str:
    """All findings and notes as one JSON object."""
    value = {
        "findings": [_value(f, report) for f in report.findings],
        **{
            name: [{"path": n.path, "line": n.line, "words": n.words} for n in notes]
            for name, notes in (
                ("notes", report.notes),
                ("skipped", report.skipped),
                ("excluded", report.excluded),
                ("gone", report.gone),
            )
        },
        "blocks": report.snippets,
        "files": report.files,
        "searched": report.searched,
        "silenced": report.silenced,
        "ignored": report.ignored,
        "known": report.known,
        "settings": report.settings,
    }
    return json.dumps(value, indent=1)


def _value(finding: Finding, report: Report) -> dict[str, Any]:
    names = (
        "rule", "severity", "message", "why", "instead", "path", "line", "column", "end_line", "end_column",
        "asm_line", "asm_column",
    )  # fmt: skip
    value: dict[str, Any] = {name: getattr(finding, name) for name in names}
    value["places"] = [_place(f, report) for f in finding.others]
    snippet = finding.snippet
    value |= {"asm": snippet.asm, "constraints": snippet.constraints, "function": snippet.function}
    if finding.fix:
        edits = [{"part": e.part, "start": e.start, "end": e.end, "new": e.new} for e in finding.fix.edits]
        changes = _place(finding, report).get("replacements", [])
        value["fix"] = {"words": finding.fix.words, "edits": edits, "replacements": changes}
    return value


def _place(finding: Finding, report: Report) -> dict[str, Any]:
    """The place of a finding, and the changes of its file that repair it there."""
    names = ("line", "column", "end_line", "end_column")
    value: dict[str, Any] = {name: getattr(finding, name) for name in names}
    if finding.fix and finding.path in report.sources:
        value["replacements"] = [asdict(each) for each in replacements(finding, report.sources[finding.path])]
    return value


def sarif(report: Report) -> str:
    """A SARIF log with one result for each finding and place, so that readers notice each new one.

    Fingerprints depend on rule, file and asm, but not on lines.
    """
    from ptxdiff import __version__
    from ptxdiff.lint.rules import page, rules

    used = sorted({f.rule for f in report.findings})
    known = rules()
    driver = {
        "name": "ptxdiff lint",
        "version": __version__,
        "rules": [
            {
                "id": name,
                "shortDescription": {"text": sarif_text(known[name].summary)},
                "fullDescription": {"text": sarif_text(known[name].why)},
                "help": {"text": sarif_text(page(name)), "markdown": page(name)},
                "defaultConfiguration": {"level": known[name].severity},
            }
            for name in used
        ],
    }
    notes = [
        {"level": "note", "message": {"text": sarif_text(_note(n, kind))}}
        for kind, those in (("note", report.notes), ("skipped", report.skipped), ("note", report.excluded))
        for n in those
    ]
    seen: Counter[str] = Counter()
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
        "results": [_result(f, used.index(f.rule), seen, report) for f in ungrouped(report.findings)],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False)


def _result(finding: Finding, index: int, seen: Counter[str], report: Report) -> dict[str, Any]:
    lines = [finding.message, f"Why: {finding.why}"]
    lines += [f"Instead: {finding.instead}"] if finding.instead else []
    identity = "\0".join((finding.rule, Path(finding.path).as_posix(), finding.snippet.asm, finding.message))
    seen[identity] += 1
    digest = hashlib.sha256(f"{identity}\0{seen[identity]}".encode("utf-8", "replace")).hexdigest()[:32]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": sarif_text("\n".join(lines))},
        "partialFingerprints": {"ptxdiffLint/v1": digest},
    }
    if finding.path:
        path = Path(finding.path).as_posix()
        artifact = {"uri": quote(path, errors="replace"), **({} if path[:1] == "/" else {"uriBaseId": "%SRCROOT%"})}
        region = {"startLine": max(finding.line, 1), "startColumn": max(finding.column, 1)}
        if finding.end_line and finding.end_column:
            region |= {"endLine": finding.end_line, "endColumn": finding.end_column}
        location: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
        if finding.snippet.function:
            location["logicalLocations"] = [{"fullyQualifiedName": line(finding.snippet.function)}]
        result["locations"] = [location]
        if finding.fix and (changes := _place(finding, report).get("replacements")):
            result["fixes"] = [
                {
                    "description": {"text": sarif_text(finding.fix.words)},
                    "artifactChanges": [
                        {"artifactLocation": artifact, "replacements": [_sarif_replacement(each) for each in changes]}
                    ],
                }
            ]
    return result


def _sarif_replacement(change: dict[str, Any]) -> dict[str, Any]:
    names = ("startLine", "startColumn", "endLine", "endColumn")
    region = dict(zip(names, (change[n] for n in ("line", "column", "end_line", "end_column")), strict=True))
    return {"deletedRegion": region, "insertedContent": {"text": change["new"]}}


_COMMAND = {"error": "error", "warning": "warning", "note": "notice"}


def github(report: Report) -> str:
    """Workflow commands, one for each finding, which GitHub Actions shows in the diff."""
    lines = []
    for finding in report.findings:
        title = f"ptxdiff lint: {finding.rule}"
        message = "\n".join(w for w in (finding.message, f"why: {finding.why}", finding.instead, _more(finding)) if w)
        where = f"file={workflow_property(finding.path)}," if finding.path else ""
        if finding.path and finding.line:
            where += f"line={finding.line},"
            if finding.end_line > finding.line:  # GitHub takes columns only for places within one line
                where += f"endLine={finding.end_line},"
            else:
                where += f"col={finding.column},"
                where += f"endColumn={finding.end_column - 1}," if finding.end_column > finding.column else ""
        lines.append(
            f"::{_COMMAND[finding.severity]} {where}title={workflow_property(title)}::{workflow_data(message[:60_000])}"
        )
    lines.append(workflow_data(summary(report)))
    return "\n".join(lines)
