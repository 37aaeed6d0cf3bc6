"""Packages of users with the names of ours, and the contents of a wheel."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ptxdiff.cli import main
from ptxdiff.cli.new import examples

ROOT = Path(__file__).resolve().parents[2]

CASE = '''"""A case."""
from ptxdiff import Case, asm, exact
from ptxdiff.references.formats import U32


def reference(x):
    return x


case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=reference, source="none",
    variants={"mov": asm("mov.b32 $0, $1;")},
)
'''


def command(folder, *words, path=(), program=(str(ROOT / "ptxdiff.py"),)):
    """Run `ptxdiff` like the installed command, with `folder` before our packages in Python's path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, *path)))}
    return subprocess.run(
        [sys.executable, "-P", *program, *words], cwd=folder, env=environment, capture_output=True, text=True,
        check=False, timeout=200,
    )  # fmt: skip


@pytest.fixture
def theirs(tmp_path):
    """A project whose own packages have the names of all of ours."""
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


def test_a_run_in_which_pytest_would_load_theirs_names_both(theirs):
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


def test_a_package_that_was_imported_first_is_named_with_ours(tmp_path):
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "__init__.py").write_text("")
    done = command(tmp_path, path=[ROOT], program=["-c", "import references, ptxdiff.model.case"])
    last = done.stderr.splitlines()[-1]
    assert f"{tmp_path / 'references'}, and ptxdiff's at {ROOT / 'references'}" in last
    assert "imported already; rename the other one" in last


def test_a_module_that_only_theirs_has_is_refused_with_both_paths(tmp_path):
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "__init__.py").write_text("")
    (tmp_path / "references" / "mine.py").write_text("")
    done = command(tmp_path, path=[ROOT], program=["-c", "import ptxdiff.model.case, references.mine"])
    last = done.stderr.splitlines()[-1]
    assert str(tmp_path / "references") in last
    assert str(ROOT / "references") in last


def test_new_from_an_example_copies_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine", "--from", "rcp"]) == 0
    assert (tmp_path / "cases" / "mine.py").read_text() == (ROOT / "cases" / "rcp.py").read_text()
    assert main(["new", "other", "--from", "nothing"]) == 2
    said = capsys.readouterr().err
    assert "there is no example 'nothing' (ptxdiff new --help lists all)" in said
    assert main(["new", "other", "--from", "cvt_e2m1"]) == 2
    assert "; did you mean cvt_e2m1x2" in capsys.readouterr().err
    assert set(examples()) == {p.stem for p in (ROOT / "cases").glob("[!_]*.py")}


def test_new_copies_the_modules_of_an_example_and_keeps_existing_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases" / "_device").mkdir(parents=True)
    (tmp_path / "cases" / "_device" / "narrow.py").write_text("mine = 1")
    assert main(["new", "mine", "--from", "nvfp4_quantize"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "cases/mine.py",
        "cases/_device/blocks.py",
        "cases/_device/nvfp4_quantize.py",
        "cases/_host/inputs.py",
        "run it: pytest cases/mine.py",
    ]
    assert (tmp_path / "cases" / "_device" / "narrow.py").read_text() == "mine = 1"


def test_new_copies_the_ptx_that_an_example_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine", "--from", "cuda_fma"]) == 0
    assert (tmp_path / "cases" / "cuda_fma.ptx").read_text() == (ROOT / "cases" / "cuda_fma.ptx").read_text()
    assert main(["list", "mine"]) == 0
    assert "cuda" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("instruction", "known"),
    [("ex2.approx.ftz.f32", True), ("cvt.rs.satfinite.e4m3x4.f32 $0, {$4,$3,$2,$1}, $5;", False)],
)
def test_a_new_file_says_that_its_formats_are_a_guess(instruction, known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine", "--instruction", instruction]) == 0
    text = (tmp_path / "cases" / "mine.py").read_text()
    compile(text, "mine.py", "exec")
    assert ("# The formats are not known from the instruction: set them." in text) is not known


def test_list_says_that_a_folder_has_no_cases(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases").mkdir()
    assert main(["list"]) == 0
    assert "no cases here" in capsys.readouterr().out


def test_the_name_of_a_case_as_a_variant_says_how_to_name_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "two.py").write_text(
        "from ptxdiff import Case, asm\nfrom ptxdiff.references.formats import U32\n"
        "up, down = (Case(inputs={'x': U32}, outputs={'y': U32}, reference=lambda x: x, source='s',\n"
        "    variants={'mov': asm('mov.b32 $0, $1;')}) for _ in range(2))\n"
    )
    assert main(["show", "two", "up"]) == 2
    said = capsys.readouterr().err
    assert "two.up, two.down have no variant 'up'; they have mov, mov; two.up is a case: name it so" in said


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Our wheel, built from a copy of the sources, because setuptools writes into the source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("harness", "references", "reports", "cases"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "ptxdiff.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools import build_meta; print(build_meta.build_wheel(__import__('sys').argv[1]))"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=source, check=True, capture_output=True, timeout=200)
    [built] = folder.glob("*.whl")
    zipfile.ZipFile(built).extractall(folder / "installed")
    return built


def test_a_wheel_holds_the_examples_and_no_package_called_cases(wheel, tmp_path):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not any(n.startswith("cases/") for n in names)
    files = (p.relative_to(ROOT / "cases") for kind in ("*.py", "*.ptx") for p in (ROOT / "cases").rglob(kind))
    assert {f"harness/cli/examples/{p}" for p in files} <= names
    assert "ptxdiff.py" in names
    assert "reports/templates" in {str(Path(n).parent) for n in names}
    installed = str(wheel.parent / "installed" / "ptxdiff.py")
    for name, example in (("mine", "rcp"), ("quantise", "nvfp4_quantize")):
        done = command(tmp_path, "new", name, "--from", example, program=[installed])
        assert done.returncode == 0, done.stderr
    listed = command(tmp_path, "list", program=[installed])
    assert listed.returncode == 0, listed.stderr
    assert "quantise" in listed.stdout
    assert (tmp_path / "cases" / "mine.py").read_text() == (ROOT / "cases" / "rcp.py").read_text()


def plain_pytest(wheel, folder, *words):
    """Run `python -m pytest` in a folder, with ptxdiff installed from its wheel. The folder is first in Python's
    path."""
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-q", *words]
    return command(folder, path=[wheel.parent / "installed"], program=words)


def test_plain_pytest_finds_ours_beside_a_package_called_harness(wheel, theirs):
    done = plain_pytest(wheel, theirs, "cases", "--ptx-backend=emulator", "--ptx-target=sm_90a")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("wanted", ["import ptxdiff.mine", "from ptxdiff import mine"])
def test_their_own_tests_get_both_paths_and_a_remedy(wheel, tmp_path, wanted):
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("")
    (tmp_path / "harness" / "mine.py").write_text("")
    (tmp_path / "test_mine.py").write_text(f"{wanted}\n\n\ndef test_it():\n    pass\n")
    refused = plain_pytest(wheel, tmp_path)
    assert refused.returncode == 2
    installed = wheel.parent / "installed" / "harness"
    both = f"two packages called harness: {tmp_path / 'harness'}, and ptxdiff's at {installed}"
    assert both in refused.stdout, refused.stdout
    assert "-p no:ptxdiff" in refused.stdout
    alone = plain_pytest(wheel, tmp_path, "-p", "no:ptxdiff")
    assert alone.returncode == 0, alone.stdout + alone.stderr
