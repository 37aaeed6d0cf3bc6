"""The output of kernels, and the place of failed assertions."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ptxdiff.emulator.kernel.printing import formatted, sizes


def printed(form: str, *values: int | float | None) -> str:
    bits = [struct.unpack("<Q", struct.pack("<d", v))[0] if isinstance(v, float) else v for v in values]
    return formatted(form, bits, lambda address: f"<{address}>")


@pytest.mark.parametrize(
    ("form", "values", "text"),
    [
        ("pid (%u, %u, %u) idx (%2u) x: %f\n", (1, 2, 3, 4, 1.5), "pid (1, 2, 3) idx ( 4) x: 1.500000\n"),
        ("%i %d", (0xFFFFFFFF, 0x80000000), "-1 -2147483648"),
        ("%lld %llu", (2**64 - 1, 2**64 - 1), "-1 18446744073709551615"),
        ("0x%08x %X %#o", (255, 255, 8), "0x000000ff FF 010"),
        ("%hhd %hu", (0x1FF, 0x1FFFF), "-1 65535"),
        ("%5.1f|%-6g|%e", (2.25, 0.5, 1.0), "  2.2|0.5   |1.000000e+00"),
        ("%f %F %f", (float("nan"), float("inf"), -float("inf")), "nan INF -inf"),
        ("%s %c %p%%", (16, 65, 255), "<16> A 0xff%"),
        ("%*d|%.*f", (4, 7, 1, 2.25), "   7|2.2"),
        ("%d %f", (None, None), "undefined undefined"),
        ("%y %", (), "%y %"),
    ],
)
def test_formats_give_the_text_of_the_host_s_printf(form: str, values: Any, text: str) -> None:
    assert printed(form, *values) == text


def test_arguments_are_aligned_to_their_sizes() -> None:
    assert sizes("%u %f %u %lld %*d %%") == [(0, 4), (8, 8), (16, 4), (24, 8), (32, 4), (36, 4)]
