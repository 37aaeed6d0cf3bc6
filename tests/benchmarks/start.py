"""Measure what one waits for before anything runs: `python -m tests.benchmarks.start [--files 1000] [--times 3]`.

Starts processes that import ptxdiff, print `--help`, list the catalogue, run it until its first result is on the
terminal (with an empty cache, then with the results of its first file), and collect the items of copies of one case
file, and beside them as many items of plain test modules without ptxdiff.
Prints seconds on the clock and of the processor, the least of several times. Quote processor seconds if other work
shares the machine. The collections run once: they take long enough. Byte code is stored, in a folder of this run,
whatever PYTHONDONTWRITEBYTECODE says: without it, importing torch alone takes several times as long.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ptxdiff.locations import ROOT

CASE = ROOT / "cases" / "copysign.py"  # imports nothing of the files beside it

ITEMS = 72  # of that case file on two backends, with the targets that Triton 3.9 serves
CASES = ["-m", "pytest", "-p", "no:cacheprovider", "--ptx-backend=emulator", "--ptx-target=sm_90a"]
BACKENDS = ["--ptx-backend=emulator", "--ptx-backend=assembler"]
PLAIN = f"import pytest\n\n@pytest.mark.parametrize('n', range({ITEMS}))\ndef test_one(n):\n    pass\n"


def cost(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds on the clock and of the processor of one process. Raises CalledProcessError."""
    before, began = os.times(), time.monotonic()
    subprocess.run(
        [sys.executable, *command], cwd=folder, check=True, stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, used


def report(label: str, command: list[str], folder: Path, times: int) -> None:
    """Print what a command costs."""
    walls, used = zip(*(cost(command, folder) for _ in range(times)), strict=True)
    print(f"{label:<44}{min(walls):>7.2f} s{min(used):>8.2f} s CPU", flush=True)


def first_result(label: str, folder: Path, times: int) -> None:
    """Print what `pytest cases` on the emulator for one target costs until its first result is shown."""
    found = []
    for _ in range(times):
        before, began = os.times(), time.monotonic()
        with subprocess.Popen(
            [sys.executable, *CASES, "cases"], cwd=folder, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        ) as process:  # fmt: skip
            assert process.stdout is not None
            shown = b""
            while not re.search(rb"cases/\S+\.py [.sxFE]", shown):
                if not (part := os.read(process.stdout.fileno(), 1 << 16)):
                    raise RuntimeError(shown.decode())
                shown += part
            wall = time.monotonic() - began
            process.kill()
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        found.append((wall, used))
    print(f"{label:<44}{min(w for w, _ in found):>7.2f} s{min(u for _, u in found):>8.2f} s CPU", flush=True)


def main(words: list[str] | None = None) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.start", description=__doc__.partition(":")[0])
    parser.add_argument("--files", type=int, default=1000, help="copies of a case file that are collected")
    parser.add_argument("--times", type=int, default=3, help="how often the shorter commands run")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        os.environ["PTXDIFF_CACHE_DIR"] = f"{folder}/cache"
        _report_all(Path(folder), given.files, given.times)
    return 0


def _report_all(place: Path, files: int, times: int) -> None:
    cases, plain = place / "cases", place / "plain"
    collect = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    for folder in (cases, plain):
        folder.mkdir()
    for n in range(files):
        shutil.copy(CASE, cases / f"copy{n}.py")
        (plain / f"test_{n}.py").write_text(PLAIN)
    for first in (["-m", "ptxdiff", "list"], [*collect, str(CASE)]):  # these store the byte code
        cost(first, ROOT)
    report("import ptxdiff", ["-c", "import ptxdiff"], ROOT, times)
    report("ptxdiff --help", ["-m", "ptxdiff", "--help"], ROOT, times)
    report("import torch, as nearly all case files do", ["-c", "import torch"], ROOT, times)
    report("ptxdiff list, again", ["-m", "ptxdiff", "list"], ROOT, times)
    os.environ["PTXDIFF_CACHE_DIR"] = ""
    report("the same with nothing kept", ["-m", "ptxdiff", "list"], ROOT, times)
    os.environ["PTXDIFF_CACHE_DIR"] = f"{place}/cache"
    first_result("pytest cases, first result, empty cache", ROOT, 1)
    first = min((ROOT / "cases").glob("*.py"))
    cost(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--ptx-backend=emulator", "--ptx-target=sm_90a", str(first)],
        ROOT,
    )
    first_result("the same with the first file's results", ROOT, times)
    cost(["-m", "ptxdiff", "list"], place)
    report(f"ptxdiff list of {files:,} case files, again", ["-m", "ptxdiff", "list"], place, times)
    report(f"pytest --collect-only, {files:,} case files", [*collect, *BACKENDS, "cases"], place, 1)
    report(f"the same of {files:,} plain test modules", [*collect, "-p", "no:ptxdiff", "plain"], place, 1)


if __name__ == "__main__":
    raise SystemExit(main())
