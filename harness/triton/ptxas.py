"""A ptxas by its path: its version as it says it, and a digest of the program."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.model.assemblers import TRITONS_LEVEL, PtxasChoice
from harness.triton.assemble import run_tool
from harness.triton.spec import Tool

ASKED = 60.0  # seconds that --version may take
_MACHINE_CODE = b"\x7fELF"


class NoAssembler(ValueError):
    """A path at which no ptxas answers; the message says what it is instead."""


def assembler_at(path: str | Path, level: int, *, bundled: bool = False, options: Sequence[str] = ()) -> PtxasChoice:
    """The ptxas at a path, at a level, with those of Triton's options that it knows. Raises NoAssembler."""
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
    """Version, digest and whether it is a script, of the file that has this size, time and number."""
    content = Path(path).read_bytes()
    try:
        _, said = run_tool([path, "--version"], ASKED)
    except subprocess.TimeoutExpired:
        raise NoAssembler(f"{path} --version does not end in {ASKED:g} s") from None
    found = re.search(r"\bV(\d+(?:\.\d+)+)", said) or re.search(r"release (\d+\.\d+)", said)
    if found is None or ("ptxas" not in said.lower() and "Cuda compilation tools" not in said):
        raise NoAssembler(f"{path} --version does not say which release of ptxas it is")
    return found[1], hashlib.sha256(content).hexdigest()[:12], not content.startswith(_MACHINE_CODE)


@functools.lru_cache(maxsize=256)
def _knows(option: str, path: str, size: int, changed: int, number: int) -> bool:
    """Whether a ptxas takes an option: an older one stops at a word that it does not know."""
    try:
        status, said = run_tool([path, option, "--version"], ASKED)
    except subprocess.TimeoutExpired:
        raise NoAssembler(f"{path} {option} --version does not end in {ASKED:g} s") from None
    return not (status and re.search(r"unknown option", said, re.I))


def label_of_tool(tool: Tool) -> str:
    """What records call the assembler of a build; "" where no ptxas answers there any more."""
    try:
        return (tool.chosen or assembler_at(tool.path, TRITONS_LEVEL, options=tool.options)).label
    except NoAssembler:
        return ""
