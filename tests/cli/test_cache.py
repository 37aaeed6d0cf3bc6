"""`ptxdiff cache` shows and clears what lies in the cache folder, and nothing else."""

import json

import pytest

from ptxdiff.cli import main
from ptxdiff.diskcache import DiskCache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache with a result, two PTX texts, and a file of nobody's."""
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))
    DiskCache("items").put(b"x" * 100, b"an item")
    DiskCache("ptx").put(b"y" * 200, b"a kernel")
    DiskCache("ptx").put(b"z" * 300, b"another")
    (tmp_path / "cache" / "notes").write_text("n")
    return tmp_path / "cache"


def kinds(capsys, *words):
    assert main(["cache", "--format", "json", *words]) == 0
    return {k["name"]: k for k in json.loads(capsys.readouterr().out)["kinds"]}


def test_it_lists_each_part_with_its_files_and_bytes(folder, capsys):
    shown = kinds(capsys)
    assert {name: k["files"] for name, k in shown.items()} == {"items": 1, "notes": 1, "ptx": 2}
    assert shown["ptx"]["size"] == sum(p.stat().st_size for p in (folder / "ptx").iterdir())
    assert main(["cache"]) == 0
    assert "PTX that Triton made" in capsys.readouterr().out


def test_it_clears_the_named_part_alone(folder, capsys):
    assert main(["cache", "--clear", "ptx"]) == 0
    assert "in 2 files" in capsys.readouterr().out
    assert set(kinds(capsys)) == {"items", "notes"}
    assert DiskCache("ptx").get(b"a kernel") is None
    assert DiskCache("items").get(b"an item") == b"x" * 100


def test_it_clears_everything_but_not_what_a_link_leads_to(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    assert main(["cache", "--clear"]) == 0
    assert list(folder.iterdir()) == []
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_an_unknown_part_is_named_with_those_there_are(folder, capsys):
    assert main(["cache", "--clear", "pxt"]) == 2
    assert "the cache has no pxt" in capsys.readouterr().err
    assert set(kinds(capsys)) == {"items", "notes", "ptx"}


def test_a_cache_that_is_turned_off_is_said(monkeypatch, capsys):
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", "")
    assert main(["cache"]) == 2
    assert "PTXDIFF_CACHE_DIR is empty" in capsys.readouterr().err


def test_a_new_machine_has_an_empty_cache(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "none"))
    assert main(["cache"]) == 0
    assert "0 B in 0 files" in capsys.readouterr().out
