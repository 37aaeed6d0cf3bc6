"""The installed Triton: its folder, and a digest of all files that take part in compiling."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
from pathlib import Path

from ptxdiff.model.identity.folders import files_below


class NoTriton(RuntimeError):
    """Triton is not installed here, so nothing can be compiled."""


@functools.cache
def triton_folder() -> Path:
    """The folder of the installed Triton, found without importing it. Raises NoTriton."""
    found = importlib.util.find_spec("triton")
    if found is None or not found.origin:
        raise NoTriton("triton is not installed: pip install 'ptxdiff[triton]'")
    return Path(found.origin).parent


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
