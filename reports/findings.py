"""The page on what `ptxdiff fuzz` found: each program in PTX and machine code, its values, and groups of refusals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxdiff.reports.highlight import Language, Span, runs
from ptxdiff.reports.html import standalone


def write(facts: Mapping[str, Any], output: Path) -> Path:
    """Write the page and return its path. facts: as `ptxdiff.fuzz.files.facts` gives them."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(page(facts).encode("utf-8", "replace"))
    return output


def page(facts: Mapping[str, Any]) -> str:
    """The page as text."""
    groups = [{**g, "findings": [_coloured(f) for f in g["findings"]]} for g in facts["groups"]]
    refusals = [{**r, "lines": _lines(r["text"], "ptx")} for r in facts["refusals"]]
    count = sum(len(g["findings"]) for g in groups)
    title = f"{count} findings about ptxas, {len(refusals)} groups of refusals"
    return standalone("findings.html.j2", title=title, groups=groups, refusals=refusals)


def _coloured(finding: Mapping[str, Any]) -> dict[str, Any]:
    sass = [(name, _lines(text, "sass")) for name, text in finding["sass"]]
    return {**finding, "lines": _lines(finding["text"], "ptx"), "sass": sass}


def _lines(text: str, language: Language) -> list[tuple[Span, ...]]:
    return [runs(line, language) for line in text.rstrip("\n").split("\n")]
