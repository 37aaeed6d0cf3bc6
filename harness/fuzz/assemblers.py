"""The assemblers on trial: one ptxas at one level of optimisation, its machine code, and the ways in which it ends."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.model.assemblers import PtxasChoice
from harness.triton.assemble import run_tool
from harness.triton.ptxas import assembler_at

TIMEOUT = 60.0
Ended = Literal["assembled", "refused", "crashed", "hung"]


@dataclass(frozen=True)
class Ptxas:
    """A ptxas, of which a campaign knows what the assembler axis knows, so that findings and records name it alike."""

    choice: PtxasChoice

    @property
    def path(self) -> str:
        """Where the program is."""
        return self.choice.path

    @property
    def label(self) -> str:
        """How journals and findings name it: `ptxas 12.9.86 -O3 --regAllocOptLevel=2 (1a2b3c4d5e6f)`."""
        return self.choice.label

    def assemble(self, text: str, target: str, timeout: float = TIMEOUT) -> PtxasResult:
        """Machine code for a target, or how the assembler ended and what it said."""
        with tempfile.TemporaryDirectory(prefix="ptxdiff-fuzz-") as folder:
            source, cubin = Path(folder, "program.ptx"), Path(folder, "program.cubin")
            source.write_text(text)
            options = [f"-O{self.choice.level}", *self.choice.options, f"--gpu-name={target}"]
            command = [self.path, *options, str(source), "-o", str(cubin)]
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


def assembler(path: str, level: int, options: Sequence[str] = ()) -> Ptxas:
    """The ptxas at a path, which is asked for its version; options: as Triton gives them. Raises NoAssembler."""
    return Ptxas(assembler_at(path, level, options=options))
