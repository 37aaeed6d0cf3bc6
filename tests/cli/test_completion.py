"""What a shell is told when the user presses the key for completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.case_sources import FLIP

pytest.importorskip("argcomplete", reason="the extra `completion`")


def completed(line: str, folder: str) -> list[str]:
    """The words that are offered at the end of a line."""
    env = {**os.environ, "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n",
           "_ARGCOMPLETE_SHELL": "bash", "COMP_TYPE": "9", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}  # fmt: skip
    code = "from ptxdiff.cli import main; main()"
    shell = ["bash", "-c", f"exec {sys.executable} -c '{code}' 8>&1 9>/dev/null"]
    done = subprocess.run(shell, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return [word.strip() for word in done.stdout.split("\n")]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "flip.py").write_text(FLIP + "\nraise SystemExit('never executed')\n")
    (tmp_path / "cases" / "_hidden.py").write_text("")
    return tmp_path


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        ("ptxdiff emu", ["emulate"], ["run"]),
        ("ptxdiff sweep --jo", ["--journal"], ["--limit", "--timeout"]),
        ("ptxdiff run --target sm_9", ["sm_90a"], ["sm_80"]),
        ("ptxdiff run --effort ", ["quick", "full", "exhaustive"], []),
        ("ptxdiff show f", ["flip"], ["_hidden"]),
        ("ptxdiff show cases/", ["cases/flip.py"], ["cases/_hidden.py"]),
    ],
)
def test_words_are_offered(line, offered, not_offered, folder):
    found = completed(line, str(folder))
    assert set(offered) <= set(found)
    assert not set(not_offered) & set(found)


def test_variants_are_offered_behind_the_case(folder):
    found = completed("ptxdiff show flip::", str(folder))
    assert sorted(word.rpartition(":")[2] for word in found) == ["right", "wrong"]


def test_completing_loads_no_heavy_package(folder, monkeypatch):
    code = (
        "import sys\nimport argcomplete\nargcomplete.autocomplete = lambda parser: None\n"
        "from ptxdiff.cli import main\nmain()\n"
        "print([m for m in ('torch', 'triton', 'numba', 'numpy', 'rich') if m in sys.modules])"
    )
    env = {**os.environ, "_ARGCOMPLETE": "1", "COMP_LINE": "ptxdiff run fl", "COMP_POINT": "14"}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
