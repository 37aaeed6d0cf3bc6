"""Sweeps: input sets too large to hold, run and judged piece by piece.

On a GPU the inputs are made, run and judged where they are (`harness.sweep.device`); elsewhere they go through a
backend in chunks (`harness.sweep.chunks`). Both leave the same things: a judgement, digests of the output bits by block
of inputs, and the inputs behind the first difference.
"""

from harness.sweep.result import LARGE, OracleFault, Swept

__all__ = ["LARGE", "OracleFault", "Swept"]
