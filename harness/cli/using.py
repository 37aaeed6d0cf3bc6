"""Which instructions a variant's PTX contains, for `ptxdiff list --using`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from ptxdiff.model.case import Case
from ptxdiff.model.derive import asm_form, packs_of
from ptxdiff.model.ptxvariant import PtxVariant
from ptxdiff.model.variants import AsmVariant, CaseError, Variant


def instructions(case: Case, variant: Variant) -> set[str]:
    """The names of instructions as written, such as `lop3.b32`, in the variant's asm or in its Triton functions.

    Triton functions are searched for strings that parse as PTX: in their own source, and in the functions, strings and
    constants that they name. Asm that other code computes is not found.
    """
    return {name for text in _texts(case, variant) for name in _names(text)}


def uses(name: str, word: str) -> bool:
    """Whether an instruction's name has the opcode of `word`, and its modifiers in the same order, maybe with others.

    `mul.f16x2` finds `mul.rn.f16x2`; `mul` finds every multiplication, but not `mul24`.
    """
    opcode, *modifiers = name.split(".")
    wanted, *rest = word.split(".")
    left = iter(modifiers)
    return opcode == wanted and all(part in left for part in rest)


def _texts(case: Case, variant: Variant) -> Iterator[str]:
    if isinstance(variant, AsmVariant):
        for pack in packs_of(case, variant):
            try:
                yield asm_form(case, variant, pack).text
            except CaseError:  # a run of the case reports the error in this form
                continue
    elif isinstance(variant, PtxVariant):
        yield variant.text
    else:
        given = {**getattr(variant, "constants", {}), **getattr(variant, "meta", {})}
        yield from _strings([variant.function, *given.values()])  # type: ignore[attr-defined]


def _strings(values: list[Any]) -> Iterator[str]:
    """The strings among some values, and in the source of Triton functions among them, followed through names."""
    seen: set[int] = set()
    while values:
        value = values.pop()
        value = getattr(value, "value", value)  # unwraps a tl.constexpr
        function = getattr(value, "fn", None)
        if isinstance(value, str):
            yield value
        elif inspect.isfunction(function) and id(function) not in seen:
            seen.add(id(function))
            names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
                if isinstance(node, ast.Constant):
                    values.append(node.value)
                elif isinstance(node, ast.Name) and node.id in names:
                    values.append(names[node.id])


def _names(text: str) -> Iterator[str]:
    from ptxdiff.ptx import PtxError
    from ptxdiff.ptx.text.nodes import CodeBlock, Instruction
    from ptxdiff.ptx.text.parser import parse_asm, parse_module

    try:
        whole = ".version" in text and ".entry" in text
        waiting: list[Any] = [f.body for f in parse_module(text).functions] if whole else [parse_asm(text)[0]]
    except PtxError:  # not PTX: for example a docstring, or constraints
        return
    while waiting:
        node = waiting.pop()
        if isinstance(node, CodeBlock):
            waiting += node.statements
        elif isinstance(node, Instruction):
            yield node.spelling
