"""What a file imports, and compiled modules: an edit of either changes what results are kept under."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest

from ptxdiff.model.identity import digest_with_code, modules, source
from ptxdiff.model.identity.modules import execute_file, imported_texts
from ptxdiff.model.identity.opened import opened_by

FILES = {
    "_near.py": "from . import _far\nimport json\n",
    "_far.py": "VALUE = 1\n",
    "_inside.py": "VALUE = 2\n",
    "_unused.py": "VALUE = 3\n",
    "case.py": "import json.decoder as nn\nfrom ._near import json\nfrom ptxdiff.references import bits\n"
    "def f():\n    from ._inside import VALUE\n    return VALUE\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imported_files_are_those_of_the_user_also_through_others(folder):
    module = execute_file(folder / "case.py", "case")
    assert {Path(p).name for p in imported_texts(folder / "case.py")} == {"_near.py", "_far.py"}
    assert module.f() == 2
    assert {Path(p).name for p in imported_texts(folder / "case.py")} == {"_near.py", "_far.py", "_inside.py"}
    assert "VALUE = 1\n" in imported_texts(folder / "case.py").values()


def test_a_link_to_the_file_leads_to_the_same(folder, tmp_path_factory):
    execute_file(folder / "_near.py", "_near")
    link = tmp_path_factory.mktemp("linked") / "_near.py"
    link.symlink_to(folder / "_near.py")
    assert set(imported_texts(link)) == {str(folder / "_far.py")}


def test_imports_of_a_file_that_is_no_loaded_module_count_too(folder, monkeypatch):
    """pytest forgets a conftest.py when it loads the next one."""
    (folder / "patching_of_mine.py").write_text("VALUE = 4\n")
    (folder / "conftest.py").write_text("import patching_of_mine\n")
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("patching_of_mine")
    execute_file(folder / "case.py", "case")
    names = {Path(p).name for p in imported_texts(folder / "case.py", folder / "conftest.py", folder / "none.py")}
    assert names == {"_near.py", "_far.py", "patching_of_mine.py"}
    monkeypatch.delitem(sys.modules, "patching_of_mine")


def test_a_file_that_was_not_executed_imports_nothing(folder):
    assert imported_texts(folder / "case.py") == {}


def test_a_compiled_module_counts_with_its_contents(folder):
    """Its functions have no source. An installed module, copied, stands for one that a user built."""
    installed = pytest.importorskip("markupsafe._speedups")
    copy = folder / Path(installed.__file__).name
    shutil.copy(installed.__file__, copy)
    (folder / "case.py").write_text("from . import _speedups\ndef f(x):\n    return _speedups._escape_inner(x)\n")
    importlib.invalidate_caches()
    module = execute_file(folder / "case.py", "case")
    assert module._speedups.__file__ == str(copy)
    before = digest_with_code(module.f)
    assert digest_with_code(module.f) == before
    with copy.open("ab") as file:
        file.write(b"built again")
    source.forget()
    assert digest_with_code(module.f) != before
    assert set(imported_texts(folder / "case.py")) == {str(copy)}


def test_a_conftest_in_a_package_may_import_its_neighbours(folder, monkeypatch):
    package = folder / "package_of_mine"
    package.mkdir()
    texts = {
        "__init__": "",
        "conftest": "from . import patching\nfrom .more import VALUE\n",
        "patching": "",
        "more": "VALUE = 5\n",
    }
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("package_of_mine.conftest")
    execute_file(folder / "case.py", "case")
    names = {Path(p).name for p in imported_texts(folder / "case.py", package / "conftest.py")}
    assert {"patching.py", "more.py"} <= names
    for name in texts:
        monkeypatch.delitem(sys.modules, f"package_of_mine.{name}", raising=False)


def test_what_a_function_imports_from_its_own_package_counts(folder):
    """`from . import x` names no module: the name of the package is empty."""
    (folder / "_patch.py").write_text("VALUE = 5\n")
    (folder / "patched.py").write_text("def f():\n    from . import _patch\n    return _patch.VALUE\n")
    module = execute_file(folder / "patched.py", "patched")
    before = digest_with_code(module.f)
    assert module.f() == 5
    sys.modules[f"{module.__package__}._patch"].VALUE = 6
    assert digest_with_code(module.f) != before


def test_a_module_that_only_a_function_imports_counts_among_the_files_it_opens(folder):
    (folder / "_effect.py").write_text("")
    (folder / "effects.py").write_text("def f():\n    from . import _effect\n")
    module = execute_file(folder / "effects.py", "effects")
    digest_with_code(module.f)
    assert str(folder / "_effect.py") in opened_by([str(folder / "effects.py")]).files


SETS = "import os\nos.environ['PTXDIFF_TESTED'] = 'set'\n"


@pytest.mark.parametrize(
    ("text", "ahead", "seen"),
    [
        ('"""A case."""\n\nfrom __future__ import annotations\n\nimport os\n\nimport made_up\n', True, None),
        ("from made_up import seen\nimport made_up\n", True, None),
        (f"{SETS}import made_up\n", False, "set"),
        ("import sets_it\nimport made_up\n", False, "set"),
        ("from . import sets_it\nimport made_up\n", False, "set"),
        ("if True:\n    import made_up\n", False, None),
        ("import json\n", False, None),
    ],
)
def test_packages_are_imported_ahead_where_nothing_before_can_matter(tmp_path, monkeypatch, text, ahead, seen):
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "made_up.py").write_text("import os\nseen = os.environ.get('PTXDIFF_TESTED')\n")
    for folder in (packages, tmp_path):
        (folder / "sets_it.py").write_text(SETS)
    (tmp_path / "case.py").write_text(text)
    monkeypatch.setenv("PTXDIFF_TESTED", "")
    monkeypatch.delenv("PTXDIFF_TESTED")
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(modules, "_AHEAD", ("made_up",))
    monkeypatch.setattr(modules, "is_watching", lambda: False)
    before_watching = []
    monkeypatch.setattr(modules, "watch", lambda noting: before_watching.append("made_up" in sys.modules))
    try:
        module = execute_file(tmp_path / "case.py", "case")
        assert before_watching == [ahead]
        assert getattr(getattr(module, "made_up", None), "seen", None) == seen
    finally:
        for name in ("made_up", "sets_it"):
            sys.modules.pop(name, None)


def test_a_package_that_fails_ahead_fails_in_the_file_itself(tmp_path, monkeypatch):
    (tmp_path / "case.py").write_text("import no_such_package\n")
    monkeypatch.setattr(modules, "_AHEAD", ("no_such_package",))
    monkeypatch.setattr(modules, "is_watching", lambda: False)
    monkeypatch.setattr(modules, "watch", lambda noting: None)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        execute_file(tmp_path / "case.py", "case")
