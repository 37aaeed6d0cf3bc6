"""`ptxdiff run`: run pytest on case files, write records, and a report at the end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ptxdiff import options
from ptxdiff.cli import NAMES, UsageError, named, say
from ptxdiff.extras import require
from ptxdiff.locations import ROOT


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("paths", nargs="*", default=["cases"], metavar="NAME", help=f"{NAMES} (default: cases)")
    made = {option.word: options.add(parser, option.word) for option in options.RUNS}
    parser.set_defaults(records="build/records")
    options.formerly(parser, "--output", made["records"])
    options.formerly(parser, "--sanitizer", made["sanitize"])
    options.add(parser, "report")
    parser.add_argument("-k", metavar="EXPRESSION", help="only items whose names match, as pytest's -k")
    parser.add_argument("-x", action="store_true", help="stop at the first failure, as pytest's -x")
    options.add(parser, "jobs", "worker processes, or auto: pytest's -n (default: this process alone)")
    options.add(parser, "quiet", "fewer lines, as pytest's -q")
    options.add(parser, "verbose", "more lines, as pytest's -v; -vv prints each item")
    parser.epilog = (
        "--WORD is --ptx-WORD of pytest. Other options of pytest follow --: ptxdiff run cases -- --maxfail 3"
    )


def main(args: argparse.Namespace) -> int:
    """Run the cases. Returns pytest's exit code."""
    records = _records(args)
    words = pytest_arguments(args, records)
    if args.report:
        require("jinja2", "altair", "vl_convert", purpose="--report")
    # A new process, because pytest rewrites plugins as it imports them, and this process has imported ours already.
    code = _call([sys.executable, "-m", "pytest", *words], _environment())
    if args.report and records.exists():
        _report(records, Path(args.records), Path(args.report))
    return code


def _records(args: argparse.Namespace) -> Path:
    """The file of the run's records. Raises UsageError for one that cannot be written or resumed."""
    from ptxdiff.records import RecordError, resumable
    from ptxdiff.running.recorder import records_path

    try:
        records = records_path(args.records)
        if (args.resume or "--ptx-resume" in args.rest) and records.is_file():
            resumable(records)  # refuse an unreadable file here with our exit code, not within pytest
    except (RecordError, ValueError) as e:
        raise UsageError(str(e)) from None
    return records


def pytest_arguments(args: argparse.Namespace, records: Path) -> list[str]:
    """The arguments with which a run calls pytest. records: the file to write. Raises UsageError."""
    from ptxdiff.model.targets import normal
    from ptxdiff.records import is_records_name

    paths = _addresses(args.paths)
    try:
        for target in args.target or ():
            if target != "all":
                normal(target)
    except ValueError as e:
        raise UsageError(str(e)) from None
    given = argparse.Namespace(**vars(args))
    given.records = str(records)
    given.share_texts = args.share_texts or not is_records_name(str(Path(args.records)))
    given.backend = args.backend or (["gpu"] if args.sanitize else args.backend)
    words = [*paths, *options.pytest_words(given), *_of_pytest(args), *args.rest]
    words += [f"--ptx-cases={p.partition('::')[0]}" for p in paths]
    if any(w.startswith(("-n", "--numprocesses")) for w in words):
        require("xdist", purpose="more than one process (--jobs, or pytest's option -n)")
        words.append("--dist=loadgroup")
    return [*words, *plugin_words()]


def _of_pytest(args: argparse.Namespace) -> list[str]:
    """Words for the options that are pytest's own. Without -v, a run prints as `pytest -q` does."""
    arguments_of_pytest = ["--no-header", *["-v"] * args.verbose, *["-q"] * (args.quiet + (not args.verbose))]
    arguments_of_pytest += [f"-k={args.k}"] if args.k else []
    return [*arguments_of_pytest, *["-x"] * args.x, *([f"-n{args.jobs}"] if args.jobs else [])]


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
