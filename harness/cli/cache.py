"""`ptxdiff cache`: show what lies in the cache folder, or delete it."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from ptxdiff import options
from ptxdiff.cli import UsageError, render, say
from ptxdiff.diskcache import cache_folder

KINDS = {
    "code": "byte code of case files, under their text",
    "compiled": "machine code of the emulator's definitions of instructions",
    "cubin": "machine code that ptxas made",
    "inductor": "the cache of torch.compile",
    "items": "results of the emulator and the assembler, for unchanged cases",
    "listings": "lines of `ptxdiff list`, for unchanged case files",
    "nights": "facts of runs, for the history on a page",
    "packets": "parts of HTML pages",
    "pairs": "differences between two targets, run again",
    "ptx": "PTX that Triton made",
    "runs": "which items a run had",
    "sass": "what nvdisasm printed",
    "targets": "the targets of each installed Triton",
    "triton": "the cache of Triton",
    "triton-files": "digests of installed Tritons",
    "vega": "the library that draws charts",
}
"""What a folder of the cache holds."""


@dataclass(frozen=True)
class Kind:
    """One folder, or one file, of the cache. size: bytes. newest: when a file was last written or read, UTC."""

    name: str
    files: int
    size: int
    newest: str
    meaning: str


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="only these parts of the cache (default: all)")
    parser.add_argument("--clear", action="store_true", help="delete them; they are made again when they are needed")
    form = options.add(parser, "format", choices=("text", "json"), default="text")
    options.formerly(parser, "--json", form, "json")
    parser.epilog = (
        "The folder is ~/.cache/ptxdiff, or $PTXDIFF_CACHE_DIR; an empty variable turns the cache off. "
        "A run with --fresh ignores stored results without deleting them."
    )


def main(args: argparse.Namespace) -> int:
    """Print or delete. Raises UsageError for a part that does not exist."""
    folder = cache_folder()
    if folder is None:
        raise UsageError("the cache is turned off: PTXDIFF_CACHE_DIR is empty")
    kinds = stored(folder)
    if unknown := [name for name in args.kinds if name not in {k.name for k in kinds}]:
        held = ", ".join(k.name for k in kinds) or "nothing"
        raise UsageError(f"the cache has no {', '.join(unknown)}; {folder} holds {held}")
    chosen = [k for k in kinds if not args.kinds or k.name in args.kinds]
    if args.clear:
        for kind in chosen:
            _delete(folder / kind.name)
    if args.format == "json":
        print(
            json.dumps({"folder": str(folder), "cleared": args.clear, "kinds": [asdict(k) for k in chosen]}, indent=2)
        )
    elif args.clear:
        say(f"deleted {_size(sum(k.size for k in chosen))} in {sum(k.files for k in chosen)} files of {folder}")
    else:
        _print(folder, chosen)
    return 0


def stored(folder: Path) -> list[Kind]:
    """The parts of the cache, by name. A folder that does not exist holds none."""
    if not folder.is_dir():
        return []
    return [_kind(path) for path in sorted(folder.iterdir())]


def _kind(path: Path) -> Kind:
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() and not path.is_symlink() else [path]
    states = [p.lstat() for p in files]
    newest = max((max(s.st_mtime, s.st_atime) for s in states), default=path.lstat().st_mtime)
    written = datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%d %H:%M")
    meaning = KINDS.get(path.name) or KINDS.get(path.name.partition("-")[0], "")
    return Kind(path.name, len(files), sum(s.st_size for s in states), written, meaning)


def _delete(path: Path) -> None:
    """Delete a part of the cache. A link is deleted, and not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _print(folder: Path, kinds: list[Kind]) -> None:
    from rich.table import Table

    table = Table("part", "files", "size", "last used (UTC)", "what it holds", box=None, pad_edge=False)
    for kind in kinds:
        table.add_row(kind.name, str(kind.files), _size(kind.size), kind.newest, kind.meaning)
    if kinds:
        render(table)
    say(f"{_size(sum(k.size for k in kinds))} in {sum(k.files for k in kinds)} files of {folder}")


def _size(count: int) -> str:
    """A number of bytes in words: 0 B, 1.5 MB."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
