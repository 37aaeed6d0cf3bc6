"""`ptxdiff run`: run pytest on case files, write records, and a report at the end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ptxdiff.cli import NAMES, UsageError, named, say
from ptxdiff.extras import require
from ptxdiff.locations import ROOT

BACKENDS = ("gpu", "emulator", "assembler", "sass")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("paths", nargs="*", default=["cases"], metavar="NAME", help=f"{NAMES} (default: cases)")
    parser.add_argument("--effort", default="quick", choices=("quick", "full", "exhaustive"))
    parser.add_argument("--backend", action="append", default=[], choices=("auto", *BACKENDS))
    parser.add_argument("--target", action="append", default=[], metavar="sm_90a")
    parser.add_argument(
        "--cluster", metavar="ADDRESS",
        help="run on the nodes of a Ray cluster: HOST:PORT of its head, auto, or local to start one here",
    )  # fmt: skip
    parser.add_argument("--require-gpu", action="store_true")
    parser.add_argument("--timing", action="store_true", help="time the variants of every case as well, on a GPU")
    parser.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help="time limit for work on a GPU, and for each run on the emulator",
    )
    parser.add_argument(
        "--approximate", choices=("hopper", "rounded"), default="hopper",
        help="bits of approximate instructions on the emulator: a Hopper GPU's, or the nearest to the true value",
    )  # fmt: skip
    parser.add_argument("--sanitize", action="store_true", help="run kernels on a GPU under compute-sanitizer")
    parser.add_argument(
        "--sanitizer", choices=("memcheck", "racecheck", "initcheck", "synccheck"), default="memcheck",
        help="the tool for --sanitize (default: memcheck)",
    )  # fmt: skip
    parser.add_argument(
        "--compiler", action="append", default=[], metavar="NAME=PATH", help="the folder of another Triton build"
    )
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME", help="also run all variants with this Triton build"
    )
    parser.add_argument(
        "--assembler", action="append", default=[], metavar="bundled|PATH",
        help="a ptxas for the gpu and assembler backends; repeatable (default: bundled, the one that Triton carries)",
    )  # fmt: skip
    parser.add_argument(
        "--opt", action="append", default=[], type=int, choices=range(4),
        help="an optimisation level of ptxas; repeatable (default: 3, Triton's; at full effort 3 and 0)",
    )  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="run everything, and reuse no results of earlier runs")
    parser.add_argument("--output", default="build/records", metavar="PATH", help="records: a .jsonl file or a folder")
    parser.add_argument("--report", metavar="FILE", help="write the HTML report here")
    parser.epilog = "Words after -- go to pytest: ptxdiff run cases -- -k rcp -n 4"


def main(args: argparse.Namespace) -> int:
    """Run the cases. Returns pytest's exit code."""
    from ptxdiff.model.targets import normal
    from ptxdiff.records import RecordError, resumable
    from ptxdiff.running.recorder import records_path

    paths = _addresses(args.paths)
    try:
        records = records_path(args.output)
        if "--ptx-resume" in args.rest and records.is_file():
            resumable(records)  # refuse an unreadable file here with our exit code, not within pytest
        for target in args.target:
            if target != "all":
                normal(target)
    except (RecordError, ValueError) as e:
        raise UsageError(str(e)) from None
    if args.report:
        require("jinja2", "altair", "vl_convert", purpose="--report")
    if any(w.startswith(("-n", "--numprocesses")) for w in args.rest):
        require("xdist", purpose="pytest's option -n")
    words = [*paths, f"--ptx-effort={args.effort}", f"--ptx-records={records}", "-q", "--no-header"]
    words += [f"--ptx-cases={p.partition('::')[0]}" for p in paths]
    words += [f"--ptx-backend={b}" for b in args.backend] + [f"--ptx-target={t}" for t in args.target]
    words += [f"--ptx-cluster={args.cluster}"] * (args.cluster is not None)
    words += ["--ptx-require-gpu"] * args.require_gpu + ["--ptx-timing"] * args.timing
    words += [f"--ptx-compiler={c}" for c in args.compiler] + [f"--ptx-also={name}" for name in args.also]
    words += [f"--ptx-assembler={a}" for a in args.assembler] + [f"--ptx-opt={level}" for level in args.opt]
    words += [f"--ptx-limit={args.limit}"] * (args.limit is not None)
    words += ["--ptx-fresh"] * args.fresh
    words += [f"--ptx-approximate={args.approximate}"] * (args.approximate != "hopper")
    words += [f"--ptx-sanitize={args.sanitizer}"] * args.sanitize
    words += args.rest
    if args.sanitize and not args.backend:
        words.append("--ptx-backend=gpu")
    if any(w.startswith(("-n", "--numprocesses")) for w in args.rest):
        words.append("--dist=loadgroup")
    # A new process, because pytest rewrites plugins as it imports them, and this process has imported ours already.
    code = _call([sys.executable, "-m", "pytest", *words, *plugin_words()], _environment())
    if args.report and records.exists():
        _report(records, Path(args.output), Path(args.report))
    return code


def _environment() -> dict[str, str]:
    """The environment in which pytest finds ptxdiff, installed or not."""
    given = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*given, str(ROOT)])}


def _addresses(words: Sequence[str]) -> list[str]:
    """The names as pytest reads them. Files and folders are passed on as they are, without loading them."""
    if all(Path(w.partition("::")[0]).exists() for w in words):
        return [*words]
    return [n.address for n in named(words)]


def _call(words: list[str], environment: dict[str, str]) -> int:
    """Run a command and return its exit code. After Ctrl-C, which the command gets too, wait until it has ended."""
    with subprocess.Popen(words, env=environment) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue


def _report(records: Path, asked: Path, output: Path) -> None:
    """Write the HTML page on this run, with the folder's history if `asked` is a folder."""
    from ptxdiff.cli.report import own_ledger, write_page
    from ptxdiff.records import RecordError

    try:
        write_page([asked if asked.is_dir() else records], output, own_ledger())
    except RecordError as e:  # an unreadable file of another run must not prevent this run's report
        say(f"{e}; the report has no history", file=sys.stderr)
        write_page([records], output, own_ledger())


def plugin_words() -> list[str]:
    """The options that make pytest load our plugin if ptxdiff is not installed as a distribution."""
    import importlib.metadata

    installed = any(e.name == "ptxdiff" for e in importlib.metadata.entry_points(group="pytest11"))
    return [] if installed else ["-p", "ptxdiff.plugin"]
