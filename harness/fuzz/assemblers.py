"""The assemblers on trial: one ptxas at one level of optimisation, its machine code, and the ways in which it ends."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.triton.assemble import run_tool
from harness.triton.ptxas import assembler_at

TIMEOUT = 60.0
Ended = Literal["assembled", "refused", "crashed", "hung"]


@dataclass(frozen=True)
class Ptxas:
    """A ptxas. version: what it calls itself ("12.9"). level: of optimisation, 0 to 3."""

    path: str
    version: str
    level: int

    @property
    def label(self) -> str:
        """How findings name it: `ptxas 12.9 -O3`."""
        return f"ptxas {self.version} -O{self.level}"

    def assemble(self, text: str, target: str, timeout: float = TIMEOUT) -> PtxasResult:
        """Machine code for a target, or how the assembler ended and what it said."""
        with tempfile.TemporaryDirectory(prefix="ptxdiff-fuzz-") as folder:
            source, cubin = Path(folder, "program.ptx"), Path(folder, "program.cubin")
            source.write_text(text)
            command = [self.path, f"-O{self.level}", f"--gpu-name={target}", str(source), "-o", str(cubin)]
            try:
                status, said = run_tool(command, timeout)
            except subprocess.TimeoutExpired:
                return PtxasResult("hung", words=f"no end after {timeout:g} s")
            said = said.replace(f"{folder}/", "")
            if status < 0 or 128 < status < 160:  # a shell says 128 more than the signal
                return PtxasResult(
                    "crashed", words=f"ended by signal {-status if status < 0 else status - 128}: {said}"
                )
            if status or not cubin.exists():
                return PtxasResult("crashed" if _INTERNAL.search(said) else "refused", words=said)
            return PtxasResult("assembled", cubin.read_bytes())


_INTERNAL = re.compile(r"internal|assert|Segmentation|unreachable", re.I)


@dataclass(frozen=True)
class PtxasResult:
    """How an assembler ended; its machine code, or its words."""

    ended: Ended
    cubin: bytes = b""
    words: str = ""


def assembler(path: str, level: int) -> Ptxas:
    """The ptxas at a path, which is asked for its version. Raises NoAssembler."""
    found = assembler_at(path, level)
    return Ptxas(found.path, ".".join(found.version.split(".")[:2]), level)
