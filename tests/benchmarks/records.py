"""Measure records: `python -m tests.benchmarks.records [--results 25000] [--nights 30]`.

Writes a catalogue of synthetic results, with the PTX and SASS of its variants, as plain lines in a file a run, and
compressed in a folder whose runs share their texts. Then it reads a run, and writes the HTML page of one run and of the
whole folder, each in a process of its own: with an empty cache, and again. Prints bytes, seconds on the clock and of
the processor, and the most memory of that process; its forks share most of theirs with it. Quote processor seconds if
other work shares the machine. `--records FILE` measures with the results and texts of a real run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ptxdiff.locations import ROOT
from ptxdiff.records import End, RunRecords, Sent, Text, Writer, read, sent, text_hash


def scaled(run: RunRecords, count: int) -> RunRecords:
    """A run of about `count` results: those of `run`, with their PTX, under targets of no device."""
    results, texts = list(run.results), dict(run.texts)
    for copy in range(1, -(-count // len(run.results))):
        names = {}
        for h, text in run.texts.items():
            if text.kind != "asm":
                other = f"// copy {copy}\n{text.text}"
                names[h] = text_hash(other)
                texts[names[h]] = Text(names[h], text.kind, other)
        results += [
            replace(
                r,
                key=replace(r.key, target=f"sm_{200 + copy}{r.key.target[2:]}"),
                ptx=names.get(r.ptx, ""),
                sass=names.get(r.sass, ""),
            )
            for r in run.results
        ]
    results = sorted(results[:count], key=lambda r: r.key.item)  # a run makes all targets of a variant together
    return replace(run, results=results, texts=texts, end=None, disagreements=[])


def write(run: RunRecords, path: Path, night: int, *, shared: bool = False, made: Sequence[Sent] = ()) -> None:
    """Write a run as one of a series of nights, twenty results at a time. made: its results, if they are encoded."""
    writer = Writer(path, shared=shared)
    started = f"2026-{1 + night // 28:02d}-{1 + night % 28:02d}T02:00:00+00:00"
    writer.write(replace(run.run, run_id=f"night-{night}", started=started), *run.cases.values(), *run.texts.values())
    results = made or run.results
    for first in range(0, len(results), 20):
        writer.write(*results[first : first + 20])
    writer.write(*run.timings, End(started, 600.0, dict(Counter(r.outcome for r in run.results))))
    writer.close()


def action(name: str, path: Path) -> None:
    """What one process is measured with."""
    from ptxdiff.cli.report import own_ledger, write_page

    if name == "read":
        read(path)
    else:
        with open(os.devnull, "w") as nothing:
            sys.stdout = nothing
            write_page([path], path.parent / "page.html", own_ledger())
            sys.stdout = sys.__stdout__
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(u.ru_utime + u.ru_stime for u in used)
    # Not ru_maxrss, which a process takes over from the one that started it.
    status = Path("/proc/self/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"processor": processor, "memory": memory / 1e3}))


def measured(label: str, name: str, path: Path, cache: Path) -> None:
    """Print what an action costs in a new process."""
    environment = {**os.environ, "PTXDIFF_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.benchmarks.records", "--action", name, str(path)]
    began = time.monotonic()
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    wall, found = time.monotonic() - began, json.loads(done.stdout.splitlines()[-1])
    print(f"{label:<44}{wall:>7.1f} s{found['processor']:>8.1f} s CPU{found['memory']:>8.0f} MB", flush=True)


def timed(label: str, do: Callable[[], None], files: Callable[[], list[Path]]) -> None:
    """Print what writing costs, and the bytes that it left."""
    began = time.process_time()
    do()
    size = sum(p.stat().st_size for p in files() if p.is_file())
    print(f"{label:<44}{'':>9}{time.process_time() - began:>8.1f} s CPU{size / 1e6:>8.1f} MB on disk", flush=True)


def main(words: list[str] | None = None) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.records", description=__doc__.partition(":")[0])
    parser.add_argument("--results", type=int, default=25_000, help="of one run")
    parser.add_argument("--nights", type=int, default=30, help="runs of the folder")
    parser.add_argument("--records", type=Path, help="a real run, of which other targets are made up to that number")
    parser.add_argument("--action", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.action:
        action(given.action[0], Path(given.action[1]))
        return 0
    if given.records:
        run = read(given.records)
    else:
        from tests.support.reports import synthetic

        run = synthetic.catalogue()
    run = scaled(run, given.results)
    print(f"{len(run.results):,} results, {len(run.texts):,} texts")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        plain, history = place / "plain.jsonl", place / "history"
        history.mkdir()
        timed("write one run, plain", lambda: write(run, plain, 0), lambda: [plain])
        one = history / "00.jsonl.zst"
        timed("write one run, compressed, texts shared", lambda: write(run, one, 0, shared=True),
              lambda: list(history.rglob("*")))  # fmt: skip
        made = [sent(r) for r in run.results]  # encoded once: the same for every night
        for night in range(1, given.nights):
            write(run, history / f"{night:02d}.jsonl.zst", night, shared=True, made=made)
        size = sum(p.stat().st_size for p in history.rglob("*") if p.is_file())
        print(f"{f'{given.nights} runs, compressed, texts shared':<44}{'':>17}{'':>6}{size / 1e6:>8.1f} MB on disk")
        for form, path in (("plain", plain), ("compressed", one)):
            measured(f"read, {form}", "read", path, place / "none")
            measured(f"report of one run, {form}, empty cache", "report", path, place / form)
            measured(f"report of one run, {form}, again", "report", path, place / form)
        measured(f"report of {given.nights} runs, empty cache", "report", history, place / "history-cache")
        measured(f"report of {given.nights} runs, again", "report", history, place / "history-cache")
        write(run, history / f"{given.nights:02d}.jsonl.zst", given.nights, shared=True, made=made)
        measured("report with one run more", "report", history, place / "history-cache")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
