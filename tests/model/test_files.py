"""`ptxdiff list` shows exactly the cases that `pytest cases` runs, and both report a file in `cases` without a case."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from ptxdiff.cli import main
from ptxdiff.model.files import below, uses_harness
from ptxdiff.model.load import cases_in, load
from tests.support import readyprocess
from tests.support.caches import share_caches
from tests.support.case_sources import FLIP, RIGHT

RENAMED = RIGHT.replace("import Case, asm", "import Case as Problem, asm").replace("= Case(", "= Problem(")
MADE = '''"""A case that another module makes."""
from kernels_of_mine import problem

case = problem()
'''
MAKER = RIGHT.replace("case = Case(", "def problem():\n  return Case(")
LISTED = RIGHT.replace("case = Case(", "def problem():\n  return Case(") + "\ncases = [problem(), problem()]\n"
MAPPED = LISTED.replace("cases = [problem(), problem()]", 'BY_NAME = {"small one": problem(), 8: [problem()]}')
CALLED = RIGHT.replace("case = Case(", "flipping = Case(")
TESTED = RIGHT + "\ndef test_of_mine():\n    assert flipped(2) == 3\n"


def write(root: Path, **sources: str) -> None:
    """Write files below `root`: `sub__x="..."` is cases/sub/x.py."""
    for name, source in sources.items():
        parts = [name] if name.startswith("__") else name.split("__")
        path = root.joinpath("cases", *parts).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)


@pytest.fixture
def both(run_cases, pytester, capsys, monkeypatch):
    """A function that returns the names of cases that `ptxdiff list` shows, and of those that pytest runs."""
    monkeypatch.syspath_prepend(pytester.path)
    monkeypatch.delitem(sys.modules, "cases", raising=False)  # an earlier test may have imported the project's own
    (pytester.path / "kernels_of_mine.py").write_text(MAKER)

    def names(**sources: str) -> tuple[set[str], set[str]]:
        write(pytester.path, **sources)
        assert main(["list", "cases"]) == 0
        listed = set(re.findall(r"^(\S+)  \(", capsys.readouterr().out, flags=re.M))
        run_cases("--ptx-records=run.jsonl", "cases")
        from ptxdiff.records import read

        return listed, {r.key.case for r in read(Path("run.jsonl")).results}

    return names


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"sub__x": RIGHT}, {"x"}),
        ({"sub__deeper__x": RIGHT}, {"x"}),
        ({"test_x": RIGHT}, {"test_x"}),
        ({"x_test": RIGHT}, {"x_test"}),
        ({"x": RENAMED}, {"x"}),
        ({"x": MADE}, {"x"}),
        ({"x": CALLED}, {"x.flipping"}),
        ({"x": LISTED}, {"x.cases.0", "x.cases.1"}),
        ({"x": MAPPED}, {"x.BY_NAME.small_one", "x.BY_NAME.8.0"}),
        ({"x": RIGHT + "\nall_of_them = [case]\n_hidden = case\n"}, {"x"}),
        ({"x": RIGHT, "_helper": "1 / 0", "conftest": "", "__init__": "", "_old__x": RIGHT}, {"x"}),
        ({"x": RIGHT, "build__x": RIGHT, ".old__x": RIGHT}, {"x"}),
        ({"x": RIGHT, "test_y": "def test_y():\n    pass\n"}, {"x"}),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, dict) else "",
)
def test_what_is_listed_runs(both, source, expected):
    listed, ran = both(**source)
    assert listed == ran == expected


def test_tests_beside_a_case_run_too(run_cases, pytester):
    write(pytester.path, test_z=TESTED, plain_test="def test_y():\n    pass\n", x=RIGHT)
    run_cases("cases").assert_outcomes(passed=4)
    run_cases("cases/test_z.py").assert_outcomes(passed=2)
    run_cases("cases/test_z.py::test_of_mine").assert_outcomes(passed=1)
    run_cases("cases/test_z.py::right[sm_100a-emulator]").assert_outcomes(passed=1)


def test_cases_in_a_container_are_chosen_by_address(run_cases, pytester):
    write(pytester.path, x=MAPPED)
    run_cases("cases/x.py::BY_NAME.8.0::right[sm_100a-emulator]").assert_outcomes(passed=1)
    run_cases("-k", "small_one").assert_outcomes(passed=1, deselected=1)


@pytest.mark.parametrize("helper", ["x = 1\n", "from ptxdiff import Case\n", "from ptxdiff import Case\n_case = 1\n"])
def test_a_file_without_a_case_is_reported(run_cases, pytester, capsys, helper):
    write(pytester.path, right=RIGHT, sub__helper=helper)
    result = run_cases("cases")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*cases/sub/helper.py: a case file binds a Case to a name*no case file: _helper.py"])
    assert main(["list", "cases"]) == 2
    assert "cases/sub/helper.py: a case file binds a Case" in capsys.readouterr().err
    (pytester.path / "cases" / "sub" / "helper.py").rename(pytester.path / "cases" / "sub" / "_helper.py")
    run_cases("cases").assert_outcomes(passed=1)


def test_a_test_module_with_neither_is_reported(run_cases, pytester):
    write(pytester.path, right=RIGHT, test_nothing="from ptxdiff import Case\n")
    result = run_cases("cases")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*cases/test_nothing.py: a case file binds a Case to a name*"])


@pytest.mark.parametrize("other", ["sub__x", "x__x"])
def test_two_cases_with_the_same_name_are_refused_by_both(run_cases, pytester, capsys, other):
    write(pytester.path, x=RIGHT, **{other: RIGHT})
    result = run_cases("cases")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    words = "a case called 'x' is in "
    result.stdout.fnmatch_lines([f"*{words}*x.py as well, and results are kept by name*"])
    assert main(["list", "cases"]) == 2
    assert words in capsys.readouterr().err


def test_names_across_files_are_compared_whole(run_cases, pytester):
    """`a.py` with a case called `b`, and `a.b.py`, make the same name."""
    write(pytester.path, a=RIGHT + "b = Case(inputs=case.inputs, outputs=case.outputs, reference=flipped,"
          " variants=case.variants)\n")  # fmt: skip
    (pytester.path / "cases" / "a.b.py").write_text(RIGHT)
    result = run_cases("cases")
    result.stdout.fnmatch_lines(["*a case called 'a.b' is in *"])


def test_keys_that_make_no_distinct_names_are_refused():
    from ptxdiff import Case, asm
    from ptxdiff.references.formats import U8

    def case():
        return Case(
            inputs={"x": U8}, outputs={"y": U8}, reference=lambda x: x,
            variants={"a": asm("mov.b32 $0, $1;", "=r,r", pack=4)},
        )  # fmt: skip

    with pytest.raises(ValueError, match=r"two cases in c are called c\.a_b; use keys"):
        cases_in({"c": {"a b": case(), "a-b": case()}})
    with pytest.raises(ValueError, match=r"c\[\(1, 2\)\] is a Case, and its key makes no name"):
        cases_in({"c": {(1, 2): case()}})
    one = case()
    ring = [one]
    ring.append(ring)
    assert cases_in({"r": ring, "s": (one,)}) == {"r.0": one}


def test_run_accepts_a_folder_of_another_name_as_list_does(pytester, capsys):
    """`ptxdiff run` runs pytest, so this uses a process of its own."""
    (pytester.path / "kernels").mkdir()
    (pytester.path / "kernels" / "flip.py").write_text(FLIP)
    (pytester.path / "kernels" / "test_flop.py").write_text(RIGHT)
    assert main(["list", "kernels"]) == 0
    listed = re.findall(r"^(\S+)  \(", capsys.readouterr().out, flags=re.M)
    command = [sys.executable, "-m", "ptxdiff", "run", "kernels", "--backend", "emulator", "--target", "sm_90"]
    done = readyprocess.run([*command, "--", "--collect-only"])
    assert listed == ["flip", "test_flop"]
    for item in ("flip.py::right", "flip.py::wrong", "test_flop.py::right"):
        assert f"kernels/{item}[sm_90a-emulator]" in done.stdout, done.stdout


def test_circular_links_and_imports_are_followed_once(tmp_path):
    """Each folder is listed by its path without links, and two modules that import each other are read once each."""
    (tmp_path / "deeper").mkdir()
    for name, text in (("one", "import two"), ("two", "import one"), ("deeper/three", "import one")):
        (tmp_path / f"{name}.py").write_text(f"{text}\n")
    (tmp_path / "deeper" / "up").symlink_to(tmp_path)
    assert [str(p.relative_to(tmp_path)) for p in below(tmp_path)] == ["deeper/three.py", "one.py", "two.py"]
    assert not uses_harness(tmp_path / "deeper" / "three.py", [tmp_path])
    (tmp_path / "two.py").write_text("import one, ptxdiff.model.case\n")
    assert uses_harness(tmp_path / "deeper" / "three.py", [tmp_path])


BESIDE = """
import triton
import triton.language as tl

from ._more import AMOUNT


@triton.jit
def moved(x):
    return x + AMOUNT


def reference(x):
    return x + 1 & 0xFFFFFFFF
"""
USING = """
from ptxdiff import Case, plain
from ptxdiff.references.formats import U32
from ._kernels.beside import moved, reference

case = Case(inputs={"x": U32}, outputs={"y": U32}, reference=reference, source="none", variants={"moved": plain(moved)})
"""
MORE = "import triton.language as tl\nAMOUNT = tl.constexpr({})\n"


def project(root: Path, amount: int) -> Path:
    """A case whose Triton function and reference are in a hidden folder beside it."""
    folder = root / "cases"
    (folder / "_kernels").mkdir(parents=True, exist_ok=True)
    (folder / "using.py").write_text(USING)
    (folder / "_kernels" / "beside.py").write_text(BESIDE)
    (folder / "_kernels" / "_more.py").write_text(MORE.format(amount))
    return folder


@pytest.mark.slow
def test_a_case_file_imports_modules_beside_it(tmp_path):
    """Each run is a process of its own, and so is the worker that compiles. The edit keeps the file's size and time."""
    share_caches(tmp_path / "cache")
    environment = {**os.environ, "PTXDIFF_REUSE": "1", "PTXDIFF_CACHE_DIR": str(tmp_path / "cache")}
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "cases", "--ptx-backend=emulator",
             "--ptx-target=sm_100a"]  # fmt: skip
    ended = []
    for amount in (1, 2):
        project(tmp_path, amount)
        os.utime(tmp_path / "cases" / "_kernels" / "_more.py", (1_700_000_000, 1_700_000_000))
        done = readyprocess.run(words, cwd=tmp_path, env=environment, timeout=200)
        ended.append((done.returncode, done.stdout))
    assert [code for code, _ in ended] == [0, 1], ended
    assert "using::moved" in ended[1][1]


def test_folders_with_the_same_name_are_separate(tmp_path):
    for name, amount in (("one", 1), ("two", 2)):
        project(tmp_path / name, amount)
    values = [
        load(tmp_path / name / "cases" / "using.py")[0].case.variants["moved"].function.fn.__globals__["AMOUNT"].value
        for name in ("one", "two")
    ]
    assert values == [1, 2]
