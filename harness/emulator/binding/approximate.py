"""Which bits approximate instructions give: those of a measured GPU, or the true value rounded to nearest."""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.emulator.binding.program import Program
from ptxdiff.emulator.targets import GENERATION

HOPPER, ROUNDED = GENERATION.lower(), "rounded"
APPROXIMATE = (HOPPER, ROUNDED)
"""The choices, the default first."""


def rounded(program: Program) -> Program:
    """The program with every approximate definition replaced by the model that rounds to nearest."""
    steps = [
        replace(s, functions=tuple(s.bound.array_function(n, True) for n, _ in enumerate(s.functions)))
        if s.bound.form.rounded is not None
        else s
        for s in program.steps
    ]
    return replace(program, steps=steps)
