"""Selectors and signs written at the operands of video instructions: `r1.b0`, `-r2.h1`."""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.ptx.errors import OperandError
from ptxdiff.ptx.isa.forms import Bound, OperandSpec
from ptxdiff.ptx.isa.selectors import SELECTORS, spellings
from ptxdiff.ptx.text.nodes import Instruction, Name, Operand, Source


def selected(source: Source, node: Instruction, bound: Bound) -> tuple[Instruction, Bound]:
    """The instruction with plain operands, and the form with their selectors and signs.

    Raises OperandError for a selector that the operand does not take.
    """
    codes: dict[str, int] = {}
    plain: list[Operand] = []
    simd = any(s.selector in ("pair", "quad") for s in bound.form.operands)
    for operand, spec in zip(node.operands, bound.form.operands, strict=False):
        if isinstance(operand, Name):
            plain.append(_strip(source, node, operand, spec, codes))
        elif simd:
            message = f"operand {spec.name} of {node.spelling} must be a register"
            raise source.error(OperandError, message, operand.offset)
        else:
            plain.append(operand)
    plain += node.operands[len(plain) :]
    _check_signs(source, node, bound, codes)
    return replace(node, operands=plain), replace(bound, selected=tuple(codes.items()))


def _check_signs(source: Source, node: Instruction, bound: Bound, codes: dict[str, int]) -> None:
    product = codes.get("aneg", 0) ^ codes.get("bneg", 0)
    if product + codes.get("cneg", 0) + (bound.modifiers.get("po") is not None) > 1:
        message = f"{node.spelling} negates the product or c or adds one (.po): only one of the three"
        raise source.error(OperandError, message, node.offset)


def _strip(source: Source, node: Instruction, operand: Name, spec: OperandSpec, codes: dict[str, int]) -> Name:
    """The register's name without selector and sign, which go into `codes`."""
    where = f"operand {spec.name} of {node.spelling}"
    base, dot, word = operand.text.rpartition(".")
    if operand.minus:
        if not spec.negatable:
            raise source.error(OperandError, f"{where} cannot be negated", operand.offset)
        codes[spec.name + "neg"] = 1
    if not dot:
        return replace(operand, minus=False)
    if not spec.selector:
        raise source.error(OperandError, f"{where} takes no selector", operand.offset)
    code = SELECTORS[spec.selector].get(word)
    if code is None:
        message = f"{where} has no selector .{word}; it takes {spellings(spec.selector)}"
        raise source.error(OperandError, message, operand.offset)
    codes[spec.name + "sel"] = code
    return replace(operand, text=base, minus=False)
