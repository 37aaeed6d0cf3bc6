"""The command line: every command, and exit code 2 with a message for invalid requests."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ptxdiff.cli import VERBS, main
from ptxdiff.records import read
from tests.support import readyprocess
from tests.support.case_sources import RIGHT
from tests.support.command_line import here, pytest_arguments, said

__all__ = ["here"]


@pytest.fixture
def in_this_process(here, monkeypatch):
    """Makes `ptxdiff run` run pytest in this process, because a new process would spend seconds on importing torch."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):  # the inner pytest is not an xdist worker
        monkeypatch.delenv(name, raising=False)
    (here / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setattr("ptxdiff.cli.run._call", lambda words, environment: pytest.main(words[3:]))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(capsys, verb):
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    assert f"ptxdiff {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["nonsense"], ["list", "--nonsense"], ["run", "--effort", "much"]])
def test_unknown_words_are_usage_errors(capsys, words):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert "usage: ptxdiff" in capsys.readouterr().err


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "nowhere.py"], "no such file or folder: nowhere.py; name case files, or a case"),
        (["list", "nothing"], "no case is called 'nothing'; cases here: flip"),
        (["list", "bad/broken.py"], "bad/broken.py:1: ZeroDivisionError: division by zero"),
        (["show", "flip", "left"], "flip has no variant 'left'; it has right, wrong"),
        (["show", "flip", "--target", "sm_1"], "'sm_1' is no target that ptxdiff knows; known: sm_75"),
        (["show", "flip", "right", "--pack", "3", "--only", "asm"], "no asm for pack 3; there is one for 4"),
        (["run", "nowhere"], "no such file or folder: nowhere"),
        (["run", "--target", "sm_1"], "'sm_1' is no target that ptxdiff knows"),
        (
            ["run", "--records", "out.json"],
            "out.json: name a file that ends in .jsonl",
        ),
        (["report", "nowhere"], "nowhere: no such file or folder"),
        (["report", "bad"], "bad: no records"),
        (["report", "cases/flip.py"], "cases/flip.py:1: not JSON"),
        (["new", "a-b"], "'a-b' is no case name; use letters, digits and underscores"),
        (["new", "flip"], "cases/flip.py exists already"),
        (["new", "_flip"], "'_flip': files of this name are not loaded as case files"),
        (["emulate", "mov.b32 $0, $1;"], "give each output's format: -o float32"),
        (
            ["emulate", "mov.b32 $0, $1;", "-i", "float33=1", "-o", "float32"],
            "no format is called 'float33'; did you mean float32",
        ),
        (["emulate", "mov.b32 $0, $1;", "-i", "float32", "-o", "float32"], "write FORMAT=VALUE,VALUE"),
        (
            ["emulate", "mov.b32 $0, $1;", "-i", "float32=one", "-o", "float32"],
            "'one' is neither a number nor a bit pattern",
        ),
        (["emulate", "mov.b32 $0, $1;", "-i", "uint8=300", "-o", "uint8"], "300 is outside the range of uint8"),
        (["emulate", "mov.b32 $0, $1;", "-i", "int8=128", "-o", "int8"], "128 is outside the range of int8"),
        (
            ["emulate", "mov.b32 $0, $1;", "-i", "float16=0x12345", "-o", "float16"],
            "more bits than float16, which has 16",
        ),
        (
            ["emulate", "mov.b32 $0, $1;", "-i", "e2m1x2=1.0", "-o", "e2m1x2"],
            "give values of e2m1x2 as bit patterns (0x...)",
        ),
        (
            ["emulate", "x $0, $1, $2;", "-i", "float32=1,2", "-i", "float32=1,2,3", "-o", "float32"],
            "different numbers",
        ),
        (["emulate", "add.f32 $0, $1, $2;", "-i", "float32=1", "-o", "float32"], "$2 names no argument"),
        (["emulate", "mov.b32 $0, $1;", "-i", "float32=1", "-o", "float32", "-t", "x"], "'x' is no target"),
        (["emulate", "mov.b32 $0, $1;", "-i", "float32=1", "-o", "float32", "-t", "hoper"], "did you mean hopper"),
        (["lint", "-t", "hoper", "."], "did you mean hopper"),
    ],
)
def test_invalid_requests_exit_with_code_2_and_a_message(here, capsys, words, message):
    (here / "bad").mkdir()
    (here / "bad" / "broken.py").write_text("1 / 0\n")
    code, _, err = said(capsys, *words)
    assert code == 2
    assert err.startswith(f"ptxdiff {words[0]}: ")
    assert message in err
    assert "Traceback" not in err


def test_list_prints_cases_and_variants(here, capsys):
    code, out, _ = said(capsys, "list")
    assert code == 0
    assert "flip  (x: uint8) -> (y: uint8)  Flip the lowest bit of a byte." in out
    assert re.search(r"right +asm +pack 4; exact; ftz never; every target", out)


def test_list_targets_names_the_assembler(capsys):
    code, out, _ = said(capsys, "list", "--targets")
    assert code == 0
    assert re.search(r"^sm_100a +ptxas \d+\.\d+", out, flags=re.M)


def test_show_gives_asm_ptx_and_resources(here, capsys):
    code, out, _ = said(capsys, "show", "flip", "right", "--only", "asm")
    assert (code, out.splitlines()[-2]) == (0, "xor.b32 $0, $1, 0x01010101;")
    code, out, _ = said(capsys, "show", "flip", "right", "--target", "sm_100", "--only", "ptx", "--only", "resources")
    assert code == 0
    assert ".target sm_100a" in out
    assert re.search(r"registers \d+", out)


def test_show_says_why_there_is_no_code(here, capsys):
    (here / "cases" / "bad.py").write_text(RIGHT.replace("xor.b32", "xro.b32"))
    code, out, _ = said(capsys, "show", "bad", "right", "--only", "ptx")
    assert code == 1
    assert "error: " in out
    assert "xro" in out


ROUND = "cvt.rn.satfinite.e2m1x2.f32 $0, $2, $1;"


@pytest.mark.parametrize(
    ("words", "cells"),
    [
        (["rcp.rn.f32 $0, $1;", "-i", "float32=3", "-o", "float32"], ["0x40400000 (3.0)", "0x3eaaaaab (0.33333334)"]),
        (["rcp.rn.f32 $0, $1;", "-i", "float32=nan,-inf,0x1", "-o", "float32"], ["(nan)", "(-0.0)", "(inf)"]),
        (["rcp.rn.ftz.f32 $0, $1;", "-i", "float32=-0x1", "-o", "float32"], ["0xffffffff (nan)", "0x7fffffff (nan)"]),
        (["add.s32 $0, $1, $2;", "-i", "int32=-1,5", "-i", "int32=1", "-o", "int32"], ["(0)", "(6)"]),
        ([ROUND, "-i", "float32=0.25,-5", "-i", "float32=6,0.75", "-o", "e2m1x2", "-t", "sm_100a"],
         ["0x0 (0.0) 0x7 (6.0)", "0xe (-4.0) 0x2 (1.0)"]),
        (["add.f16x2 $0, $1, $1;", "-i", "float16=1,2,3", "-o", "float16", "-p", "2"], ["(2.0)", "(4.0)", "(6.0)"]),
        (["add.f32 $0, $1, $1;", "-c", "=r,r", "-i", "float32=1.5", "-o", "float32"], ["0x40400000 (3.0)"]),
        (["mul.f32 $0, $1, $1; add.f32 $0, $0, $2;", "-i", "float32=0x3f800003", "-i", "float32=-1", "-o", "float32",
          "--fusion"], ["0x35400002"]),
        (["add.f32 %0, %1, %1;", "--convention", "cuda", "-c", '"=f"(y) : "f"(x)', "-i", "float32=1.5", "-o",
          "float32"], ["0x40400000 (3.0)"]),
        (["add.f16 %0, %1, %1;", "--convention", "cuda", "-i", "float16=1.5", "-o", "float16"], ["(3.0)"]),
        (["neg.f16 $0, $3; neg.f16 $1, $2;", "--convention", "llvm", "-c", "=&h,=h,h,h", "-p", "2", "-i", "float16=1,2",
          "-o", "float16", "--trace"], ["(-2.0)", "neg.f16 $0, $3"]),
    ],
)  # fmt: skip
def test_emulate_shows_bits_and_values(capsys, monkeypatch, words, cells):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = said(capsys, "emulate", *words)
    assert code == 0, out + err
    for cell in cells:
        assert cell in out


def test_emulate_traces_every_instruction(capsys):
    code, out, _ = said(
        capsys, "emulate", "{ .reg .f32 t; add.f32 t, $1, $1; mul.f32 $0, t, t; }", "-i", "float32=1", "-o", "float32",
        "--trace",
    )  # fmt: skip
    assert code == 0
    assert re.search(r"add\.f32 t, \$1, \$1.* -> .*0x40000000", out)
    assert re.search(r"mul\.f32 \$0, t, t.* -> .*0x40800000", out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rcp.rm.f33 $0, $1;", "-c", "=r,r", "-i", "float32=1", "-o", "float32"], "rcp"),
        ([ROUND, "-i", "float32=1", "-i", "float32=1", "-o", "e2m1x2", "-t", "sm_90"], "sm_90a"),
        (["mov.b32 $0, $1;", "-c", "+r,r", "-i", "float32=1", "-o", "float32"], "+r"),
    ],
)
def test_a_refusal_of_the_emulator_is_exit_code_1(capsys, words, message):
    code, out, _ = said(capsys, "emulate", *words)
    assert code == 1
    assert message in out


def test_a_new_case_runs_and_names_what_is_missing(run_cases, capsys):
    code, out, _ = said(capsys, "new", "fresh", "--instruction", "ex2.approx.ftz.f32")
    assert (code, out) == (0, "cases/fresh.py\nrun it: pytest cases/fresh.py\n")
    result = run_cases("cases/fresh.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*error: the reference raised NotImplementedError: write the reference, or*"])


def test_run_calls_pytest_in_a_new_process_which_finds_the_plugin(here, capfd, monkeypatch):
    """In other tests pytest is a fork, or runs in this process."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert main(["run", "--target", "sm_90", "--", "--help"]) == 0
    assert "--ptx-backend" in capfd.readouterr().out


def test_run_writes_records_and_a_report(here):
    """In a separate process, because the command runs pytest."""
    (here / "cases" / "flip.py").write_text(RIGHT)
    command = [sys.executable, "-m", "ptxdiff", "run", "--backend", "emulator", "--target", "sm_90"]
    command += ["--records", "run.jsonl", "--report", "report.html", "--", "-k", "right"]
    done = readyprocess.run(command, cwd=here)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {r.verdict for r in read(Path("run.jsonl")).results} == {"pass"}
    assert "<html" in (here / "report.html").read_text()
    assert "report.html" in done.stdout
    assert main(["report", "run.jsonl", "-o", "again.html"]) == 0
    assert (here / "again.html").read_text() == (here / "report.html").read_text()
    assert 'id="conformance"' in (here / "report.html").read_text()


def test_run_reports_with_the_history_of_its_folder(here, in_this_process):
    (here / "cases" / "flip.py").write_text(RIGHT)
    command = ["run", "--backend", "emulator", "--target", "sm_90", "--records", "runs", "--report", "report.html"]
    for _ in range(2):
        assert main(command) == 0
    assert len(list((here / "runs").glob("*.jsonl.zst"))) == 2
    assert "What changed over 2 runs" in (here / "report.html").read_text()


def test_the_formats_are_listed(capsys):
    code, out, _ = said(capsys, "list", "--formats")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert "32 bits in uint64" in lines["F32X2"]
    assert "2 codes of float32, the first in the low bits" in lines["F32X2"]
    assert "4 exponent and 3 mantissa bits, bias 7, no infinity" in lines["E4M3"]
    from ptxdiff.references import formats

    assert set(lines) == {n for n, f in vars(formats).items() if n.isupper() and isinstance(f, formats.Format)}


def test_the_references_are_listed_with_their_docstrings(capsys):
    code, out, _ = said(capsys, "list", "--references", "reciprocal")
    assert code == 0
    assert out.startswith("ptxdiff.references.reciprocal  Reciprocals, quotients")
    assert "    correctly_rounded(" in out
    assert said(capsys, "list", "--references", "nothing")[0] == 2
    _, everything, _ = said(capsys, "list", "--references", "--formats")
    assert "ptxdiff.references.conversion" in everything
    assert "BF16X2" in everything
    assert not [line for line in everything.splitlines() if not line.strip()], "a reference without a docstring"


def test_the_index_loads_no_torch():
    program = (
        "import sys; from ptxdiff.cli import main; code = main(['list', '--references', '--formats'])\n"
        "sys.exit(code or any(m in sys.modules for m in ('torch', 'triton', 'numba')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr


OTHER = RIGHT.replace("case = Case(", "other = Case(")
"""A case called `other` with one variant, which equals FLIP's right variant."""

SPELLINGS = {
    "flip::right": ["flip::right"],
    "flip right": ["flip::right"],
    "flip.py::right": ["flip::right"],
    "cases/flip.py::right": ["flip::right"],
    "flip.py::right[sm_90a-emulator]": ["flip::right"],
    "flip::right[sm_90a-emulator]": ["flip::right"],
    "cases/flip.py::right[sm_90a-emulator]": ["flip::right"],
    "flip": ["flip::right", "flip::wrong"],
    "flip.py": ["flip::right", "flip::wrong"],
    "two.other": ["two.other::right"],
    "two.other::right": ["two.other::right"],
    "two::other::right": ["two.other::right"],
    "cases/two.py::other": ["two.other::right"],
    "cases/two.py::other::right[sm_100a-gpu]": ["two.other::right"],
    "two right flip wrong": ["two.other::right", "flip::wrong"],
    "cases": ["flip::right", "flip::wrong", "two.other::right"],
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", SPELLINGS)
def test_a_variant_is_known_in_every_spelling_that_is_printed(here, capsys, words):
    (here / "cases" / "two.py").write_text(OTHER)
    code, out, err = said(capsys, "list", *words.split())
    assert code == 0, err
    found, case = [], ""
    for line in out.splitlines()[:-2]:  # then the totals
        if line.startswith(" "):
            found.append(f"{case}::{line.split()[0]}")
        else:
            case = line.split()[0]
    assert found == SPELLINGS[words]


def test_show_takes_the_target_from_the_name(here, capsys):
    code, out, _ = said(capsys, "show", "flip::right[sm_100a-emulator]", "--only", "asm")
    assert (code, out.splitlines()[0]) == (0, "# flip::right, sm_100a, pack 4")
    code, _, err = said(capsys, "show", "flip::right[sm_100a-emulator]", "--target", "sm_90a", "--only", "asm")
    assert (code, err) == (
        2, "ptxdiff show: --target sm_90a, and the name says sm_100a; leave one of them out\n",
    )  # fmt: skip


def test_run_gives_pytest_the_addresses_of_the_named_cases(here):
    (here / "cases" / "two.py").write_text(OTHER)
    for words, address in {
        "flip right": "cases/flip.py::right",
        "flip::wrong[sm_90a-emulator]": "cases/flip.py::wrong[sm_90a-emulator]",
        "two.other::right": "cases/two.py::other::right",
        "cases/flip.py": "cases/flip.py",
    }.items():
        arguments = pytest_arguments(*words.split())
        assert arguments[0] == address
        assert f"--ptx-cases={address.partition('::')[0]}" in arguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep", "flip", "--journal", "j"], "flip names 2 variants; name one of flip::right, flip::wrong"),
        (["sweep", "flip::left", "--journal", "j"], "flip has no variant 'left'; it has right, wrong"),
        (["list", "flip", "left"], "flip has no variant 'left'; it has right, wrong"),
        (["list", "flip::right[sm_1-gpu]"], "'sm_1' is no target that ptxdiff knows"),
        (
            ["list", "flip.py::left"],
            "flip.py binds no case called left, and has no variant 'left'; there are case::right",
        ),
    ],
)
def test_an_unknown_name_gives_the_same_error_with_every_verb(here, capsys, words, message):
    assert said(capsys, *words)[0] == 2
    main(words)
    assert message in capsys.readouterr().err


def test_naming_a_case_loads_its_file_alone_and_no_torch(here):
    (here / "cases" / "other.py").write_text("raise RuntimeError('loaded')")
    words = "import sys; from ptxdiff.cli import main; code = main(['list', 'flip', 'right'])"
    script = f"{words}; sys.exit(code or ('torch' in sys.modules) * 3)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=here, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "library"),
    [
        (["-t", "sm_1"], {"target": "sm_1"}),
        (["-p", "3"], {"pack": 3}),
        (["-p", "0"], {"pack": 0}),
        (["-p", "0", "-c", "=r,r"], {"pack": 0}),
        (["-c", "+r,r"], {"constraints": "+r,r"}),
        (["-c", "=r"], {"constraints": "=r"}),
        (["-t", "sm_75"], {"target": "sm_75"}),
    ],
)
def test_the_command_refuses_what_the_library_refuses_with_the_same_message(capsys, words, library):
    import numpy as np

    from ptxdiff import emulate
    from ptxdiff.emulator import PtxError

    text = "cvt.rn.bf16x2.f32 $0, $1, $1;"
    given = {"constraints": "=r,r", "args": [np.float32([1])], "dtype": "float32"} | library
    with pytest.raises(PtxError) as refused:
        emulate(text, **given)
    code, out, err = said(capsys, "emulate", text, "-i", "float32=1", "-o", "float32", *words)
    assert code
    assert str(refused.value) in out + err


@pytest.mark.parametrize(
    ("instruction", "asm", "formats"),
    [
        ("ex2.approx.ftz.f32", "ex2.approx.ftz.f32 $0, $1;", ["float32", "float32"]),
        ("ex2.approx.ftz.f32 $0, $1;", "ex2.approx.ftz.f32 $0, $1;", ["float32", "float32"]),
        ("fma.rn.f32 $0, $1, $2, $3", "fma.rn.f32 $0, $1, $2, $3;", ["float32"] * 4),
        ("fma.rn.f32", "fma.rn.f32 $0, $1, $2, $3;", ["float32"] * 4),
        ("lop3.b32", "lop3.b32 $0, $1, $2, $3, 0;", ["uint32"] * 4),
        ("cvt.rn.satfinite.e4m3x2.f32", "cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", ["e4m3", "float32"]),
        ("unknown.f32", "unknown.f32 $0, $1;", ["float32", "float32"]),
    ],
)
def test_a_new_case_has_the_instruction_once_and_imports_what_it_uses(here, capsys, instruction, asm, formats):
    from ptxdiff.model.load import load

    assert said(capsys, "new", "fresh", "--instruction", instruction)[0] == 0
    case = load(here / "cases" / "fresh.py")[0].case
    assert case.variants["asm"].texts[1].text == asm
    assert [f.name for f in (*case.outputs.values(), *case.inputs.values())] == formats
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff, which checks what the new file imports, is not installed")
    checked = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "cases/fresh.py"]
    done = subprocess.run(checked, capture_output=True, text=True, cwd=here, timeout=60)
    assert done.returncode == 0, done.stdout


def test_compare_compares_two_targets_of_one_run(here, in_this_process, capsys):
    (here / "cases" / "flip.py").write_text(RIGHT)
    run = ["run", "--backend", "emulator", "--target", "sm_90", "--target", "sm_100", "--records", "run.jsonl"]
    assert said(capsys, *run)[0] == 0
    code, out, _ = said(capsys, "compare", "run.jsonl", "--between", "sm_90a", "sm_100a")
    assert code == 0
    assert re.search(r"[1-9]\d* results in both", out)
    code, _, err = said(capsys, "compare", "run.jsonl")
    assert code == 2
    words = "give a second run, a folder with two runs, or two targets of one run: "
    assert words + "ptxdiff compare A --between sm_90a sm_100a" in err


def test_emulate_names_the_source_of_approximate_bits(capsys):
    def printed(*more):
        code, out, _ = said(capsys, "emulate", "tanh.approx.f32 $0, $1;", "-i", "float32=1", "-o", "float32", *more)
        assert code == 0
        return out

    assert "tanh.approx" not in printed("-t", "sm_90a")
    assert "tanh.approx.f32: Hopper's bits, not confirmed for sm_100a" in printed("-t", "sm_100a")
    rounded = printed("-t", "sm_90a", "--approximate=rounded")
    assert "tanh.approx.f32: rounded to nearest, which no GPU does" in rounded
    assert "0x3f42f7d6" in rounded
    assert "0x3f42f7d6" not in printed()


def test_run_passes_the_option_on_approximate_bits_to_pytest(here, in_this_process, capsys):
    words = ["run", "cases/flip.py::right", "--backend=emulator", "--target=sm_90a", "--records=run.jsonl"]
    assert main([*words, "--approximate=rounded"]) == 0
    assert read(here / "run.jsonl").run.environment["approximate"] == "rounded"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["show", "flip", "rigth"], "did you mean right?"),
        (["show", "flop"], "did you mean flip?"),
        (["show", "flip", "--target", "hoper"], "did you mean hopper"),
        (["emulate", "mov.b32 $0, $1;", "-i", "flaot32=1", "-o", "float32"], "did you mean float32"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_ones(words, meant, here, capsys):
    assert main(words) == 2
    assert meant in capsys.readouterr().err


def test_a_misspelt_command_gets_the_nearest_ones(capsys):
    with pytest.raises(SystemExit):
        main(["rnu"])
    assert "no command is called 'rnu'; did you mean run?" in capsys.readouterr().err


def test_short_names_of_formats_are_known(capsys):
    assert main(["emulate", "add.f32 $0, $1, $1;", "-i", "f32=1.5", "-o", "f32"]) == 0
    assert "3.0" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["hopper", "H100", "sm_90", "90"])
def test_a_snippet_runs_on_a_target_named_by_its_product(capsys, name):
    words = ["emulate", "mov.b32 $0, $1;", "-i", "float32=1.5", "-o", "float32", "-t", name]
    status, out, _ = said(capsys, *words)
    assert status == 0
    assert "1.5" in out
