"""Recognise a single PTX instruction in a text, and split its operands."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class InstructionText:
    """One PTX instruction as text: its opcode with all modifiers, and its operands."""

    opcode: str
    operands: tuple[str, ...]


def single_instruction(text: str) -> InstructionText | None:
    """The instruction, if `text` holds exactly one and no block, label, declaration or predicate; else None."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S).strip().removesuffix(";").strip()
    match = re.fullmatch(r"([a-z][\w.:]*)\s+([^;]*)", bare, flags=re.S)
    if not match or "{" in match[1] or ";" in bare or "@" in bare:
        return None
    return InstructionText(match[1], tuple(split_operands(match[2])))


def split_operands(operands: str) -> list[str]:
    """Operands separated by commas outside braces and brackets."""
    parts, depth = [""], 0
    for character in operands:
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [p.strip() for p in parts]
