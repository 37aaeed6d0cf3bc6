"""The report: one HTML file that opens from disk and needs no other file.

All texts of case files are untrusted, and there are three protections. jinja2 escapes all text in the page, also text
that stays packed until it is opened. The data of scripts is base64, or JSON with `<` written as an escape. And a
content security policy runs only the two scripts whose hashes it names, so that even a forgotten escape could not run
anything.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from ptxdiff.records import RunRecords, by_assembler, collector_paused
from ptxdiff.records.escaping import visible
from ptxdiff.records.kill_rate import kill_rate, totals
from ptxdiff.reports import charts, packing
from ptxdiff.reports.case_page import COLOURS, SWEPT_SHOWN, CasePage, case_page
from ptxdiff.reports.charts import map_anchor
from ptxdiff.reports.conformance import ledger
from ptxdiff.reports.forked import made_in_forks
from ptxdiff.reports.highlight import states
from ptxdiff.reports.history import KINDS, History, history, seconds
from ptxdiff.reports.model import EVIDENCE, PROVED, STATES, FailureGroup, View, anchor, reasons, shape_order, view
from ptxdiff.reports.packing import Keeper
from ptxdiff.reports.timing import Measured, looped, measured
from ptxdiff.reports.verdict import environment_rows, headline_facts, overall

SCRIPTS = ("packets.js", "colours.js", "matrix.js", "listings.js", "charts.js", "page.js")
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
    data of each case, the section on the ledger and compiled templates for the next report.
    """
    with collector_paused():
        book = _conformance(conformance, packets) if conformance is not None else None
        found = newest if isinstance(newest, View) else view(newest)
        text = page(found, past, book, cache, packets)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(text.encode("utf-8", "replace"))  # a lone surrogate from a case file must not cost the report
    return output


def page(found: View, past: History, book: Markup | None, cache: Path | None = None, kept: Keeper | None = None) -> str:
    """The page as text. book: the section on the conformance ledger."""
    timed = measured(found.records)
    in_registers = looped(found.records)
    cases = [case_page(found, name, timed.get(name, ()), past, in_registers.get(name), kept) for name in found.cases]
    made = _made(found, cases, past, kept)
    charts_used = _charts(cases, past)
    library = charts.library(cache) if charts_used else ""
    script = "\n".join(['(() => {\n"use strict";', *(_asset(name) for name in SCRIPTS), "})();"])
    return (
        _environment_with(kept)
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
            not_run=reasons(found.by_state.get("not run", ()), ["not run"]),
            unsupported=reasons(found.by_state.get("unsupported", ()), ["unsupported"]),
            cases=cases,
            timed=any(timed.values()) or any(in_registers.values()),
            mutations=found.records.mutations,
            proofs=found.records.proofs,
            mutants=totals(found.records.mutations),
            kill_rate=kill_rate(found.records.mutations),
            assemblers=by_assembler(found.records.results),
            ledger=book,
            sections={name: one.section for name, one in made.items()},
            packets={name: one.packet for name, one in made.items()},
            colours=_json(states()),
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


class _Made(NamedTuple):
    """What is made of one case apart from the others: its packet, and the body of its section."""

    packet: str
    section: _Asset


def _made(found: View, cases: Sequence[CasePage], past: History, kept: Keeper | None) -> dict[str, _Made]:
    budget = PACKET_BUDGET // max(1, len(cases))
    folded = _folded(cases)
    environment = _environment_with(kept)
    template = environment.get_template("case_section.html.j2")
    for name in ("case.html.j2", "macros.html.j2", "map.html.j2"):  # compiled here, once for all forks
        environment.get_template(name)
    _ = found.splits  # likewise

    def make(case: CasePage) -> _Made:
        packet, left_out = packing.packet(found, case.name, _chart_rows(case, past), budget, kept)
        facts = {"case": case, "view": found, "history": past, "left_out": left_out, "folded": case.name in folded}
        return _Made(packet, _Asset(template.render(facts)))

    return {c.name: one for c, one in zip(cases, made_in_forks(make, cases), strict=True)}


def keep_ahead(source: Path, kept: Keeper) -> None:
    """Store what no run decides, for a page that is made later: the section on a ledger, if the file exists, and
    compiled templates."""
    environment = _environment_with(kept)
    for name in environment.list_templates():
        environment.get_template(name)
    if source.exists():
        _conformance(source, kept)


def _conformance(source: LedgerSource, kept: Keeper | None) -> Markup:
    """The section on a ledger. That on a file is stored under the file's bytes, and all that decides how it looks."""
    parts: tuple[bytes, ...] = ()
    if kept is not None and isinstance(source, Path | str):
        with contextlib.suppress(OSError):  # `ledger` says what is wrong
            parts = b"ledger", _code(), str(LEDGER_SHOWN).encode(), Path(source).read_bytes()
        known = kept.get(*parts) if parts else None
        if known is not None:
            return _Asset(known.decode())
    template = _environment_with(kept).get_template("conformance.html.j2")
    text = template.render(ledger=ledger(source))
    if kept is not None and parts:
        kept.put(text.encode("utf-8", "replace"), *parts)
    return _Asset(text)


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


_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,52}\b")


def short_digests(text: str) -> Markup:
    """A text with its digests in twelve digits, each with all of its digits as its title."""
    return Markup(_DIGEST.sub(r'<code title="\g<0>">\1</code>', str(escape(text))))


def breakable(name: str) -> Markup:
    """A name that a narrow column breaks behind a dot or an underscore, before it breaks a word."""
    return Markup(re.sub(r"(?<=[._])(?=\w)", "<wbr>", str(escape(name))))


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


class _CompiledTemplates(BytecodeCache):
    """Templates as compiled, stored under their text and all code of reports: jinja2 computes constants beforehand."""

    def __init__(self, kept: Keeper) -> None:
        self._kept = kept

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take the code of a template that is stored. jinja2 checks its own version, Python's, and the text again."""
        known = self._kept.get(*self._parts(bucket))
        if known is not None:
            bucket.bytecode_from_string(known)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store it."""
        self._kept.put(bucket.bytecode_to_string(), *self._parts(bucket))

    def _parts(self, bucket: Bucket) -> tuple[bytes, ...]:
        return b"template", _code(), bucket.key.encode(), bucket.checksum.encode()


def _environment_with(kept: Keeper | None) -> Environment:
    """The environment; templates that it has not compiled yet come from `kept`, if they are there."""
    environment = _environment()
    environment.bytecode_cache = None if kept is None else _CompiledTemplates(kept)
    return environment


@cache
def _code() -> bytes:
    """A digest of all that decides what templates give for equal data: code, templates, and versions."""
    folder = Path(__file__).parent
    records = Path(str(sys.modules[RunRecords.__module__].__file__)).parent
    files = [*folder.glob("*.py"), *folder.glob("templates/*.j2"), *records.glob("*.py")]
    packages = [f"{name} {version(name)}" for name in ("jinja2", "markupsafe")]
    made_by = [sys.version, f"zlib {zlib.ZLIB_RUNTIME_VERSION}", *packages]
    texts = [f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in sorted(files)]
    return hashlib.sha256("\0".join([*made_by, *texts]).encode("utf-8", "surrogateescape")).digest()


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
        "breakable": breakable,
        "generation": generation,
        "short_digests": short_digests,
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
    if type(value) not in (str, Markup) or (text := visible(value)) == value:
        return value
    return type(value)(text)


def _si(value: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "
