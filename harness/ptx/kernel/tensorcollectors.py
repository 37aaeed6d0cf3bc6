"""Collector buffers: hints about matrices that tensor cores may keep for the next product (tcgen05.mma; ISA 9.7.16.10).

A correct hint changes no value: the cores may use the kept matrix or load it again. So a product that uses a buffer
must have the same matrix that filled it. A different matrix, or an empty buffer, is an error, because hardware may use
either.
"""

from __future__ import annotations

import numpy as np

from ptxdiff.ptx.binding.program import Step
from ptxdiff.ptx.errors import ExecutionError
from ptxdiff.ptx.kernel.frame import KernelFrame
from ptxdiff.ptx.kernel.tensoroperands import TensorOperand
from ptxdiff.ptx.numeric.vectorise import Array


def collected(frame: KernelFrame, step: Step, lane: int, block: int, of: TensorOperand, codes: Array, ws: bool) -> None:
    """Record a product's use of a buffer of a block, or of a pair's first block. Raises ExecutionError for a wrong
    hint.

    codes: those of a; with ws those of b. A product without a hint discards the buffer (of b's buffers, the first).
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
