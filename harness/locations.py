"""Where ptxdiff itself lies, and which files lie below a folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
"""The package `ptxdiff`: in a checkout the folder `harness`, to which the link `ptxdiff` beside it leads."""

REFERENCES = (PACKAGE / "references").resolve()
"""The package `ptxdiff.references`: in a checkout the folder of that name at its root."""

ROOT = PACKAGE.parent
"""The folder in which Python finds `ptxdiff`: a checkout's root, or the folder of installed packages."""


# ---- The files below a folder ----------------------------------------------------------------------------------------
#
# `Path.rglob` takes ten times as long, and every start lists thousands.


def files_below(folder: Path, ending: str = "", without: Collection[str] = ()) -> list[Path]:
    """The files below a folder whose names end so, in the order of sorted paths.

    without: names of folders that are left out. Links to folders are not followed, links to files are. A folder that
    does not exist has no files; raises OSError for one that cannot be read.
    """
    if not folder.is_dir():
        return []
    split_paths = sorted((path.split(os.sep), path) for path in _files(str(folder), ending, without))
    return [Path(path) for _, path in split_paths]


def _files(folder: str, ending: str, without: Collection[str]) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in without:
                    yield from _files(entry.path, ending, without)
            elif entry.name.endswith(ending) and entry.is_file():
                yield entry.path
