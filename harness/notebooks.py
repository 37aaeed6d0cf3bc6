"""What a notebook shows: the bits of numbers by field, with differences marked."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.references import formats
from ptxdiff.references.formats import FORMATS, Format, encode, render, unpack
from ptxdiff.suggestions import did_you_mean
from ptxdiff.tracebacks import ShortTraceback

MOST = 64
"""The most codes that are shown."""

_COLOURS = {"sign": "#c2410c", "exponent": "#15803d", "significand": "#1d4ed8", "": "inherit"}


class NoFormat(ShortTraceback, ValueError):
    """There is no format of that name, or of an array's dtype, or the values are no codes of it."""


def bits(values: Any, fmt: Format | str | None = None, expected: Any = None) -> BitsTable:
    """The codes of an array, each with its bits and its value, as a table; in a notebook with the fields in colours.

    fmt: the format, or its name; by default that of the array's dtype. expected: an array of the same shape; bits that
    differ from it are marked. Integers are codes. Floats are numbers of the format, as in `bits(1.5, "bfloat16")`; in
    an array of the format's own width they are codes, too. Raises NoFormat for an unknown format, for a number that it
    does not have, and for an expected array of another size.
    """
    array = np.asarray(values)
    form = _form(fmt or array.dtype.name)
    got = _codes(form, array)
    want = None if expected is None else _codes(form, np.asarray(expected))
    if want is not None and want.shape != got.shape:
        raise NoFormat(f"expected has {want.size} codes, and there are {got.size}")
    return BitsTable(form.single, got, want)


def _codes(form: Format, array: NDArray[Any]) -> NDArray[np.int64]:
    """The codes of an array's units, or of its numbers if it holds floats of another width."""
    own = FORMATS.get(array.dtype.name)
    floats = array.dtype.kind == "f" or (own is not None and own.is_float)
    if not floats or 8 * array.dtype.itemsize == form.unit_bits:
        return np.asarray(unpack(form, array), np.int64).reshape(-1)
    try:
        return np.array([encode(form.single, float(x)) for x in array.reshape(-1)], np.int64)
    except ValueError as error:
        raise NoFormat(f"{error}: round it first, or give codes as integers") from None


def _form(fmt: Format | str) -> Format:
    if not isinstance(fmt, str):
        return fmt
    constants = {name.lower(): form for name, form in vars(formats).items() if isinstance(form, Format)}
    known = constants | FORMATS
    if fmt.lower() not in known:
        raise NoFormat(
            f"no format is called {fmt!r}{did_you_mean(fmt.lower(), known) or '; ptxdiff list --formats has all'}"
        )
    return known[fmt.lower()]


@dataclass(frozen=True, repr=False)
class BitsTable:
    """Codes of one format, and those expected."""

    fmt: Format
    codes: NDArray[np.int64]
    expected: NDArray[np.int64] | None = None

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """The fields of a code from the highest bit, each with its number of bits."""
        if not self.fmt.is_float:
            return (("", self.fmt.code_bits),)
        significand = self.fmt.mantissa_bits
        exponent = self.fmt.exponent_bits
        sign = int(self.fmt.has_sign)
        unused = self.fmt.code_bits - sign - exponent - significand  # the low bits of tf32
        parts = (("sign", sign), ("exponent", exponent), ("significand", significand), ("", unused))
        return tuple((name, width) for name, width in parts if width)

    def _text(self, code: int) -> str:
        return format(code & ((1 << self.fmt.code_bits) - 1), f"0{self.fmt.code_bits}b")

    def _rows(self) -> list[tuple[int, str, str, str]]:
        """Place, bits, marks below bits that differ, and the code in words, of each code that is shown."""
        rows = []
        for index, code in enumerate(self.codes[:MOST].tolist()):
            text = self._text(code)
            wanted = text if self.expected is None else self._text(int(self.expected[index]))
            marks = "".join(" ^"[a != b] for a, b in zip(text, wanted, strict=True))
            rows.append((index, text, marks, render(self.fmt, code)))
        return rows

    def _apart(self, text: str, between: str = " ") -> str:
        parts, at = [], 0
        for _, width in self.fields:
            parts.append(text[at : at + width])
            at += width
        return between.join(parts)

    def __repr__(self) -> str:
        lines = [f"{self.fmt.name}, {self.codes.size} codes"]
        for index, text, marks, number_text in self._rows():
            lines.append(f"{index:>4}  {self._apart(text)}  {number_text}")
            if marks.strip():
                lines.append(f"      {self._apart(marks)}  differs".rstrip())
        if self.codes.size > MOST:
            lines.append(f"... {self.codes.size - MOST} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for index, text, marks, number_text in self._rows():
            at, cells = 0, []
            for name, width in self.fields:
                inner = "".join(
                    f'<b style="background:#fde047;color:#000">{text[k]}</b>' if marks[k] == "^" else text[k]
                    for k in range(at, at + width)
                )
                cells.append(f'<span title="{name}" style="color:{_COLOURS[name]}">{inner}</span>')
                at += width
            rows.append(
                f"<tr><td>{index}</td><td><code>{' '.join(cells)}</code></td><td>{escape(number_text)}</td></tr>"
            )
        more = f"<p>{self.codes.size - MOST} more</p>" if self.codes.size > MOST else ""
        head = f"<tr><th></th><th>{escape(self.fmt.name)}</th><th>code and value</th></tr>"
        return f"<table>{head}{''.join(rows)}</table>{more}"
