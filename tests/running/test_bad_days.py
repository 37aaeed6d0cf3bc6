"""Accidents that need no GPU: each costs only its own item an `error`, and a resumed run repairs it."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ptxdiff.records import WriteError, Writer, read
from tests.support.case_sources import FLIP, RIGHT
from tests.support.reports.record_samples import KEY, RESULT, RUN
from tests.support.running.pytest_process import environment, plugin
from tests.support.sealed import sealed, unsealed

# The reference is called in the middle of an item, and does its accident to the process that runs the item. It is the
# same in every folder and after every call, so it names no `__file__` and counts its calls in the file.
ACCIDENT = FLIP.replace(
    "def flipped(x):\n",
    """def flipped(x):
    import os, pathlib, signal
    if os.environ.pop("OUT_OF_MEMORY", ""):
        raise MemoryError
    mark = pathlib.Path("cases", "accident")
    if mark.exists():
        action, at = mark.read_text().split()
        mark.write_text(f"{action} {int(at) - 1}")
        if int(at) == 1:
            mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
""",
)


@pytest.fixture
def catalogue(tmp_path):
    """A folder of case files. The second one has one accident, if a variable names it."""
    return write_catalogue(tmp_path)


def write_catalogue(root: Path) -> Path:
    folder = root / "cases"
    folder.mkdir()
    (root / "pytest.ini").write_text("[pytest]\n")
    for name, source in (("a_first", FLIP), ("b_second", ACCIDENT), ("c_third", FLIP)):
        (folder / f"{name}.py").write_text(source)
    return root


def accident(folder: Path, action: str, at: int) -> None:
    (folder / "cases" / "accident").write_text(f"{action} {at}")


def run(folder: Path, *options: str, limit: Any = None) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pytest", "cases", "-q", "-p", "no:cacheprovider", "--ptx-backend=emulator"]
    words += ["--ptx-target=sm_100a", "--ptx-target=sm_90a", *plugin(), *options]
    return subprocess.run(
        words, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300, preexec_fn=limit, check=False
    )


ITEMS = 3 * 2 * 2  # files, variants, targets


def page(path: Path, folder: Path) -> bytes:
    """The bytes of the report, without dates and durations."""
    from ptxdiff.reports import html

    lines = []
    for line in unsealed(path.read_bytes()):
        record = json.loads(line)
        record = {k: v for k, v in record.items() if k not in ("made", "digests")}  # they are of the times, too
        record |= {k: v for k, v in TIMES.items() if k in record}
        lines.append(json.dumps(record, separators=(",", ":")).encode())
    timeless = folder / "run.jsonl"
    folder.mkdir()
    timeless.write_bytes(sealed(lines))
    return html.write([read(timeless)], folder / "page.html").read_bytes()


TIMES = {"run_id": "then", "started": "2026-01-01T00:00:00+00:00", "finished": "later", "seconds": 1.0, "arguments": []}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The records of a run without accidents."""
    folder = write_catalogue(tmp_path_factory.mktemp("uninterrupted"))
    assert run(folder, "--ptx-records=good.jsonl").returncode == 1
    return folder / "good.jsonl"


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 4])  # of six calls in all
def test_a_second_start_finishes_a_run_killed_in_the_middle(catalogue, uninterrupted, at):
    """Several pytest processes, one after another."""
    accident(catalogue, "kill", at)
    killed = run(catalogue, "--ptx-records=run.jsonl")
    assert killed.returncode == -signal.SIGKILL
    kept = len({r.key.item for r in read(catalogue / "run.jsonl").results})
    assert 4 <= kept < ITEMS
    assert run(catalogue, "--ptx-records=run.jsonl", "--ptx-resume").returncode == 1
    assert page(catalogue / "run.jsonl", catalogue / "one") == page(uninterrupted, catalogue / "two")


@pytest.mark.slow
def test_a_killed_worker_costs_one_item_until_the_run_is_resumed(catalogue, uninterrupted):
    """Several pytest processes, one after another."""
    accident(catalogue, "kill", 1)
    found = run(catalogue, "--ptx-records=run.jsonl", "-n2", "--dist=loadgroup")
    assert found.returncode == 1
    records = read(catalogue / "run.jsonl")
    assert len({r.key.item for r in records.results}) == ITEMS
    (lost,) = [r for r in records.results if r.verdict == "error"]
    assert lost.key.case == "b_second"
    assert lost.words == "the process that ran it died: killed, out of memory, or crashed; --ptx-resume runs it again"
    assert records.end is not None
    assert records.end.verdicts["error"] == 1
    assert run(catalogue, "--ptx-records=run.jsonl", "--ptx-resume", "-n2", "--dist=loadgroup").returncode == 1
    assert not [r for r in read(catalogue / "run.jsonl").results if r.verdict == "error"]
    pages = [page(p, catalogue / n) for p, n in ((catalogue / "run.jsonl", "one"), (uninterrupted, "two"))]
    assert pages[0] == pages[1]


@pytest.mark.slow
def test_exhausted_memory_is_an_error_until_the_run_is_resumed(catalogue, uninterrupted, monkeypatch):
    """Several pytest processes, one after another. A variable tells the first one: results depend on opened files."""
    with monkeypatch.context() as patch:
        patch.setenv("OUT_OF_MEMORY", "1")
        assert run(catalogue, "--ptx-records=run.jsonl").returncode == 1
    (lost,) = [r for r in read(catalogue / "run.jsonl").results if r.verdict == "error"]
    assert lost.key.case == "b_second"
    assert "MemoryError" in lost.words
    assert "\n" not in lost.words
    assert run(catalogue, "--ptx-records=run.jsonl", "--ptx-resume").returncode == 1
    assert page(catalogue / "run.jsonl", catalogue / "one") == page(uninterrupted, catalogue / "two")


@pytest.mark.parametrize(
    ("nodeid", "item"),
    [
        ("cases/rcp.py::rcp.rn[sm_90a-gpu]", ("rcp", "rcp.rn", "sm_90a", "gpu")),
        ("a/b.py::other::read and write[sm_120a-emulator]@b.other::x::emulator",
         ("b.other", "read and write", "sm_120a", "emulator")),
        ("tests/test_mine.py::test_it[sm_90a-thing]", None),
        ("tests/test_mine.py::test_it", None),
    ],
)  # fmt: skip
def test_the_item_of_a_dead_worker_is_found_by_its_address(nodeid, item):
    from ptxdiff.running.collection import item_of

    assert item_of(nodeid) == item


def small_files() -> None:
    """Limit the files of this process to 224 KiB: further writing is refused, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (7 << 15, 7 << 15))


@pytest.mark.parametrize("options", [[], pytest.param(["-n2"], marks=pytest.mark.slow)])
def test_a_full_disk_ends_the_run_in_one_line_and_a_second_start_finishes_it(catalogue, uninterrupted, options):
    """Several pytest processes, one after another."""
    full = run(catalogue, "--ptx-records=run.jsonl", *options, limit=small_files)
    assert full.returncode == pytest.ExitCode.INTERNAL_ERROR
    lines = [line for line in (full.stdout + full.stderr).splitlines() if "File too large" in line]
    assert len(lines) == 1
    assert "records: run.jsonl: File too large; the file can be read up to there" in lines[0]
    assert "Traceback" not in full.stdout + full.stderr
    kept = read(catalogue / "run.jsonl")
    assert 0 < len({r.key.item for r in kept.results}) < ITEMS
    assert run(catalogue, "--ptx-records=run.jsonl", "--ptx-resume").returncode == 1
    pages = [page(p, catalogue / n) for p, n in ((catalogue / "run.jsonl", "one"), (uninterrupted, "two"))]
    assert pages[0] == pages[1]


def test_a_full_device_is_reported_at_once(run_cases, pytester):
    os.symlink("/dev/full", pytester.path / "run.jsonl")
    result = run_cases("--ptx-records=run.jsonl", flip=RIGHT)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["*records: run.jsonl: No space left on device; the file can be read up to there*"])


def test_a_partly_written_record_is_removed(tmp_path, monkeypatch):
    writer = Writer(tmp_path / "run.jsonl")
    writer.write(RUN, RESULT)
    before = (tmp_path / "run.jsonl").read_bytes()
    real = writer._file

    class Full:
        """A file that accepts ten bytes, and then none."""

        def __init__(self) -> None:
            self.room = 10

        def write(self, data: memoryview) -> int:
            if not self.room:
                raise OSError(28, "No space left on device")
            self.room = 0
            return real.write(data[:10])

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    monkeypatch.setattr(writer, "_file", Full())
    with pytest.raises(WriteError, match=r"run\.jsonl: No space left on device"):
        writer.write(RESULT)
    real.close()
    assert (tmp_path / "run.jsonl").read_bytes() == before
    assert [r.key for r in read(tmp_path / "run.jsonl").results] == [KEY]


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"file/run\.jsonl: "):
        Writer(tmp_path / "file" / "run.jsonl")


# ---- ptxas -------------------------------------------------------------------------------------------------------


def fake_ptxas(folder: Path, monkeypatch: pytest.MonkeyPatch, action: str, mark: str) -> None:
    """A ptxas that crashes or hangs for kernels with a mark in their asm, and calls the real one for others."""
    from ptxdiff.triton import targets

    real = targets._bundled("ptxas")
    program = folder / "ptxas"
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, pathlib, sys, time, signal\n"
        "source = [w for w in sys.argv if w.endswith('.ptx')]\n"
        f"if source and {mark!r} in pathlib.Path(source[0]).read_text():\n"
        f"    {action}\n"
        f"os.execv({str(real)!r}, sys.argv)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(program))
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(program))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("mark", "action", "words", "diagnosis"),  # each a kernel of its own: no process compiles one twice
    [
        ("0x01010111", "os.kill(os.getpid(), signal.SIGSEGV)", r"ptxas \S+ ended by signal 11", "ptxas"),
        ("0x01010121", "sys.exit(3)", r"ptxas \S+ failed with status 3", ""),
        ("0x01010131", "os.system('sleep 600')", r"ptxas \S+ did not finish in 2 s", "ptxas"),
    ],
)
def test_a_ptxas_that_crashes_or_hangs_costs_its_own_items_only(
    run_cases, tmp_path, monkeypatch, mark, action, words, diagnosis
):
    from ptxdiff.processes import pool
    from ptxdiff.running import ptxas_fault
    from ptxdiff.triton import assemble

    pytest.importorskip("triton")
    fake_ptxas(tmp_path, monkeypatch, action, mark)
    monkeypatch.setattr(assemble, "PTXAS_TIMEOUT", 2.0)
    monkeypatch.setattr(ptxas_fault, "REDUCING", 1.0)
    monkeypatch.setattr(pool, "_shared", {})
    began = time.monotonic()
    result = run_cases(
        "--ptx-backend=assembler",
        "--ptx-target=sm_90a",
        "--ptx-records=run.jsonl",
        flip=FLIP.replace("0x01010181", mark),
    )
    result.assert_outcomes(passed=1, failed=1)
    found = {r.key.variant: r for r in read(Path("run.jsonl")).results}
    assert found["right"].verdict == "pass"
    assert (found["wrong"].verdict, found["wrong"].diagnosis) == ("fail" if diagnosis else "error", diagnosis)
    assert re.search(words, found["wrong"].words), found["wrong"].words
    assert time.monotonic() - began < 120  # waiting for the program that the hanging one started would take longer
