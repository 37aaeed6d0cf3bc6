"""The conformance ledger as a table of the page: for each instruction form, the evidence that confirms the emulator.

A ledger is a file of JSON lines: a head with the runs that the measurements come from, by name, then one entry for each
form. Its content may also be given directly: a list of entries, an object with such a list under `forms`, or an object
of entries by form. Fields of an entry without a column below are shown as they are.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Column to the names of an entry's fields that may hold it.
COLUMNS = {
    "form": ("form", "instruction"),
    "status": ("status",),
    "device": ("device",),
    "target": ("target",),
    "driver": ("driver",),
    "ptxas": ("ptxas",),
    "date": ("date",),
    "inputs": ("inputs",),
    "all of them": ("exhaustive",),
    "mismatches": ("mismatches",),
    "greatest distance, ulp": ("ulp",),
    "bound": ("bound",),
    "largest error over all inputs": (),
    "other generations": (),
    "measured so": ("envelope",),
    "worst input": ("worst",),
    "why": ("why",),
}
# Fields for the ledger's maintainers, not for readers.
HIDDEN = {"definition", "run"}


class LedgerError(ValueError):
    """A ledger that cannot be read. The message names the file and what was expected."""


@dataclass(frozen=True)
class LedgerTable:
    """The ledger as a table: `columns` that any entry has, `rows` of texts, and the number of forms by status."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    statuses: Mapping[str, int]


def ledger(source: Path | str | Mapping[str, Any] | Sequence[Any]) -> LedgerTable:
    """Read a ledger from a file, or from its content. Raises LedgerError."""
    where = str(source) if isinstance(source, Path | str) else "conformance ledger"
    entries = _entries(_load(source) if isinstance(source, Path | str) else source, where)
    known = {name: column for column, names in COLUMNS.items() for name in names}
    tables = [_columns(entry, known) for entry in entries]
    present = {column for table in tables for column in table}
    columns = [c for c in COLUMNS if c in present]
    columns += sorted(present - set(columns))
    rows = tuple(tuple(table.get(c, "") for c in columns) for table in tables)
    return LedgerTable(tuple(columns), rows, Counter(t.get("status") or "unconfirmed" for t in tables))


def _load(path: Path | str) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise LedgerError(f"{path}: {getattr(e, 'strerror', None) or e}") from e
    try:
        return json.loads(text)
    except ValueError:
        return [_line(path, n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]


def _line(path: Path | str, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as e:
        raise LedgerError(f"{path}:{number}: not JSON: {e}") from e


def _entries(content: Any, where: str) -> list[Mapping[str, Any]]:
    if isinstance(content, Mapping) and "ledger" in content:
        content = [content]  # a file with a head only
    if isinstance(content, Mapping) and isinstance(content.get("forms"), list | Mapping):
        content = content["forms"]
    if isinstance(content, Mapping):
        content = [
            {"form": form, **e} if isinstance(e, Mapping) else {"form": form, "status": e}
            for form, e in content.items()
        ]
    if (
        not isinstance(content, Sequence)
        or isinstance(content, str)
        or not all(isinstance(e, Mapping) for e in content)
    ):
        raise LedgerError(f"{where}: expected a list of entries, or an object of them by instruction form")
    runs = content[0].get("runs", {}) if content and "ledger" in content[0] else {}
    return [{**runs.get(e.get("run", ""), {}), **e} for e in content if "ledger" not in e]


def _columns(entry: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    table: dict[str, str] = {}
    for name, value in entry.items():
        if name in HIDDEN:
            continue
        if name == "errors" and isinstance(value, Mapping):  # of approximate instructions
            table["largest error over all inputs"] = _largest(value)
            table["other generations"] = "model, with these bits"
            continue
        column = known.get(name, name)
        table[column if column not in table else name] = _text(value)
    return table


def _largest(errors: Mapping[str, Any]) -> str:
    """The largest error in each of the ISA's measures, and its input; for sampled inputs, also their number."""
    largest = [_error(m) for m in errors.get("largest", ()) if isinstance(m, Mapping)]
    drawn = "" if errors.get("profile") else f" (of {_text(errors.get('inputs'))} inputs)"
    return "; ".join(largest) + drawn


def _error(largest: Mapping[str, Any]) -> str:
    kind, _, where = str(largest.get("measure", "")).partition(" ")
    error, at = largest.get("error"), _text(largest.get("at", ()))
    if not isinstance(error, int | float):
        return _text(largest)
    size = f"{error:.4g} ulp" if kind == "ulp" else f"{kind} 2^{math.log2(error):.3f}" if error > 0 else "0"
    return f"{size}{' ' * bool(where)}{where} at {at}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)
