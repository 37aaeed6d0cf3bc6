"""A folder for commands, and what a command printed."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ptxdiff.cli import main, run
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


def pytest_arguments(*words: str) -> list[str]:
    """The arguments with which `ptxdiff run` and these words call pytest."""
    parser = argparse.ArgumentParser("run")
    run.configure(parser)
    return run.pytest_arguments(parser.parse_args(words, argparse.Namespace(rest=[])), Path("r.jsonl"))
