"""Machine code of a PTX text by any ptxas, without a kernel of Triton's around it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from ptxdiff.triton.assemble import _OLDER, _VERSION, PTXAS_TIMEOUT, run_tool
from ptxdiff.triton.diagnostics import main_line


class NotAssembled(ValueError):
    """ptxas refused a text, or did not run. The message has its words."""


_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.M)


def cubin_of(text: str, ptxas: str, level: int | None = None, *, contracts: bool = True) -> bytes:
    """The cubin of a PTX module, for the target that it names. level: None for ptxas's own. Raises NotAssembled.

    For a ptxas that is older than the text's .version, it is lowered to the one that this ptxas knows.
    """
    target = _TARGET.search(text)
    if target is None:
        raise NotAssembled("the text names no .target")
    options = [] if level is None else [f"-O{level}"]
    options += [] if contracts else ["--fmad=false"]
    with tempfile.TemporaryDirectory(prefix="ptxdiff-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        command = [ptxas, *options, f"--gpu-name={target[1]}", str(source), "-o", str(cubin)]
        try:
            status, output = run_tool(command, PTXAS_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotAssembled(f"ptxas: {error}") from None
        older = _OLDER.search(output) if status else None
        if older is not None and f".version {older[1]}" not in text:
            lowered = _VERSION.sub(rf"\g<1>{older[1]}", text, count=1)
            return cubin_of(lowered, ptxas, level, contracts=contracts)
        if status or not cubin.exists():
            raise NotAssembled(f"ptxas: {main_line(output)}")
        return cubin.read_bytes()
