"""Programs that work on PTX and machine code, such as ptxas: where they are, and their output."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from ptxdiff.model.compilers import PtxasChoice


@dataclass(frozen=True)
class Tool:
    """An assembler on this machine.

    chosen: the assembler and level that a user chose instead of Triton's; None for Triton's own call. options: those
    with which Triton calls it, beyond those of every call.
    """

    path: str
    version: str
    chosen: PtxasChoice | None = None
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in messages: `ptxas 13.4`; with its level if a user chose it."""
        return self.chosen.name if self.chosen else f"ptxas {self.version}"

    @classmethod
    def of(cls, chosen: PtxasChoice) -> Tool:
        """The tool of a chosen assembler."""
        return cls(chosen.path, chosen.version, chosen, chosen.options)


def run_tool(command: Sequence[str], timeout: float) -> tuple[int, str]:
    """A program's exit status and its output. Raises TimeoutExpired, after ending every process that it started."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output.strip()
