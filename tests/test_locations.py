"""The files of a folder are those that `Path.rglob` finds, in the same order: digests of them stay as they were."""

import pytest

from ptxdiff.locations import files_below

NAMES = ("b.py", "a/z.py", "a-b/c.py", "a.py", "a/b/c.txt", "a/__pycache__/z.pyc", ".hidden/x.py", "é.py", "A.py")


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)
    (tmp_path / "in" / "folder.py").mkdir()
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    (tmp_path / "outside" / "deep" / "one.py").touch()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "in" / "link.py").symlink_to(tmp_path / "outside" / "deep" / "one.py")
    (tmp_path / "in" / "dead.py").symlink_to(tmp_path / "nothing")
    return tmp_path / "in"


@pytest.mark.parametrize("ending", ["", ".py", ".txt", ".none"])
def test_files_are_those_of_rglob_in_its_order(folder, ending):
    assert files_below(folder, ending) == [p for p in sorted(folder.rglob(f"*{ending}")) if p.is_file()]


def test_folders_are_left_out_by_name(folder):
    found = files_below(folder, without=("__pycache__",))
    assert found == [p for p in files_below(folder) if "__pycache__" not in p.parts]
    assert len(found) == len(files_below(folder)) - 1


def test_a_folder_that_does_not_exist_has_no_files(folder):
    assert files_below(folder / "nothing") == []
    assert files_below(folder / "b.py") == []
