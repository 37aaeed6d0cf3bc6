"""Targets whose machine code an nvdisasm cannot read, and which one can."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile

from ptxdiff.model.targets import capability
from ptxdiff.triton.targets import tool
from ptxdiff.triton.tools import run_tool

_READ_BY = {107: "that of CUDA 13.5 does"}
"""Compute capabilities that the nvdisasm of Triton 3.9 (13.1) does not know, and which one was seen to know them."""
_NOT_KNOWN = re.compile(r"(?:architecture|Value) 'SM(\d+[af]?)'(?: is not defined for option 'binary'|\s*$)")
_WORD = bytes.fromhex("1879000000000000000fc00000000000")  # NOP
_SECONDS = 60.0


def unread(target: str) -> str:
    """Why the nvdisasm here cannot read a target's machine code, in words; "" if it can.

    Only targets of which that was seen are looked at; for others the first cubin shows it. Raises NoTriton without
    Triton, for these targets.
    """
    if capability(target) not in _READ_BY:
        return ""
    nvdisasm = str(tool("nvdisasm"))
    try:
        status = os.stat(nvdisasm)
    except OSError:
        return ""  # that there is none is for others to say
    return _asked(target, nvdisasm, status.st_mtime_ns)


@functools.cache
def _asked(target: str, nvdisasm: str, changed: int) -> str:
    """changed: when the program was written."""
    with tempfile.NamedTemporaryFile(prefix="ptxdiff-", suffix=".bin") as file:
        file.write(_WORD)
        file.flush()
        command = [nvdisasm, "-b", target.replace("sm_", "SM"), file.name]
        try:
            status, output = run_tool(command, _SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return ""
    return named(nvdisasm, output) if status else ""


def named(nvdisasm: str, error: str) -> str:
    """What an error of an nvdisasm that does not know a target means, in words; "" for another error."""
    found = _NOT_KNOWN.search(error)
    if found is None:
        return ""
    target = f"sm_{found[1]}"
    which = _READ_BY.get(capability(target), "a newer one may")
    return f"nvdisasm does not know {target}; {which} (TRITON_NVDISASM_PATH names it): {nvdisasm}"
