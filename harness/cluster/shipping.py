"""What travels with a job: the project as Ray's working directory, packages from elsewhere, settings.

Ray leaves out what `.gitignore` names, and keeps what it unpacks under a name made from the contents: an edited file
arrives as another folder, never as the old one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cluster import facts
from harness.ours import ROOT

LEFT_OUT = ("**/.git/", "**/__pycache__/", "**/.venv*/", "**/venv/", "**/node_modules/", "**/*_cache/", "/build/")
"""What no case needs, in the syntax of `.gitignore`."""


@dataclass(frozen=True)
class Shipment:
    """What is sent.

    root: the project's folder. modules: packages and modules outside it. path: folders in it that Python searches,
    relative to it. variables: of the environment.
    """

    root: Path
    modules: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def runtime_env(self) -> dict[str, Any]:
        """As Ray takes it."""
        made: dict[str, Any] = {"working_dir": str(self.root), "excludes": [*LEFT_OUT]}
        made["env_vars"] = {**self.variables, PATH_VARIABLE: os.pathsep.join(self.path)}
        return made | ({"py_modules": [*self.modules]} if self.modules else {})


PATH_VARIABLE = "PTX_CLUSTER_PATH"


def shipment(root: Path, loaded: Iterable[str] | None = None) -> Shipment:
    """What cases of a project need elsewhere. loaded: names of modules that were imported; None for all so far."""
    root = root.resolve()
    return Shipment(root, _outside(root, loaded), _searched(root, sys.path), facts.settings())


def arrived(folder: Path) -> None:
    """Search for modules, on a node, where the driver did. folder: the project there."""
    for relative in reversed(os.environ.get(PATH_VARIABLE, "").split(os.pathsep)):
        place = str(folder / relative)
        if relative and place not in sys.path:
            sys.path.insert(0, place)


def _searched(root: Path, path: Sequence[str]) -> tuple[str, ...]:
    """The folders of Python's search path that lie in the project, relative to it."""
    folders = [Path(p or ".").resolve() for p in path]
    inside = [f for f in folders if f.is_relative_to(root) and f.is_dir() and not _installed(f)]
    return tuple(dict.fromkeys(f.relative_to(root).as_posix() for f in inside))


def _outside(root: Path, loaded: Iterable[str] | None) -> tuple[str, ...]:
    """Top packages and modules that are neither in the project, nor installed, nor ptxdiff's own."""
    names = sorted({name.partition(".")[0] for name in (sys.modules if loaded is None else loaded)})
    found = []
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except (ValueError, ImportError):  # a module without a spec, such as __main__
            continue
        origin = spec.origin if spec else None
        if not origin or not origin.endswith(".py") or name == "__main__":
            continue
        file = Path(origin).resolve()
        place = file.parent if file.name == "__init__.py" else file
        if not (place.is_relative_to(root) or place.is_relative_to(ROOT) or _installed(place)):
            found.append(str(place))
    return tuple(found)


def _installed(place: Path) -> bool:
    """Whether it came with Python or was installed into it: nodes have it, and their facts are compared."""
    paths = sysconfig.get_paths()
    folders = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return any(place.is_relative_to(f) for f in folders) or "site-packages" in place.parts
