"""The choice of an assembler: a ptxas and an optimisation level."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = (0, 1, 2, 3)
TRITONS_LEVEL = 3
"""The level of Triton's calls of ptxas: Triton names none, so this is ptxas's default."""


@dataclass(frozen=True)
class PtxasChoice:
    """One ptxas at one level, instead of the one that Triton uses.

    path: the program's path. version: the version that it prints ("12.9.86"). level: 0 to 3. digest: a digest of the
    program's bytes, because two programs may print the same version. script: it is a script, which may call any
    program, so none of its results are kept for another run. bundled: it is part of a Triton. options: the options of
    Triton's calls besides level, target and contraction, such as `--regAllocOptLevel=2`, as far as this program has
    them.
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
        """Its name in records: `ptxas 12.9.86 -O0 --regAllocOptLevel=2 (1a2b3c4d5e6f)`.

        Equal labels mean equal programs, levels and options. Records from before options existed have none.
        """
        return f"{' '.join((self.name, *self.options))} ({self.digest})"

    @property
    def name(self) -> str:
        """Its name in messages: `ptxas 12.9.86 -O0`."""
        return f"ptxas {self.version} -O{self.level}"
