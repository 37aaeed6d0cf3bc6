"""A folder for commands, and what a command printed."""

from __future__ import annotations

import pytest

from ptxdiff.cli import main
from tests.support.case_sources import FLIP


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A user's folder with one case file. Asm runs alone: compiling takes most of a run, and has its own tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "flip.py").write_text(FLIP)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err
