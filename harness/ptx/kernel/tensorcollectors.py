"""Collector buffers: which matrix tensor cores may keep for the next product (tcgen05.mma; ISA 9.7.16.10).

A hint changes no value where it is true: cores may take the kept matrix, or load it again. So a product that uses a
buffer has to have the very matrix that was filled in. Another one, or none, is an error: hardware may take either.
"""

from __future__ import annotations

import numpy as np

from harness.ptx.binding.program import Step
from harness.ptx.errors import ExecutionError
from harness.ptx.kernel.frame import KernelFrame
from harness.ptx.kernel.tensoroperands import TensorOperand
from harness.ptx.numeric.vectorise import Array


def collected(frame: KernelFrame, step: Step, lane: int, block: int, of: TensorOperand, codes: Array, ws: bool) -> None:
    """Note what a product does with a buffer of a block, or of a pair's first block. Raises ExecutionError.

    codes: of a, or of b where ws. Without a hint what the buffer has is discarded (the first of b's).
    """
    hint = step.bound.modifiers.get("collector") or f"collector::{'b0' if ws else 'a'}::discard"
    _, buffer, use = hint.split("::")
    kept = frame.tensor.collectors.pop((block, buffer), None)
    if use in ("use", "lastuse"):
        if kept is None:
            text = f"{frame.who(lane)} uses the collector buffer {buffer}, in which nothing is: "
            text += f".collector::{buffer}::fill comes before, and no product without ::use between"
            raise frame.fault(ExecutionError, step, text)
        what, matrix, line = kept
        if what != of.type or matrix.shape != codes.shape or not np.array_equal(matrix, codes):
            text = (
                f"{frame.who(lane)} uses the collector buffer {buffer}, which has another {of.name} since the product "
            )
            raise frame.fault(ExecutionError, step, f"{text}in line {line}: hardware may take either")
    if use in ("fill", "use"):
        frame.tensor.collectors[block, buffer] = (of.type, codes, frame.tensor.line(step))
