"""A baseline of known findings: `ptxdiff lint --baseline FILE` reports only what is not in it.

A finding is known by its fingerprint: the rule, the severity, the words, and the whole block with its constraints and
declarations, without line numbers and indentation. So it survives lines that move, and an edit of the block brings it
back. Equal findings are counted: one more is new. Findings which say that something was not examined are never known,
since they stand for mistakes that nobody has seen.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptxdiff.lint.engine import grouped, ungrouped
from ptxdiff.lint.extract import Note
from ptxdiff.lint.files import Report
from ptxdiff.lint.settings import ABOUT_FILES, SettingsError
from ptxdiff.lint.snippet import Finding

FORMAT = "ptxdiff lint baseline 1"
_LINES = re.compile(r"\blines? \d+(?:, \d+)*")
_FIELDS = {"path": str, "rule": str, "severity": str, "message": str, "fingerprint": str, "count": int}


class LintBaselineError(SettingsError):
    """A file that is no baseline; the message names it and says what to do."""


@dataclass(frozen=True)
class KnownFinding:
    """One entry of a baseline: a file relative to the baseline's folder, and what is known there `count` times."""

    path: str
    rule: str
    severity: str
    message: str
    fingerprint: str
    count: int

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the entry."""
        return self.path, self.fingerprint


@dataclass
class LintBaseline:
    """The known findings of a file."""

    file: str
    entries: list[KnownFinding] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """The absolute path of the folder to which paths are relative."""
        return os.path.dirname(os.path.abspath(self.file))

    def relative(self, path: str) -> str:
        """A path as the baseline writes it."""
        return os.path.relpath(os.path.abspath(path), self.folder).replace(os.sep, "/")

    def apply(self, report: Report) -> None:
        """Take known findings out of a report; record what is known, and which entries are gone.

        An entry is gone if its rule ran on its file and found it no more, or if there is no such file.
        """
        left = Counter({each.key: each.count for each in self.entries})
        new = []
        for finding in ungrouped(report.findings):
            key = (self.relative(finding.path), fingerprint(finding))
            if finding.rule not in ABOUT_FILES and left[key] > 0:
                left[key] -= 1
                report.known += 1
            else:
                new.append(finding)
        report.findings = grouped(new)
        ran = {self.relative(path): rules for path, rules in report.linted.items()}
        for each in self.entries:
            if left[each.key] and (self._looked_for(each, ran) or not os.path.exists(self._absolute(each))):
                times = f" ({left[each.key]} times)" if left[each.key] > 1 else ""
                report.gone.append(Note(each.path, 0, f"[{each.rule}] {each.message}{times}"))

    def updated(self, report: Report) -> LintBaseline:
        """The baseline of a report's findings. Entries of files and rules that did not run are kept."""
        ran = {self.relative(path): rules for path, rules in report.linted.items()}
        kept = [e for e in self.entries if not self._looked_for(e, ran) and os.path.exists(self._absolute(e))]
        counts: Counter[KnownFinding] = Counter()
        for finding in ungrouped(report.findings):
            if finding.rule not in ABOUT_FILES:
                path = self.relative(finding.path)
                content = (finding.rule, finding.severity, finding.message)
                counts[KnownFinding(path, *content, fingerprint(finding), 0)] += 1
        merged: dict[tuple[str, str], KnownFinding] = {}
        for each, number in counts.items():  # messages that differ in line numbers alone have one fingerprint
            number += merged[each.key].count if each.key in merged else 0
            merged[each.key] = KnownFinding(each.path, each.rule, each.severity, each.message, each.fingerprint, number)
        entries = sorted((*kept, *merged.values()), key=lambda e: (e.path, e.rule, e.message, e.fingerprint))
        return LintBaseline(self.file, entries)

    def _absolute(self, each: KnownFinding) -> str:
        return os.path.join(self.folder, each.path)

    def _looked_for(self, each: KnownFinding, ran: dict[str, tuple[str, ...] | None]) -> bool:
        rules = ran.get(each.path, ())
        return rules is None or each.rule in rules

    def write(self) -> None:
        """Write the file, one line for each entry. Raises OSError."""
        from ptxdiff import __version__

        lines = [json.dumps({name: getattr(each, name) for name in _FIELDS}) for each in self.entries]
        head = f'{{"format": {json.dumps(FORMAT)}, "version": {json.dumps(__version__)}, "findings": ['
        Path(self.file).write_text("\n".join([head, ",\n".join(lines), "]}", ""]), encoding="utf-8")


def read_baseline(file: str) -> LintBaseline:
    """The baseline in a file. Raises LintBaselineError."""
    try:
        value = json.loads(Path(file).read_bytes())
    except FileNotFoundError:
        raise LintBaselineError(f"there is no baseline {file}; --write-baseline makes it") from None
    except OSError as error:
        raise LintBaselineError(f"the baseline {file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise LintBaselineError(f"{file} is no baseline of ptxdiff lint: {error}") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise LintBaselineError(f'{file} is no baseline of ptxdiff lint: it must have "format": "{FORMAT}"')
    findings = value.get("findings")
    if not isinstance(findings, list):
        raise LintBaselineError(f"{file}: findings must be a list")
    entries = [_entry(file, number, each) for number, each in enumerate(findings, 1)]
    keys = Counter(each.key for each in entries)
    if doubled := next((e for e in entries if keys[e.key] > 1), None):
        raise LintBaselineError(f"{file}: [{doubled.rule}] of {doubled.path} stands twice; write the baseline again")
    return LintBaseline(file, entries)


def _entry(file: str, number: int, value: Any) -> KnownFinding:
    if not isinstance(value, dict) or set(value) != set(_FIELDS):
        raise LintBaselineError(f"{file}: finding {number} must have {', '.join(_FIELDS)} and nothing else")
    for name, kind in _FIELDS.items():
        if type(value[name]) is not kind:
            raise LintBaselineError(
                f"{file}: {name} of finding {number} must be a {kind.__name__}; found {value[name]!r}"
            )
    return KnownFinding(**value)


def fingerprint(finding: Finding) -> str:
    """What identifies a finding within its file, whatever its lines."""
    snippet = finding.snippet
    message, instead = (_LINES.sub("line N", text) for text in (finding.message, finding.instead))
    before = "".join(snippet.asm[: _offset(finding)].split())
    identity = (
        finding.rule, finding.severity, message, instead, _lines(snippet.asm), snippet.constraints,
        snippet.convention, snippet.pure, snippet.pack, snippet.outputs, snippet.inputs, snippet.exact, snippet.ftz,
        finding.asm_line > 0, len(before),
    )  # fmt: skip
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


def _offset(finding: Finding) -> int:
    """The offset in the asm of the finding's place; 0 if it has none."""
    lines: Sequence[str] = finding.snippet.asm.split("\n")[: max(finding.asm_line - 1, 0)]
    return sum(len(line) + 1 for line in lines) + max(finding.asm_column - 1, 0)


def _lines(asm: str) -> list[str]:
    """The lines of asm without indentation. They stay lines, since a comment ends with its line."""
    return [" ".join(line.split()) for line in asm.split("\n") if line.strip()]
