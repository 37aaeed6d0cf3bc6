"""Packed data for the page's script: every result's key and outcome, chart data, PTX and SASS.

There is one compressed packet for each case, so that a page of the whole catalogue stays small and unpacks only the
case that is opened. Texts are lists of distinct lines: the same instruction occurs thousands of times in a run. No
packet contains HTML; the script builds text nodes, and colours the lines that it shows.

On a large page, HTML that no link leads into is packed too, as jinja2 escaped it, and so is the library of charts.
"""

from __future__ import annotations

import base64
import bisect
import contextlib
import functools
import itertools
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from ptxdiff.records import Result
from ptxdiff.records.compare import distance
from ptxdiff.records.escaping import visible
from ptxdiff.records.history_facts import state_of
from ptxdiff.reports.highlight import Line, listing
from ptxdiff.reports.model import View, command_of, readability, with_sass

MARKS = {"": 0, "ours": 1, "triton": 2}


class Table:
    """Numbers for values, in the order in which they are first used."""

    def __init__(self, values: Mapping[Any, int] = MappingProxyType({})) -> None:
        self.values: dict[Any, int] = dict(values)

    def __call__(self, value: Any) -> int:
        """The number of a value."""
        return self.values.setdefault(value, len(self.values))

    def each(self, values: Iterable[Any]) -> list[int]:
        """The numbers of values."""
        known = self.values
        return [known.setdefault(value, len(known)) for value in values]


class Keeper(Protocol):
    """A store for packets between pages, by their inputs."""

    def get(self, *parts: bytes) -> bytes | None:
        """The data stored under these parts; None if there is none."""

    def put(self, data: bytes, *parts: bytes) -> None:
        """Keep it."""


def packet(view: View, case: str, charts: Any, budget: int, kept: Keeper | None = None) -> tuple[str, str]:
    """The packet of one case, compressed, in base64, and what was left out to keep it within `budget` bytes.

    It is stored under all that decides it: the budget, the rows, the digests of the texts, and the code that lists and
    compresses.
    """
    content = _Content(view, with_sass(r for row in view.case_rows(case) for r in row.results), charts)
    made_from = _code(), str(budget).encode(), content.inputs
    known = kept.get(*made_from) if kept is not None else None
    if known is not None:
        listed, _, text = known.decode().partition(" ")
        return text, content.omission(int(listed))
    count, text = content.packed(budget)
    if kept is not None:
        kept.put(f"{count} {text}".encode(), *made_from)
    return text, content.omission(count)


_TYPICAL = 0.88
"""The median ratio of a packet's size to what `_Content` counts for its listings, of 853 packets. It decides how many
listings are tried first, and not how many there are in the end.
"""


@functools.cache
def _code() -> bytes:
    modules = [sys.modules[f.__module__] for f in (compress, visible, listing)]
    text = b"".join(Path(str(m.__file__)).read_bytes() for m in modules)
    return text + f"{sys.version} zlib {zlib.ZLIB_RUNTIME_VERSION}".encode()


class _Content:
    """What a packet is made from: the results of a case, and those whose PTX and SASS are listed, as far as they fit.

    `_order`: of each variant one result, then one of each other target, then those of other packs and contexts. Each
    listing is made once. Texts are read only where they are needed: `inputs` names them by their digests.
    """

    def __init__(self, view: View, results: Sequence[Result], charts: Any) -> None:
        self._view, self._results, self._charts = view, results, charts
        self._strings, self._lines = Table(), Table()
        self._rows = [_row(r, self._strings) for r in results]
        distinct = _distinct(results)
        self._shown = {_pair(r): place for place, r in enumerate(distinct)}
        cells = _first_of_each(distinct, lambda r: (r.key.variant, r.key.target))
        variants = _first_of_each(cells, lambda r: r.key.variant)
        self._order = list({_pair(r): r for r in (*variants, *cells, *distinct)}.values())
        self._listings: list[list[Any]] = []
        # By the number of listings, from none on: how many strings and lines they use, and about how many bytes.
        self._used, self._sizes = [(len(self._strings.values), 0)], [0.0]
        self._compressor = zlib.compressobj(1)

    @cached_property
    def inputs(self) -> bytes:
        """All that decides the packet, but its budget."""
        texts = self._view.records.texts
        named = [
            [
                *_listing_name(r),
                r.key.pack,
                r.key.fusion,
                dict(r.resources),
                [h if h in texts else "" for h in (r.ptx, r.sass)],
            ]
            for r in self._order
        ]
        pairs = [self._shown.get(_pair(r), -1) for r in self._results]
        return _json([self._rows, pairs, self._charts, list(self._strings.values), named])

    def omission(self, count: int) -> str:
        """What the page says of the kernels that are not among the first `count`; empty if all are."""
        every = len(self._order)
        if count == every:
            return ""
        return f"For size, {f'{count} of {every} compiled kernels are' if count else 'no compiled kernel is'} listed"

    def packed(self, budget: int) -> tuple[int, str]:
        """How many kernels are listed, and the packet with them: at most `budget` bytes, unless none is listed."""
        sizes, every = self._sizes, len(self._order)
        while len(self._listings) < every and sizes[-1] <= budget:
            self._make()
        count, too_many = len(self._listings), every + 1
        while len(text := compress(self._packet(count))) > budget and count:
            too_many = count
            fitting = sizes[count] * budget / len(text)
            count = max(0, min(count - 1, bisect.bisect_right(sizes, fitting) - 1))
        while count < every and count + 1 < too_many:
            if count == len(self._listings):
                self._make()
            if len(more := compress(self._packet(count + 1))) > budget:
                break
            count, text = count + 1, more
        return count, text

    def _make(self) -> None:
        """Make one listing more."""
        listing = _listing(self._view, self._order[len(self._listings)], self._strings, self._lines)
        lines = list(itertools.islice(self._lines.values, self._used[-1][1], None))
        packed = self._compressor.compress(_json([listing, lines])) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        self._listings.append(listing)
        self._used.append((len(self._strings.values), len(self._lines.values)))
        self._sizes.append(self._sizes[-1] + len(packed) * 4 / 3 * _TYPICAL)

    def _packet(self, count: int) -> dict[str, Any]:
        """The packet with the first `count` listings, in the order in which the page shows them."""
        shown = sorted(range(count), key=lambda n: self._shown[_pair(self._order[n])])
        numbers = {_pair(self._order[n]): place for place, n in enumerate(shown)}
        strings, lines = self._used[count]
        return {
            "results": [[*row, numbers.get(_pair(r), -1)] for row, r in zip(self._rows, self._results, strict=True)],
            "charts": self._charts,
            "listings": [self._listings[n] for n in shown],
            "strings": list(itertools.islice(self._strings.values, strings)),
            "lines": list(itertools.islice(self._lines.values, lines)),
        }


def _json(value: Any) -> bytes:
    """Compact JSON in UTF-8. Half a surrogate pair, which a case file may have, stays as it is."""
    encode = _encoder()
    with contextlib.suppress(UnicodeEncodeError):
        if encode is not None:
            return encode(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


@functools.cache
def _encoder() -> Callable[[Any], bytes] | None:
    """msgspec's encoder of JSON, in a tenth of the time; None where it is missing."""
    try:
        import msgspec
    except ImportError:
        return None
    encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
    return encode


def compress(content: Any) -> str:
    """JSON of `seen(content)`, deflated (zlib's format), in base64."""
    text = _json(content).decode("utf-8", "surrogatepass")
    # `seen` takes longer than all else here, and nearly no text has what it changes: as it is, or as JSON escapes it.
    if _ESCAPED.search(text) or visible(text) != text:
        text = _json(seen(content)).decode("utf-8", "surrogatepass")
    return deflated(text)


_ESCAPED = re.compile(r"\\[^nt\"\\]")
"""An escape of JSON for a control character. It also matches some texts with a backslash, which costs time alone."""


def deflated(text: str) -> str:
    """Text, deflated (zlib's format), in base64."""
    # Level 9 makes 4% less of a whole page, in five times the time.
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 7)).decode()


def seen(content: Any) -> Any:
    """The content with all texts as the page's HTML shows them, so that a name equals its attribute."""
    if isinstance(content, str):
        return visible(content)
    if isinstance(content, dict):
        return {seen(name): seen(value) for name, value in content.items()}
    if isinstance(content, list | tuple):  # most values are numbers: a call for each took a tenth of a page's time
        return [value if type(value) is int else seen(value) for value in content]
    return content


def _row(r: Result, strings: Table) -> list[Any]:
    """A result for a packet, but for the number of its listing."""
    k = r.key
    worst = max(map(distance, r.ulps), default=-1)
    texts = (
        k.variant,
        k.target,
        k.backend,
        k.shape,
        k.context,
        k.input_set + (f" by {k.assembler.partition(' (')[0]}" if k.assembler else ""),
        state_of(r),
        r.evidence,
        r.words,
        command_of(r),
    )
    return [
        *strings.each(texts),
        *(k.pack, k.alignment, k.num_warps, int(k.fusion), r.total, r.different, worst),
    ]


def _listing(view: View, r: Result, strings: Table, lines: Table) -> list[Any]:
    texts = view.records.texts
    ptx, sass = (texts[h].text if h in texts else "" for h in (r.ptx, r.sass))
    listed = listing(ptx, sass)
    k = r.key
    resources = [[strings(n), v] for n, v in r.resources.items()]
    return [
        *strings.each(_listing_name(r)),
        k.pack,
        int(k.fusion),
        _columns(listed.ptx, lines),
        _columns(listed.sass, lines),
        resources,
    ]


def _listing_name(r: Result) -> tuple[str, ...]:
    return (r.key.variant, r.key.target, r.key.shape, r.key.context)


def _columns(found: Sequence[Line], lines: Table) -> list[list[int]]:
    """Lines as columns, which compress better than rows: text, number, mark."""
    return [
        lines.each(line.text for line in found),
        [line.number for line in found],
        [MARKS[line.mark] for line in found],
    ]


def _pair(r: Result) -> tuple[str, str, str, str]:
    return (r.key.variant, r.key.target, r.ptx, r.sass)


def _distinct(results: Iterable[Result]) -> list[Result]:
    """One result for each compiled kernel of each variant and target; failing and simple ones first."""
    return _first_of_each(sorted((r for r in results if r.ptx or r.sass), key=readability), _pair)


def _first_of_each(results: Iterable[Result], name: Callable[[Result], Any]) -> list[Result]:
    found: dict[Any, Result] = {}
    for r in results:
        found.setdefault(name(r), r)
    return list(found.values())
