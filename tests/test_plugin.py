"""The plugin as a user of pytest sees it: case files, options, outcomes, and the messages on mistakes in a case
file."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ptxdiff.processes.gpus import Gpu
from ptxdiff.triton.targets import TargetInfo
from tests.support.case_sources import CONSTANT, FLIP, MIXED, RIGHT

IN_PTX = """
from ptxdiff import Case, ptx
from ptxdiff.references.formats import U32

COPY = '''
.version 7.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 x, .param .u64 y, .param .u32 n) {
  .reg .pred %p; .reg .u32 %r<6>; .reg .u64 %rd<4>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r2, 32, %r3;
  setp.ge.u32 %p, %r4, %r1; @%p ret;
  mul.wide.u32 %rd3, %r4, 4; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
  ld.global.u32 %r5, [%rd1]; st.global.u32 [%rd2], %r5; ret;
}
'''

case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x, source="none",
    variants={"copy": ptx(COPY, grid="ceil(n/32)", block=32, parameters=["x", "y", "n"])},
)
"""

OURS = ("torch", "triton", "numba", "ptxdiff.model.case", "ptxdiff.running.collection", "ptxdiff.references.formats")


def test_an_item_is_a_variant_on_a_target_by_a_backend(run_cases):
    result = run_cases("--collect-only", "-q", "--ptx-target=sm_90a", "--ptx-target=120", flip=FLIP)
    result.stdout.fnmatch_lines(
        [
            "cases/flip.py::right[[]sm_90a-emulator[]]",
            "cases/flip.py::right[[]sm_120a-emulator[]]",
            "cases/flip.py::wrong[[]sm_90a-emulator[]]",
            "cases/flip.py::wrong[[]sm_120a-emulator[]]",
        ]
    )


def test_strict_markers_do_without_pytest_xdist(run_cases):
    """Items have the marker of pytest-xdist, so it is registered without it too."""
    result = run_cases("--markers", "-p", "no:xdist", flip=FLIP)
    result.stdout.fnmatch_lines(["@pytest.mark.xdist_group(name):*"])


def test_a_second_case_of_a_file_is_a_group_with_its_own_name(run_cases):
    two = FLIP + "\nother = case\n"
    result = run_cases("--collect-only", "-q", flip=two)
    result.stdout.fnmatch_lines(["cases/flip.py::right*", "cases/flip.py::other::right*"])


@pytest.mark.parametrize("place", ["cases", "some/where/else/cases"])
def test_a_folder_named_cases_is_enough(run_cases, place):
    run_cases("--collect-only", ".", folder=place, flip=FLIP).stdout.fnmatch_lines(["*2 tests collected*"])


def test_elsewhere_an_ini_setting_or_the_command_line_names_case_files(run_cases, pytester):
    run_cases("--collect-only", ".", folder="kernels", flip=FLIP).stdout.fnmatch_lines(["*no tests collected*"])
    run_cases("--collect-only", "kernels/flip.py").stdout.fnmatch_lines(["*2 tests collected*"])
    pytester.makeini("[pytest]\nptx_cases = kernels/*.py\n")
    run_cases("--collect-only", ".").stdout.fnmatch_lines(["*2 tests collected*"])


def test_another_projects_folder_cases_is_ignored(run_cases):
    source = "import unittest\n\nclass MyCase(unittest.TestCase):\n    pass\n\nraise RuntimeError('imported')\n"
    result = run_cases("--collect-only", ".", helpers=source, test_mine="def test_mine():\n    pass\n")
    result.stdout.fnmatch_lines(["*1 test collected*"])


def test_a_run_without_cases_imports_nothing_of_ours(pytester):
    pytester.makepyfile(
        test_plain=f"""
        import sys

        def test_nothing_is_loaded(request):
            assert request.config.pluginmanager.hasplugin("ptxdiff")
            assert not [name for name in {OURS!r} if name in sys.modules]
        """
    )
    result = pytester.runpytest_subprocess(".")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("option", "words"),
    [("--ptx-taget=sm_90", "no option --ptx-taget; did you mean --ptx-target"), ("--ptx-zzzz", "no option --ptx-zzzz")],
)
def test_a_misspelt_option_gets_the_nearest(pytester, option, words):
    result = pytester.runpytest_inprocess(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("address", "words"),
    [
        (
            "cases/flip.py::rihgt",
            "cases/flip.py binds no case called rihgt, and has no variant 'rihgt'; did you mean right?*",
        ),
        ("cases/flip.py::case::rihgt", "cases/flip.py has no variant 'rihgt'; did you mean right?*"),
        ("cases/filp.py", "no such file or folder: cases/filp.py; did you mean flip.py?"),
        ("cases/filp.py::right", "no such file or folder: cases/filp.py; did you mean flip.py?"),
        (
            "cases/flip.py::right[[]sm_100-emulator]",
            "*is no address of pytest; write cases/flip.py::right[[]sm_100a-emulator]",
        ),
        ("cases/flip.py::right[[]sm_80-emulator]", "*the options of this run leave this item out; without --ptx-*"),
    ],
)
@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_a_misspelt_address_gets_the_nearest(run_cases, address, words, workers):
    if workers and "fil" in address:
        pytest.skip("the controller knows files itself")
    result = run_cases(address.replace("[[]", "["), *workers, flip=RIGHT)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if workers else pytest.ExitCode.USAGE_ERROR)
    (result.stdout if workers else result.stderr).fnmatch_lines([words if workers else f"ERROR: {words}"])


@pytest.mark.parametrize(("there", "have"), [([], "no GPU"), (["sm_80"], "GPUs of sm_80")])
def test_an_item_of_a_gpu_that_is_not_here_says_so(run_cases, monkeypatch, there, have):
    monkeypatch.setattr("ptxdiff.running.collection.generations", lambda config: there)
    result = run_cases("cases/flip.py::right[sm_90a-gpu]", flip=RIGHT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = f"*this item needs a GPU of sm_90a, and this host has {have}; *the emulator runs it: [[]sm_90a-emulator]"
    result.stderr.fnmatch_lines([said])


def test_an_address_of_a_test_is_pytests_own(run_cases, pytester):
    result = run_cases("test_owned.py::test_mien", folder=".", test_owned="def test_mine():\n    pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: not found: *test_owned.py::test_mien"])


def test_a_target_that_triton_does_not_serve_is_refused_once(run_cases, monkeypatch):
    table = {name: TargetInfo(name, name == "sm_89", "too new. Go away") for name in ("sm_88", "sm_89")}
    monkeypatch.setattr("ptxdiff.triton.targets.probe_with", lambda compiler: table)
    result = run_cases("--ptx-target=sm_88", "--ptx-target=sm_90", one=RIGHT, two=RIGHT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    words = "ERROR: --ptx-target: the installed Triton compiles no kernels for sm_88 (too new); did you mean sm_89?"
    assert result.stderr.str().strip() == f"{words}; it serves sm_89"


def test_kernels_in_ptx_need_no_triton_for_a_target(run_cases, monkeypatch):
    monkeypatch.setattr("ptxdiff.triton.targets.probe_with", lambda compiler: {"sm_88": TargetInfo("sm_88", False)})
    run_cases("--ptx-target=sm_88", copy=IN_PTX).assert_outcomes(passed=1)


def test_an_option_of_a_projects_conftest_may_begin_like_ours(pytester):
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--ptx-targets')\n")
    pytester.makepyfile("def test_it(request):\n    assert request.config.getoption('ptx_targets') == 'mine'\n")
    pytester.runpytest_inprocess("--ptx-targets=mine").assert_outcomes(passed=1)


def test_k_and_m_select(run_cases):
    run_cases("-k", "right", flip=FLIP).assert_outcomes(passed=1)
    run_cases("-m", "assembler", flip=FLIP).assert_outcomes(deselected=2)


def test_lf_x_and_junitxml(run_cases, pytester):
    two = FLIP.replace('"right"', '"also wrong"').replace("0x01010101;", "0x01010103;")
    result = run_cases("-x", "--junitxml=junit.xml", a=FLIP, b=two)
    result.assert_outcomes(passed=1, failed=1)
    text = (pytester.path / "junit.xml").read_text()
    assert 'name="wrong[sm_100a-emulator]"' in text
    assert "64 of 256 codes differ" in text
    result = run_cases("--lf", a=FLIP, b=two)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["a::wrong*64 of 256 codes differ*"])


def test_a_failures_message_contains_all_that_its_reader_needs(run_cases):
    result = run_cases(flip=FLIP)
    result.stdout.fnmatch_lines(
        [
            "flip::wrong[[]sm_100a-emulator]: all results are right with 0x01010101 instead of 0x01010181 in xor.b32 "
            "on line 1; 64 of 256 codes differ (value 64)",
            "  run       pack 4, shape 256, alignment 16, num_warps 4, straight, fusion off, inputs exhaustive/1",
            "  policy    exact; ftz never; NaN any",
            "  expected  flipped",
            "  evidence  bits computed by the emulator*",
            "    output y, code 0, place 0 in its pack",
            "    x         0x00  0",
            "    expected  0x01  1",
            "    got       0x81  129",
            "    class     value, +128",
            "  repeat    pytest 'cases/flip.py::wrong[[]sm_100a-emulator]' --ptx-replay=*",
            "results: * pass (* confirmed), * fail",
        ]
    )


def first_offender(result: pytest.RunResult) -> list[str]:
    text = result.stdout.str()
    return re.findall(r"^    (?:x|expected|got|class) .*$", text, flags=re.M)


def repeat_command(result: pytest.RunResult) -> list[str]:
    import shlex

    command = re.findall(r"^  repeat    pytest (.*)$", result.stdout.str(), flags=re.M)
    return shlex.split(command[0])


def test_a_replay_repeats_the_same_offender(run_cases):
    neighbour = FLIP.replace("0x01010181;", "0x01010101; shl.b32 $0, $0, 8; shr.u32 $0, $0, 8;")
    found = run_cases(flip=neighbour)
    again = run_cases(*repeat_command(found))
    again.assert_outcomes(failed=1)
    assert first_offender(found) == first_offender(again) != []


def test_a_replay_of_a_right_variant_passes(run_cases):
    token = "pack=4,place=0,shape=256,align=16,warps=4,context=straight,steps=1,fusion=0,x=00:01:02:03"
    run_cases("cases/flip.py::right[sm_100a-emulator]", f"--ptx-replay={token}", flip=FLIP).assert_outcomes(passed=1)


def test_a_token_of_another_case_is_reported_as_such(run_cases):
    result = run_cases("--ptx-replay=pack=1,shape=4,z=00000000", flip=RIGHT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --ptx-replay: *the case's inputs are x; the token gives z; give the item *"])


def test_the_command_is_for_the_users_current_folder(run_cases, pytester, monkeypatch):
    pytester.makeini("[pytest]\n")
    (pytester.path / "below").mkdir()
    monkeypatch.chdir(pytester.path / "below")
    result = run_cases(str(pytester.path / "cases"), flip=FLIP)
    assert repeat_command(result)[0] == "../cases/flip.py::wrong[sm_100a-emulator]"


def test_without_a_gpu_its_items_skip_and_nothing_ran_is_not_green(run_cases, no_gpu):
    result = run_cases("--ptx-backend=gpu", "-rs", flip=RIGHT)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*nothing ran, so nothing passed", "*not run: no NVIDIA GPU on this machine"])
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


EXCHANGE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U32

case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x,
    variants={"v": asm("shfl.sync.bfly.b32 $0, $1, 0, 31, -1;", "=r,r")},
)
"""


def test_the_end_of_a_run_says_why_something_was_not_run_and_what_to_do(run_cases):
    result = run_cases("--ptx-backend=emulator", "--ptx-target=sm_80", exchange=EXCHANGE)
    result.stdout.fnmatch_lines(
        ["not run: 1 (emulator): *shfl.sync.bfly.b32 is an exchange*; give a whole kernel that has it: kernel(...) or*"]
    )


def test_require_gpu_turns_the_missing_gpu_into_a_failure(run_cases, no_gpu):
    result = run_cases("--ptx-backend=gpu", "--ptx-require-gpu", flip=RIGHT)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*--ptx-require-gpu, but this was not run: no NVIDIA GPU on this machine"])


@pytest.mark.parametrize(
    ("named", "options", "expected"),
    [
        ((), [], [("gpu", "sm_90a")]),
        (("sm_90",), [], [("gpu", "sm_90a")]),
        (("sm_100a",), [], []),
        (("sm_100a",), ["--ptx-require-gpu"], [("gpu", "sm_100a")]),
        (("sm_100a",), ["--ptx-backend=gpu"], [("gpu", "sm_100a")]),
    ],
)
def test_targets_of_the_gpu(pytester, monkeypatch, named, options, expected):
    """A target that is not the device's leaves the GPU out; if the GPU was requested, the run says why."""
    from ptxdiff.running import collection

    monkeypatch.setattr(collection, "gpus", lambda: (Gpu("0", "a GPU", "GPU-0", "sm_90a", 0),) * 2)
    config = pytester.parseconfig(*options, *(f"--ptx-target={t}" for t in named))
    assert [place for place in collection.places(config) if place[0] == "gpu"] == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ptx-target=sm_1"], "--ptx-target: 'sm_1' is no target that ptxdiff knows; known: sm_75*"),
        (["--ptx-require-gpu"], "--ptx-require-gpu needs a GPU, but --ptx-backend=emulator leaves it out"),
        (["--ptx-limit=0"], "--ptx-limit: 0.0 is no number of seconds"),
        (["-o", "ptx_limit=soon"], "--ptx-limit: 'soon' is no number of seconds"),
        (["--ptx-resume"], "--ptx-resume continues one records file: name it with --ptx-records=FILE.jsonl"),
        (["--ptx-records=out.json"], "--ptx-records: out.json: name a file that ends in .jsonl*"),
    ],
)
def test_impossible_options_are_refused(run_cases, options, words):
    result = run_cases(*options, flip=RIGHT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {words}"])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("from ptxdiff import Case\nx = Case(\n", "cases/bad.py:2: SyntaxError: '(' was never closed"),
        ("from ptxdiff import Case(\n", "cases/bad.py:1: SyntaxError: invalid syntax"),
        ("import ptxdiff  # Case(\n1 / 0\n", "cases/bad.py:2: ZeroDivisionError: division by zero"),
        ("from ptxdiff import Caze  # Case(\n", "cases/bad.py:1: ImportError: cannot import name 'Caze'*"),
        ("import ptxdiff  # Case()\n", "cases/bad.py: a case file binds a Case to a name: case = Case(*"),
        (
            FLIP.replace('nan="any"', "").replace("reference=flipped,", 'reference=flipped, nan="none",'),
            "cases/bad.py:11: the case: nan='none'; one of any, canonical, payload",
        ),
    ],
)
def test_a_broken_case_file_is_reported_with_its_line(run_cases, source, words):
    result = run_cases(bad=source)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{words}"])
    assert "importlib" not in result.stdout.str()


def test_two_files_with_the_same_name_are_refused(run_cases):
    run_cases(folder="one/cases", flip=FLIP)
    result = run_cases(".", folder="two/cases", flip=FLIP)
    result.assert_outcomes(errors=1, failed=1, passed=1)  # the items of the first file run
    result.stdout.fnmatch_lines(["*two/cases/flip.py: a case called 'flip' is in *one/cases/flip.py as well*"])


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "raise RuntimeError('no idea')",
            "reference flipped raised RuntimeError: no idea [[]*/cases/flip.py:*: raise RuntimeError('no idea')[]]",
        ),
        (
            "return x, x",
            "reference flipped returned 2 results for 1 outputs; return one tensor of codes for each of y*",
        ),
        ("return x.float()", "reference flipped returned float32 for y; return codes (uint8 bit patterns) as int64"),
        (
            "return x + x.new_zeros(7)",
            "reference flipped raised RuntimeError: * must match the size of tensor *; inputs are int64 codes (bit "
            "patterns): numbers of float32 are codes.astype(np.uint32).view(np.float32) in numpy, and *",
        ),
        ("return None", "reference flipped returned NoneType for y; return codes*"),
        ("return x[:1]", "reference flipped returned 1 codes of shape (1,) for y; there are 256"),
        (
            "return x + 1",
            "reference flipped returned 0x1 to 0x100 for y; codes of uint8 are 0 to 0xff; "
            "the first that is none, 0x100, is for x = 0xff",
        ),
        (
            "return (x ^ 1) - 1",
            "reference flipped returned -0x1 to 0xfe for y; codes of uint8 are 0 to 0xff; "
            "the first that is none, -0x1, is for x = 0x1; the bits of signed integers become codes by & 0xff",
        ),
    ],
)
def test_a_reference_that_gives_no_codes_is_an_error(run_cases, body, words):
    result = run_cases(flip=RIGHT.replace("return x ^ 1", body))
    result.assert_outcomes(failed=1)
    head, repeat = (
        f"flip::right[[]sm_100a-emulator]: error: {words}",
        "  repeat    pytest '*flip.py::right[[]sm_100a-emulator]'",
    )
    result.stdout.fnmatch_lines([head, repeat, "results: * error"])


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ('magnitude("z", 0, 1)', "domain '0 <= |z| <= 1 and specials': no input is called 'z'; there are x"),
        ('Domain("odd", lambda v: 1 / 0)', "domain 'odd': its predicate raised ZeroDivisionError: division by zero; *"),
        (
            'Domain("odd", lambda v: __import__("torch").isfinite(v["x"]))',
            "domain 'odd': its predicate raised TypeError: * it gets each input's numbers by name, as a numpy array *",
        ),
        ('Domain("odd", lambda v: v["x"])', "domain 'odd': its predicate gave float64 of shape*"),
        ('Domain("odd", lambda v: v["x"] > 300)', "match= of y promises next to nothing: 0 of * codes *"),
    ],
)
def test_an_invalid_domain_is_an_error(run_cases, domain, words):
    source = FLIP.replace("import Case", "import Case, Domain, exact, magnitude")
    source = source.replace("reference=flipped", f"reference=flipped, match=exact(on={domain})")
    result = run_cases("-k", "wrong", flip=source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"flip::wrong[[]sm_100a-emulator]: error: {words}"])


def test_where_that_excludes_everything_is_an_error(run_cases):
    source = RIGHT.replace("import Case", "import Case, Domain")
    result = run_cases(flip=source.replace("reference=", 'where=Domain("none", lambda v: v["x"] > 300), reference='))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*error: there is nothing to run it on: where= excludes every input*"])


def test_a_case_without_inputs(run_cases):
    run_cases(constant=CONSTANT).assert_outcomes(passed=1, failed=1)


def test_asm_that_mixes_neighbours_is_detected(run_cases):
    """Triton may put any elements into one invocation, so asm that mixes them is wrong in every order."""
    result = run_cases(mixed=MIXED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["mixed::adds the neighbour*codes differ*"])


def test_harness_is_quick_to_import_and_light():
    """`import ptxdiff` alone loads neither torch, triton nor numba."""
    script = f"import sys, ptxdiff; print([m for m in {OURS!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
