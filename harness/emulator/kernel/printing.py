"""Output of kernels: `vprintf` and `__assertfail` of the CUDA runtime.

A thread passes the address of a format and the address of its arguments. These are consecutive, each aligned to its
size: 4 bytes for integers, 8 for long integers, pointers and doubles.
"""

from __future__ import annotations

import math
import re
import struct
import sys
import threading
from collections.abc import Callable

CONVERSION = re.compile(r"%(?:%|([-+ #0]*)(\d{1,4}|\*)?(?:\.(\d{1,4}|\*)?)?(hh|h|ll|l|j|z|t)?([diouxXcsfFeEgGaAp]))")
"""A conversion of printf: flags, width, precision, length, and kind."""

PRINTED = 16 << 20
"""How many characters one launch may print; CUDA's buffer holds a megabyte and drops the oldest."""

Value = int | None
"""The bits of an argument; None if they are undefined."""
Fetch = Callable[[int, int], Value]
"""Gives the bits of the argument at an offset, of a size in bytes."""


class Printer:
    """Standard output with a limit for each launch."""

    def __init__(self) -> None:
        self.left = PRINTED
        self.silent = False
        self._lock = threading.Lock()

    def write(self, text: str) -> bool:
        """Print a text; returns whether the limit allowed it."""
        with self._lock:
            self.left -= len(text)
            if self.left < 0:
                return False
            if self.silent:
                return True
            sys.stdout.write(text)
            return True


def sizes(form: str) -> list[tuple[int, int]]:
    """Offset and bytes of each argument that a format takes."""
    arguments: list[tuple[int, int]] = []
    at = 0
    for conversion in CONVERSION.finditer(form):
        _, width, precision, length, kind = conversion.groups()
        if kind:
            wide = kind in "fFeEgGaAps" or length in ("l", "ll", "j", "z", "t")
            for size in [*[4] * [width, precision].count("*"), 8 if wide else 4]:
                at = -(-at // size) * size
                arguments.append((at, size))
                at += size
    return arguments


def formatted(form: str, values: list[Value], text_at: Callable[[int], str]) -> str:
    """A format filled with its arguments, as the host's printf writes it; an undefined argument becomes `undefined`.

    `text_at`: a function that gives the string at an address, for `%s`.
    """
    rest = iter(values)

    def one(found: re.Match[str]) -> str:
        flags, width, precision, length, kind = found.groups()
        if kind is None:
            return "%"
        if width == "*":
            width = _number(next(rest))
        if precision == "*":
            precision = _number(next(rest))
        value = next(rest)
        if value is None:
            return "undefined".rjust(int(width or 0))
        point = f".{precision}" if found.group().rpartition(kind)[0].count(".") and precision is not None else ""
        return _converted(value, flags, width or "", point, length, kind, text_at)

    return CONVERSION.sub(one, form)


def _number(value: Value) -> str:
    return str(min(abs(_signed(value, 32)), 9999)) if value is not None else ""


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) & 1 else value


def _converted(
    value: int, flags: str, width: str, point: str, length: str | None, kind: str, text_at: Callable[[int], str]
) -> str:
    bits = {"hh": 8, "h": 16, None: 32}.get(length, 64)
    if kind in "fFeEgGaA":
        return _float(struct.unpack("<d", value.to_bytes(8, "little"))[0], flags, width, point, kind)
    if kind == "s":
        return f"%{flags.replace('0', '')}{width}{point}s" % text_at(value)
    if kind == "c":
        return f"%{flags.replace('0', '')}{width}c" % chr(value & 0xFF)
    if kind == "p":
        return f"%{flags.replace('0', '')}{width}s" % f"{value:#x}"
    value &= (1 << bits) - 1
    if kind in "di":
        value = _signed(value, bits)
    if kind == "o" and "#" in flags:
        return f"%{flags.replace('#', '')}{width}s" % f"0{value:o}"
    return f"%{flags}{width}{point}{'d' if kind in 'diu' else kind}" % value


def _float(value: float, flags: str, width: str, point: str, kind: str) -> str:
    if math.isfinite(value) and kind not in "aA":
        return f"%{flags}{width}{point}{kind}" % value
    sign = "-" if math.copysign(1, value) < 0 else "+" if "+" in flags else ""
    text = sign + ("nan" if math.isnan(value) else "inf" if math.isinf(value) else abs(value).hex())
    return f"%{flags.replace('0', '')}{width}s" % (text.upper() if kind.isupper() else text)
