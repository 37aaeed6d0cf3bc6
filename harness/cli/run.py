"""`ptxdiff run`: pytest over case files, with records, and a report at the end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.cli import NAMES, UsageError, named, say
from harness.ours import ROOT, others


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("paths", nargs="*", default=["cases"], metavar="NAME", help=f"{NAMES} (default: cases)")
    parser.add_argument("--effort", default="quick", choices=("quick", "full", "exhaustive"))
    parser.add_argument("--backend", action="append", default=[], choices=("auto", "gpu", "emulator", "assembler"))
    parser.add_argument("--target", action="append", default=[], metavar="sm_90a")
    parser.add_argument(
        "--cluster", metavar="ADDRESS",
        help="run on the nodes of a Ray cluster: HOST:PORT, auto, or local to start one here",
    )  # fmt: skip
    parser.add_argument("--require-gpu", action="store_true")
    parser.add_argument("--timing", action="store_true", help="time the variants of every case as well, on a GPU")
    parser.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help="give up work on a GPU, and each run on the emulator, after so long",
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
    parser.add_argument("--compiler", action="append", default=[], metavar="NAME=PATH", help="where a Triton build is")
    parser.add_argument("--also", action="append", default=[], metavar="NAME", help="run all with this build as well")
    parser.add_argument(
        "--assembler", action="append", default=[], metavar="bundled|PATH",
        help="a ptxas for the gpu and the assembler; repeatable (default: bundled, the one that Triton carries)",
    )  # fmt: skip
    parser.add_argument(
        "--opt", action="append", default=[], type=int, choices=range(4),
        help="a level of ptxas; repeatable (default: 3, Triton's; at full effort 3 and 0)",
    )  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="run everything: reuse nothing of earlier runs")
    parser.add_argument("--output", default="build/records", metavar="PATH", help="records: a .jsonl file or a folder")
    parser.add_argument("--report", metavar="FILE", help="write the HTML report here")
    parser.epilog = "What follows -- is handed on to pytest: ptxdiff run cases -- -k rcp -n 4"


def main(args: argparse.Namespace) -> int:
    """Run; the exit code is pytest's."""
    from harness.model.targets import normal
    from harness.records import RecordError, resumable
    from harness.running.recorder import records_path

    paths = _addresses(args.paths)
    try:
        records = records_path(args.output)
        if "--ptx-resume" in args.rest and records.is_file():
            resumable(records)  # what cannot be read is refused here, with our exit code, and not within pytest
        for target in args.target:
            if target != "all":
                normal(target)
    except (RecordError, ValueError) as e:
        raise UsageError(str(e)) from None
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
    # A process of its own: pytest rewrites plugins as it imports them, and this one has imported ours already.
    code = _call([sys.executable, "-m", "pytest", *words, *plugin_words()], _environment())
    if args.report and records.exists():
        _report(records, Path(args.output), Path(args.report))
    return code


def _environment() -> dict[str, str]:
    """An environment in which pytest finds our plugin; UsageError where another `harness` comes first."""
    given = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if theirs := others("harness", [os.getcwd(), *given, str(ROOT)]):
        raise UsageError(
            f"pytest would load the package {theirs} instead of ptxdiff's at {ROOT / 'harness'}; rename it, or run "
            "where it is not first in Python's path"
        )
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*given, str(ROOT)])}


def _addresses(words: Sequence[str]) -> list[str]:
    """What pytest takes for the words. Files and folders are left to it: nothing of them is loaded here."""
    if all(Path(w.partition("::")[0]).exists() for w in words):
        return [*words]
    return [n.address for n in named(words)]


def _call(words: list[str], environment: dict[str, str]) -> int:
    """A command's exit code. Ctrl-C reaches the command too: it closes its records, and is waited for."""
    with subprocess.Popen(words, env=environment) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue


def _report(records: Path, asked: Path, output: Path) -> None:
    """The page on this run, with the history of the folder where one was named."""
    from harness.cli.report import own_ledger, write_page
    from harness.records import RecordError

    try:
        write_page([asked if asked.is_dir() else records], output, own_ledger())
    except RecordError as e:  # another run's file in the folder; this run's report must not be lost to it
        say(f"{e}; the report has no history", file=sys.stderr)
        write_page([records], output, own_ledger())


def plugin_words() -> list[str]:
    """What makes pytest load the plugin where the distribution is used without being installed."""
    import importlib.metadata

    installed = any(e.name == "ptxdiff" for e in importlib.metadata.entry_points(group="pytest11"))
    return [] if installed else ["-p", "harness.plugin"]
