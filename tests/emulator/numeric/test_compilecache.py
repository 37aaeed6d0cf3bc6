"""The key of machine code that numba keeps on disk."""

from __future__ import annotations

import pytest

from ptxdiff.emulator.numeric import compilecache


def test_a_stamp_covers_the_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "ptxdiff.emulator.isa.float32"
    before = compilecache.stamp(module)
    text = compilecache._text
    for changed in (
        "ptxdiff.emulator.isa.float32",
        "ptxdiff.emulator.numeric.softfloat",
        "ptxdiff.emulator.numeric.bits",
    ):
        compilecache.stamp.cache_clear()
        monkeypatch.setattr(compilecache, "_text", lambda name, c=changed: text(name) + (" " if name == c else ""))
        assert compilecache.stamp(module) != before, changed
    compilecache.stamp.cache_clear()
    monkeypatch.setattr(compilecache, "_text", lambda name: text(name) + (" " if name.endswith("convert_pack") else ""))
    assert compilecache.stamp(module) == before
    compilecache.stamp.cache_clear()
