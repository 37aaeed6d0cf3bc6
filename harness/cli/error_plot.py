"""Plots of approximate instructions' errors over the range of their argument: text bars, or a chart in a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptxdiff.cli import UsageError

_LEVELS = " ▁▂▃▄▅▆▇█"
_COLUMNS = 32
_FACTOR = 8


def lines(errors: Mapping[str, Any]) -> Iterator[str]:
    """Text bars of the largest error by the argument's exponent: one for positive, one for negative arguments."""
    profile = errors["profile"]
    top = max(profile, default=0.0)
    if not top:
        return
    half = len(profile) // 2
    step = max(half // _COLUMNS, 1)
    bias = half // 2 - 1
    yield f"by exponent of the argument, each step a factor of {_FACTOR}:"
    for sign, side in (("+", profile[:half]), ("-", profile[half:])):
        if any(side):
            tops = [max(side[i : i + step]) for i in range(0, half, step)]
            bar = "".join(_LEVELS[_level(t / top)] for t in tops)
            yield f"{sign}2^{1 - bias} to 2^{half - 2 - bias}: |{bar}|"


def _level(share: float) -> int:
    """The height of a bar, 0 to 8: 8 for the greatest error, one less for each factor, 1 for any smaller error."""
    return max(8 - math.floor(math.log(1 / share, _FACTOR)), 1) if share else 0


def write(path: Path, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a chart of the forms' errors. Raises UsageError without errors, and for another suffix of the file."""
    if not found:
        raise UsageError("--plot: these forms have no error profile; ptxdiff conformance FORM --errors computes one")
    if path.suffix not in (".svg", ".png", ".html"):
        raise UsageError(f"--plot {path}: name a .svg, .png or .html file")
    import altair

    rows = [row for form, errors in found.items() for row in _rows(form, errors)]
    chart = (
        altair.Chart(altair.Data(values=rows))
        .mark_line(interpolate="step")
        .encode(
            x=altair.X("exponent:Q", title="exponent of the argument"),
            y=altair.Y("error:Q", title="largest error").scale(type="log"),
            color=altair.Color("sign:N", title="argument"),
            row=altair.Row("form:N", title=None),
        )
        .properties(width=640, height=120)
        .resolve_scale(y="independent")
    )
    chart.save(str(path))


def _rows(form: str, errors: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    profile: Sequence[float] = errors["profile"]
    half = len(profile) // 2
    title = f"{form} ({errors['largest'][0]['measure'].split(' ')[0]})"
    for number, error in enumerate(profile):
        if error:
            exponent = number % half - (half // 2 - 1)
            yield {"form": title, "exponent": exponent, "error": error, "sign": "+" if number < half else "-"}
