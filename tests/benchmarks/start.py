"""Measure what one waits for before anything runs: `python -m tests.benchmarks.start [--files 1000] [--times 3]`.

Starts processes that import ptxdiff, print `--help`, list the catalogue, and collect the items of copies of one case
file. Prints seconds on the clock and of the processor, the least of several times. Quote processor seconds if other
work shares the machine. The collection runs once: it takes long enough.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ptxdiff.locations import ROOT

CASE = ROOT / "cases" / "copysign.py"  # imports nothing of the files beside it


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


def main(words: list[str] | None = None) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.start", description=__doc__.partition(":")[0])
    parser.add_argument("--files", type=int, default=1000, help="copies of a case file that are collected")
    parser.add_argument("--times", type=int, default=3, help="how often the shorter commands run")
    given = parser.parse_args(words)
    report("import ptxdiff", ["-c", "import ptxdiff"], ROOT, given.times)
    report("ptxdiff --help", ["-m", "ptxdiff", "--help"], ROOT, given.times)
    report("import torch, as nearly all case files do", ["-c", "import torch"], ROOT, given.times)
    report("ptxdiff list", ["-m", "ptxdiff", "list"], ROOT, given.times)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "cases"
        place.mkdir()
        for n in range(given.files):
            shutil.copy(CASE, place / f"copy{n}.py")
        collect = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "cases"]
        report(f"pytest --collect-only, {given.files:,} case files", collect, Path(folder), 1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
