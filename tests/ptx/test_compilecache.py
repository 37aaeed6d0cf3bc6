"""Machine code on disk: read back by another process, and never when it may be wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.ptx.numeric import compilecache

PROGRAM = """
import sys
import numpy as np
from harness.ptx.isa.forms import find
from harness.ptx import isa
isa.load()
from numba.core import event
with event.install_recorder("numba:compile") as seen:
    function = find("xor", ("b32",))[0].array_function()
    run = getattr(function, sys.argv[1])
    got = run(3, np.array([1, 2, 3], np.uint32), np.array([7, 7, 7], np.uint32))
print(got.tolist(), "compiled" if seen.buffer else "loaded")
"""


def process(folder: str, form: str) -> str:
    environment = {**os.environ, "PTXDIFF_CACHE_DIR": folder}
    words = [sys.executable, "-c", PROGRAM, form]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["shared", "compiled"])
def test_a_second_process_loads_what_the_first_compiled(tmp_path: Path, form: str) -> None:
    """Slow: five processes that import numba."""
    folder = tmp_path / "cache"
    assert process(str(folder), form) == "[6, 5, 4] compiled"
    assert process(str(folder), form) == "[6, 5, 4] loaded"
    for path in (folder / "compiled").iterdir():
        path.write_bytes(b"garbage")
    assert process(str(folder), form) == "[6, 5, 4] compiled"
    for path in (folder / "compiled").iterdir():
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
    assert process(str(folder), form) == "[6, 5, 4] compiled"
    assert process("", form) == "[6, 5, 4] compiled"


def test_a_stamp_covers_the_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "harness.ptx.isa.float32"
    before = compilecache.stamp(module)
    text = compilecache._text
    for changed in ("harness.ptx.isa.float32", "harness.ptx.numeric.softfloat", "harness.ptx.numeric.bits"):
        compilecache.stamp.cache_clear()
        monkeypatch.setattr(compilecache, "_text", lambda name, c=changed: text(name) + (" " if name == c else ""))
        assert compilecache.stamp(module) != before, changed
    compilecache.stamp.cache_clear()
    monkeypatch.setattr(compilecache, "_text", lambda name: text(name) + (" " if name.endswith("convert_pack") else ""))
    assert compilecache.stamp(module) == before
    compilecache.stamp.cache_clear()
