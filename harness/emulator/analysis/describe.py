"""Facts about an asm block that need no run."""

from __future__ import annotations

from functools import lru_cache

from ptxdiff.emulator.asm_block import assemble
from ptxdiff.emulator.binding.constraints import check_inputs, check_repeated, parse_constraints
from ptxdiff.emulator.binding.contents import Analysis, describe
from ptxdiff.emulator.errors import DeclaredOutside, InputWritten, PtxError, only_own
from ptxdiff.emulator.text.parser import parse_asm


@only_own("an asm block")
def analyse(asm: str, constraints: str, *, target: str | None = None) -> Analysis:
    """Parse and check a block, and list its instruction forms. Raises PtxError as `emulate` would (target None:
    any)."""
    return describe(assemble(asm, constraints, target).program)


@lru_cache(maxsize=512)
def program_text(asm: str, constraints: str, target: str) -> str:
    """The block as the machine runs it: every instruction bound to a form, every name replaced by a register.

    Two blocks with equal texts give equal results for equal operands, on every target. Raises PtxError.
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
    return f"{text}\n{target}\n{asm}" if " object at 0x" in text else text  # an object's address differs between runs


def refusal(asm: str, constraints: str, target: str) -> str | None:
    """Why the block cannot be used on `target`, in one message, or None if it can."""
    try:
        analyse(asm, constraints, target=target)
    except PtxError as error:
        return str(error)
    return None


def written_input(asm: str, constraints: str) -> str | None:
    """A message about the first input operand that the block writes, or None if it writes none.

    It needs no target and covers instructions that `emulate` cannot run. It is also None where text or constraints
    cannot be parsed; `refusal` reports those.
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
    """A message about the first name that the block declares outside braces, or None if it declares none.

    A kernel can hold such a block only once. Like `written_input`, this needs no target and also gives None where text
    or constraints cannot be parsed.
    """
    try:
        check_repeated(asm, len(parse_constraints(constraints)))
    except DeclaredOutside as error:
        return str(error)
    except PtxError:
        return None
    return None
