"""The Vega-Lite specification of each kind of chart, made by altair.

A specification names its data `rows`, and the page fills in the rows of the case that is shown, so that each
specification is embedded once. Colours are variables of the style sheet, so that a chart follows the light, the dark
and the printed page without being drawn again. Expressions use only what vega's interpreter supports, because the page
forbids `eval`.
"""

from __future__ import annotations

from typing import Any

import altair as alt

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


def specifications() -> dict[str, dict[str, Any]]:
    """The specification of each kind of chart, by its name in a page's data."""
    return {
        chart.__name__: chart()
        for chart in (ulps, ulps_unbounded, ranges, ranges_unbounded, speed, trend, trend_unchanged)
    }
