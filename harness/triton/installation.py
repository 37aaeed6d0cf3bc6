"""The Triton that is installed here: where it is, and a digest of all that compiles."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
from pathlib import Path


class NoTriton(RuntimeError):
    """Triton is not installed here, so nothing can be compiled."""


@functools.cache
def triton_folder() -> Path:
    """Where Triton is installed, found without importing it; raises NoTriton."""
    found = importlib.util.find_spec("triton")
    if found is None or not found.origin:
        raise NoTriton("triton is not installed: pip install triton")
    return Path(found.origin).parent


@functools.cache
def installation() -> str:
    """A digest of what compiles here: each file of the installed Triton by size and time, other tools alike."""
    return installation_in(triton_folder(), f"{platform.python_version()} {platform.machine()}")


def installation_in(root: Path, python: str) -> str:
    """A digest of a Triton in a folder, and of the tools that the environment names. python: what runs it, in words."""
    files = [p for p in sorted(root.rglob("*")) if "__pycache__" not in p.parts and p.is_file()]
    files += [Path(v) for n, v in sorted(os.environ.items()) if n.startswith("TRITON_") and n.endswith("_PATH")]
    told = hashlib.sha256(python.encode())
    for path in files:
        status = path.stat() if path.exists() else None
        told.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode() if status else f"{path}\n".encode())
    return told.hexdigest()
