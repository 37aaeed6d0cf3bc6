"""SARIF 2.1.0, for code-scanning views: one result for each case, at the line of the wrong asm.

The fingerprint covers the case alone, so that a finding keeps its identity while its symptoms, its line or its targets
change. Expected failures are listed as suppressed, with the case's reason.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ptxdiff.records import RunRecords
from ptxdiff.records.escaping import line, sarif_text, visible
from ptxdiff.reports.model import FailureGroup, View, view
from ptxdiff.reports.verdict import overall

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULES = {
    "wrong-bits": "A variant gives bits that its reference does not allow.",
    "cannot-run": "A variant cannot be compiled, assembled or run as it is written.",
    "expected-failure": "A failure that the case declares, with its diagnosis reproduced.",
}
_SUCCESSFUL = ("passed", "failed", "assembled only")
_RULE = {"fail": "wrong-bits", "error": "cannot-run", "expected": "expected-failure"}
_LEVEL = {"fail": "error", "error": "error", "expected": "note"}


def write(run: RunRecords, output: Path) -> Path:
    """Write the log and return its path."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(log(run), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return output


def log(run: RunRecords) -> dict[str, Any]:
    """The log as JSON values."""
    shown = view(run)
    groups: dict[str, list[FailureGroup]] = defaultdict(list)
    for group in [*shown.failures, *shown.expected]:
        groups[group.case].append(group)
    successful = run.end is not None and overall(shown).word in _SUCCESSFUL
    driver = {
        "name": "ptxdiff",
        "version": line(str(run.run.environment.get("ptxdiff", "0"))),
        "rules": [{"id": name, "shortDescription": {"text": text}} for name, text in RULES.items()],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "automationDetails": {"id": line(f"ptxdiff/{run.run.effort}/")},
                "columnKind": "utf16CodeUnits",
                "invocations": [{"executionSuccessful": successful, "startTimeUtc": line(run.run.started)}],
                "results": [_result(shown, case, members) for case, members in groups.items()],
            }
        ],
    }


def _result(found: View, case: str, groups: list[FailureGroup]) -> dict[str, Any]:
    first = groups[0]  # errors and failures come before expected failures
    lines = [
        f"{g.variant} on {', '.join(g.targets)} ({', '.join(g.backends)}): {g.simplest.words or g.state.word}"
        for g in groups
    ]
    if first.simplest.message:
        lines += ["", first.simplest.message]
    result: dict[str, Any] = {
        "ruleId": _RULE[first.state.name],
        "level": _LEVEL[first.state.name],
        "message": {"text": sarif_text("\n".join(lines))},
        "locations": [_location(found, first)],
        "partialFingerprints": {"ptxdiffCase/v1": hashlib.sha256(case.encode("utf-8", "replace")).hexdigest()[:32]},
    }
    if len(groups) > 1:
        result["relatedLocations"] = [
            {"id": n, "message": {"text": sarif_text(g.variant)}, **_location(found, g)}
            for n, g in enumerate(groups[1:], 1)
        ]
    if first.state.name == "expected":
        info = found.info(case)
        variant = info.variants.get(first.variant) if info else None
        reason = (variant.expected_failure if variant else "") or first.simplest.diagnosis or "declared by the case"
        result["suppressions"] = [{"kind": "inSource", "justification": visible(reason)}]
    return result


def _location(found: View, group: FailureGroup) -> dict[str, Any]:
    info = found.info(group.case)
    variant = info.variants.get(group.variant) if info else None
    path = Path(info.path if info else f"{group.case}.py").as_posix()
    physical: dict[str, Any] = {
        "artifactLocation": {
            "uri": quote(path, errors="replace"),
            **({} if path.startswith("/") else {"uriBaseId": "%SRCROOT%"}),
        },
        "region": {"startLine": max(1, variant.line) if variant else 1},
    }
    return {
        "physicalLocation": physical,
        "logicalLocations": [{"fullyQualifiedName": line(f"{group.case}::{group.variant}")}],
    }
