"""Calls nvdisasm for text with encodings, and keeps the text between runs."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from ptxdiff.diskcache import DiskCache
from ptxdiff.sass.errors import Unsupported

_OPTIONS = ("-c", "-ndf", "-hex")  # code alone, without the data flow analysis, with encodings
_SECONDS = 120.0
_kept = DiskCache("sasshex")


def disassembled(cubin: bytes, nvdisasm: str | Path, *, keep: bool = True) -> str:
    """The text of a cubin's code with encodings, kept for later runs. Raises Unsupported if nvdisasm cannot read it."""
    path = Path(nvdisasm)
    try:
        status = path.stat()
    except OSError as error:
        raise Unsupported(f"nvdisasm is needed: {error}") from None
    key = cubin, f"{path} {status.st_size} {status.st_mtime_ns}".encode()
    kept = _kept.get(*key) if keep else None
    if kept is not None:
        return kept.decode()
    with tempfile.NamedTemporaryFile(prefix="ptxdiff-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(path), *_OPTIONS, file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unsupported(f"nvdisasm: {error}") from None
    if done.returncode:
        raise Unsupported(f"nvdisasm: {(done.stderr or done.stdout).strip()[:200]}")
    if keep:
        _kept.put(done.stdout.encode(), *key)
    return done.stdout
