"""The charts of the page: one Vega-Lite specification a kind, made by altair, and the JavaScript that draws them.

A specification names its data `rows`, and the page fills in the rows of the case that is shown, so that each
specification and the library are embedded once. Colours are variables of the style sheet, so that a chart follows the
light, the dark and the printed page without being drawn again. Expressions use only what vega's interpreter supports,
because the page forbids `eval`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import math
import os
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt

from ptxdiff.records import Area, Bits, Grid, Result
from ptxdiff.reports.model import Row, anchor, simplicity

SERIES = [f"var(--series-{n})" for n in range(1, 9)]
ROWS = alt.NamedData(name="rows")

_CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "titleFontWeight": "normal",
        "domainColor": "var(--line-strong)",
        "tickColor": "var(--line-strong)",
        "gridColor": "var(--line)",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "labelOverlap": "greedy",
    },
    "legend": {"labelColor": "currentColor", "orient": "top", "title": None, "columns": 3, "labelLimit": 260},
    "header": {"labelColor": "currentColor", "titleColor": "currentColor"},
    "range": {"category": SERIES},
    "text": {"color": "currentColor"},
}


def _finished(chart: Any, height: int | None = 200) -> dict[str, Any]:
    sized = chart.properties(width="container", height=height) if height else chart
    spec: dict[str, Any] = sized.to_dict()
    spec["config"] = _CONFIG
    spec["autosize"] = {"type": "fit", "contains": "padding"}
    return spec


_TICKS = [0, *(sign * n for n in (1, 3, *(10**k for k in range(1, 10)), 1e12, 1e15, 1e18) for sign in (-1, 1))]
"""Distances that an axis may name; the axis leaves out those that do not fit."""


_SHORT = "format(datum.value, '~s')"
"""A number as `10k`; by itself the axis would give all its numbers one unit."""


def _distances() -> dict[str, Any]:
    """An axis of signed distances: linear around 0, logarithmic beyond, so that 1 ulp shows beside a flush."""
    return {
        "scale": alt.Scale(type="symlog", nice=False, zero=False),
        "axis": alt.Axis(values=sorted(_TICKS), labelExpr=_SHORT, labelOverlap="greedy", labelSeparation=4),
    }


def _bound(low: str, high: str) -> Any:
    """The promised bound as a band. low, high: the channels along which it reaches from `minus` to `bound`."""
    return (
        alt.Chart(ROWS)
        .transform_aggregate(groupby=[], least="min(minus)", most="max(bound)")
        .mark_rect(color="var(--pass)", opacity=0.16)
        .encode(**{low: alt.X("least:Q") if low == "x" else alt.Y("least:Q"), high: "most:Q"})
    )


def ulps() -> dict[str, Any]:
    """Signed ulp histogram: rows of label, begin, end, bottom, top, count, finding, colour, and minus, bound."""
    return _finished(alt.layer(_bound("x", "x2"), _bars()))


def ulps_unbounded() -> dict[str, Any]:
    """As `ulps`, without a bound."""
    return _finished(_bars())


def _bars() -> Any:
    return (
        alt.Chart(ROWS)
        .mark_rect(strokeWidth=1)  # the outline shows a bar that is narrower than a pixel
        .encode(
            x=alt.X("begin:Q", title="got − expected, in ulp (symmetric log)", **_distances()),
            x2="end:Q",
            y=alt.Y("bottom:Q", scale=alt.Scale(type="symlog"), title="codes (log)", axis=_COUNTS),
            y2="top:Q",
            color=alt.Color("colour:N", scale=None),
            stroke=alt.Stroke("colour:N", scale=None),
            tooltip=[
                alt.Tooltip("label:N", title="ulp"),
                alt.Tooltip("count:Q", format=","),
                alt.Tooltip("finding:N"),
            ],
        )
    )


_COUNTS = alt.Axis(values=[0, *(10**k for k in range(19))], labelExpr=_SHORT, labelOverlap="greedy", labelSeparation=2)


def ranges() -> dict[str, Any]:
    """The error over the inputs' exponents: rows of exponent, where, low, high (signed ulp), and minus, bound."""
    return _finished(alt.layer(_bound("y", "y2"), *_errors()))


def ranges_unbounded() -> dict[str, Any]:
    """As `ranges`, without a bound."""
    return _finished(alt.layer(*_errors()))


def _errors() -> list[Any]:
    base = alt.Chart(ROWS).encode(x=alt.X("exponent:Q", title="exponent of the input", scale=alt.Scale(zero=False)))
    band = base.mark_bar(size=3, color=SERIES[0]).encode(
        y=alt.Y("low:Q", title="error, ulp (symmetric log)", **_distances()),
        y2=alt.Y2("high:Q"),
        tooltip=[
            alt.Tooltip("where:N", title="exponent"),
            alt.Tooltip("low:Q", format=","),
            alt.Tooltip("high:Q", format=","),
        ],
    )
    return [band, base.mark_point(size=8, filled=True, color=SERIES[0]).encode(y="high:Q")]


def speed() -> dict[str, Any]:
    """Speed beside the copy floor: rows of size, order, variant, and value, low, high (percent of the copy's speed)."""
    x = alt.X("size:N", sort=alt.SortField("order"), title="size", axis=alt.Axis(labelAngle=0))
    base = alt.Chart(ROWS).encode(x=x, xOffset="variant:N")
    y = alt.Y("low:Q", title="% of the copy floor", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))
    tips = [alt.Tooltip("variant:N"), alt.Tooltip("size:N"), *_tips("value", "low", "high", number=".1f")]
    interval = base.mark_rule(strokeWidth=2, color="currentColor", opacity=0.55).encode(y=y, y2="high:Q")
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        y="value:Q", shape="variant:N", color="variant:N", tooltip=tips
    )
    floor = alt.Chart(ROWS).mark_rule(strokeDash=[4, 3], color="currentColor").encode(y=alt.datum(100))
    return _finished(alt.layer(floor, interval, points), 220)


def trend() -> dict[str, Any]:
    """One metric over the nights: rows of date, revision, value, series and step (1 on the night of a change)."""
    rules = (
        alt.Chart(ROWS)
        .transform_filter(alt.FieldEqualPredicate(field="step", equal=1))
        .mark_rule(strokeDash=[4, 3], color="var(--fail)")
        .encode(x="date:T", tooltip=[alt.Tooltip("date:T", format="%Y-%m-%d", title="change"), "revision:N"])
    )
    return _finished(alt.layer(rules, *_nights()))


def trend_unchanged() -> dict[str, Any]:
    """As `trend`, without a night of a change."""
    return _finished(alt.layer(*_nights()))


def _nights() -> list[Any]:
    base = alt.Chart(ROWS).encode(x=alt.X("date:T", title=None, axis=alt.Axis(format="%d %b", tickCount=8)))
    tips = [
        alt.Tooltip("date:T", format="%Y-%m-%d"),
        alt.Tooltip("revision:N"),
        alt.Tooltip("series:N"),
        *_tips("value"),
    ]
    value = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(format="~g", tickCount=5))
    lines = base.mark_line(strokeWidth=1, color="currentColor", opacity=0.4).encode(y=value, detail="series:N")
    points = base.mark_point(filled=True, size=26, opacity=1).encode(
        y=value, color="series:N", shape="series:N", tooltip=tips
    )
    return [lines, points]


def _tips(*names: str, number: str = ".4~g") -> list[Any]:
    return [alt.Tooltip(f"{n}:Q", format=number) for n in names]


@cache
def specifications() -> dict[str, dict[str, Any]]:
    """Every kind of chart by name."""
    return {
        chart.__name__: chart()
        for chart in (ulps, ulps_unbounded, ranges, ranges_unbounded, speed, trend, trend_unchanged)
    }


def library(folder: Path | None = None) -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that loads nothing, about 0.9 MB.

    folder: where it is cached between processes, because building it takes two seconds. It is stored under the version
    of its source and under this module's text.
    """
    if folder is None:
        return _bundle()
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    kept = folder / f"vega-{version('vl-convert-python')}-{code}.js"
    with contextlib.suppress(OSError, ValueError):
        return kept.read_text(encoding="utf-8")
    script = _bundle()
    with contextlib.suppress(OSError):  # without a writable folder, it is built each time
        folder.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(script, encoding="utf-8")
        partial.replace(kept)
    return script


@cache
def _bundle() -> str:
    import vl_convert

    # In a function, because the bundle's thousands of names would otherwise be global names of the page.
    bundle = f"(() => {{{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;')}}})();"
    # Only `</script` ends a script element; in a JavaScript string or pattern this backslash changes nothing.
    return re.sub(r"</(?=script)", r"<\\/", bundle, flags=re.IGNORECASE)


# The map of where inputs fail over a pair of small inputs, as parts of an inline SVG -------------------------------
#
# The counts become an image that serves as a mask. The colour comes from the style sheet, so that the map follows the
# light, the dark and the printed page. Text beside the map describes it, rectangle by rectangle.

SIZE = 288
"""The side of the map, in the SVG's units."""
LARGEST = 256
# Below the map every second tick has a label, because labels are wider than an eighth of the map.
_BELOW = 2
_FAINTEST, _STRONGEST = 120, 255


@dataclass(frozen=True)
class Tick:
    """A label of an axis: where it stands, and the code there."""

    at: float
    code: Bits


@dataclass(frozen=True)
class PlotArea:
    """An area and its frame on the map.

    number: its place in the list, from 1. pairs: the number of pairs in it; 0 if not all of them were tried.
    """

    number: int
    x: float
    y: float
    width: float
    height: float
    area: Area
    pairs: int


@dataclass(frozen=True)
class FailingMap:
    """The map of one variant, from its result that compared the most codes."""

    variant: str
    result: Result
    grid: Grid
    anchor: str
    failing: int
    image: str
    rows: tuple[Tick, ...]
    columns: tuple[Tick, ...]
    frames: tuple[PlotArea, ...]
    size: int = SIZE


def failing_map(row: Row) -> FailingMap | None:
    """A row's map; None if none of its results has a valid one."""
    mapped = [r for r in row.results if r.grid is not None]
    if not mapped:
        return None
    result = min(mapped, key=lambda r: (-r.total, simplicity(r)))
    grid = result.grid
    assert grid is not None
    try:
        counts = unpacked(grid)
        return FailingMap(
            variant=row.variant,
            result=result,
            grid=grid,
            anchor=map_anchor(row.case, row.variant),
            failing=sum(map(sum, counts)),
            image=base64.b64encode(_png(counts)).decode(),
            rows=_ticks(grid.row_ticks),
            columns=_ticks(grid.column_ticks)[::_BELOW],
            frames=tuple(_frame(n, area, result) for n, area in enumerate(grid.areas, 1)),
        )
    except (ValueError, IndexError, ArithmeticError, zlib.error, struct.error):
        return None


def map_anchor(case: str, variant: str) -> str:
    """The id of a variant's map."""
    return anchor("map", case, variant)


def unpacked(grid: Grid) -> list[tuple[int, ...]]:
    """Failing inputs by row and column. Raises ValueError, zlib.error or struct.error for an invalid map."""
    rows, columns = grid.shape
    if not (0 < rows <= LARGEST and 0 < columns <= LARGEST):
        raise ValueError(f"a map of {rows} by {columns}")
    data = zlib.decompressobj().decompress(base64.b64decode(grid.counts), 4 * rows * columns)
    return [struct.unpack_from(f"<{columns}I", data, 4 * columns * row) for row in range(rows)]


def _ticks(codes: Sequence[Bits]) -> tuple[Tick, ...]:
    """The ticks of an axis: the last code is at the far end, the others divide the axis evenly."""
    last = max(1, len(codes) - 1)
    return tuple(Tick(SIZE * n / last, code) for n, code in enumerate(codes))


def _frame(number: int, area: Area, result: Result) -> PlotArea:
    grid = result.grid
    assert grid is not None
    top, bottom = _span(area.row, grid.row_ticks)
    left, right = _span(area.column, grid.column_ticks)
    (a, b), (c, d) = (tuple(int(x.bits, 16) for x in side) for side in (area.row, area.column))
    everything = (int(grid.row_ticks[-1].bits, 16) + 1) * (int(grid.column_ticks[-1].bits, 16) + 1)
    pairs = (b - a + 1) * (d - c + 1) if result.total >= everything else 0
    return PlotArea(number, left, top, right - left, bottom - top, area, pairs)


def _span(ends: Sequence[Bits], ticks: Sequence[Bits]) -> tuple[float, float]:
    total = int(ticks[-1].bits, 16) + 1
    return SIZE * int(ends[0].bits, 16) / total, SIZE * (int(ends[-1].bits, 16) + 1) / total


def _png(counts: Sequence[Sequence[int]]) -> bytes:
    """A grey image: black where nothing fails, brighter by the logarithm of the count. PNG specification, 2003."""
    greatest = max(map(max, counts)) or 1
    scale = (_STRONGEST - _FAINTEST) / math.log1p(greatest)
    level = {n: round(_FAINTEST + scale * math.log1p(n)) if n else 0 for n in {n for row in counts for n in row}}
    lines = b"".join(b"\0" + bytes(level[n] for n in row) for row in counts)
    head = struct.pack(">IIBBBBB", len(counts[0]), len(counts), 8, 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
