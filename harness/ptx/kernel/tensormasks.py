"""Masks of a product in tensor memory: lanes of d that keep their values, and columns of b that count as zero.

The ISA defines both only in part. `disable-output-lane` has 128 bits for one block, a bit a lane. For a pair it has
256, and the ISA does not say which of them are whose. The descriptor of zero columns has two spans, and its table and
its examples disagree about which of the two is of zeros (ISA 9.7.16.4.3). So a pair may disable no lane, and the mask
of zero columns has to be empty, which is what CUTLASS gives in both places. Other masks are errors.
"""

from __future__ import annotations

import numpy as np

from ptxdiff.ptx.binding.builder import expect
from ptxdiff.ptx.binding.program import ReadSlot, Step
from ptxdiff.ptx.errors import ExecutionError
from ptxdiff.ptx.isa.forms import Bound
from ptxdiff.ptx.kernel.builder import KernelBuilder
from ptxdiff.ptx.kernel.frame import KernelFrame
from ptxdiff.ptx.numeric.vectorise import Array
from ptxdiff.ptx.text.nodes import Instruction, Operand, Vector
from ptxdiff.ptx.text.types import TYPES

_GENERATED = 1 << 39
_SHIFT = 63 << 56
_RESERVED = 7 << 36 | 3 << 62
"""Bits of the descriptor of zero columns: whether there is a mask, by how much b's columns shift, and reserved ones."""


def pop_masks(
    builder: KernelBuilder, node: Instruction, bound: Bound, operands: list[Operand], pair: bool
) -> list[ReadSlot]:
    """Remove the mask from a product's operands without metadata and scale-input-d; its registers, or none.

    Raises OperandError for a wrong number of operands or of elements.
    """
    ws, scaled = "ws" in node.modifiers, "block_scale" in node.modifiers
    lanes = [] if ws or scaled or len(operands) != 6 or not isinstance(operands[4], Vector) else [operands.pop(4)]
    columns = [operands.pop()] if ws and not scaled and len(operands) == 6 else []
    if len(operands) != (7 if scaled else 5):
        counts = (7,) if scaled else (5, 6) if ws else (5, 6, 7)
        expect(builder, node, *(count + ("sp" in node.modifiers) for count in counts))
    if lanes:
        parts = builder.elements(lanes[0], 8 if pair else 4)
        return [builder.read(part, TYPES["b32"], False, "disable-output-lane") for part in parts]
    return [builder.read(one, TYPES["b64"], False, f"a mask of {bound.spelling}") for one in columns]


def written_elements(frame: KernelFrame, step: Step, lane: int, lanes: Array, masks: list[int]) -> Array | None:
    """Which elements of d are written, from the lane of each; None: all. Raises ExecutionError, see the module."""
    if len(masks) == 4:
        whole = sum(mask << 32 * number for number, mask in enumerate(masks))
        off = np.array([whole >> number & 1 for number in range(128)], np.bool_)
        return np.asarray(~off[lanes])
    if len(masks) == 8 and any(masks):
        text = f"{frame.who(lane)} disables lanes of d of a pair of blocks: the ISA says that 256 bits mask them, and "
        raise frame.fault(ExecutionError, step, text + "not which bits are those of which block; a mask of 0 runs")
    if len(masks) == 1 and masks[0] & _RESERVED:
        text = (
            f"{frame.who(lane)} gives the mask 0x{masks[0]:016x} of columns of b that are zero: its bits 36 to 38, 62 "
        )
        raise frame.fault(ExecutionError, step, text + "and 63 are reserved")
    if len(masks) == 1 and masks[0] & (_GENERATED | _SHIFT):
        text = f"{frame.who(lane)} gives the mask 0x{masks[0]:016x} of columns of b that are zero: the ISA's table "
        text += "calls the use span that of zeros, and its examples take it for that of b's columns; a mask whose bit "
        raise frame.fault(ExecutionError, step, text + "39 is 0 and whose shift is 0 runs: no column is zero then")
    return None
