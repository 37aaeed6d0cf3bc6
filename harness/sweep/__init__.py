"""Sweeps: input sets too large for memory, run and judged in pieces.

A GPU makes, runs and judges the inputs itself (`harness.sweep.device`); otherwise they go through a backend in chunks
(`harness.sweep.chunks`). Both give the same results: a judgement, digests of the output bits by block of inputs, and
the inputs of the first difference.
"""

from harness.sweep.result import LARGE, OracleFault, Swept

__all__ = ["LARGE", "OracleFault", "Swept"]
