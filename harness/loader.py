"""Case files: Python modules that bind `Case` objects to names.

The object called `case` has the file's stem as its name; any other is `stem.attribute`. Modules are loaded under a name
made from their path, so that two files of one name in two folders do not meet.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from harness.case import Case, CaseError
from harness.identity.modules import execute_file


@dataclass(frozen=True)
class LoadedCase:
    """A case with where it came from. title: the first line of its file's docstring."""

    case: Case
    name: str
    attribute: str
    path: Path
    title: str


def load(path: Path) -> list[LoadedCase]:
    """The cases of a file, in the order in which they are bound.

    Raises CaseError where the file binds none, and where it cannot be executed, with the line at fault.
    """
    try:
        module = load_module(path)
    except Exception as e:
        raise CaseError(f"{_place(path, e)}: {_words(path, e)}") from e
    found = {k: v for k, v in vars(module).items() if isinstance(v, Case) and not k.startswith("_")}
    if not found:
        raise CaseError(f"{path}: a case file binds a Case to a name: case = Case(inputs=..., outputs=..., ...)")
    title = (inspect.getdoc(module) or "").partition("\n")[0]
    return [
        LoadedCase(case, path.stem if name == "case" else f"{path.stem}.{name}", name, path, title)
        for name, case in found.items()
    ]


def _place(path: Path, error: Exception) -> str:
    """`cases/rcp.py:12`: the innermost line of the case file that an error went through."""
    if isinstance(error, SyntaxError) and error.lineno and error.filename == str(path.resolve()):
        return f"{path}:{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path.resolve())]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _words(path: Path, error: Exception) -> str:
    """A contradiction in a case in its own words; anything else with its kind, and where it was raised."""
    if isinstance(error, CaseError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    inside = isinstance(error, SyntaxError) or last.filename in (str(path.resolve()), "<frozen importlib._bootstrap>")
    where = "" if inside else f" (raised at {Path(last.filename).name}:{last.lineno})"
    return f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}{where}"


def load_module(path: Path) -> ModuleType:
    """The file as a module, executed once a process; its folder is not put on sys.path."""
    path = path.resolve()
    name = f"ptxdiff_case_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    return execute_file(path, name)


def find(argument: str) -> list[LoadedCase]:
    """The cases that a command-line word means: a case file, a folder of them, or a case's name in `./cases`.

    Raises CaseError naming the cases there are.
    """
    path = Path(argument)
    if path.is_dir():
        return [c for file in case_files(path) for c in load(file)]
    if path.suffix == ".py":
        if not path.exists():
            raise CaseError(f"{path}: no such file")
        return load(path)
    folder = Path("cases")
    known = [c for file in case_files(folder) for c in load(file)] if folder.is_dir() else []
    chosen = [c for c in known if c.name == argument or c.path.stem == argument]
    if not chosen:
        names = ", ".join(c.name for c in known) or "none: there is no folder ./cases"
        raise CaseError(f"no case is called {argument!r}; cases here: {names}")
    return chosen


def case_files(folder: Path) -> list[Path]:
    """The Python files below a folder that may hold cases, in order of name; a leading underscore hides one."""
    return sorted(p for p in folder.rglob("*.py") if not p.name.startswith(("_", "conftest", ".")))
