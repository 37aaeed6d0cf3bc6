"""`ptxdiff new`: a case file to start from; and what `list` and `show` say of a folder with such files."""

from pathlib import Path

import pytest

from ptxdiff.cli import main
from ptxdiff.cli.new import examples

ROOT = Path(__file__).resolve().parents[2]


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
    assert "two.up, two.down have no variant 'up'; they have mov; two.up is a case: name it so" in said
