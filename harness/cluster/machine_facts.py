"""The facts of a machine that decide bits: ptxdiff's code, the compilers, the packages that compute, settings.

A node whose facts differ from the driver's gets no work, because it might give other bits.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ptxdiff.diskcache import DiskCache
from ptxdiff.locations import PACKAGE
from ptxdiff.model.identity.experiment import harness
from ptxdiff.model.identity.folders import files_below
from ptxdiff.processes.gpus import Gpu, gpus
from ptxdiff.triton import builds
from ptxdiff.triton.installation import NoTriton, installation, triton_folder

PACKAGES = ("triton", "torch", "numpy", "numba", "llvmlite", "ml_dtypes", "mpmath", "scipy")

SETTINGS = ("TRITON_", "TORCH_", "NUMBA_", "PTXDIFF_")
"""Prefixes of environment variables that may decide bits or verdicts."""

# Variables with paths or numbers of threads, which decide no bits.
_NO_SETTING = (
    "PTXDIFF_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "NUMBA_CACHE_DIR",
    "NUMBA_NUM_THREADS",
    "TORCHINDUCTOR_CACHE_DIR",
)

FILES_VARIABLE = "PTX_CLUSTER_FILES"
"""The environment variable with paths of other programs, such as another ptxas, that nodes must have too."""

BUILDS_VARIABLE = "PTX_CLUSTER_BUILDS"
"""The environment variable with other Triton builds that nodes must have too, one NAME=PYTHON per line."""

_kept = DiskCache("triton-files", 8)


@dataclass(frozen=True)
class NodeFacts:
    """The facts of a machine. environment: what decides bits, by name. devices: its GPUs."""

    host: str
    environment: Mapping[str, str]
    devices: tuple[Gpu, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def here() -> NodeFacts:
    """The facts of this machine and process."""
    return NodeFacts(socket.gethostname(), environment(), gpus(), settings())


def builds_setting() -> str:
    """The value of `BUILDS_VARIABLE`: the Triton builds known here. Builds that `make` sets up have no path."""
    named = builds.given()
    return "\n".join(f"{name}={named.get(name, '')}" for name in builds.known())


def environment() -> dict[str, str]:
    """Everything that decides bits here, by the names that messages use."""
    facts = {"python": platform.python_version(), "machine": platform.machine(), "ptxdiff": harness()}
    facts |= {"ledger": _ledger(), "triton's files": _triton_files()}
    facts |= {name: _version(name) for name in PACKAGES}
    facts |= {f"build {name}": _build(name) for name in _builds()}
    facts |= {f"file {path}": _file(path) for path in os.environ.get(FILES_VARIABLE, "").split(os.pathsep) if path}
    return facts | {f"setting {name}": value for name, value in settings().items()}


def settings() -> dict[str, str]:
    """The environment variables that may decide bits; they are sent with a job."""
    found = {n: v for n, v in os.environ.items() if n.startswith(SETTINGS) and n not in _NO_SETTING}
    return dict(sorted(found.items()))


def difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The facts in which `theirs` differs from `mine`, in words; "" if none differs."""
    names = [n for n in [*mine, *theirs] if mine.get(n, "") != theirs.get(n, "")]
    return "; ".join(_words(n, mine.get(n, ""), theirs.get(n, "")) for n in dict.fromkeys(names))


def _words(name: str, mine: str, theirs: str) -> str:
    if name in ("ptxdiff", "ledger", "triton's files") or name.startswith(("file ", "build ")):
        subject = {"ptxdiff": "ptxdiff's own code", "ledger": "the conformance ledger"}.get(name, name)
        return f"{subject} is {theirs[:12] or 'missing'}, here {mine[:12] or 'missing'}"
    return f"{name} is {theirs or 'missing'}, here {mine or 'missing'}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _file(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _ledger() -> str:
    path = PACKAGE / "conformance" / "ledger.jsonl"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


@functools.cache
def _triton_files() -> str:
    """A digest of the installed Triton's files, because builds of one version may differ; "" without Triton."""
    try:
        return _contents_once(triton_folder(), installation())
    except NoTriton:
        return ""


def _builds() -> tuple[str, ...]:
    """The names of the driver's other Triton builds: of its command line, and those that `make` has set up there."""
    if (given := os.environ.get(BUILDS_VARIABLE)) is None:
        return builds.known()
    named = [words.partition("=") for words in given.splitlines()]
    builds.give((name, python) for name, _, python in named if python)
    builds.only(name for name, _, _ in named)
    return tuple(name for name, _, _ in named)


def _build(name: str) -> str:
    """A digest of another Triton build: its Python's version, its own version and its files; "" if it is missing."""
    try:
        build = builds.build_called(name)
        contents = _contents_once(Path(build.folder), builds.installation_of(name))
    except NoTriton:
        return ""
    return hashlib.sha256(f"{build.python_version} {build.version} {contents}".encode()).hexdigest()


def _contents_once(folder: Path, known: str) -> str:
    """A digest of a folder's contents, cached because reading 1 GB takes 3 s.

    known: the cache's key, a digest of the files' sizes and times, which is valid on this machine only.
    """
    if (found := _kept.get(known.encode())) is not None:
        return found.decode()
    made = _contents(folder)
    _kept.put(made.encode(), known.encode())
    return made


def _contents(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in files_below(folder, without=("__pycache__",)):
        with path.open("rb") as file:
            digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
