"""A ptxas by its path: the version that it reports, and a digest of the program."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ptxdiff.model.assemblers import TRITONS_LEVEL, PtxasChoice
from ptxdiff.triton.assemble import run_tool
from ptxdiff.triton.spec import Tool

ASKED = 60.0  # seconds allowed for --version
_MACHINE_CODE = b"\x7fELF"


class NoAssembler(ValueError):
    """A path without a working ptxas. The message says what is there instead."""


def assembler_at(path: str | Path, level: int, *, bundled: bool = False, options: Sequence[str] = ()) -> PtxasChoice:
    """The ptxas at a path, at a level, with those of Triton's options that it accepts. Raises NoAssembler."""
    place = os.path.abspath(path)
    try:
        status = os.stat(place)
        file = (place, status.st_size, status.st_mtime_ns, status.st_ino)
        version, digest, script = _identified(*file)
        known = tuple(o for o in options if _knows(o, *file))
    except OSError as error:
        raise NoAssembler(f"{path} does not run: {error.strerror or error}") from None
    return PtxasChoice(place, version, level, digest, script, bundled, known)


@functools.lru_cache(maxsize=64)
def _identified(path: str, size: int, changed: int, number: int) -> tuple[str, str, bool]:
    """Version, digest, and whether it is a script, of the file with this size, time and inode."""
    content = Path(path).read_bytes()
    try:
        _, output = run_tool([path, "--version"], ASKED)
    except subprocess.TimeoutExpired:
        raise NoAssembler(f"{path} --version did not end in {ASKED:g} s") from None
    found = re.search(r"\bV(\d+(?:\.\d+)+)", output) or re.search(r"release (\d+\.\d+)", output)
    if found is None or ("ptxas" not in output.lower() and "Cuda compilation tools" not in output):
        raise NoAssembler(f"{path} --version does not say which release of ptxas it is")
    return found[1], hashlib.sha256(content).hexdigest()[:12], not content.startswith(_MACHINE_CODE)


@functools.lru_cache(maxsize=256)
def _knows(option: str, path: str, size: int, changed: int, number: int) -> bool:
    """Whether a ptxas accepts an option: an older one fails on an option that it does not have."""
    try:
        status, output = run_tool([path, option, "--version"], ASKED)
    except subprocess.TimeoutExpired:
        raise NoAssembler(f"{path} {option} --version did not end in {ASKED:g} s") from None
    return not (status and re.search(r"unknown option", output, re.I))


def label_of_tool(tool: Tool) -> str:
    """The label in records for a build's assembler; "" if no ptxas works at its path any more."""
    try:
        return (tool.chosen or assembler_at(tool.path, TRITONS_LEVEL, options=tool.options)).label
    except NoAssembler:
        return ""
