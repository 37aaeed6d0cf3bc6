"""What decides bits on a machine: the code of ptxdiff, the compilers, the packages that compute, settings.

A node whose facts differ from the driver's gets no work: its results would be another environment's.
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

from harness.diskcache import DiskCache
from harness.model.identity.experiment import harness
from harness.ours import ROOT
from harness.processes.gpus import Gpu, gpus
from harness.triton import builds
from harness.triton.installation import NoTriton, installation, triton_folder

PACKAGES = ("triton", "torch", "numpy", "numba", "llvmlite", "ml_dtypes", "mpmath", "scipy")

SETTINGS = ("TRITON_", "TORCH_", "NUMBA_", "PTXDIFF_")
"""Beginnings of the names of environment variables that may decide bits or verdicts."""

# Variables that say where something lies, or how many threads work: no bits depend on them.
_NO_SETTING = (
    "PTXDIFF_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "NUMBA_CACHE_DIR",
    "NUMBA_NUM_THREADS",
    "TORCHINDUCTOR_CACHE_DIR",
)

FILES_VARIABLE = "PTX_CLUSTER_FILES"
"""The environment variable that names programs beside Triton's, such as another ptxas, which nodes must have too."""

BUILDS_VARIABLE = "PTX_CLUSTER_BUILDS"
"""The environment variable that names other Triton builds, one NAME=PYTHON a line, which nodes must have too."""

_kept = DiskCache("triton-files", 8)


@dataclass(frozen=True)
class NodeFacts:
    """What a machine says of itself. environment: what decides bits, by name. devices: its GPUs."""

    host: str
    environment: Mapping[str, str]
    devices: tuple[Gpu, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def here() -> NodeFacts:
    """The facts of this machine, as this process has them."""
    return NodeFacts(socket.gethostname(), environment(), gpus(), settings())


def told_builds() -> str:
    """What `BUILDS_VARIABLE` tells nodes: the builds known here, those that make sets up without a path."""
    named = builds.given()
    return "\n".join(f"{name}={named.get(name, '')}" for name in builds.known())


def environment() -> dict[str, str]:
    """What decides bits here, by the name that messages give it."""
    facts = {"python": platform.python_version(), "machine": platform.machine(), "ptxdiff": harness()}
    facts |= {"ledger": _ledger(), "triton's files": _triton_files()}
    facts |= {name: _version(name) for name in PACKAGES}
    facts |= {f"build {name}": _build(name) for name in _builds()}
    facts |= {f"file {path}": _file(path) for path in os.environ.get(FILES_VARIABLE, "").split(os.pathsep) if path}
    return facts | {f"setting {name}": value for name, value in settings().items()}


def settings() -> dict[str, str]:
    """The environment variables that may decide bits; they travel with a job."""
    found = {n: v for n, v in os.environ.items() if n.startswith(SETTINGS) and n not in _NO_SETTING}
    return dict(sorted(found.items()))


def difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The facts in which `theirs` differs from `mine`, in words; "" where none does."""
    names = [n for n in [*mine, *theirs] if mine.get(n, "") != theirs.get(n, "")]
    return "; ".join(_words(n, mine.get(n, ""), theirs.get(n, "")) for n in dict.fromkeys(names))


def _words(name: str, mine: str, theirs: str) -> str:
    if name in ("ptxdiff", "ledger", "triton's files") or name.startswith(("file ", "build ")):
        what = {"ptxdiff": "ptxdiff's own code", "ledger": "the conformance ledger"}.get(name, name)
        return f"{what} is {theirs[:12] or 'missing'}, here {mine[:12] or 'missing'}"
    return f"{name} is {theirs or 'not there'}, here {mine or 'not there'}"


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
    path = ROOT / "harness" / "conformance" / "ledger.jsonl"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


@functools.cache
def _triton_files() -> str:
    """A digest of the contents of the installed Triton; its version says too little. "" where there is none."""
    try:
        return _contents_once(triton_folder(), installation())
    except NoTriton:
        return ""


def _builds() -> tuple[str, ...]:
    """The other Triton builds that the driver has: those of the command line, and those that make has set up there."""
    if (given := os.environ.get(BUILDS_VARIABLE)) is None:
        return builds.known()
    named = [words.partition("=") for words in given.splitlines()]
    builds.give((name, python) for name, _, python in named if python)
    builds.only(name for name, _, _ in named)
    return tuple(name for name, _, _ in named)


def _build(name: str) -> str:
    """A digest of another Triton build: its Python's version, its own version and its files; "" where there is none."""
    try:
        build = builds.build_called(name)
        contents = _contents_once(Path(build.folder), builds.installation_of(name))
    except NoTriton:
        return ""
    return hashlib.sha256(f"{build.python_version} {build.version} {contents}".encode()).hexdigest()


def _contents_once(folder: Path, known: str) -> str:
    """A digest of a folder's contents, kept under `known`, its digest by sizes and times, which serves this machine.

    Reading 1 GB takes 3 s.
    """
    if (found := _kept.get(known.encode())) is not None:
        return found.decode()
    made = _contents(folder)
    _kept.put(made.encode(), known.encode())
    return made


def _contents(folder: Path) -> str:
    told = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if "__pycache__" not in p.parts and p.is_file()):
        with path.open("rb") as file:
            told.update(f"{path.relative_to(folder)}\0".encode() + hashlib.file_digest(file, "sha256").digest())
    return told.hexdigest()
