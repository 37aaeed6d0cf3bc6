"""The assemblers under test: a ptxas at an optimisation level, and the results of running it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ptxdiff.model.compilers import PtxasChoice
from ptxdiff.triton.ptxas import assembler_at
from ptxdiff.triton.tools import run_tool

TIMEOUT = 60.0
Ended = Literal["assembled", "refused", "crashed", "hung"]


@dataclass(frozen=True)
class Ptxas:
    """A ptxas with level and options. It is described by `PtxasChoice`, so that findings and records name it alike."""

    choice: PtxasChoice

    @property
    def path(self) -> str:
        """The path of the program."""
        return self.choice.path

    @property
    def label(self) -> str:
        """Its name in journals and findings: `ptxas 12.9.86 -O3 --regAllocOptLevel=2 (1a2b3c4d5e6f)`."""
        return self.choice.label

    def assemble(self, text: str, target: str, timeout: float = TIMEOUT) -> PtxasResult:
        """Assemble a module for a target. timeout: seconds after which the assembler counts as hung."""
        with tempfile.TemporaryDirectory(prefix="ptxdiff-fuzz-") as folder:
            source, cubin = Path(folder, "program.ptx"), Path(folder, "program.cubin")
            source.write_text(text)
            options = [f"-O{self.choice.level}", *self.choice.options, f"--gpu-name={target}"]
            command = [self.path, *options, str(source), "-o", str(cubin)]
            try:
                status, output = run_tool(command, timeout)
            except subprocess.TimeoutExpired:
                return PtxasResult("hung", words=f"no end after {timeout:g} s")
            output = output.replace(f"{folder}/", "")
            if status < 0 or 128 < status < 160:  # a shell returns 128 plus the signal's number
                return PtxasResult(
                    "crashed", words=f"ended by signal {-status if status < 0 else status - 128}: {output}"
                )
            if status or not cubin.exists():
                return PtxasResult("crashed" if _INTERNAL.search(output) else "refused", words=output)
            return PtxasResult("assembled", cubin.read_bytes())


_INTERNAL = re.compile(r"internal|assert|Segmentation|unreachable", re.I)


@dataclass(frozen=True)
class PtxasResult:
    """The result of running an assembler: its machine code, or its error text."""

    ended: Ended
    cubin: bytes = b""
    words: str = ""


def assembler(path: str, level: int, options: Sequence[str] = ()) -> Ptxas:
    """The ptxas at a path, which is run to get its version. options: as Triton gives them. Raises NoAssembler."""
    return Ptxas(assembler_at(path, level, options=options))
