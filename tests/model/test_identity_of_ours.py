"""Identities contain the text of our own modules, in whichever folder the modules that compute them are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ptxdiff.locations import PACKAGE, REFERENCES, ROOT
from ptxdiff.model.identity import code, definition


def copied(folder: Path) -> Path:
    """A copy of the harness and the references in a new folder."""
    for package in (PACKAGE, REFERENCES):
        left_out = shutil.ignore_patterns("__pycache__", "*.jsonl", "references", "reports")
        shutil.copytree(package, folder / package.name, ignore=left_out)
    return folder


def digests(monkeypatch: pytest.MonkeyPatch, root: Path) -> tuple[str, str]:
    monkeypatch.setattr(definition, "PACKAGE", root / PACKAGE.name)
    monkeypatch.setattr(definition, "REFERENCES", root / REFERENCES.name)
    return definition.emulator.__wrapped__("hopper"), definition.harness.__wrapped__()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("file", "machine"),
    [
        ("harness/emulator/isa/logic.py", True),
        ("harness/emulator/numeric/definedness.py", True),
        ("harness/judging/differences.py", False),
        ("references/arithmetic.py", False),
    ],
)
def test_a_change_of_our_text_changes_the_digests_of_results(tmp_path, monkeypatch, file, machine):
    root = copied(tmp_path)
    before = digests(monkeypatch, root)
    assert before == digests(monkeypatch, ROOT)
    with (root / file).open("a") as changed:
        changed.write("# one line more\n")
    after = digests(monkeypatch, root)
    assert (after[0] != before[0], after[1] != before[1]) == (machine, True)


def test_a_folder_without_modules_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="holds no Python file"):
        digests(monkeypatch, tmp_path)


def test_the_walk_of_functions_ends_at_the_harness():
    assert Path(code.HARNESS) == Path(definition.__file__).parents[2]
    assert (Path(code.HARNESS) / "emulator").is_dir()
