"""How long a folder of a thousand Python files takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptxdiff.lint.files import lint_paths

pytestmark = pytest.mark.slow

PLAIN = "".join(f"def function{n}(a, b):\n    return [a + b, {{'x': a}}, f'{{b}} {n}']\n\n" for n in range(100))
ASM = """
import triton.language as tl

OPS = {"neg": "neg", "abs": "abs"}


def op(x, y, name: tl.constexpr):
    if y:
        x = x + 1
    return tl.inline_asm_elementwise(f"{OPS[name]}.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
"""


def test_a_thousand_files(benchmark: Any, tmp_path: Path) -> None:
    """950 files without inline asm, 50 with a call in them. The goal is 10 s."""
    for n in range(1000):
        (tmp_path / f"file{n}.py").write_text(PLAIN + (ASM if n % 20 == 0 else ""))
    report = benchmark.pedantic(lint_paths, ([tmp_path],), rounds=1)
    assert (report.searched, report.files, report.snippets, report.findings) == (1000, 50, 50, [])
