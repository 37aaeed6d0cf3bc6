"""One row for each result, for notebooks and other tools: CSV, and Parquet if pyarrow is installed."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ptxdiff.records import InRegisters, Key, Result, RunRecords
from ptxdiff.records.compare import distance
from ptxdiff.records.escaping import csv_cell
from ptxdiff.records.history_facts import state_of
from ptxdiff.reports.verdict import revision

KEY_FIELDS = tuple(f.name for f in dataclasses.fields(Key))


def rows(run: RunRecords) -> Iterator[dict[str, Any]]:
    """Results as flat rows (key, outcome, first offender, resources), then timings; other columns are empty."""
    head = {"run_id": run.run.run_id, "started": run.run.started, "revision": revision(run)}
    for r in run.results:
        yield {**head, "kind": "result", **dataclasses.asdict(r.key), **_outcome(r), **_NO_TIMING, **_NO_LOOP}
    for t in run.timings:
        timing = {name: getattr(t, name) for name in _NO_TIMING}
        yield {**head, "kind": "timing", **dataclasses.asdict(t.key), **_NO_OUTCOME, **timing, **_NO_LOOP}
    for loop in run.in_registers:
        empty = {**_NO_OUTCOME, **_NO_TIMING}
        yield {**head, "kind": "in registers", **dataclasses.asdict(loop.key), **empty, **_loop(loop)}


def _outcome(r: Result) -> dict[str, Any]:
    w = r.worst
    return {
        "verdict": r.verdict,
        "state": state_of(r),
        "expected_failure": r.expected_failure,
        "evidence": r.evidence,
        "words": r.words,
        "diagnosis": r.diagnosis,
        "total": r.total,
        "different": r.different,
        "unchecked": r.unchecked,
        "judged": sum(s.judged for s in r.judged.values()),
        "ordinary": sum(s.ordinary for s in r.judged.values()),
        "ordinary_judged": sum(s.ordinary_judged for s in r.judged.values()),
        "worst_ulp": max(map(distance, r.ulps), default=None),
        "classes": json.dumps(dict(r.classes)),
        "offender_inputs": json.dumps({n: b.bits for n, b in w.inputs.items()}) if w else "",
        "offender_expected": w.expected.bits if w else "",
        "offender_got": w.got.bits if w else "",
        "registers": r.resources.get("registers"),
        "spill_stores": r.resources.get("spill_stores"),
        "spill_loads": r.resources.get("spill_loads"),
        "instructions": sum(r.instructions.values()) or None,
        "contraction_open": r.contraction_open,
        "device": r.device,
        "ptxas": r.ptxas,
        "asm": r.asm,
        "ptx": r.ptx,
        "sass": r.sass,
        "replay": r.replay,
        "seconds": r.seconds,
        "reused": r.reused,
    }


_NO_OUTCOME = dict.fromkeys(_outcome(Result(Key("", "", "", ""), "not run")))
_NO_TIMING = dict.fromkeys(
    ("size", "elements", "bytes", "median", "low", "high", "copy", "noise", "launch", "timer", "throttled")
)


def _loop(t: InRegisters) -> dict[str, Any]:
    low, high = (None, None) if t.words else t.interval
    return {
        "value": None if t.words else t.value,
        "value_low": low,
        "value_high": high,
        "value_noise": t.noise,
        "clocks": t.median,
        "opcodes": json.dumps(dict(t.opcodes)),
        "bytes_per_clock": t.bytes_per_clock,
        "not_timed": t.words,
    }


_NO_LOOP = dict.fromkeys(_loop(InRegisters(Key("", "", "", ""), words="none")))
COLUMNS = ("run_id", "started", "revision", "kind", *KEY_FIELDS, *_NO_OUTCOME, *_NO_TIMING, *_NO_LOOP)


def write_csv(run: RunRecords, output: Path) -> Path:
    """Write a CSV file with a header line and return its path. Columns that do not apply to a row are empty."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows(run))
    return output


def write_parquet(run: RunRecords, output: Path) -> Path:
    """Write a Parquet file and return its path. Raises RuntimeError if pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as e:
        raise RuntimeError(f"{output}: Parquet needs pyarrow: pip install 'ptxdiff[parquet]', or write .csv") from e
    output.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({name: list(column) for name, column in _columns(run).items()})
    pyarrow.parquet.write_table(table, output)
    return output


def _columns(run: RunRecords) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row in rows(run):
        for name, values in columns.items():
            values.append(row[name])
    return columns
