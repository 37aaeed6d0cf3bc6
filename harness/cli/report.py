"""`ptxdiff report`: write a report from records. Needs no GPU."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ptxdiff import options
from ptxdiff.cli import UsageError, render, say

if TYPE_CHECKING:
    from ptxdiff.records import RunRecords

_Run = TypeVar("_Run")
FORMATS = {
    "html": "build/report.html",
    "junit": "build/junit.xml",
    "sarif": "build/ptxdiff.sarif",
    "csv": "build/results.csv",
    "parquet": "build/results.parquet",
    "github-summary": "-",
    "github-comment": "-",
    "github-annotations": "-",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "records", nargs="*", default=["build/records"],
        help="a records file, or a folder of runs: the newest run is shown, with its history. Several files, such as "
        "those of several machines, are merged into one run",
    )  # fmt: skip
    parser.add_argument("--merge", action="store_true", help="merge all files of the given folders into one run")
    options.add(parser, "format", choices=tuple(FORMATS), default="html")
    options.add(
        parser, "output", "the file to write (default: by format, in build/; - is the terminal)", metavar="FILE"
    )
    options.formerly(parser, "--conformance", options.add(parser, "ledger", "the ledger to show (default: our own)"))


def main(args: argparse.Namespace) -> int:
    """Write the report. Returns 0 whatever the verdicts are."""
    from ptxdiff.records import RecordError

    paths = [Path(p) for p in args.records]
    for path in paths:
        if not path.exists():
            raise UsageError(
                f"{path}: no such file or folder; `ptxdiff run` or `pytest --ptx-records={path}` writes records"
            )
    output = args.output or FORMATS[args.format]
    try:
        if args.format == "html":
            return _html(paths, Path(output), args.ledger, merge=args.merge)
        _other(args.format, one_run(paths, merge=args.merge), output)
    except (RecordError, RuntimeError) as e:
        raise UsageError(str(e)) from None
    return 0


def one_run(paths: Sequence[Path], *, merge: bool = False) -> RunRecords:
    """The run in a file, or the newest run in a folder. Several paths are merged, as are all files with merge=True."""
    from ptxdiff.records import merged, read, record_files

    files = [f for p in paths for f in (record_files(p) if merge and p.is_dir() else [p])]
    return merged([read(f) for f in files or paths])


def _html(paths: Sequence[Path], output: Path, ledger: str | None, *, merge: bool) -> int:
    if ledger and not Path(ledger).exists():
        raise UsageError(f"{ledger}: no such file")
    book = Path(ledger) if ledger else own_ledger()
    if str(output) == "-":
        _printed(lambda path: write_page(paths, path, book, merge=merge, quiet=True))
    else:
        write_page(paths, output, book, merge=merge)
    return 0


def _printed(write: Callable[[Path], object]) -> None:
    """Print what `write` writes into a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "printed"
        write(path)
        print(path.read_text(encoding="utf-8"), end="")


def write_page(
    records: Sequence[Path], output: Path, ledger: Path, *, merge: bool = False, quiet: bool = False
) -> None:
    """Write the HTML page on one run, or on a folder's newest run with its history; print its path and a summary.

    records: several files are merged into one run, and with merge=True also all files of folders. ledger: omitted from
    the page if the file does not exist. quiet: print nothing. Raises RecordError for records that cannot be read.
    """
    from ptxdiff.diskcache import DiskCache, cache_folder
    from ptxdiff.records import collector_paused
    from ptxdiff.reports import charts, html, summary
    from ptxdiff.reports.forked import beside
    from ptxdiff.reports.history import folder, history
    from ptxdiff.reports.model import view

    whole = len(records) == 1 and records[0].is_dir() and not merge
    packets, cache = DiskCache("packets"), cache_folder()

    def write() -> None:
        runs = _shown(records[0], folder(records[0], DiskCache("nights"))) if whole else [one_run(records, merge=merge)]
        past, newest = history(runs)
        book, found = ledger if ledger.exists() else None, view(newest)
        written = html.write_history(past, found, output, conformance=book, cache=cache, packets=packets)
        if not quiet:
            render(summary.terminal(found))
            say(f"report: {written.resolve()}")

    def ahead() -> None:
        assert cache is not None
        html.keep_ahead(ledger, packets)
        charts.keep(cache)  # last: the page needs the library when all else of it is made

    with collector_paused():
        if cache is None or charts.are_kept(cache) or not _are_large(records):
            write()
        else:  # nothing of the run decides what its charts and the ledger's section need: two seconds of work
            beside(write, ahead)


_LARGE = 1 << 20
"""Bytes of records from which on a run has charts, as a rule, and reading takes as long as another process may."""


def _are_large(records: Sequence[Path]) -> bool:
    from ptxdiff.records import record_files

    files = [f for p in records for f in (record_files(p) if p.is_dir() else [p])]
    return sum(f.stat().st_size for f in files if f.exists()) >= _LARGE  # who reads a file says that it is missing


def _shown(path: Path, runs: Iterator[_Run]) -> Iterator[_Run]:
    """The runs of a folder, with a progress bar on a terminal while they are read."""
    from rich.console import Console
    from rich.progress import track

    from ptxdiff.records import record_files

    console = Console(stderr=True)
    count = len(record_files(path))
    quiet = count < 2 or not console.is_terminal
    return iter(track(runs, f"reading {count} runs", count, console=console, transient=True, disable=quiet))


def own_ledger() -> Path:
    """The path of the package's own conformance ledger; the file may not exist."""
    return Path(__file__).parent.parent / "conformance" / "ledger.jsonl"


def _other(name: str, run: RunRecords, output: str) -> None:
    from ptxdiff.reports import github, junit, sarif, tabular

    texts: dict[str, Callable[[RunRecords], str]] = {
        "github-summary": github.step_summary,
        "github-comment": lambda run: github.step_summary(run, limit=github.COMMENT_LIMIT),
        "github-annotations": lambda run: "\n".join(github.annotations(run)),
    }
    files: dict[str, Callable[[RunRecords, Path], Path]] = {
        "junit": junit.write,
        "sarif": sarif.write,
        "csv": tabular.write_csv,
        "parquet": tabular.write_parquet,
    }
    if output != "-":
        Path(output).parent.mkdir(parents=True, exist_ok=True)
    if name in texts and output == "-":
        print(texts[name](run))
    elif name in texts:
        Path(output).write_text(texts[name](run), encoding="utf-8")
    elif output != "-":
        say(str(files[name](run, Path(output))))
    elif name == "parquet":
        raise UsageError("parquet is no text: name a file with --output FILE")
    else:
        _printed(lambda path: files[name](run, path))
