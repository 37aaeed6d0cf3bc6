"""Files kept between runs: a file is read whole and under its own name, or counts as missing."""

import itertools
import os

import pytest

from ptxdiff.diskcache import DiskCache, cache_folder


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))
    return DiskCache("sass")


def test_a_text_is_found_by_the_same_parts_only(cache):
    cache.put(b"text", b"ab", b"c")
    assert cache.get(b"ab", b"c") == b"text"
    assert cache.get(b"a", b"bc") is None
    assert DiskCache("other").get(b"ab", b"c") is None


def test_no_temporary_file_remains(cache):
    cache.put(b"text", b"key")
    assert [p.suffix for p in cache.folder.iterdir()] == [".bin"]


def test_a_file_with_a_flipped_bit_counts_as_missing(cache):
    cache.put(b"text", b"key")
    (path,) = cache.folder.iterdir()
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert cache.get(b"key") is None, bit
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert cache.get(b"key") is None, length


def test_a_file_under_the_name_of_another_counts_as_missing(cache):
    cache.put(b"text", b"key")
    (file,) = cache.folder.iterdir()
    cache.put(b"other", b"another key")
    (another,) = set(cache.folder.iterdir()) - {file}
    file.replace(another)
    assert cache.get(b"another key") is None


def test_an_empty_variable_turns_the_cache_off(monkeypatch, tmp_path):
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = DiskCache("sass")
    cache.put(b"text", b"key")
    assert cache.get(b"key") is None
    assert not list(tmp_path.iterdir())


def test_the_files_unread_for_longest_are_removed(cache):
    """They are counted once in 256 times: when a name begins with 00."""
    other = DiskCache("other")
    for number in itertools.count():
        other.put(b"", b"%d" % number)
        if list(other.folder.glob("00*.bin")):
            break
    few, known = DiskCache("sass", files=4), set()
    for n in range(5):
        few.put(b"%d" % n, bytes([n]))
        (path,) = set(few.folder.glob("*.bin")) - known
        known.add(path)
        os.utime(path, (n, n))
    few.put(b"last", b"%d" % number)
    assert [few.get(bytes([n])) for n in range(5)] == [None] * 4 + [b"4"]
    assert few.get(b"%d" % number) == b"last"


def test_without_a_folder_nothing_is_kept_and_nothing_fails(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(blocked))
    cache = DiskCache("sass")
    cache.put(b"text", b"key")
    assert cache.get(b"key") is None


def folders_of_all_caches():
    """The folders of all caches, and the cache variables of the processes that we start."""
    from ptxdiff.emulator.numeric import compilecache
    from ptxdiff.processes.pool import with_harness
    from ptxdiff.triton import assemble, targets

    kinds = [value for module in (compilecache, assemble, targets) for value in vars(module).values()]
    kept = [cache.folder for cache in kinds if isinstance(cache, DiskCache)]
    assert len(kept) >= 3
    started = with_harness({})
    return kept, [started.get("TRITON_CACHE_DIR"), started.get("TORCHINDUCTOR_CACHE_DIR")]


def test_one_variable_moves_every_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    kept, started = folders_of_all_caches()
    assert {folder.parent for folder in kept} == {tmp_path}
    assert {os.path.dirname(folder) for folder in started} == {str(tmp_path)}


def test_without_the_variable_caches_are_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("PTXDIFF_CACHE_DIR", raising=False)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    kept, (triton, inductor) = folders_of_all_caches()
    assert {folder.parent for folder in kept} == {tmp_path / "ptxdiff"}
    assert triton is None  # the user's choice, which `with_harness` leaves unset
    assert inductor == str(tmp_path / "ptxdiff" / "inductor")


def test_the_users_cache_folder_is_that_of_the_variables_of_that_moment(tmp_path, monkeypatch):
    monkeypatch.delenv("PTXDIFF_CACHE_DIR", raising=False)
    for name in ("one", "other", "one"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        assert cache_folder() == tmp_path / name / "ptxdiff"
    monkeypatch.delenv("XDG_CACHE_HOME")
    for name in ("one", "other"):
        monkeypatch.setenv("HOME", str(tmp_path / name))
        found = cache_folder()
        assert found is not None
        assert found.is_relative_to(tmp_path / name)


def test_caches_that_are_turned_off_keep_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept, started = folders_of_all_caches()
    assert set(kept) == {None}
    assert not any(folder.startswith(str(tmp_path)) for folder in started)
    assert list(tmp_path.iterdir()) == []


def test_compilers_get_another_folder_where_ours_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "file" / "cache"))
    _, started = folders_of_all_caches()
    assert not any(folder.startswith(str(tmp_path / "file")) for folder in started)
