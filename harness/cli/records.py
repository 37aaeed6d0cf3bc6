"""`ptxdiff records`: list the runs of a folder, write one of them as a file, or remove texts that no run needs.

Verbs that write records of their own do it with `written_by`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxdiff import options
from ptxdiff.cli import UsageError, render, say

if TYPE_CHECKING:
    from ptxdiff.model.naming import Named
    from ptxdiff.records import Record

_EPILOG = """\
example: ptxdiff records build/records --export run.jsonl    # the newest run, as plain lines of JSON, with its texts
Runs in a folder are compressed (.jsonl.zst), and share their texts (asm, PTX, SASS) in its folder `texts`. An exported
file holds all of one run: send it, merge it, or read it with jq. A name that ends in .jsonl.zst compresses it.
--prune writes the texts of the runs that are left into one file; it refuses while a run writes there.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("records", nargs="?", default="build/records", help="a folder of runs, or one records file")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--export", metavar="FILE", help="write one run with its texts; - prints its lines")
    chosen.add_argument("--prune", action="store_true", help="remove the texts that no run of the folder names")
    options.add(parser, "format", choices=("text", "json"), default="text")


def main(args: argparse.Namespace) -> int:
    """List, export or prune. Raises UsageError for records that cannot be read."""
    from ptxdiff.records import RecordError

    path = Path(args.records)
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder; `ptxdiff run --records {path}` writes records")
    try:
        if args.export:
            _export(path, args.export)
        elif args.prune:
            _prune(path)
        else:
            _list(path, as_json=args.format == "json")
    except (RecordError, OSError) as e:
        raise UsageError(str(e)) from None
    return 0


def _export(path: Path, output: str) -> None:
    """Write the file, or the newest of a folder, as one file. Its lines are checked before any is written."""
    import sys

    from ptxdiff.records import RecordError, Writer, is_records_name, newest_file

    if output != "-" and not is_records_name(output):
        raise UsageError(f"--export {output}: the name ends in .jsonl, or in .jsonl.zst for a compressed file")
    source = newest_file(path) if path.is_dir() else path
    if output != "-" and Path(output).exists() and Path(output).samefile(source):
        raise UsageError(f"--export {output}: that is the file which is read")
    records = list(_whole(source))
    if output == "-":
        from ptxdiff.records import Seal, lines

        sys.stdout.buffer.write(lines(records, Seal()))
        return
    writer = Writer(Path(output))
    try:
        writer.write(*records)
    except RecordError:
        writer.close()
        Path(output).unlink(missing_ok=True)
        raise
    writer.close()
    say(f"{source} -> {output}")


def _whole(source: Path) -> Iterator[Record]:
    """The records of a file, with the texts that it names in their places."""
    from ptxdiff.records import StoredText, read, read_lines

    texts = read(source).texts
    for record in read_lines(source):
        yield texts[record.hash] if isinstance(record, StoredText) else record


def _prune(folder: Path) -> None:
    from ptxdiff.records import TextStore, read, record_files

    if not folder.is_dir():
        raise UsageError(f"--prune {folder}: name the folder of the runs")
    used = {name: kind for file in record_files(folder) for name, kind in read(file, texts=False).stored.items()}
    before, after = TextStore(folder).prune(used)
    say(f"{len(used)} texts of {len(record_files(folder))} runs stay: {after / 1e6:.1f} MB of {before / 1e6:.1f} MB")


def _list(path: Path, *, as_json: bool) -> None:
    """A line for each run. Every run is read, so that a damaged one is found."""
    from rich.table import Table

    from ptxdiff.records import TextStore, record_files

    runs = [_summary(file) for file in (record_files(path) if path.is_dir() else [path])]
    if as_json:
        print(json.dumps(runs, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for head in ("file", "started", "revision", "results", "verdicts", "size", ""):
        table.add_column(head, no_wrap=head != "verdicts", overflow="fold")
    for run in runs:
        verdicts = ", ".join(f"{n:,} {name}" for name, n in run["verdicts"].items())
        size, state = f"{run['bytes'] / 1e6:.1f} MB", "" if run["complete"] else "cut short"
        table.add_row(run["file"], run["started"][:16], run["revision"], f"{run['results']:,}", verdicts, size, state)
    if runs:
        render(table)
    store = TextStore(path if path.is_dir() else path.parent)
    packs = [p.stat().st_size for p in store.folder.glob("*.zst")]
    shared = f", and {sum(packs) / 1e6:.1f} MB of shared texts in {store.folder}" if packs else ""
    say(f"{len(runs)} runs, {sum(r['bytes'] for r in runs) / 1e6:.1f} MB{shared}")


def _summary(file: Path) -> dict[str, Any]:
    """The facts of one run, on one line."""
    from collections import Counter

    from ptxdiff.records import machines, read

    found = read(file, texts=False)
    git = [m.get("git") for m in machines(found.run.environment)]
    revisions = [str(g.get("revision", ""))[:12] for g in git if isinstance(g, dict)]
    return {
        "file": file.name,
        "run_id": found.run.run_id,
        "started": found.run.started,
        "revision": ", ".join(dict.fromkeys(revisions)),
        "effort": found.run.effort,
        "results": len(found.results),
        "verdicts": dict(Counter(r.outcome for r in found.results)),
        "timings": len(found.timings),
        "seconds": found.end.seconds if found.end else None,
        "complete": found.end is not None,
        "bytes": file.stat().st_size,
        "shared_texts": len(found.stored),
    }


@contextlib.contextmanager
def written_by(verb: str, path: Path | None, chosen: Sequence[Named]) -> Iterator[Callable[[Record], None]]:
    """A function that writes what a verb found out about the chosen cases to a new file; without a path, to none.

    The file gets its end record only if the verb came to its end. Raises UsageError if it cannot be written.
    """
    if path is None:
        yield lambda record: None
        return
    from ptxdiff.model.describe import case_info
    from ptxdiff.records import End, RecordError, Run, Writer
    from ptxdiff.running.environment import environment

    started = datetime.now(UTC)
    head = Run(
        f"{started:%Y%m%dT%H%M%S}-{verb}-{uuid.uuid4().hex[:6]}", started.isoformat(timespec="seconds"), "quick", 0,
        environment(Path.cwd(), gpu=False),
    )  # fmt: skip
    try:
        writer = Writer(path)
        try:
            writer.write(head)
            for one in chosen:
                writer.write(case_info(one.loaded, os.path.relpath(one.loaded.path)))
            yield writer.write
            now = datetime.now(UTC)
            writer.write(End(now.isoformat(timespec="seconds"), (now - started).total_seconds(), {}))
        finally:
            writer.close()
    except RecordError as e:
        raise UsageError(str(e)) from None
