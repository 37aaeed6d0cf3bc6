"""Measure what a run costs: `python -m tests.benchmarks.runs [FILE ...] [--jobs N] [--target sm_90a ...]`.

Copies case files (default: all of `cases/`) to a new folder with an empty cache, and runs `ptxdiff run` there with a
report: cold, unchanged, after an edit of one file, and that file alone, cold and again. Prints wall-clock and processor
seconds of each run, and the size of the report. Quote processor seconds if other work shares the machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ptxdiff.locations import ROOT

TARGETS = ["sm_80", "sm_90a", "sm_100a"]  # those of `make report` without a GPU


@dataclass(frozen=True)
class Cost:
    """One run: seconds on the clock and of all processors together, the report's bytes, and pytest's exit code."""

    name: str
    wall: float
    processor: float
    report: int
    code: int

    def __str__(self) -> str:
        failed = "" if self.code == 0 else f"  (exit code {self.code})"
        return f"{self.name:<24}{self.wall:>9.1f} s{self.processor:>10.1f} s CPU{self.report / 1e6:>8.2f} MB{failed}"


def main(words: list[str] | None = None) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.runs", description=__doc__.partition(":")[0])
    parser.add_argument("files", nargs="*", type=Path, help="case files (default: all of cases/)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="pytest-xdist's workers; 0: none")
    parser.add_argument("--target", action="append", help=f"default: {' '.join(TARGETS)}")
    parser.add_argument("--edited", type=Path, help="the file that is edited (default: the first)")
    given = parser.parse_args(words)
    files = given.files or sorted((ROOT / "cases").glob("*.py"))
    edited = (given.edited or files[0]).name
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "cases").mkdir()
        for file in files:
            shutil.copy(file, place / "cases")
        for beside in {
            b for file in files for b in file.parent.iterdir() if b.name[0] == "_" or b.suffix in (".cu", ".ptx")
        }:
            (shutil.copytree if beside.is_dir() else shutil.copy)(beside, place / "cases" / beside.name)

        def run(name: str, what: str, cache: str) -> None:
            print(cost(place, name, what, cache, given.target or TARGETS, given.jobs), flush=True)

        run("cold", "cases", "all")
        run("unchanged", "cases", "all")
        with (place / "cases" / edited).open("a") as text:
            text.write("\nEDITED = True\n")
        run(f"{edited} edited", "cases", "all")
        run(f"{edited} alone, cold", f"cases/{edited}", "alone")
        run(f"{edited} alone, again", f"cases/{edited}", "alone")
    return 0


def cost(place: Path, name: str, what: str, cache: str, targets: list[str], jobs: int) -> Cost:
    """Run the cases `what` in a folder, with the cache of the given name there."""
    report = place / "report.html"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "ptxdiff", "run", what, *(f"--target={t}" for t in targets)]
    command += ["--records", "records.jsonl", "--report", str(report), "--", "-p", "no:cacheprovider"]
    command += ["-n", str(jobs)] if jobs else []
    environment = {**os.environ, "PTXDIFF_CACHE_DIR": str(place / f"cache-{cache}"), "PYTHONPATH": str(ROOT)}
    started, used = time.monotonic(), _processor()
    done = subprocess.run(command, cwd=place, env=environment, stdout=subprocess.DEVNULL, check=False)
    wall, processor = time.monotonic() - started, _processor() - used
    return Cost(name, wall, processor, report.stat().st_size if report.exists() else 0, done.returncode)


def _processor() -> float:
    """Processor seconds of all children that have ended, and of their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
