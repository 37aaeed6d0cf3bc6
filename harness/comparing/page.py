"""A comparison of two files as plain values, for `ptxdiff.reports.comparison`, which makes an HTML page of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ptxdiff.comparing.files import FileComparison
from ptxdiff.comparing.lockstep import ShownDifference, ShownStep
from ptxdiff.comparing.words import about, first_words, headline, register_words

CONTEXT = 4
"""The number of lines of a file that are shown before and after the first instruction that differs."""


def facts(found: FileComparison, texts: Mapping[str, str]) -> dict[str, Any]:
    """The contents of the page. texts: the files' texts, by their names in the comparison."""
    names = [f.name for f in found.files]
    first = None
    if found.first is not None:
        rows = [*found.first.inputs.items(), (names[0], found.first.expected), (names[1], found.first.got)]
        first = {"words": first_words(found), "rows": [(n, b.bits, b.value) for n, b in rows]}
    return {
        "headline": headline(found),
        "verdict": found.verdict,
        "passed": found.passed,
        "files": [
            {"name": f.name, "about": [w.removeprefix(f"{f.name}: ") for w in about(f)], "text": texts[f.name]}
            for f in found.files
        ],
        "runs": found.runs,
        "left_out": found.left_out,
        "first": first,
        "traces": _traces(found.traces, texts) if found.traces else None,
    }


def _traces(found: ShownDifference, texts: Mapping[str, str]) -> dict[str, Any]:
    steps = [_step(s, texts[s.file]) for s in found.steps if s is not None]
    return {"words": found.words, "basis": found.basis, "steps": steps}


def _step(step: ShownStep, text: str) -> dict[str, Any]:
    lines = text.split("\n")
    first = max(0, step.line - 1 - CONTEXT)
    return {
        "file": step.file,
        "line": step.line,
        "thread": step.thread,
        "executed": step.executed,
        "context": [(first + k + 1, line) for k, line in enumerate(lines[first : step.line + CONTEXT])],
        "before": [register_words(*r) for r in step.before],
        "after": [register_words(*r) for r in step.after],
    }
