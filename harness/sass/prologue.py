"""What ptxas writes before each kernel for sm_87: barriers are cleared if UR2, which nothing wrote, is 0.

    ISETP.NE.U32.AND P0, PT, RZ, UR2, PT
    @P0 BRA (behind UMOV)
    BMOV.32 B0, 0xffffffff
    BMOV.32.CLEAR B1, B0     and so on, up to B15
    BMOV.32 B15, 0x0
    UMOV UR2, 0x1

A launch that has it runs with other bits in UR2, which skip the moves, and with zeros, which run them
(`ptxdiff.sass.run`). Both must write the same bytes, so no bit of a result is theirs: they teach nothing, and what is
known of them decides no verdict. All eight releases of ptxas from 12.8 to 13.5 write it, at levels 0 and 3.

This does not show whether the code behind it reads a barrier that it has not set: a barrier that nothing wrote is 0
here, as it is after the moves. Only BMOV reads one into a register, and that is a move of the kernel, which is to be
taught.
"""

from __future__ import annotations

from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.text import BYTES, MachineInstruction, Operand

_COMPARISON = "ISETP.NE.U32.AND P0, PT, RZ, UR2, PT"
_MOVES = (
    "BMOV.32 B0, 0xffffffff",
    *(f"BMOV.32.CLEAR B{number + 1}, B{number}" for number in range(15)),
    "BMOV.32 B15, 0x0",
    "UMOV UR2, 0x1",
)
_LENGTH = 2 + len(_MOVES)


def prologue(code: MachineCode) -> frozenset[int]:
    """The addresses of a kernel's prologue; none if it does not begin with these very instructions."""
    instructions = code.function.instructions
    if len(instructions) <= _LENGTH or instructions[0].text != _COMPARISON:
        return frozenset()
    end = BYTES * _LENGTH
    branch = instructions[1]
    skips = (branch.guard, branch.opcode, branch.modifiers) == (Operand("P", 0), "BRA", ())
    if not skips or [_target(code, o) for o in branch.operands] != [end]:
        return frozenset()
    if tuple(i.text for i in instructions[2:_LENGTH]) != _MOVES:
        return frozenset()
    again = any(_enters(code, i, end) for i in instructions[_LENGTH:])
    return frozenset() if again else frozenset(range(0, end, BYTES))


def _enters(code: MachineCode, instruction: MachineInstruction, end: int) -> bool:
    """Whether an instruction jumps to a place before the end: then that code would not be a prologue alone.

    A return names the beginning of the kernel, from which the place in its registers counts.
    """
    return instruction.opcode != "RET" and any(
        _target(code, o) < end for o in instruction.operands if o.kind == "label"
    )


def _target(code: MachineCode, label: Operand) -> int:
    return code.function.labels.get(label.name, -1)
