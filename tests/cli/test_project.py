"""A case that imports the user's own kernels loads under every verb as it does under `python -m pytest`."""

from __future__ import annotations

import os
import sys

import pytest

from ptxdiff.cli import LOADING, VERBS, main
from tests.support import readyprocess
from tests.support.case_sources import RIGHT


def importing(line: str) -> str:
    """The case file with one more import."""
    return RIGHT.replace("from ptxdiff import Case, asm", f"from ptxdiff import Case, asm\n{line}")


@pytest.fixture(params=["root", "pythonpath", "ini", "conftest"])
def project(request, tmp_path, monkeypatch):
    """A project whose case needs the root, the setting `pythonpath`, or what a conftest.py does to `sys.path`."""
    name = f"kern_{request.param}"
    module = tmp_path / "src" / name / "k.py"
    module.parent.mkdir(parents=True)
    module.write_text("double = 2\n")
    (tmp_path / "cases").mkdir()
    prefix = "src." if request.param == "root" else ""
    (tmp_path / "cases" / "flip.py").write_text(importing(f"from {prefix}{name}.k import double"))
    if request.param == "pythonpath":
        (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["src"]\n')
    if request.param == "ini":
        (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = src\naddopts = -q --ptx-effort=full\n")
    if request.param == "conftest":
        (tmp_path / "conftest.py").write_text(
            "import pathlib, sys\nsys.path.insert(0, str(pathlib.Path(__file__).parent / 'src'))\n"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    before = set(sys.modules)
    yield tmp_path
    for added in set(sys.modules) - before:
        if added.startswith(("src", name, "conftest")):
            del sys.modules[added]


def words(verb: str, folder: str) -> list[str]:
    """A quick request to each verb that loads the case."""
    return {
        "list": ["list"],
        "show": ["show", "cases/flip.py", "right", "--only", "asm"],
        "mutate": ["mutate", "cases/flip.py", "--only", "reference", "--most", "1", "--spread", "8"],
        "sweep": ["sweep", "cases/flip.py::right", "--journal", f"{folder}/j.jsonl", "--backend", "emulator",
                  "--pack", "3"],
        "speed": ["speed", "cases/flip.py"],
        "prove": ["prove", "cases/flip.py", "right", "--seconds", "20"],
        "compare": ["compare", "a.ptx", "b.ptx", "--like", "cases/flip.py::right"],
    }[verb]  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize("verb", LOADING)
def test_a_case_imports_the_users_modules(project, verb, capsys):
    for name in ("a.ptx", "b.ptx"):
        (project / name).write_text(".version 8.0\n.target sm_90\n.address_size 64\n")
    main(words(verb, str(project)))
    said = capsys.readouterr()
    assert "ModuleNotFoundError" not in said.err + said.out
    assert any(m.endswith(".k") and vars(sys.modules[m]).get("double") == 2 for m in sys.modules) or verb == "speed"


def test_run_has_what_pytest_has(tmp_path):
    (tmp_path / "src" / "kern").mkdir(parents=True)
    (tmp_path / "src" / "kern" / "k.py").write_text("double = 2\n")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "flip.py").write_text(importing("from src.kern.k import double"))
    command = [sys.executable, "-m", "ptxdiff", "run", "--backend", "emulator", "-t", "sm_90", "-v"]
    environment = {**os.environ, "PTXDIFF_ASM_ALONE": "1"}  # no compiler is started
    done = readyprocess.run(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_conftest_that_fails_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "flip.py").write_text(RIGHT)
    (tmp_path / "conftest.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 2
    assert "conftest.py: ZeroDivisionError: division by zero" in capsys.readouterr().err


def test_settings_that_pytest_refuses_are_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "flip.py").write_text(RIGHT)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 2
    assert "--no-such-option" in capsys.readouterr().err


def test_every_verb_that_names_cases_loads_them_so():
    """A verb that takes the names of cases is listed, so that a new one is not forgotten."""
    import importlib
    from pathlib import Path

    naming = {
        verb
        for verb in VERBS
        if any(w in Path(importlib.import_module(f"ptxdiff.cli.{verb}").__file__).read_text()
               for w in ("named(", "one_variant(", "launches("))
    }  # fmt: skip
    assert naming - {"run", "using"} == set(LOADING)
