"""Packed data for the page's script: every result's key and outcome, chart data, PTX and SASS.

There is one compressed packet for each case, so that a page of the whole catalogue stays small and unpacks only the
case that is opened. Texts are lists of distinct lines: the same instruction occurs thousands of times in a run. No
packet contains HTML; the script builds text nodes, and colours the lines that it shows.

On a large page, HTML that no link leads into is packed too, as jinja2 escaped it, and so is the library of charts.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


class Keeper(Protocol):
    """A store for packets between pages, by their inputs."""

    def get(self, *parts: bytes) -> bytes | None:
        """The data stored under these parts; None if there is none."""

    def put(self, data: bytes, *parts: bytes) -> None:
        """Keep it."""


def packet(view: View, case: str, charts: Any, budget: int, kept: Keeper | None = None) -> tuple[str, str]:
    """The packet of one case, compressed, in base64, and what was left out to keep it within `budget` bytes."""
    results = with_sass(r for row in view.case_rows(case) for r in row.results)
    strings = Table()
    rows = [_row(r, strings) for r in results]
    for choose, omission in _CHOICES[:-1]:
        packed = _packed(_Content(view, results, rows, strings, charts, list(choose(results))), kept, budget)
        if packed is not None:
            return packed, omission
    choose, omission = _CHOICES[-1]
    packed = _packed(_Content(view, results, rows, strings, charts, list(choose(results))), kept, None)
    assert packed is not None
    return packed, omission


_PARTLY = 0.7
"""The smallest ratio of a packet's size to what `exceeds` counts for all of it, with a margin: of 635 packets of the
catalogue the lowest was 0.769.
"""


def _packed(content: _Content, kept: Keeper | None, budget: int | None) -> str | None:
    """The content, compressed; None if it exceeds `budget` bytes. One that is far too large is not made.

    The result is stored under all its inputs: the rows, the digests of the texts, and the code that lists and
    compresses.
    """
    made_from = _code(), content.inputs
    too_large = b"exceeds", str(budget).encode(), *made_from
    if kept is not None and kept.get(*too_large) is not None:
        return None
    known = kept.get(*made_from) if kept is not None else None
    if known is None:
        if budget is not None and content.exceeds(budget):
            if kept is not None:
                kept.put(b"yes", *too_large)
            return None
        known = compress(content.packet).encode()
        if kept is not None:
            kept.put(known, *made_from)
    return known.decode() if budget is None or len(known) <= budget else None


@functools.cache
def _code() -> bytes:
    modules = [sys.modules[f.__module__] for f in (compress, visible, listing)]
    text = b"".join(Path(str(m.__file__)).read_bytes() for m in modules)
    return text + f"{sys.version} zlib {zlib.ZLIB_RUNTIME_VERSION}".encode()


class _Content:
    """What a packet is made from: the results of a case, and those of them whose texts are listed.

    Texts are read only where they are needed: `inputs` names them by their digests.
    """

    def __init__(
        self, view: View, results: Sequence[Result], rows: Sequence[list[Any]], strings: Table, charts: Any,
        listed: Sequence[Result],
    ) -> None:  # fmt: skip
        self._view, self._listed, self._strings = view, listed, Table(strings.values)
        self._lines, self._listings = Table(), list[list[Any]]()
        numbers = {_pair(r): n for n, r in enumerate(listed)}
        numbered = [[*row, numbers.get(_pair(r), -1)] for row, r in zip(rows, results, strict=True)]
        self._results: dict[str, Any] = {"results": numbered, "charts": charts}

    @cached_property
    def inputs(self) -> bytes:
        """All that decides the packet."""
        texts = self._view.records.texts
        named = [
            [
                *_listing_name(r),
                r.key.pack,
                r.key.fusion,
                dict(r.resources),
                [h if h in texts else "" for h in (r.ptx, r.sass)],
            ]
            for r in self._listed
        ]
        return _json([self._results, list(self._strings.values), named])

    def exceeds(self, budget: int) -> bool:
        """Whether the first listings alone certainly exceed `budget` bytes. Reads no more of them than this takes."""
        partly, size, known = zlib.compressobj(6), 0, 0
        for made in self._made():
            lines = list(itertools.islice(self._lines.values, known, None))
            known += len(lines)
            size += len(partly.compress(_json([made, lines])))
            # A compressor holds back up to tens of kilobytes; a copy of it does not have to.
            if (size + len(partly.copy().flush())) * 4 / 3 * _PARTLY > budget:
                return True
        return False

    def _made(self) -> Iterator[list[Any]]:
        """The listings; each is made once."""
        yield from self._listings
        for r in self._listed[len(self._listings) :]:
            self._listings.append(_listing(self._view, r, self._strings, self._lines))
            yield self._listings[-1]

    @property
    def packet(self) -> dict[str, Any]:
        """The packet."""
        listings = list(self._made())
        lines = list(self._lines.values)
        return {**self._results, "listings": listings, "strings": list(self._strings.values), "lines": lines}


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
        *map(strings, texts),
        *(k.pack, k.alignment, k.num_warps, int(k.fusion), r.total, r.different, worst),
    ]


def _listing(view: View, r: Result, strings: Table, lines: Table) -> list[Any]:
    texts = view.records.texts
    ptx, sass = (texts[h].text if h in texts else "" for h in (r.ptx, r.sass))
    listed = listing(ptx, sass)
    k = r.key
    resources = [[strings(n), v] for n, v in r.resources.items()]
    return [
        *map(strings, _listing_name(r)),
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
        [lines(line.text) for line in found],
        [line.number for line in found],
        [MARKS[line.mark] for line in found],
    ]


def _pair(r: Result) -> tuple[str, str, str, str]:
    return (r.key.variant, r.key.target, r.ptx, r.sass)


def _distinct(results: Iterable[Result]) -> list[Result]:
    """One result for each compiled kernel of each variant and target; failing and simple ones first."""
    by_pair: dict[tuple[str, str, str, str], Result] = {}
    for r in sorted((r for r in results if r.ptx or r.sass), key=readability):
        by_pair.setdefault(_pair(r), r)
    return list(by_pair.values())


def _one_a_cell(results: Iterable[Result]) -> list[Result]:
    by_cell: dict[tuple[str, str], Result] = {}
    for r in _distinct(results):
        by_cell.setdefault((r.key.variant, r.key.target), r)
    return list(by_cell.values())


def _one_a_variant(results: Iterable[Result]) -> list[Result]:
    by_variant: dict[str, Result] = {}
    for r in _one_a_cell(results):
        by_variant.setdefault(r.key.variant, r)
    return list(by_variant.values())


# From all listings to none. The second text tells a reader of the page what is left out.
_CHOICES: tuple[tuple[Callable[[Sequence[Result]], Iterable[Result]], str], ...] = (
    (_distinct, ""),
    (_one_a_cell, "For size, one pack and context of each variant and target is listed"),
    (_one_a_variant, "For size, one target of each variant is listed"),
    (lambda results: (), "For size, no listing is kept on this page"),
)
