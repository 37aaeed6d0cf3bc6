"""Find names that a block declares outside braces: a kernel can hold such a block only once.

The compiler writes a block into PTX once for each pack of a thread, and once more for each unrolled iteration and
inlined call, all in one scope. The check reads only the text, so it covers instructions that the emulator cannot run
and needs no setup in which a thread has several packs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxdiff.ptx.errors import DeclaredOutside
from ptxdiff.ptx.text.nodes import BranchTargets, CodeBlock, Declaration, Label
from ptxdiff.ptx.text.parser import parse_asm

_UNIQUE = "${:uid}"


def check_repeated(asm: str, operand_count: int) -> None:
    """Raise DeclaredOutside for a register, variable or label that a second copy of the block would declare again.

    A label with `${:uid}` in its name gets a different name in each copy. Raises PtxError if the text cannot be parsed.
    """
    tree, source = parse_asm(asm, operand_count)
    again = tree if _UNIQUE not in asm else parse_asm(asm.replace(_UNIQUE, "1"), operand_count)[0]
    copies = {name for name, _, _ in _outermost(again)}
    for name, what, offset in _outermost(tree):
        if name in copies:
            message = (
                f"{what} is declared outside braces; a thread that has several packs repeats the block, and "
                "ptxas then finds the name declared twice: put braces around the whole block, `{ ... }`"
            )
            raise source.error(DeclaredOutside, message, offset)


def _outermost(tree: CodeBlock) -> Iterator[tuple[str, str, int]]:
    """Name, description and place of each declaration outside braces."""
    for statement in tree.statements:
        if isinstance(statement, Declaration):
            count = f"<{statement.count}>" if statement.count is not None else ""
            kind = "variable" if statement.space != "reg" else "register" if not count else "registers"
            yield statement.name, f"{kind} {statement.name}{count}", statement.offset
        elif isinstance(statement, Label):
            yield statement.name, f"label {statement.name}", statement.offset
        elif isinstance(statement, BranchTargets):
            yield statement.label, f"label {statement.label}", statement.offset
