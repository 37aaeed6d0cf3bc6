"""Finds ptxdiff's packages before a user's of the same name: `harness`, `references`, `reports`.

A folder of one of these names in the working directory would otherwise come first; with an editable installation of
ptxdiff, even a folder without Python files. This module imports nothing of ptxdiff, because `ptxdiff.py` loads it
before it is clear whose `harness` Python would find.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


_REPAIR = "rename the other one, or keep ptxdiff out of this run of pytest with -p no:ptxdiff"


class Hidden(ImportError):
    """Another package with the name of one of ours was imported first. The message has both paths."""


class _Finder:
    """Finds one package of ptxdiff, wherever it stands on `sys.path`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of our package, or of a module in it. Raises Hidden for a module that only the other package has."""
        if name == self.name:
            return PathFinder.find_spec(name, [str(ROOT)])
        if not name.startswith(f"{self.name}."):
            return None
        spec = PathFinder.find_spec(name, path)
        theirs = None if spec else _place(PathFinder.find_spec(self.name, [p for p in sys.path if p != str(ROOT)]))
        if theirs is not None:
            raise Hidden(f"{self._both(theirs)}, which has no module {name}; {_REPAIR}")
        return spec

    def _both(self, theirs: str) -> str:
        return f"there are two packages called {self.name}: {theirs}, and ptxdiff's at {ROOT / self.name}"


def first(name: str) -> None:
    """Make `import NAME` find ours. Raises Hidden if another package of that name has been imported already."""
    if not (ROOT / name / "__init__.py").is_file():
        return
    finder = _Finder(name)
    loaded = sys.modules.get(name)
    if loaded is not None and (theirs := _place(loaded)) is not None:
        raise Hidden(f"{finder._both(theirs)}, and the first has been imported already; {_REPAIR}")
    if not any(isinstance(f, _Finder) and f.name == name for f in sys.meta_path):
        sys.meta_path.insert(0, finder)


def missing(package: str, name: str) -> ImportError | None:
    """The error for a name that our package lacks, if another package of its name may have it; else None."""
    known = name.startswith("__") or PathFinder.find_spec(f"{package}.{name}", [str(ROOT / package)]) is not None
    theirs = None if known else others(package, [p for p in sys.path if p != str(ROOT)])
    return Hidden(f"{_Finder(package)._both(theirs)}, which has no {name}; {_REPAIR}") if theirs else None


def _place(package: ModuleType | ModuleSpec | None) -> str | None:
    """The place of a package if it is not ours; None for ours, and for None."""
    spec = package.__spec__ if isinstance(package, ModuleType) else package
    if spec is None:
        return None
    folders = [str(Path(p).resolve()) for p in spec.submodule_search_locations or () if Path(p).is_dir()]
    folder = folders[0] if folders else str(Path(spec.origin or "").resolve())
    return None if folder == str(ROOT / spec.name) else folder


def others(name: str, path: list[str]) -> str | None:
    """The place of another package of this name that Python would find in this search path; None if there is none.

    A folder without an `__init__.py` yields to a package that comes later in the path.
    """
    return _place(PathFinder.find_spec(name, path))
