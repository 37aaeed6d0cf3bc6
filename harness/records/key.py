"""The key of a measurement, and the types of numbers that cannot be negative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

Count = Annotated[int, "not negative"]
Amount = Annotated[float, "not negative"]


@dataclass(frozen=True, order=True)
class Key:
    """The key of a result. Results with equal keys measured the same thing, on any machine, at any time.

    shape is `1023`, `7x129` or `M=4,N=64`; alignment is in bytes; input_set carries its version: `edges/1`. compiler:
    name and version of the Triton build that a variant names, or that the run was asked for in addition; "" for the
    Triton of the run's own environment. assembler: version, level and digest of the ptxas that was chosen, as `ptxas
    12.9.86 -O0 (1a2b3c4d5e6f)`; "" for the one that Triton uses, at Triton's level, and if no assembler took part.
    """

    case: str
    variant: str
    target: str
    backend: str
    pack: Count = 1
    shape: str = ""
    alignment: Count = 16
    num_warps: Count = 4
    context: str = "straight"
    fusion: bool = False
    input_set: str = ""
    compiler: str = ""
    assembler: str = ""

    @property
    def item(self) -> tuple[str, str, str, str]:
        """The part that names a test item: case, variant, target, backend."""
        return (self.case, self.variant, self.target, self.backend)

    def __str__(self) -> str:
        return (
            f"{self.case}::{self.variant}[{self.target}-{self.backend}] pack={self.pack} shape={self.shape} "
            f"align={self.alignment} num_warps={self.num_warps} {self.context} "
            f"fusion={'on' if self.fusion else 'off'} inputs={self.input_set}"
            + (f" compiler={self.compiler}" if self.compiler else "")
            + (f" assembler={self.assembler}" if self.assembler else "")
        )
