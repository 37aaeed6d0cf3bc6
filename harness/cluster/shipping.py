"""What is sent to the nodes with a job: the project as Ray's working directory, other packages, settings.

Ray omits files that `.gitignore` names, and names the unpacked folder by a hash of its contents, so that a node never
uses an old version of an edited file. ptxdiff itself is not sent: nodes have it installed, and its code is compared.

A node that sees the same files at the driver's path, on a shared file system or on the same machine, uses those.
Compiled code contains source paths as debug information, and is then equal to the last byte.
"""

from __future__ import annotations

import filecmp
import functools
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptxdiff.cluster import nodes
from ptxdiff.locations import ROOT, files_below

LEFT_OUT = ("**/.git/", "**/__pycache__/", "**/.venv*/", "**/venv/", "**/node_modules/", "**/*_cache/", "/build/")
"""Files that no case needs, in the syntax of `.gitignore`."""

OUR_OWN = ("/ptxdiff", "/harness/", "/references/", "/reports/", "/tests/")
"""Files of ptxdiff's own checkout that are not sent, if the project is that checkout."""


@dataclass(frozen=True)
class Shipment:
    """What is sent to the nodes.

    root: the project's folder. modules: paths of packages and modules outside it. path: folders in it that Python
    searches, relative to it. variables: of the environment.
    """

    root: Path
    modules: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def runtime_env(self) -> dict[str, Any]:
        """The shipment as the argument `runtime_env` of `ray.init`."""
        own = OUR_OWN if self.root == ROOT else ()
        made: dict[str, Any] = {"working_dir": str(self.root), "excludes": [*LEFT_OUT, *own]}
        places = {PATH_VARIABLE: os.pathsep.join(self.path), ROOT_VARIABLE: str(self.root)}
        places |= {nodes.FILES_VARIABLE: files} if (files := os.environ.get(nodes.FILES_VARIABLE)) else {}
        places[nodes.BUILDS_VARIABLE] = nodes.builds_setting()
        made["env_vars"] = {**self.variables, **places}
        return made | ({"py_modules": [*self.modules]} if self.modules else {})


PATH_VARIABLE, ROOT_VARIABLE = "PTX_CLUSTER_PATH", "PTX_CLUSTER_ROOT"


def shipment(root: Path, loaded: Iterable[str] | None = None) -> Shipment:
    """What a project's cases need on other machines.

    loaded: names of imported modules; None for all that this process has imported.
    """
    root = root.resolve()
    return Shipment(root, _outside(root, loaded), _searched(root, sys.path), nodes.settings())


@functools.cache
def project() -> Path:
    """On a node: the project's folder. It is the driver's own folder if this node sees the same files there."""
    unpacked = Path.cwd()  # Ray starts a worker in the job's working directory
    theirs = Path(os.environ.get(ROOT_VARIABLE) or unpacked)
    return theirs if _same_files(unpacked, theirs) else unpacked


def arrived() -> None:
    """On a node: change to the project's folder, and set Python's search path as on the driver."""
    unpacked, folder = Path.cwd(), project()
    os.chdir(folder)
    sys.path[:] = [str(folder) if Path(p or ".") == unpacked else p for p in sys.path]
    for relative in reversed(os.environ.get(PATH_VARIABLE, "").split(os.pathsep)):
        entry = str(folder / relative)
        if relative and entry not in sys.path:
            sys.path.insert(0, entry)


def _same_files(one: Path, other: Path) -> bool:
    """Whether the folder `other` has each file of `one`, with the same contents."""
    if one == other:
        return True
    try:
        files = files_below(one, without=("__pycache__",))
        return all(filecmp.cmp(p, other / p.relative_to(one), shallow=False) for p in files)
    except OSError:
        return False


def _searched(root: Path, path: Sequence[str]) -> tuple[str, ...]:
    """The folders of Python's search path that lie in the project, relative to it."""
    folders = [Path(p or ".").resolve() for p in path]
    inside = [f for f in folders if f.is_relative_to(root) and f.is_dir() and not _installed(f)]
    return tuple(dict.fromkeys(f.relative_to(root).as_posix() for f in inside))


_OF_THE_MACHINE = ("__main__", "sitecustomize", "usercustomize")
"""Modules that belong to a machine's Python, not to the project. Debian has a `sitecustomize` outside all library
folders."""


def _outside(root: Path, loaded: Iterable[str] | None) -> tuple[str, ...]:
    """The paths of top-level packages and modules that are not in the project, not installed, and not ptxdiff's."""
    names = sorted({name.partition(".")[0] for name in (sys.modules if loaded is None else loaded)})
    packages = []
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except (ValueError, ImportError):  # a module without a spec, such as __main__
            continue
        origin = spec.origin if spec else None
        if not origin or not origin.endswith(".py") or name in _OF_THE_MACHINE:
            continue
        file = Path(origin).resolve()
        package = file.parent if file.name == "__init__.py" else file
        if not (package.is_relative_to(root) or package.is_relative_to(ROOT) or _installed(package)):
            packages.append(str(package))
    return tuple(packages)


def _installed(place: Path) -> bool:
    """Whether a module came with Python or was installed. Nodes have such modules, and their versions are compared."""
    paths = sysconfig.get_paths()
    folders = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return any(place.is_relative_to(f) for f in folders) or "site-packages" in place.parts
