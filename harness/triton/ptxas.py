"""A ptxas by its path: its version, a digest of the program, and the options with which Triton calls it."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import re
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ptxdiff.model.compilers import TRITONS_LEVEL, PtxasChoice
from ptxdiff.triton.tools import Tool, run_tool

ASKED = 60.0  # seconds allowed for --version
_MACHINE_CODE = b"\x7fELF"


class NoAssembler(ValueError):
    """A path without a working ptxas. The message says what is there instead."""


def assembler_at(path: str | Path, level: int, *, bundled: bool = False, options: Sequence[str] = ()) -> PtxasChoice:
    """The ptxas at a path, at a level, with those of Triton's options that it accepts. Raises NoAssembler."""
    location = os.path.abspath(path)
    try:
        status = os.stat(location)
        file = (location, status.st_size, status.st_mtime_ns, status.st_ino)
        version, digest, script = _identified(*file)
        known = tuple(o for o in options if _knows(o, *file))
    except OSError as error:
        raise NoAssembler(f"{path} does not run: {error.strerror or error}") from None
    return PtxasChoice(location, version, level, digest, script, bundled, known)


@functools.lru_cache(maxsize=64)
def _identified(path: str, size: int, changed: int, number: int) -> tuple[str, str, bool]:
    """Version, digest, and whether it is a script, of the file with this size, time and inode."""
    content = Path(path).read_bytes()
    try:
        _, output = run_tool([path, "--version"], ASKED)
    except subprocess.TimeoutExpired:
        raise NoAssembler(f"{path} --version did not end in {ASKED:g} s") from None
    match = re.search(r"\bV(\d+(?:\.\d+)+)", output) or re.search(r"release (\d+\.\d+)", output)
    if match is None or ("ptxas" not in output.lower() and "Cuda compilation tools" not in output):
        raise NoAssembler(f"{path} --version does not say which release of ptxas it is")
    return match[1], hashlib.sha256(content).hexdigest()[:12], not content.startswith(_MACHINE_CODE)


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


_STAGES = "triton.backends.nvidia.compiler"
_ALONE = ("-v", "--verbose", "-lineinfo", "--generate-line-info", "-g", "--device-debug")
_WITH_VALUE = ("-O", "--opt-level", "--gpu-name", "-arch", "--fmad", "-fmad")


def called_with(
    stage: Callable[[str, dict[str, Any]], Any] | None, ptx: str, metadata: Mapping[str, Any]
) -> tuple[str, ...]:
    """The options that Triton's stage "cubin" passes to ptxas for a kernel, without files. Nothing is assembled.

    Returns () with a warning if the stage does not make exactly one call through `subprocess`.
    """
    calls: list[list[str]] = []

    def run(command: Sequence[str], **_: Any) -> Any:
        calls.append([str(word) for word in command])
        if "-o" in calls[-1]:
            Path(calls[-1][calls[-1].index("-o") + 1]).touch()  # the stage reads this file, and removes it
        return subprocess.CompletedProcess(command, 0, "", "")

    module = importlib.import_module(_STAGES)
    own = vars(module).get("subprocess")
    if stage is not None and own is not None:
        module.subprocess = SimpleNamespace(**{**vars(own), "run": run})  # type: ignore[attr-defined]
        try:
            stage(ptx, dict(metadata))
        except Exception as error:
            warnings.warn(f"Triton's call of ptxas was not seen: {type(error).__name__}: {error}", stacklevel=2)
            return ()
        finally:
            module.subprocess = own  # type: ignore[attr-defined]
    if len(calls) != 1:
        warnings.warn(f"Triton's call of ptxas was not seen: its stage made {len(calls)} calls", stacklevel=2)
        return ()
    return tuple(_without_files(calls[0]))


def _without_files(command: Sequence[str]) -> Iterator[str]:
    arguments = iter(command[1:])
    for word in arguments:
        if word == "-o":
            next(arguments, None)
        elif not word.endswith(".ptx"):
            yield word


def beyond_every_call(called: Sequence[str]) -> tuple[str, ...]:
    """Those of Triton's options that the harness does not set itself (level, target, contraction, reports)."""
    beyond, arguments = [], iter(called)
    for word in arguments:
        if word in _ALONE or word.partition("=")[0] in _WITH_VALUE or word[:2] == "-O":
            if word in _WITH_VALUE:
                next(arguments, None)
            continue
        beyond.append(word)
    return tuple(beyond)
