"""The results in a campaign's folder as plain values, of which `ptxdiff.reports.findings` makes an HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ptxdiff.fuzz.campaign import finding_of
from ptxdiff.fuzz.files import story


def facts(folder: Path) -> dict[str, Any]:
    """The contents of the page: findings by skeleton, and groups of refusals, most frequent first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for place, fields in _read(folder, "finding.json"):
        groups.setdefault(fields["skeleton"], []).append(_finding(place, fields))
    ordered = sorted(groups.items(), key=lambda g: (-sum(f["seen"] for f in g[1]), g[0]))
    refusals = [{**fields, "place": place.name} for place, fields in _read(folder, "refusal.json")]
    return {
        "groups": [{"skeleton": name, "findings": found} for name, found in ordered],
        "refusals": sorted(refusals, key=lambda r: (-r["seen"], r["signature"])),
    }


def _read(folder: Path, name: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for file in sorted(folder.glob(f"*/{name}")):
        yield file.parent, json.loads(file.read_text(encoding="utf-8"))


def _finding(place: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    rows = zip(fields["expected"], fields["given"], strict=True)
    return {
        **fields,
        "place": place.name,
        "story": story(finding_of(fields)).split("\n"),
        "inputs": [f"{w:#010x}" for w in fields["inputs"]],
        "outputs": [(f"{right:#010x}", f"{given:#010x}", right != given) for right, given in rows],
        "sass": [(file.stem, file.read_text(encoding="utf-8")) for file in sorted(place.glob("*.sass"))],
    }
