"""What can be said about an asm block without running it."""

from __future__ import annotations

from functools import lru_cache

from harness.ptx.api import assemble
from harness.ptx.binding.constraints import parse_constraints
from harness.ptx.binding.contents import Analysis, describe
from harness.ptx.binding.repeated import check_repeated
from harness.ptx.binding.written import check_inputs
from harness.ptx.errors import DeclaredOutside, InputWritten, PtxError, only_own
from harness.ptx.text.parser import parse_asm


@only_own("an asm block")
def analyse(asm: str, constraints: str, *, target: str | None = None) -> Analysis:
    """Parse and check a block and say what is in it. Raises PtxError as `emulate` would (target None: any)."""
    return describe(assemble(asm, constraints, target).program)


@lru_cache(maxsize=512)
def program_text(asm: str, constraints: str, target: str) -> str:
    """The block as the machine has it: every instruction bound to a form, registers in the place of names.

    Blocks of equal text compute the same from the same operands, on whatever target. Raises PtxError.
    """
    block = assemble(asm, constraints, target)
    lines = [f"slots {block.slots} registers {[(r.slot, r.type.name) for r in block.program.registers]}"]
    for step in block.program.steps:
        functions = [(f.constants, f.sources, f.width) for f in step.functions]
        lines.append(
            f"{step.kind} {step.bound.name} {step.bound.chosen} {step.bound.selected} {functions} "
            f"{step.sources} {step.destinations} {step.target} {step.detail!r} {step.guard} {step.guard_negated}"
        )
    text = "\n".join(lines)
    return f"{text}\n{target}\n{asm}" if " object at 0x" in text else text  # an address is nothing to compare


def refusal(asm: str, constraints: str, target: str) -> str | None:
    """Why the block cannot be used on `target`, in one message, or None if it can."""
    try:
        analyse(asm, constraints, target=target)
    except PtxError as error:
        return str(error)
    return None


def written_input(asm: str, constraints: str) -> str | None:
    """How the block writes an operand that is an input, in one message, or None where it writes none.

    It needs no target and covers instructions that `emulate` cannot run. None too where text or constraints cannot be
    read: `refusal` tells that.
    """
    try:
        parsed = parse_constraints(constraints)
        check_inputs(*parse_asm(asm, len(parsed)), parsed)
    except InputWritten as error:
        return str(error)
    except PtxError:
        return None
    return None


def repeated_name(asm: str, constraints: str) -> str | None:
    """Which name the block declares outside braces, in one message, or None where it declares none.

    Such a block can stand once in a kernel, and not twice. Like `written_input`, it needs no target, and gives None too
    where text or constraints cannot be read.
    """
    try:
        check_repeated(asm, len(parse_constraints(constraints)))
    except DeclaredOutside as error:
        return str(error)
    except PtxError:
        return None
    return None
