"""A user's packages called as ours are, and what a wheel holds."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.cli import main
from harness.cli.new import examples

ROOT = Path(__file__).resolve().parents[2]

CASE = '''"""A case."""
from harness import Case, asm, exact
from references.formats import U32


def reference(x):
    return x


case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=reference, source="none",
    variants={"mov": asm("mov.b32 $0, $1;")},
)
'''


def command(folder, *words, path=(), program=(str(ROOT / "ptxdiff.py"),)):
    """`ptxdiff` as an installed command, with `folder` before our packages in Python's path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, *path)))}
    return subprocess.run(
        [sys.executable, "-P", *program, *words], cwd=folder, env=environment, capture_output=True, text=True,
        check=False, timeout=200,
    )  # fmt: skip


@pytest.fixture
def theirs(tmp_path):
    """A project with packages of its own of all our names."""
    for name in ("reports", "references", "harness", "cases"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise RuntimeError('the user has a package {name}')\n")
    (tmp_path / "cases" / "__init__.py").unlink()
    (tmp_path / "cases" / "mov.py").write_text(CASE)
    return tmp_path


def test_the_command_finds_ours_first(theirs):
    done = command(theirs, "list")
    assert done.returncode == 0, done.stderr
    assert "mov::mov" in done.stdout or "mov  (x: uint32)" in done.stdout


def test_a_run_where_pytest_would_load_theirs_names_both(theirs):
    done = command(theirs, "run", "cases")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert str(theirs / "harness") in done.stderr
    assert str(ROOT / "harness") in done.stderr


def test_records_become_a_page_beside_a_package_called_reports(theirs):
    shutil.rmtree(theirs / "harness")
    (theirs / "run.jsonl").write_text("")
    done = command(theirs, "report", "run.jsonl")
    assert done.returncode == 2
    assert "run.jsonl" in done.stderr
    assert "RuntimeError" not in done.stderr


@pytest.mark.parametrize("name", ["reports", "references"])
def test_a_plain_folder_of_that_name_hides_nothing(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "mov.py").write_text(CASE)
    done = command(tmp_path, "list")
    assert done.returncode == 0, done.stderr


def test_one_that_was_imported_first_is_named_with_ours(tmp_path):
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "__init__.py").write_text("")
    done = command(tmp_path, path=[ROOT], program=["-c", "import references, harness.model.case"])
    last = done.stderr.splitlines()[-1]
    assert f"{tmp_path / 'references'}, and ptxdiff's at {ROOT / 'references'}" in last
    assert "imported already; rename it" in last


def test_a_module_that_only_theirs_has_is_refused_with_both_paths(tmp_path):
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "__init__.py").write_text("")
    (tmp_path / "references" / "mine.py").write_text("")
    done = command(tmp_path, path=[ROOT], program=["-c", "import harness.model.case, references.mine"])
    last = done.stderr.splitlines()[-1]
    assert str(tmp_path / "references") in last
    assert str(ROOT / "references") in last


def test_new_from_an_example_copies_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine", "--from", "rcp"]) == 0
    assert (tmp_path / "cases" / "mine.py").read_text() == (ROOT / "cases" / "rcp.py").read_text()
    assert main(["new", "other", "--from", "nothing"]) == 2
    said = capsys.readouterr().err
    assert "there is no example 'nothing'; there are " in said
    assert " cvt_e2m1x2," in said
    assert set(examples()) == {p.stem for p in (ROOT / "cases").glob("[!_]*.py")}


def test_a_wheel_holds_the_examples_and_no_package_called_cases(tmp_path):
    """Built from a copy, as setuptools writes into the source tree."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("harness", "references", "reports", "cases"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "ptxdiff.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools import build_meta; print(build_meta.build_wheel(__import__('sys').argv[1]))"
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=source, check=True, capture_output=True, timeout=200
    )
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not any(n.startswith("cases/") for n in names)
    assert {f"harness/cli/examples/{p.name}" for p in (ROOT / "cases").glob("*.py")} <= names
    assert "ptxdiff.py" in names
    assert "reports/templates" in {str(Path(n).parent) for n in names}
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    done = command(tmp_path, "new", "mine", "--from", "rcp", program=[str(tmp_path / "installed" / "ptxdiff.py")])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cases" / "mine.py").read_text() == (ROOT / "cases" / "rcp.py").read_text()
