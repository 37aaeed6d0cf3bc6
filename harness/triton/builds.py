"""Triton builds by name. "" is the Triton of this environment; each other one compiles in its own Python environment.

`--ptx-compiler NAME=PATH` names one: PATH is a Python interpreter, or the folder of a virtual environment. Those in
`MANAGED` are found where make puts them. A build's interpreter is called once for its version of Triton; nothing of the
build is imported here.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ptxdiff.locations import ROOT, files_below

# ---- The installed Triton --------------------------------------------------------------------------------------------
#
# Its folder, and a digest of all files that take part in compiling.


class NoTriton(RuntimeError):
    """Triton is not installed here, so nothing can be compiled."""


@functools.cache
def triton_folder() -> Path:
    """The folder of the installed Triton, found without importing it. Raises NoTriton."""
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.origin:
        raise NoTriton("triton is not installed: pip install 'ptxdiff[triton]'")
    return Path(spec.origin).parent


@functools.cache
def installation() -> str:
    """A digest of what compiles here: each file of the installed Triton, and other tools, by size and time."""
    return installation_in(triton_folder(), f"{platform.python_version()} {platform.machine()}")


def installation_in(root: Path, python: str) -> str:
    """A digest of the Triton in a folder, and of the tools that environment variables name. python: its version."""
    files = files_below(root, without=("__pycache__",))
    files += [Path(v) for n, v in sorted(os.environ.items()) if n.startswith("TRITON_") and n.endswith("_PATH")]
    digest = hashlib.sha256(python.encode())
    for path in files:
        status = path.stat() if path.exists() else None
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode() if status else f"{path}\n".encode())
    return digest.hexdigest()


# ---- Builds by name --------------------------------------------------------------------------------------------------


MANAGED = {"tlx": (".venv-tlx", "make tlx")}
"""Environments that make creates beside the harness: the folder, and the command that creates it."""

TIMEOUT = 60.0


class NoBuild(NoTriton):
    """No Triton build of that name is known here, or it cannot compile. The message says what to do."""


@dataclass(frozen=True)
class TritonBuild:
    """A Triton in an environment of its own.

    python: its interpreter, of version `python_version`. folder: of its package `triton`. version: of that package.
    """

    name: str
    python: str
    python_version: str
    version: str
    folder: str

    @property
    def label(self) -> str:
        """Name and version, as records have them."""
        return f"{self.name} {self.version}"


_given: dict[str, str] = {}
"""Interpreters by name, from the command line."""

_barred: set[str] = set()
"""Names of managed builds that are not to be used here."""


def parse(words: str, beside: Path) -> tuple[str, str]:
    """Name and interpreter of `NAME=PATH`. beside: the folder that a relative path starts from. Raises ValueError."""
    from ptxdiff.model.variants import COMPILER_NAME  # here, because a node that reports its facts needs no variants

    name, equals, path = words.partition("=")
    if not equals or not COMPILER_NAME.fullmatch(name) or not path:
        raise ValueError(
            f"{words!r}: write NAME=PATH, such as old=/envs/old or old=/envs/old/bin/python; a name has letters, "
            "digits, dots, dashes and underscores"
        )
    location = beside / Path(path).expanduser()
    python = location / "bin" / "python" if location.is_dir() else location
    if not python.is_file() or not os.access(python, os.X_OK):
        raise ValueError(f"{words}: {python} is no Python interpreter; give one, or the folder of an environment")
    return name, os.path.abspath(python)  # not resolved: the link itself decides which environment the interpreter uses


def give(named: Iterable[tuple[str, str]]) -> None:
    """Set the interpreters by name. Other names are unknown from now on, except for managed builds."""
    given = dict(named)
    if given != _given:
        _given.clear()
        _given.update(given)
        for cached in (_found, _installation):
            cached.cache_clear()


def only(names: Iterable[str]) -> None:
    """Use only these of the managed builds: a node of a cluster uses those of its driver."""
    _barred.clear()
    _barred.update(set(MANAGED) - set(names))


def given() -> dict[str, str]:
    """The interpreters that the command line gave, by name."""
    return dict(_given)


def known() -> tuple[str, ...]:
    """The names of all builds that are known here."""
    return tuple(dict.fromkeys([*_given, *(n for n in MANAGED if _is_managed(n))]))


def build_called(name: str) -> TritonBuild:
    """The build of that name. Raises NoBuild."""
    if name in _given:
        return _found(name, _given[name])
    hint = f"--ptx-compiler {name}=PATH names its Python interpreter, or the folder of its environment"
    if name in MANAGED:
        if _is_managed(name):
            return _found(name, str(_managed(name)))
        hint = f"{MANAGED[name][1]} makes its environment, or {hint}"
    raise NoBuild(f"no Triton build is called {name!r} here: {hint}")


def label(name: str) -> str:
    """Name and version of a build; "" for the Triton of this environment; the name alone if the build is not here."""
    if not name:
        return ""
    try:
        return build_called(name).label
    except NoBuild:
        return name


def installation_of(name: str) -> str:
    """A digest of what compiles under that name: interpreter, versions, and each file by size and time."""
    return _installation(build_called(name))


@functools.cache
def _installation(build: TritonBuild) -> str:
    return installation_in(Path(build.folder), f"{build.python} {build.python_version} {build.version}")


def _managed(name: str) -> Path:
    return ROOT / MANAGED[name][0] / "bin" / "python"


def _is_managed(name: str) -> bool:
    return name not in _barred and _managed(name).is_file()


# A build's interpreter prints its Python version, the folder and version of its Triton, and missing packages.
_QUESTION = """
import importlib.util, json, platform, re, sys
found = importlib.util.find_spec("triton")
folder = list(found.submodule_search_locations or [])[:1] if found else []
text = open(folder[0] + "/__init__.py", encoding="utf-8").read() if folder else ""
version = re.search(r"^__version__\\s*=\\s*['\\"]([^'\\"]+)", text, re.M)
lacks = [n for n in ("numpy", "torch") if importlib.util.find_spec(n) is None]
print(json.dumps([platform.python_version(), *(folder or [""]), version[1] if version else "", lacks]))
"""


@functools.cache
def _found(name: str, python: str) -> TritonBuild:
    try:
        answer = subprocess.run(
            [python, "-I", "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        python_version, folder, version, lacks = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise NoBuild(f"compiler {name}: {python} does not answer as a Python interpreter: {error}") from None
    if not folder or not version:
        raise NoBuild(f"compiler {name}: {python} has no triton; install one there")
    if lacks:
        raise NoBuild(f"compiler {name}: {python} lacks {' and '.join(lacks)}, which case files need; install it there")
    if tuple(map(int, python_version.split(".")[:2])) < (3, 11):
        raise NoBuild(f"compiler {name}: {python} is Python {python_version}, and ptxdiff needs 3.11")
    return TritonBuild(name, python, python_version, version, folder)
