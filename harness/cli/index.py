"""Lists of what case files can import: the number formats, and the functions of `references` with their docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ptxdiff.cli import UsageError
from ptxdiff.locations import REFERENCES

if TYPE_CHECKING:
    from ptxdiff.references.formats import Format

# Modules that references are built from; they define no references.
_PARTS = ("codes", "correct_rounding", "description", "formats", "hard_cases", "rounding", "shapes")


def formats() -> Iterator[str]:
    """One line for each format: its constant's name, bits, storage dtype of one unit, and fields."""
    from ptxdiff.references import formats as module
    from ptxdiff.references.formats import Format

    known = {n: f for n in module.__all__ if isinstance(f := getattr(module, n), Format)}
    for name, fmt in sorted(known.items(), key=_order):
        if fmt.packs is not None:
            what = f"{fmt.codes_per_unit} codes of {fmt.packs.name}, the first in the low bits"
        elif fmt.is_float:
            sign = "sign, " if fmt.signed else ""
            what = f"{sign}{fmt.exponent_bits} exponent and {fmt.mantissa_bits} mantissa bits, bias {fmt.bias}"
            what += ", infinities" if fmt.infinity else ", no infinity"
            what += ", no NaN" if fmt.nan == "none" else ""
        else:
            what = f"{fmt.kind} integer"
        yield f"{name:<8} {fmt.code_bits:>2} bits in {fmt.storage:<6}  {what}"


def _order(entry: tuple[str, Format]) -> tuple[bool, int, int, str]:
    """A sort key: floats before integers, then by size; packed formats after the formats that they hold."""
    name, fmt = entry
    return (not fmt.is_float, fmt.code_bits, fmt.codes_per_unit, name)


def references(words: Sequence[str] = ()) -> Iterator[str]:
    """One line for each module of `references`, then two for each of its functions. words: only these modules.

    The modules are parsed, not imported, so that torch is not loaded. Raises UsageError for an unknown module.
    """
    modules = {p.stem: p for p in sorted(REFERENCES.glob("[!_]*.py")) if p.stem not in _PARTS}
    for word in words:
        if word not in modules:
            raise UsageError(f"references has no module {word!r}; it has {', '.join(modules)}")
    for name in words or modules:
        tree = ast.parse(modules[name].read_text(encoding="utf-8"))
        yield f"ptxdiff.references.{name}  {_sentence(tree)}"
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield f"    {node.name}({_parameters(node.args)})"
                yield f"        {_sentence(node)}"


def _sentence(node: ast.Module | ast.FunctionDef) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def _parameters(arguments: ast.arguments) -> str:
    """The parameters without their annotations."""
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    for several in (arguments.vararg, arguments.kwarg):
        if several is not None:
            several.annotation = None
    return ast.unparse(arguments)
