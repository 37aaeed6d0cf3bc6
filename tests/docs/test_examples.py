"""Every block of code in README.md and docs/ is run, or, if it needs a GPU or a cluster, held to the options there are.

A block of `python` runs in the page's folder, after those above it; one whose first line is `# NAME.py` is saved under
that name, and so is one that ends its first line with `# NAME.py`. A block of `console` is a command after `$ `, with
the lines of output that a reader should find, in this order; `...` stands for any text. Commands in other blocks that
begin with `ptxdiff` or `pytest` must be ones that the parsers take.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from docs.generate import PAGES, PluginOptions
from ptxdiff.cli import VERBS
from ptxdiff.plugin import pytest_addoption
from tests.support import readyprocess

ROOT = Path(__file__).resolve().parents[2]
PAGES_BY_HAND = [
    ROOT / "README.md",
    ROOT / "harness" / "emulator" / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.stem not in PAGES and p.parent.name != "decisions"),
]
_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"#\s*([\w/]+\.py)$")


def blocks(page: Path) -> list[tuple[str, str]]:
    """The blocks of a page: language and text."""
    return [(m[1], m[2]) for m in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def saved(text: str) -> tuple[str, str] | None:
    """The name under which a block is saved, and its text; None for a block that runs where it stands."""
    first = text.partition("\n")[0]
    named = _FILE.search(first)
    return (named[1], text) if named else None


def matches(expected: list[str], output: str) -> bool:
    """Whether the lines occur in the output in this order; `...` stands for any text, in a line too."""
    position = 0
    for line in (line for line in expected if line.strip() != "..."):
        pattern = ".*?".join(map(re.escape, line.strip().split("...")))
        found = re.compile(pattern).search(output, position)
        if found is None:
            return False
        position = found.end()
    return True


WITH_CONSOLE = [p for p in PAGES_BY_HAND if any(language == "console" for language, _ in blocks(p))]


# Each runs whole sessions of pytest: those that a newcomer follows first run with every change.
_FIRST = ("first-bug", "read-a-failure")


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=p.stem, marks=() if p.stem in _FIRST else pytest.mark.slow) for p in WITH_CONSOLE],
)
def test_a_page_shows_what_its_commands_print(page, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT))), "COLUMNS": "500"}
    environment.pop("PYTEST_XDIST_WORKER_COUNT", None)
    for language, text in blocks(page):
        if language == "python" and (file := saved(text)):
            path = tmp_path / file[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file[1])
        elif language == "python":
            run = readyprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=environment, timeout=300)
            assert run.returncode == 0, f"{text}\n{run.stderr}"
        elif language == "console":
            command, *expected = text.splitlines()
            words = shlex.split(command.removeprefix("$ "))
            module = {"pytest": ["pytest", "-q"], "ptxdiff": ["ptxdiff"]}[words[0]]
            started = [sys.executable, "-m", *module, *words[1:]]
            run = readyprocess.run(started, cwd=tmp_path, env=environment, timeout=300)
            assert matches(expected, run.stdout + run.stderr), f"{command}\n{run.stdout}{run.stderr}"


WITHOUT_CONSOLE = ["tutorial/notebook.md"]


@pytest.mark.parametrize("page", WITHOUT_CONSOLE)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(text for language, text in blocks(ROOT / "docs" / page) if language == "python")
    exec(compile(code, page, "exec"), {"__name__": "__main__"})


def test_every_block_of_python_parses():
    for page in PAGES_BY_HAND:
        for language, text in blocks(page):
            if language == "python":
                compile(text, str(page), "exec")


def commands() -> list[tuple[str, str]]:
    """Every command of `ptxdiff` and pytest in blocks that do not run, with its page."""
    found = []
    for page in PAGES_BY_HAND:
        for language, text in blocks(page):
            if language in ("python", "console", "yaml"):
                continue
            joined = text.replace("\\\n", " ")
            lines = [line.split("  #")[0].strip() for line in joined.splitlines()]
            found += [(page.name, line) for line in lines if re.match(r"(ptxdiff|pytest) ", line)]
    return found


@pytest.mark.sample(3)
@pytest.mark.parametrize(("page", "command"), commands())
def test_a_command_has_options_that_exist(page, command):
    words = shlex.split(re.split(r"\s[|>]\s", command)[0])
    if words[0] == "pytest":
        options = PluginOptions()
        pytest_addoption(options)
        known = {name for names, _ in options.options for name in names}
        given = {word.partition("=")[0] for word in words if word.startswith("--ptx")}
        assert given <= known, f"{page}: {command}"
        return
    verb, rest = words[1], words[2:]
    assert verb in VERBS, f"{page}: {command}"
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(f"ptxdiff.cli.{verb}").configure(parser)
    parser.parse_args(rest[: rest.index("--")] if "--" in rest else rest)


@pytest.mark.parametrize(
    ("expected", "found"),
    [(["a 1", "c"], True), (["a ... 2", "c"], False), (["b ...", "..."], True), (["c", "a"], False), (["d"], False)],
)
def test_output_that_differs_from_a_page_is_detected(expected, found):
    assert matches(expected, "a 1\nb 2\nc\n") is found
