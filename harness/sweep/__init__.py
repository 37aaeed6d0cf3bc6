"""Sweeps: input sets too large for memory, run and judged in pieces.

A GPU makes, runs and judges the inputs itself (`ptxdiff.sweep.device`); otherwise they go through a backend in chunks
(`ptxdiff.sweep.dispatch`). Both give the same results: a judgement, digests of the output bits by block of inputs, and
the inputs of the first difference.
"""

from ptxdiff.sweep.result import LARGE, OracleFault, Swept

__all__ = ["LARGE", "OracleFault", "Swept"]
