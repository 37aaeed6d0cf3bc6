"""The charts of the page: their specifications and the JavaScript that draws them, kept between pages; maps of inputs.

Both take seconds to make: altair's import for the specifications (`ptxdiff.reports.specifications`), and the bundle of
its library. They are stored under the versions of their sources and the text of their code.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from ptxdiff.records import Area, Bits, Grid, Result
from ptxdiff.reports.model import Row, anchor, simplicity


def specifications(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """The specification of each kind of chart (`ptxdiff.reports.specifications`).

    folder: where they are cached between processes.
    """
    by_kind: dict[str, dict[str, Any]] = json.loads(_kept(folder, _specified(), _made))
    return by_kind


@cache
def _made() -> str:
    from ptxdiff.reports.specifications import specifications

    return json.dumps(specifications())


def library(folder: Path | None = None) -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that loads nothing, about 0.9 MB.

    folder: where it is cached between processes.
    """
    return _kept(folder, _bundled(), _bundle)


def are_kept(folder: Path) -> bool:
    """Whether the folder has the specifications and the library, so that a page need not make them."""
    return all(made.file(folder).exists() for made in (_specified(), _bundled()))


def keep(folder: Path) -> None:
    """Make the specifications and the library, if the folder lacks them."""
    specifications(folder)
    library(folder)


class _MadeText(NamedTuple):
    """A text that is made from a package, `source`, by the code of a module."""

    name: str
    source: str
    code: Path
    suffix: str

    def file(self, folder: Path) -> Path:
        """Where it is cached."""
        digest = hashlib.sha256(self.code.read_bytes()).hexdigest()[:12]
        return folder / f"{self.name}-{version(self.source)}-{digest}{self.suffix}"


def _specified() -> _MadeText:
    return _MadeText("charts", "altair", Path(__file__).with_name("specifications.py"), ".json")


def _bundled() -> _MadeText:
    return _MadeText("vega", "vl-convert-python", Path(__file__), ".js")


def _kept(folder: Path | None, which: _MadeText, make: Callable[[], str]) -> str:
    """A text, taken from the folder if it is there."""
    if folder is None:
        return make()
    kept = which.file(folder)
    with contextlib.suppress(OSError, ValueError):
        return kept.read_text(encoding="utf-8")
    text = make()
    with contextlib.suppress(OSError):  # without a writable folder, it is made each time
        folder.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(kept)
    return text


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
