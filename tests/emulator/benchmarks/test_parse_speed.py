"""How long the text of a kernel takes to parse."""

from __future__ import annotations

from typing import Any

import pytest

from ptxdiff.emulator.text.parser import parse_module

pytestmark = pytest.mark.slow

HEAD = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k()
{
	.reg .b32 %r<4>;
"""
LINE = "	.loc	1 14 32\n	fma.rn.f32 %r1, %r2, %r3, 0f3F800000;\n"
TAIL = """	ret;
}
	.file	1 "/src/kernel.py"
"""


def test_long_kernel(benchmark: Any) -> None:
    """350 instructions with their lines of the source. The goal is 50 ms."""
    body = benchmark(parse_module, HEAD + LINE * 350 + TAIL).kernel().body
    assert len(body.statements) == 352
