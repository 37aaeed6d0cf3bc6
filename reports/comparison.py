"""The page on a comparison of two PTX files: the verdict, the first difference, and where their traces differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxdiff.reports.highlight import runs
from ptxdiff.reports.html import standalone


def write(facts: Mapping[str, Any], output: Path) -> Path:
    """Write the page and return its path. facts: as `ptxdiff.comparing.files.facts` gives them."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(page(facts).encode("utf-8", "replace"))
    return output


def page(facts: Mapping[str, Any]) -> str:
    """The page as text."""
    steps_shown = facts["traces"]["steps"] if facts["traces"] else []
    steps = [{**s, "context": [(n, runs(line, "ptx")) for n, line in s["context"]]} for s in steps_shown]
    return standalone("comparison.html.j2", title=facts["headline"], **{**facts, "steps": steps})
