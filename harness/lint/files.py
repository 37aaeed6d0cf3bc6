"""Lint files and folders, and report findings, silenced findings, and code that could not be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.lint.extract import SUFFIXES, Extracted, Note, extract, may_hold_asm
from harness.lint.snippet import Finding, Severity, Snippet

SKIPPED = frozenset((
    ".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "node_modules", ".tox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", "site-packages",
))  # fmt: skip
"""Folders that are skipped, unless they are named."""


@dataclass
class Report:
    """The outcome for all files. `files`: files with asm that were examined; `searched`: files that were opened.

    snippets: calls and statements. `texts`: the texts for the compiler; one call may have several.
    """

    findings: list[Finding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    silenced: int = 0
    snippets: int = 0
    files: int = 0
    searched: int = 0
    texts: list[Snippet] = field(default_factory=list)


def sources(paths: Iterable[Path]) -> Iterator[Path]:
    """The given files, and the files in given folders that may hold asm, sorted by name."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(n for n in folders if n not in SKIPPED)
            yield from (Path(folder, n) for n in sorted(names) if os.path.splitext(n)[1].lower() in SUFFIXES)


def lint_paths(paths: Iterable[Path], chosen: Sequence[str] | None = None, targets: Sequence[str] = ()) -> Report:
    """Lint files and folders. Rules and the emulator are loaded when the first asm is found."""
    report = Report()
    for path in sources(paths):
        report.searched += 1
        try:
            content = path.read_bytes()
        except OSError as error:
            report.notes.append(Note(str(path), 0, f"the file cannot be read: {error.strerror}"))
            continue
        if may_hold_asm(content, path.suffix):
            lint_text(str(path), content, report, chosen, targets)
    return report


def lint_text(
    path: str,
    content: bytes,
    report: Report | None = None,
    chosen: Sequence[str] | None = None,
    targets: Sequence[str] = (),
) -> Report:
    """Lint the content of one file; its suffix determines the language."""
    report = report if report is not None else Report()
    extracted = extract(path, content)
    if extracted is None:
        return report
    report.notes += extracted.notes
    if not extracted.snippets:
        return report
    report.files += 1
    report.snippets += len({(s.origin.line, s.origin.column) for s in extracted.snippets})
    snippets = [replace(s, targets=tuple(targets)) if targets else s for s in extracted.snippets]
    report.texts += snippets
    _lint_file(extracted, snippets, report, chosen)
    return report


def _lint_file(extracted: Extracted, snippets: Sequence[Snippet], report: Report, chosen: Sequence[str] | None) -> None:
    from harness.lint.engine import grouped, lint_together
    from harness.lint.rules import rules
    from harness.lint.silence import silenced, silences

    found = silences(extracted.file, extracted.snippets)
    kept = []
    for finding in lint_together(snippets, chosen):
        if silenced(finding, found):
            report.silenced += 1
        else:
            kept.append(finding)
    report.findings += grouped(unique(kept))
    known = rules()
    ran = set(chosen) if chosen is not None else {n for n, r in known.items() if r.default}
    for silence in found:
        if silence.rule not in known:
            words = (
                f"no rule is called {silence.rule!r}" if silence.rule else "a comment must name its rules: ignore[rule]"
            )
            report.findings.append(_about(extracted, "unknown-ignore", "error", words, silence.line, silence.column))
        elif not silence.used and silence.rule in ran:
            words = f"nothing is found here that ignore[{silence.rule}] would silence; remove it"
            report.findings.append(_about(extracted, "unused-ignore", "warning", words, silence.line, silence.column))


def unique(findings: Sequence[Finding]) -> list[Finding]:
    """Findings without duplicates (equal rule, place and words) from several paths to one call."""
    found: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        found.setdefault((finding.key, finding.asm_line, finding.asm_column), finding)
    return list(found.values())


def _about(extracted: Extracted, name: str, severity: Severity, words: str, line: int, column: int) -> Finding:
    from harness.lint.rules import rules

    why = rules()[name].why
    return Finding(name, severity, words, why, "", extracted.file.path, line, column, 0, 0, Snippet("", ""), None)
