"""Byte code of case files is stored, and can never be that of another text; sources are the text that was executed."""

from __future__ import annotations

import inspect
import marshal
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ptxdiff.locations import ROOT
from ptxdiff.model.identity import modules
from ptxdiff.model.identity.opened import opened_by


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))


def run(path: Path) -> ModuleType:
    return modules.execute_file(path, path.stem)


def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("a text was compiled that should be stored")

    monkeypatch.setattr(modules, "compile", compiled, raising=False)


def test_a_file_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "one.py"
    file.write_text("value = 1\n")
    run(file)
    no_compiler(monkeypatch)
    assert run(file).value == 1


def test_an_edit_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    file.write_text("value = 1\n")
    before = file.stat()
    assert run(file).value == 1
    file.write_text("value = 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(file).value == 2


def test_code_has_the_name_of_its_own_file(tmp_path: Path) -> None:
    """Two files with one text: tracebacks, and identities of functions, need the right one."""
    for name in ("one.py", "two.py"):
        file = tmp_path / name
        file.write_text("def f():\n    return 1\n")
        assert run(file).f.__code__.co_filename == str(file)


def test_stored_bytes_that_are_no_code_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "strange.py"
    file.write_text("value = 1\n")
    for stored in (b"", b"no code", marshal.dumps([1]), marshal.dumps(7)):
        monkeypatch.setattr(modules._codes, "get", lambda *_, stored=stored: stored)
        assert run(file).value == 1


def test_another_interpreter_has_its_own_code(tmp_path: Path) -> None:
    """Code for `python -O` has no assert statements, and other options leave out positions of instructions."""
    file = tmp_path / "asserts.py"
    file.write_text("def f(x):\n    assert x\n    return x\n")
    words = (
        "import sys; from pathlib import Path; from ptxdiff.model.identity.modules import execute_file\n"
        f"code = execute_file(Path({str(file)!r}), 'asserts').f.__code__\n"
        "print(len(code.co_code), next(code.co_positions())[2] is not None)"
    )

    def told(*options: str, **environment: str) -> str:
        return subprocess.run(
            [sys.executable, *options, "-c", words], cwd=ROOT, env=os.environ | environment,
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    without_asserts = told("-O")
    assert told(PYTHONNODEBUGRANGES="1").endswith("False\n")
    usual = told()
    assert usual.endswith("True\n")
    assert int(without_asserts.split()[0]) < int(usual.split()[0])


def test_a_warning_of_the_compiler_is_not_lost(tmp_path: Path) -> None:
    """Stored code would give it in the first run only, and a run in which it is an error would pass."""
    file = tmp_path / "warned.py"
    file.write_text("value = '\\d'\n")
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match="invalid escape"):
            run(file)


def test_without_a_cache_folder_files_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", "")
    file = tmp_path / "plain.py"
    file.write_text("value = 1\n")
    assert run(file).value == run(file).value == 1


def test_the_source_of_a_function_is_the_text_that_was_executed(tmp_path: Path) -> None:
    """Triton compiles what `inspect` says. An edit behind the execution must not reach it."""
    file = tmp_path / "kernels.py"
    text = "\ufeff# é\r\ndef f():\r\n    return '\x0b\u2028'  # a line\x0c\r\n\r\ndef g():\r\n    return 2"
    file.write_bytes(text.encode())
    module = run(file)
    expected = ["def f():\n", "    return '\x0b\u2028'  # a line\x0c\n"]
    assert inspect.getsourcelines(module.f) == (expected, 2)
    file.write_text("# other\ndef f():\n    return 3\ndef g():\n    return 4\n")
    assert inspect.getsourcelines(module.f) == (expected, 2)
    assert inspect.getsource(module.g) == "def g():\n    return 2\n"
    assert inspect.getsource(run(file).g) == "def g():\n    return 4\n"


def test_a_file_that_asks_for_its_own_source_does_not_open_itself(tmp_path: Path) -> None:
    """As `triton.jit` does for each function; what a file opens besides is noted as before."""
    file, other = tmp_path / "asks.py", tmp_path / "table.txt"
    other.write_text("1\n")
    file.write_text(
        "import inspect, pathlib\ndef f():\n    pass\ntext = inspect.getsource(f)\n"
        f"table = pathlib.Path({str(other)!r}).read_text()\n"
    )
    assert run(file).text == "def f():\n    pass\n"
    assert {path.removesuffix("?") for path in opened_by([str(file)]).files} - {str(file)} == {str(other)}
    assert str(file) not in opened_by([str(file)]).files
