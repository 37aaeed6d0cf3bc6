"""Whole runs: a stopped run is cut short, a records file has one writer, and order and choice of items change no
result."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ptxdiff.cli import main
from ptxdiff.records import Key, WriteError, Writer, read
from ptxdiff.records.lock import FileLock
from ptxdiff.reports import junit
from ptxdiff.reports.model import view
from ptxdiff.reports.verdict import overall
from ptxdiff.running.recorder import records_path
from tests.support.case_sources import CONSTANT, FLIP, MIXED, RIGHT
from tests.support.readyprocess import Started
from tests.support.readyworkers import OF_A_FORK
from tests.support.running.pytest_process import environment, plugin

SLOW = RIGHT.replace(
    "def flipped(x):\n",
    """def flipped(x):
    import pathlib, time
    pathlib.Path(__file__).with_name("busy").touch()
    time.sleep(600)
""",
)


def items(path: Path) -> set[tuple[str, str, str, str]]:
    return {r.key.item for r in read(path).results}


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether all readers refuse the run as incomplete: page, JUnit, the gate, and a new baseline."""
    run = read(path)
    assert run.end is None
    assert not overall(view(run)).green
    suites = ElementTree.fromstring(junit.text(run))
    assert (suites.get("errors"), suites.get("failures")) != ("0", "0")
    assert main(["report", str(path), "-f", "github-summary"]) == 0
    assert "cut short" in capsys.readouterr().out.lower()
    baseline = path.parent / "baseline"
    assert main(["gate", str(path), "--baseline", str(baseline), "--accept"]) == 1
    assert "the run was cut short" in capsys.readouterr().out
    return not baseline.exists()


# ---- A run that is stopped -----------------------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path):
    """A function that starts pytest on case files in a process and a group of its own."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "cases").mkdir()
    started = []

    def begin(*options, **sources):
        for name, source in sources.items():
            (tmp_path / "cases" / f"{name}.py").write_text(source)
        words = [sys.executable, "-m", "pytest", *OF_A_FORK, "cases", "-q", "-p", "no:cacheprovider"]
        words += ["--ptx-backend=emulator", "--ptx-target=sm_100a", "--ptx-records=run.jsonl", *plugin(), *options]
        process = Started(words, str(tmp_path), environment())
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def busy(folder: Path, process: Started) -> None:
    """Wait until the slow case runs."""
    deadline = time.monotonic() + 120
    while not (folder / "cases" / "busy").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("options", [[], pytest.param(["-n2"], marks=pytest.mark.slow)])
def test_a_run_stopped_by_ctrl_c_is_cut_short(start, tmp_path, capsys, options):
    """A real signal to a real process. With workers, several processes."""
    process = start(*options, a_first=RIGHT, b_slow=SLOW)
    busy(tmp_path, process)
    while not (tmp_path / "run.jsonl").exists() or b'"result"' not in (tmp_path / "run.jsonl").read_bytes():
        assert process.poll() is None  # with workers, the other one may still be at the first case
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert items(tmp_path / "run.jsonl") == {("a_first", "right", "sm_100a", "emulator")}
    assert "cut short: 1 of 2 items have no result; --ptx-resume continues it" in out
    assert refused(tmp_path / "run.jsonl", capsys)


def test_a_part_of_a_run_that_was_cut_short_is_no_whole_run(run_cases):
    """Resumed with -k: what the first start planned and never ran stays missing, however often a part is resumed."""
    wrong = FLIP.replace('"right"', '"a"').replace('"wrong"', '"b"')
    run_cases("-x", "--ptx-records=run.jsonl", a=wrong, b=RIGHT, c=RIGHT)
    for _ in range(2):  # a::b may have been interrupted, and is run again like items that never ran
        result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", "-kb.py")
        words = "cut short: 2 of 4 items have no result, of which a::b[[]sm_100a-emulator] is the first"
        result.stdout.fnmatch_lines([f"records: run.jsonl ({words}*"])
        assert read(Path("run.jsonl")).end is None
    run_cases("--ptx-records=run.jsonl", "--ptx-resume")
    assert read(Path("run.jsonl")).end is not None


def test_errors_that_a_part_of_a_run_left_out_are_missing(run_cases):
    """They are removed from the file, to be run again; a run of other items does not replace them."""
    broken = RIGHT.replace("0x01010101;", "0x01010101; nonsense;")
    run_cases("--ptx-records=run.jsonl", a=broken, b=RIGHT)
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", "-kb.py")
    result.stdout.fnmatch_lines(["records: run.jsonl (cut short: 1 of 2 items have no result, of which a::right*"])
    assert read(Path("run.jsonl")).end is None


def test_a_run_that_a_resumed_one_adds_to_is_whole(run_cases):
    run_cases("--ptx-records=run.jsonl", "-kb.py", a=RIGHT, b=RIGHT)
    assert read(Path("run.jsonl")).end is not None
    run_cases("--ptx-records=run.jsonl", "--ptx-resume", "-ka.py")
    found = read(Path("run.jsonl"))
    assert found.end is not None
    assert sorted(found.run.planned) == ["a::right[sm_100a-emulator]", "b::right[sm_100a-emulator]"]


def test_a_run_stopped_at_its_first_failure_is_cut_short_until_it_is_resumed(run_cases, capsys):
    wrong = FLIP.replace('"right"', '"a"').replace('"wrong"', '"b"')
    result = run_cases("-x", "--ptx-records=run.jsonl", a=wrong, b=RIGHT)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["records: run.jsonl (cut short: 1 of 3 items have no result; *"])
    assert read(Path("run.jsonl")).end is None
    assert overall(view(read(Path("run.jsonl")))).notes[0].startswith("The run was cut short")
    run_cases("--ptx-records=run.jsonl", "--ptx-resume").assert_outcomes(passed=2, failed=1)
    assert read(Path("run.jsonl")).end is not None


def test_a_failure_of_the_last_item_stops_nothing(run_cases):
    run_cases("-x", "--ptx-records=run.jsonl", flip=FLIP).assert_outcomes(passed=1, failed=1)
    assert read(Path("run.jsonl")).end is not None


def test_a_choice_of_items_is_a_whole_run(run_cases):
    result = run_cases("-k", "right", "--ptx-records=run.jsonl", flip=FLIP)
    result.assert_outcomes(passed=1, deselected=1)
    assert read(Path("run.jsonl")).end is not None


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_that_was_ended_early_is_cut_short_with_any_exit_status(run_cases, pytester, capsys, code):
    pytester.makeconftest(f"""
        import pytest

        def pytest_runtest_logfinish(nodeid):
            pytest.exit("enough", returncode={code})
    """)
    assert run_cases("--ptx-records=run.jsonl", a=RIGHT, b=RIGHT).ret == code
    assert refused(Path("run.jsonl"), capsys)


def test_a_run_with_an_internal_error_is_cut_short(run_cases, pytester, capsys):
    pytester.makeconftest("""
        def pytest_runtest_logfinish(nodeid):
            if "b.py" in nodeid:
                raise RuntimeError("a broken plugin")
    """)
    result = run_cases("--ptx-records=run.jsonl", a=RIGHT, b=RIGHT, c=RIGHT)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert refused(Path("run.jsonl"), capsys)


def test_a_case_file_that_cannot_be_read_leaves_no_whole_run(run_cases, capsys):
    """pytest may be told to continue; the missing items were not checked."""
    words = ["--continue-on-collection-errors", "--ptx-records=run.jsonl"]
    result = run_cases(*words, a=RIGHT, b=RIGHT.replace("case =", "1 / 0\ncase ="))
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["records: run.jsonl (cut short: cases/b.py could not be collected; *"])
    assert refused(Path("run.jsonl"), capsys)


BROKEN = {
    "raises": RIGHT.replace("case =", "1 / 0\ncase ="),
    "no_python": "case = (",
    "no_case": "CASE = 1\n",
    "refused": RIGHT.replace("inputs=", "imputs="),
    "imports": "import a_module_that_is_not_there\n" + RIGHT,
}


@pytest.mark.parametrize("workers", [[], ["-n2"]])
def test_broken_case_files_keep_no_other_file_from_running(run_cases, capsys, workers):
    result = run_cases("--ptx-records=run.jsonl", *workers, good=RIGHT, **BROKEN)
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["errors"], result.ret) == (1, len(BROKEN) * (len(workers) + 1), 1)
    result.stdout.fnmatch_lines(["records: run.jsonl (cut short: * and 4 more could not be collected; *"])
    assert refused(Path("run.jsonl"), capsys)


def test_the_first_broken_file_ends_a_run_that_is_to_stop_there(run_cases):
    result = run_cases("-x", good=RIGHT, **BROKEN)
    assert "passed" not in result.parseoutcomes()


def test_a_broken_test_module_stops_the_run_as_pytest_does(run_cases, pytester):
    pytester.makepyfile(test_broken="1 / 0")
    result = run_cases("cases", "test_broken.py", good=RIGHT, raises=BROKEN["raises"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-x", "--maxfail=1"])
def test_workers_stopped_at_the_first_failure_leave_no_whole_run(start, tmp_path, option):
    """Several processes."""
    process = start("-n2", option, **{f"c{k}": FLIP for k in range(12)})
    out = process.communicate(timeout=300)[0]
    assert process.returncode != 0
    assert read(tmp_path / "run.jsonl").end is None, out
    assert "cut short: " in out


def test_an_item_that_fails_without_a_result_is_an_error_of_the_run(run_cases, pytester):
    """Every failure in pytest must be in the records, or they would say that the run passed."""
    pytester.makeconftest("""
        import pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_call(item):
            if "right" in item.name and "b.py" in item.nodeid:
                raise RuntimeError("a broken plugin")
    """)
    run_cases("--ptx-records=run.jsonl", a=RIGHT, b=RIGHT).assert_outcomes(passed=1, failed=1)
    run = read(Path("run.jsonl"))
    assert {r.key.case: r.verdict for r in run.results} == {"a": "pass", "b": "error"}
    assert "RuntimeError: a broken plugin" in next(r.words for r in run.results if r.verdict == "error")
    assert overall(view(run)).word == "failed"


# ---- One writer a file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], pytest.param(["--ptx-resume"], marks=pytest.mark.slow)])
def test_a_second_run_into_a_file_is_refused_with_the_holder(start, run_cases, tmp_path, options):
    """Two processes at once; the first is killed at the end."""
    first = start(a_first=RIGHT, b_slow=SLOW)
    busy(tmp_path, first)
    before = (tmp_path / "run.jsonl").read_bytes()
    second = start(*options)
    out = second.communicate(timeout=120)[0]
    assert second.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = filter(None, out.splitlines())
    assert line.startswith(f"ERROR: --ptx-records: run.jsonl is being written by process {first.pid} on ")
    assert " since 20" in line
    assert (tmp_path / "run.jsonl").read_bytes() == before
    assert read(tmp_path / "run.jsonl").end is None  # readers need no lock
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    third = run_cases("--ptx-resume", f"--ptx-records={tmp_path}/run.jsonl", folder=f"{tmp_path}/cases", b_slow=RIGHT)
    assert third.ret == 0
    assert read(tmp_path / "run.jsonl").end is not None
    assert [p.name for p in tmp_path.glob("run.*")] == ["run.jsonl"]


def test_a_file_has_one_holder_under_all_its_names(tmp_path):
    path = tmp_path / "folder" / "run.jsonl"
    held = FileLock(path)
    path.write_text("")
    (tmp_path / "link.jsonl").symlink_to(path)
    for name in (path, tmp_path / "folder" / ".." / "folder" / "run.jsonl", tmp_path / "link.jsonl"):
        with pytest.raises(WriteError, match=rf"{name.name} is being written by process {os.getpid()} on .* since 20"):
            FileLock(name)
    FileLock(tmp_path / "folder" / "other.jsonl").release()
    held.release()
    held.release()
    FileLock(tmp_path / "link.jsonl").release()
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["run.jsonl"]


def test_the_lock_file_of_a_dead_process_locks_nothing(tmp_path):
    (tmp_path / "run.jsonl.lock").write_text('{"pid": 1, "host": "gone", "since": "2026-01-01T00:00:00+00:00"}')
    FileLock(tmp_path / "run.jsonl").release()
    held = FileLock(tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl.lock").write_text("{half a li")
    with pytest.raises(WriteError, match="is being written by another process"):
        FileLock(tmp_path / "run.jsonl")
    held.release()


def test_a_writer_holds_its_file(tmp_path):
    writer = Writer(tmp_path / "run.jsonl")
    with pytest.raises(WriteError, match="is being written by process"):
        Writer(tmp_path / "run.jsonl", resume=True)
    writer.close()
    Writer(tmp_path / "run.jsonl").close()


def test_runs_into_one_folder_have_a_file_each(tmp_path):
    first = records_path(str(tmp_path))
    held = FileLock(first)
    assert records_path(str(tmp_path)) != first
    held.release()


# ---- What passes rest on -------------------------------------------------------------------------------------------

APPROXIMATE = '''"""An approximate reciprocal."""

from ptxdiff import Case, asm, ulp
from ptxdiff.references import reciprocal
from ptxdiff.references.formats import F32

case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=reciprocal.correctly_rounded,
    variants={"approximate": asm("rcp.approx.f32 $0, $1;", match=ulp(1))},
)
'''


@pytest.mark.slow
def test_passes_are_shown_with_their_evidence(run_cases, pytester, capsys):
    result = run_cases("--ptx-records=run.jsonl", flip=RIGHT, rcp=APPROXIMATE)
    result.assert_outcomes(passed=2)
    counts = Counter(r.evidence for r in read(Path("run.jsonl")).results)
    assert set(counts) == {"confirmed", "model"}
    words = f"pass ({counts['confirmed']} confirmed, {counts['model']} model)"
    result.stdout.fnmatch_lines([f"results: {counts.total()} {words}"])
    capsys.readouterr()
    assert main(["report", "run.jsonl", "-f", "github-summary"]) == 0
    assert f"**{counts.total()}** {words}" in capsys.readouterr().out
    assert main(["report", "run.jsonl", "-o", "page.html"]) == 0
    assert f"{counts.total()} {words}" in " ".join(capsys.readouterr().out.split())
    assert words in Path("page.html").read_text()


# ---- Any order, any choice -----------------------------------------------------------------------------------------

CATALOGUE = {"flip": FLIP, "constant": CONSTANT, "mixed": MIXED, "rcp": APPROXIMATE}

# Items in another order, some of them left out, chosen by a seed.
SHUFFLED = """
import random

def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0)

def pytest_collection_modifyitems(config, items):
    if seed := config.option.seed:
        chance = random.Random(seed)
        items[:] = chance.sample(items, chance.randint(1, len(items)))
"""


def facts(path: Path) -> dict[Key, tuple[object, ...]]:
    """All fields of each result, except its duration, its own digest, and digests of what surrounds the case: an option
    belongs to it that the conftest.py names."""
    token = re.compile(r"-\w{8},pack")
    results = [
        replace(r, replay=token.sub(",pack", r.replay), message=token.sub(",pack", r.message))
        for r in read(path).results
    ]
    return {
        r.key: tuple(v for k, v in vars(r).items() if k not in ("seconds", "dependencies", "made")) for r in results
    }


def texts(path: Path) -> dict[str, str]:
    return {name: text.text for name, text in read(path).texts.items()}


def same(part: Path, whole: Path) -> bool:
    """Whether the results of some items equal those of a run of all items."""
    known = facts(whole)
    chosen = {r.key.item for r in read(part).results}
    assert facts(part) == {key: found for key, found in known.items() if key.item in chosen}
    assert texts(part).items() <= texts(whole).items()
    return bool(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [pytest.param(2, id="quick"), pytest.param(60, id="slow", marks=pytest.mark.slow)])
def test_order_and_choice_change_no_result(run_cases, pytester, rounds):
    """The slow variant has 60 rounds of a second each."""
    pytester.makeconftest(SHUFFLED)
    targets = ("--ptx-target=sm_80", "--ptx-target=sm_100a")
    run_cases(*targets, "--ptx-records=whole.jsonl", **CATALOGUE)
    assert len({r.key.item for r in read(Path("whole.jsonl")).results}) == 12
    for seed in range(1, rounds + 1):
        run_cases(*targets, f"--seed={seed}", f"--ptx-records={seed}.jsonl")
        assert same(Path(f"{seed}.jsonl"), Path("whole.jsonl")), seed
    run_cases(*targets, "-k", "wrong or neighbour", "--ptx-records=chosen.jsonl")
    assert same(Path("chosen.jsonl"), Path("whole.jsonl"))
    run_cases(*targets, "--lf", "--ptx-records=failed.jsonl")
    assert same(Path("failed.jsonl"), Path("whole.jsonl"))
    assert {r.key.item for r in read(Path("failed.jsonl")).results} == {
        r.key.item for r in read(Path("whole.jsonl")).results if r.verdict == "fail"
    }


@pytest.mark.slow
def test_workers_change_no_result(start, tmp_path):
    """Four processes."""
    for name, options in (("one", ()), ("two", ("-n2",)), ("grouped", ("-n2", "--dist=loadgroup"))):
        process = start(f"--ptx-records={name}.jsonl", *options, **CATALOGUE)
        assert process.wait(timeout=300) == 1
        assert read(tmp_path / f"{name}.jsonl").end is not None
        assert facts(tmp_path / f"{name}.jsonl") == facts(tmp_path / "one.jsonl")
        assert texts(tmp_path / f"{name}.jsonl") == texts(tmp_path / "one.jsonl")
