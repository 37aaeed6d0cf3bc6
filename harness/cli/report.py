"""`ptxdiff report`: a report from records alone, on any machine, without a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("records", nargs="?", default="build/records", help="a records file, or a folder of runs")
    parser.add_argument("-o", "--output", default="build/report.html", help="the HTML file to write")


def main(args: argparse.Namespace) -> int:
    """Write the page; exit 0 whatever the verdicts are, since reporting them is what was asked."""
    from rich.console import Console

    from harness.records import RecordError, read
    from reports import html, summary
    from reports.history import folder, history

    path = Path(args.records)
    if not path.exists():
        raise UsageError(
            f"{path}: no such file or folder; `ptxdiff run` or `pytest --ptx-records={path}` writes records"
        )
    try:
        past, newest = history(folder(path) if path.is_dir() else [read(path)])
    except RecordError as e:
        raise UsageError(str(e)) from None
    written = html.write_history(past, newest, Path(args.output))
    console = Console()
    console.print(summary.terminal(newest))
    console.print(f"report: {written.resolve()}", soft_wrap=True, markup=False, highlight=False)
    return 0
