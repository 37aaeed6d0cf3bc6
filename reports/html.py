"""The report: one HTML file that opens from disk and needs no other file.

All texts of case files are untrusted, and there are three protections. jinja2 escapes all text in the page, also text
that stays packed until it is opened. The data of scripts is base64, or JSON with `<` written as an escape. And a
content security policy runs only the two scripts whose hashes it names, so that even a forgotten escape could not run
anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ptxdiff.records import RunRecords, by_assembler, collector_paused
from ptxdiff.records.escaping import visible
from ptxdiff.records.kill_rate import kill_rate, totals
from ptxdiff.reports import charts, packing
from ptxdiff.reports.case_page import COLOURS, SWEPT_SHOWN, CasePage, case_page
from ptxdiff.reports.charts import map_anchor
from ptxdiff.reports.conformance import LedgerTable, ledger
from ptxdiff.reports.forked import in_forks
from ptxdiff.reports.history import KINDS, History, history, seconds
from ptxdiff.reports.model import EVIDENCE, PROVED, STATES, FailureGroup, View, anchor, reasons, shape_order, view
from ptxdiff.reports.packing import Keeper
from ptxdiff.reports.timing import Measured, looped, measured
from ptxdiff.reports.verdict import environment_rows, headline_facts, overall

SCRIPTS = ("packets.js", "matrix.js", "listings.js", "charts.js", "page.js")
# The most bytes of all packets together. The page may have 5 MB; the library of charts takes 0.9 MB.
PACKET_BUDGET = 2_000_000
# With at least this many cases, those without failures are packed; the ledger too, with as many forms.
CASES_SHOWN = 24
LEDGER_SHOWN = 40
CHANGES_FIRST = 12
WRONG_FIRST = 6

# The kind of change that each series of the history shows.
TREND_KINDS = {"time": "speed", "ulp": "ulp", "registers": "registers"}

# CUDA C++ programming guide, compute capabilities.
GENERATIONS = {
    "7": "Volta",
    "75": "Turing",
    "8": "Ampere",
    "89": "Ada",
    "9": "Hopper",
    "10": "Blackwell",
    "11": "Blackwell",
    "12": "Blackwell",
}


# What each backend does with a variant, for a sentence.
RAN = {"gpu": "run on the GPU", "emulator": "emulated", "assembler": "assembled", "sass": "run as machine code"}

LedgerSource = Path | str | Mapping[str, Any] | Sequence[Any]


def write(runs: Iterable[RunRecords], output: Path, *, conformance: LedgerSource | None = None) -> Path:
    """Write the report on the newest of `runs`, with the history of all of them, and return the path.

    runs: a sequence in any order, or any iterable from the oldest to the newest (`ptxdiff.reports.history.folder` reads
    a folder one run at a time). conformance: a ledger file, or its content. Raises ValueError if there is no run, and
    LedgerError for a faulty ledger.
    """
    return write_history(*history(runs), output, conformance=conformance)


def write_history(
    past: History,
    newest: RunRecords | View,
    output: Path,
    *,
    conformance: LedgerSource | None = None,
    cache: Path | None = None,
    packets: Keeper | None = None,
) -> Path:
    """Write the report on a history, as `ptxdiff.reports.history.history` returns it, and return the path.

    cache: a folder that stores the charts' library for the next report; None stores nothing. packets: stores the packed
    data of each case for the next report.
    """
    book = ledger(conformance) if conformance is not None else None
    with collector_paused():
        found = newest if isinstance(newest, View) else view(newest)
        text = page(found, past, book, cache, packets)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(text.encode("utf-8", "replace"))  # a lone surrogate from a case file must not cost the report
    return output


def page(
    found: View, past: History, book: LedgerTable | None, cache: Path | None = None, kept: Keeper | None = None
) -> str:
    """The page as text."""
    timed = measured(found.records)
    in_registers = looped(found.records)
    cases = [case_page(found, name, timed.get(name, ()), past, in_registers.get(name)) for name in found.cases]
    packets, left_out = _packets(found, cases, past, kept)
    charts_used = _charts(cases, past)
    library = charts.library(cache) if charts_used else ""
    script = "\n".join(['(() => {\n"use strict";', *(_asset(name) for name in SCRIPTS), "})();"])
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            view=found,
            run=found.records.run,
            overall=overall(found),
            facts=headline_facts(found.records),
            environment=environment_rows(found.records.run.environment),
            failures=found.failures,
            wrong=found.wrong,
            wrong_first=found.wrong[:WRONG_FIRST],
            history=past,
            changes_first=past.standing[:CHANGES_FIRST],
            not_run=reasons(found.records.results, ["not run"]),
            unsupported=reasons(found.records.results, ["unsupported"]),
            cases=cases,
            timed=any(timed.values()) or any(in_registers.values()),
            mutations=found.records.mutations,
            proofs=found.records.proofs,
            mutants=totals(found.records.mutations),
            kill_rate=kill_rate(found.records.mutations),
            assemblers=by_assembler(found.records.results),
            ledger=book,
            folded=_folded(cases),
            packets=packets,
            left_out=left_out,
            specifications=_json(charts.specifications(cache) if charts_used else {}),
            style=_Asset(_asset("report.css")),
            library=library,
            script=_Asset(script),
            policy=_policy([library, script]),
        )
    )


def standalone(template: str, **facts: Any) -> str:
    """A page without scripts, from a template that extends `page.html.j2`."""
    style = _Asset(_asset("report.css"))
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
    return _environment().get_template(template).render(style=style, policy=policy, **facts)


def _packets(
    found: View, cases: Sequence[CasePage], past: History, kept: Keeper | None
) -> tuple[dict[str, str], dict[str, str]]:
    budget = PACKET_BUDGET // max(1, len(cases))
    made = in_forks(lambda c: packing.packet(found, c.name, _chart_rows(c, past), budget, kept), cases)
    packed = {c.name: one for c, one in zip(cases, made, strict=True)}
    return {n: p for n, (p, _) in packed.items()}, {n: words for n, (_, words) in packed.items() if words}


def _folded(cases: Sequence[CasePage]) -> set[str]:
    """The names of the cases that stay packed on a page of many cases: those that no link on the page leads into."""
    if len(cases) < CASES_SHOWN:
        return set()
    return {c.name for c in cases if not (c.failures or c.expected or c.maps)}


def _charts(cases: Sequence[CasePage], past: History) -> bool:
    return len(past.nights) > 1 or any(c.histograms or c.speed or _details(c) for c in cases)


def _details(case: CasePage) -> bool:
    return any(case.spreads.values())


def _chart_rows(case: CasePage, past: History) -> dict[str, Any]:
    """The rows of every chart of a case, by the id of the element that shows it."""
    rows: dict[str, Any] = {}
    for n, h in enumerate(case.histograms):
        rows[f"{case.anchor}--ulps-{n}"] = {"kind": "ulps" if h.bound is not None else "ulps_unbounded", "rows": h.bars}
    if case.speed:
        rows[f"{case.anchor}--speed"] = {"kind": "speed", "rows": [_speed_row(m) for m in case.speed]}
    rows |= _range_rows(case)
    for metric, trend in _trends(case, past).items():
        kind = "trend" if any(point["step"] for point in trend) else "trend_unchanged"
        rows[f"{case.anchor}--trend-{metric}"] = {"kind": kind, "rows": trend}
    return rows


def _speed_row(m: Measured) -> dict[str, Any]:
    t = m.timing
    return {
        "size": size_text(t.key.shape),
        "order": t.elements,
        "variant": t.key.variant,
        "value": 100 * t.copy / t.median,
        "low": 100 * t.copy / t.high,
        "high": 100 * t.copy / t.low,
    }


def size_text(shape: str) -> str:
    """A size as tables print it: `67,108,864`, `M=4,N=64`."""
    return f"{int(shape):,}" if shape.isdigit() else shape


def _range_rows(case: CasePage) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for n, spread in enumerate(case.spreads[row.variant] for row in case.rows):
        if spread is not None:
            kind = "ranges_unbounded" if spread.bound is None else "ranges"
            rows[f"{case.anchor}--ranges-{n}"] = {"kind": kind, "rows": list(spread.points)}
    return rows


def _trends(case: CasePage, past: History) -> dict[str, list[dict[str, Any]]]:
    """The series to draw: those of a variant and metric that changed, and all times of the largest size.

    Times are relative to the first night. A trend of one night is none.
    """
    if len(past.nights) < 2:
        return {}
    largest = _largest_size(case, past)
    found: dict[str, list[dict[str, Any]]] = {}
    for (name, variant, target, metric), values in past.series.items():
        kind, _, size = metric.partition(" ")
        dated = {
            c.night
            for c in case.changes
            if c.kind == TREND_KINDS[kind] and c.variant == variant and target in c.targets
        }
        if name != case.name or not (dated or (kind == "time" and size == largest)):
            continue
        measured = [(n, v) for n, v in enumerate(values) if v is not None]
        if len(measured) < 2:
            continue
        unit = measured[0][1] if kind == "time" else 1.0
        label = " ".join(part for part in (variant, target, size_text(size)) if part)
        found.setdefault(kind, []).extend(
            {
                "date": past.nights[n].started,
                "revision": past.nights[n].revision,
                "series": label,
                "value": v / unit,
                "step": int(n in dated),
            }
            for n, v in measured
        )
    return found


def _largest_size(case: CasePage, past: History) -> str:
    sizes = {
        size
        for name, _, _, metric in past.series
        if name == case.name and metric.startswith("time ")
        for _, _, size in (metric.partition(" "),)
    }
    return max(sizes, key=lambda s: shape_order(s.partition(" ")[0]), default="")


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _json(value: Any) -> Markup:
    """JSON for a script element: nothing in it ends the element or starts a comment."""
    text = json.dumps(value, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def generation(target: str) -> str:
    """The name of a target's GPU generation; "" if unknown."""
    number = "".join(c for c in target if c.isdigit())
    return GENERATIONS.get(number) or GENERATIONS.get(number[:-1], "")


def moment(started: str) -> str:
    """A time in ISO 8601 in a readable form; any other text unchanged."""
    try:
        when = datetime.fromisoformat(started)
    except ValueError:
        return started
    return f"{when:%Y-%m-%d %H:%M}" + (" UTC" if when.utcoffset() == timedelta(0) else f" {when:%z}".rstrip())


def _failure_since(group: FailureGroup, past: History) -> str:
    """The run that first had a group of failures; "" without a history."""
    if len(past.nights) < 2:
        return ""
    k = [past.since[r.key.item] for r in group.results if r.key.item in past.since]
    if not k:
        return ""
    night = past.nights[min(k)]
    since = f"since {night.started[:10]}" + (f" (revision {night.revision})" if night.revision else "")
    return f"{since}, the oldest run here" if min(k) == 0 else since


@cache
def _asset(name: str) -> str:
    return resources.files("ptxdiff.reports").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    env = Environment(
        loader=PackageLoader("ptxdiff.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "compressed": lambda text: packing.deflated(str(text)),
        "count": lambda n: f"{n:,}",
        "generation": generation,
        "ran": lambda backend: RAN.get(backend, backend),
        "moment": moment,
        "si": _si,
        "size": size_text,
        "seconds": seconds,
    }
    env.globals |= {
        "STATES": STATES,
        "EVIDENCE": EVIDENCE,
        "PROVED": PROVED,
        "KINDS": KINDS,
        "LEDGER_SHOWN": LEDGER_SHOWN,
        "SWEPT_SHOWN": SWEPT_SHOWN,
        "COLOURS": COLOURS,
        "anchor": anchor,
        "map_anchor": map_anchor,
        "since": _failure_since,
    }
    return env


class _Asset(Markup):
    """A script or a style sheet of the page, which is not escaped."""


def _shown(value: Any) -> Any:
    """The value that a template prints: in texts of records, escaped or not, invisible characters become visible."""
    return type(value)(visible(value)) if type(value) in (str, Markup) else value


def _si(value: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "
