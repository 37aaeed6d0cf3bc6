"""An assembler as a choice: which ptxas, at which level of optimisation."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = (0, 1, 2, 3)
TRITONS_LEVEL = 3
"""The level at which Triton calls ptxas: it names none, and this is ptxas's own."""


@dataclass(frozen=True)
class PtxasChoice:
    """One ptxas at one level, in the place of the one that Triton uses.

    path: of the program. version: what it says of itself ("12.9.86"). level: 0 to 3. digest: of the program's bytes,
    as two programs may say the same of themselves. script: it is no machine code of its own, so it may call any
    program, and nothing that it gave is kept for another run. bundled: a Triton carries it. options: with which Triton
    calls ptxas, beyond level, target and contraction, such as `--regAllocOptLevel=2`; those that this program knows.
    """

    path: str
    version: str
    level: int
    digest: str
    script: bool = False
    bundled: bool = False
    options: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What records call it: `ptxas 12.9.86 -O0 --regAllocOptLevel=2 (1a2b3c4d5e6f)`.

        Equal labels are equal programs, levels and options. Records of before options were given have none.
        """
        return f"{' '.join((self.name, *self.options))} ({self.digest})"

    @property
    def name(self) -> str:
        """What messages call it: `ptxas 12.9.86 -O0`."""
        return f"ptxas {self.version} -O{self.level}"
