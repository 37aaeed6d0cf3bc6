"""PTX text: tokens, constants, the syntax tree, the parser, and other spellings of inline asm.

Other rooms import the names below from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxdiff.emulator.facade import attribute_of

if TYPE_CHECKING:
    from ptxdiff.emulator.text.conventions import CONVENTIONS, Convention, spelled
    from ptxdiff.emulator.text.lexer import OPERAND, Token, tokenize
    from ptxdiff.emulator.text.llvmtext import expanded, without_places
    from ptxdiff.emulator.text.nodes import (
        Address,
        BranchTargets,
        CodeBlock,
        Declaration,
        Function,
        Immediate,
        Instruction,
        Label,
        Name,
        Operand,
        Pair,
        Source,
        Statement,
        Vector,
        declarations,
        instructions,
    )
    from ptxdiff.emulator.text.parser import parse_asm, parse_module, retargeted, without_header
    from ptxdiff.emulator.text.types import TYPES, ScalarType

_NAMES = {
    "conventions": (
        "CONVENTIONS",
        "Convention",
        "spelled",
    ),
    "lexer": (
        "OPERAND",
        "Token",
        "tokenize",
    ),
    "llvmtext": (
        "expanded",
        "without_places",
    ),
    "nodes": (
        "Address",
        "BranchTargets",
        "CodeBlock",
        "Declaration",
        "Function",
        "Immediate",
        "Instruction",
        "Label",
        "Name",
        "Operand",
        "Pair",
        "Source",
        "Statement",
        "Vector",
        "declarations",
        "instructions",
    ),
    "parser": (
        "parse_asm",
        "parse_module",
        "retargeted",
        "without_header",
    ),
    "types": (
        "TYPES",
        "ScalarType",
    ),
}
"""The names that each module gives to other rooms."""

__all__ = [
    "CONVENTIONS",
    "OPERAND",
    "TYPES",
    "Address",
    "BranchTargets",
    "CodeBlock",
    "Convention",
    "Declaration",
    "Function",
    "Immediate",
    "Instruction",
    "Label",
    "Name",
    "Operand",
    "Pair",
    "ScalarType",
    "Source",
    "Statement",
    "Token",
    "Vector",
    "declarations",
    "expanded",
    "instructions",
    "parse_asm",
    "parse_module",
    "retargeted",
    "spelled",
    "tokenize",
    "without_header",
    "without_places",
]


def __getattr__(name: str) -> Any:
    return attribute_of(__name__, _NAMES, name)


def __dir__() -> list[str]:
    return __all__
