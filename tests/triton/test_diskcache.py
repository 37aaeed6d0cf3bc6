"""Texts kept between runs."""

import os

import pytest

from harness.triton import diskcache
from harness.triton.diskcache import DiskCache


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return DiskCache("sass")


def test_a_text_comes_back_for_the_same_parts_only(cache):
    cache.put("text", b"ab", b"c")
    assert cache.get(b"ab", b"c") == "text"
    assert cache.get(b"a", b"bc") is None
    assert DiskCache("other").get(b"ab", b"c") is None


def test_nothing_half_written_stays(cache):
    cache.put("text", b"key")
    assert [p.suffix for p in cache.folder.iterdir()] == [".txt"]


def test_a_damaged_text_is_none(cache):
    cache.put("text", b"key")
    (path,) = cache.folder.iterdir()
    path.write_bytes(b"\xff\xfe")
    assert cache.get(b"key") is None


def test_the_longest_unread_make_room(cache, monkeypatch):
    monkeypatch.setattr(diskcache, "KEPT", 4)
    for n in range(6):
        cache.put(str(n), bytes([n]))
        os.utime(cache._path(bytes([n])), (n, n))
    cache._make_room()
    assert [cache.get(bytes([n])) for n in range(6)] == [None] * 4 + ["4", "5"]


def test_without_a_folder_nothing_is_kept_and_nothing_fails(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    cache = DiskCache("sass")
    cache.put("text", b"key")
    assert cache.get(b"key") is None
