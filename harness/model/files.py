"""The rule for which Python files hold cases, for pytest, `ptxdiff list` and `ptxdiff run`.

A case file lies in a folder named `cases`, at any depth. A leading underscore in the name of the file, or of a folder
between, hides it; so do the names in `NOT_ENTERED`. A folder named `cases` in which no file uses the harness is
ignored. This module imports little, because pytest loads it in projects that have no cases.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

FOLDER = "cases"

# The folders that pytest does not enter by default (setting `norecursedirs`).
NOT_ENTERED = (".*", "_*", "*.egg", "build", "CVS", "dist", "node_modules", "venv", "{arch}")

# The files from which pytest collects tests by default (setting `python_files`).
TEST_FILES = ("test_*.py", "*_test.py")

_PTXDIFF = "ptxdiff"


def hidden(path: Path, folder: Path) -> bool:
    """Whether the name of the file, or of a folder between `folder` and it, hides it."""
    *way, name = path.relative_to(folder).parts
    if name == "conftest.py" or name.startswith(("_", ".")):
        return True
    return any(fnmatch.fnmatch(part, pattern) for part in way for pattern in NOT_ENTERED)


def folder_of(path: Path, root: Path) -> Path | None:
    """The outermost folder named `cases` that contains a file. Above `root`, only the file's own folder counts."""
    folders = [p for p in path.parents if p.name == FOLDER and (p == path.parent or p.is_relative_to(root))]
    return folders[-1] if folders else None


def below(folder: Path) -> list[Path]:
    """The Python files below a folder that are not hidden, sorted by name."""
    paths: list[Path] = []
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:  # a link to a parent folder
            folders.clear()
            continue
        seen.add(real)
        paths += (Path(here, name) for name in files if name.endswith(".py"))
        folders[:] = [f for f in folders if not any(fnmatch.fnmatch(f, pattern) for pattern in NOT_ENTERED)]
    return sorted(path for path in paths if not hidden(path, folder))


def case_files(folder: Path) -> list[Path]:
    """The case files of a folder: those in folders named `cases`, or all its files if there is no such folder.

    A test module is one of them only if it uses the harness.
    """
    folder = Path(folder)
    files = below(folder)
    absolute = folder.absolute()
    if FOLDER not in absolute.parts:
        inside = [p for p in files if FOLDER in p.relative_to(folder).parts[:-1]]
        files = inside or files
    return [p for p in files if not is_test_file(p, TEST_FILES) or uses_harness(p, [folder, Path.cwd()])]


def is_test_file(path: Path, patterns: Iterable[str]) -> bool:
    """Whether pytest collects tests from a file of this name. patterns: the setting `python_files`."""
    return any(fnmatch.fnmatch(str(path) if "/" in pattern else path.name, pattern) for pattern in patterns)


def is_ours(folder: Path, root: Path) -> bool:
    """Whether any file below a folder uses the harness."""
    roots = [folder, root]
    return any(uses_harness(path, roots) for path in below(folder))


def uses_harness(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a file imports the harness, directly or through modules below one of `roots`. Executes nothing."""
    roots = [Path(os.path.abspath(root)) for root in roots]
    waiting, seen = [path], {path}
    while waiting:
        for name in _imports(waiting.pop()):
            if name.partition(".")[0] == _PTXDIFF:
                return True
            modules = [p for p in _modules(name, roots) if p not in seen]
            seen.update(modules)
            waiting += modules
    return False


def _imports(path: Path) -> Iterator[str]:
    """The full names of a file's imports. For a file that is not valid Python: the harness, if its text imports it."""
    try:
        text = path.read_bytes()
        if b"import" not in text:
            return
        tree = ast.parse(text)
    except OSError:
        return
    except (SyntaxError, ValueError):  # pytest, or the loader, reports the error
        if re.search(rb"(?m)^\s*(from|import)\s+ptxdiff\b", text):
            yield _PTXDIFF
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _modules(name: str, roots: Sequence[Path]) -> Iterator[Path]:
    """The files of a module below one of the roots."""
    relative = Path(*name.split("."))
    for base in dict.fromkeys([*roots, *map(Path, sys.path)]):
        for path in (base / relative.with_suffix(".py"), base / relative / "__init__.py"):
            if any(path.is_relative_to(root) for root in roots) and path.is_file():
                yield path
