"""Measure what machine code adds to a quick run: `python -m tests.benchmarks.machine_code [FILE ...] [--target T ...]`.

Runs every tenth case file on the emulator and the assembler, and with `auto`, which adds `sass` with its smaller plan:
each in a process of its own with one thread, first with an empty cache, then again with what the first run compiled,
and nothing else reused. Prints processor seconds of each process and its children, and the ratio. The targets are those
of `make report` without a GPU. Where other work shares the machine, take several turns, and the least of each.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ptxdiff.locations import ROOT
from tests.benchmarks.runs import TARGETS

EVERY = 10
STATES = ("empty cache", "again")
WITHOUT, WITH = ("emulator", "assembler"), ("emulator", "assembler", "auto")


def processor_seconds(
    files: Sequence[str], targets: Sequence[str], backends: Sequence[str], cache: Path
) -> tuple[float, str]:
    """What a run costs, and the line with its counts of results. Raises RuntimeError if the run breaks down."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *files]
    words += [f"--ptx-backend={b}" for b in backends] + [f"--ptx-target={t}" for t in targets]
    once = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PTXDIFF_REUSE": "0", "PTXDIFF_CACHE_DIR": str(cache)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, cwd=ROOT, env=os.environ | once, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    counts = [line for line in done.stdout.splitlines() if line.startswith("results: ")]
    if not counts:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, counts[0]


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.machine_code", description=__doc__.partition(":")[0]
    )
    parser.add_argument("files", nargs="*", help="case files; every tenth one of cases/ if none is named")
    parser.add_argument("--target", action="append", help=f"can be repeated; default: {' '.join(TARGETS)}")
    parser.add_argument("--turns", type=int, default=1, help="how often all is measured; the least counts")
    given = parser.parse_args(words)
    every = sorted(f"cases/{p.name}" for p in (ROOT / "cases").glob("*.py"))[::EVERY]
    files, targets = given.files or every, given.target or TARGETS
    least: dict[tuple[str, str], float] = {}
    for _ in range(given.turns):
        with tempfile.TemporaryDirectory() as folder:
            for state in STATES:
                for name, backends in (("without", WITHOUT), ("with", WITH)):
                    used, counts = processor_seconds(files, targets, backends, Path(folder, name))
                    least[state, name] = min(used, least.get((state, name), used))
                    print(f"{state:<12} {name:<8} {used:>7.1f} s CPU   {counts}", flush=True)
    for state in STATES:
        without, with_ = least[state, "without"], least[state, "with"]
        print(f"{state:<12} {without:.1f} s, and {with_:.1f} with sass: it adds {100 * (with_ / without - 1):.0f}%")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
