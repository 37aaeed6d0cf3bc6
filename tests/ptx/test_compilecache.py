"""The key of machine code that numba keeps on disk."""

from __future__ import annotations

import pytest

from ptxdiff.ptx.numeric import compilecache


def test_a_stamp_covers_the_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "ptxdiff.ptx.isa.float32"
    before = compilecache.stamp(module)
    text = compilecache._text
    for changed in ("ptxdiff.ptx.isa.float32", "ptxdiff.ptx.numeric.softfloat", "ptxdiff.ptx.numeric.bits"):
        compilecache.stamp.cache_clear()
        monkeypatch.setattr(compilecache, "_text", lambda name, c=changed: text(name) + (" " if name == c else ""))
        assert compilecache.stamp(module) != before, changed
    compilecache.stamp.cache_clear()
    monkeypatch.setattr(compilecache, "_text", lambda name: text(name) + (" " if name.endswith("convert_pack") else ""))
    assert compilecache.stamp(module) == before
    compilecache.stamp.cache_clear()
