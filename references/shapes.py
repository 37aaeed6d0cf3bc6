"""What a kernel argument looks like: a format and its dimensions, or one value of a format."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from references.description import Format

Dim = int | str


@dataclass(frozen=True)
class Scalar:
    """A by-value kernel argument of a format."""

    format: Format


@dataclass(frozen=True)
class Shaped:
    """A tensor argument: a format and dimensions, each an integer or an expression in names of sizes.

    Expressions combine names and integers with `*`, `/`, `//`, `+`, `-`, parentheses, `ceil(...)` and `floor(...)`;
    the result must come out whole: "ceil(N/32)". Dimensions count storage units. No dimensions at all mean a single
    unit.
    """

    format: Format
    dims: tuple[Dim, ...]

    def __post_init__(self) -> None:
        """Reject a dimension that could never be evaluated, where it is written."""
        for dim in self.dims:
            _names(dim)

    def __str__(self) -> str:
        return f"{self.format.name}[{', '.join(map(str, self.dims)) or '()'}]"

    @property
    def names(self) -> frozenset[str]:
        """The names of sizes that the dimensions mention."""
        return frozenset().union(*map(_names, self.dims))

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Evaluate the dimensions; `ValueError` for a missing name, a quotient with a remainder, a negative
        size.
        """
        return tuple(self._size(dim, sizes) for dim in self.dims)

    def _size(self, dim: Dim, sizes: Mapping[str, int]) -> int:
        used = ", ".join(f"{name} = {sizes[name]}" for name in sorted(_names(dim)) if name in sizes)
        missing = sorted(_names(dim) - set(sizes))
        if missing:
            given = ", ".join(sorted(sizes)) or "none"
            raise ValueError(f"{self}: no size given for {', '.join(missing)} (given: {given})")
        try:
            value = _evaluate(_parse(dim), sizes)
        except ZeroDivisionError:
            raise ValueError(f"{self}: dimension {dim!r} divides by zero with {used}") from None
        if value.denominator != 1 or value < 0:
            what = f"is negative ({value})" if value < 0 else f"is {value}, not a whole number"
            raise ValueError(f"{self}: dimension {dim!r} {what} with {used}; choose other sizes")
        return int(value)


_ROUNDINGS: dict[str, Callable[[Fraction], int]] = {"ceil": math.ceil, "floor": math.floor}
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}


def _parse(dim: Dim) -> ast.expr:
    if isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0:
        return ast.Constant(dim)
    if isinstance(dim, str):
        try:
            return ast.parse(dim.strip(), mode="eval").body
        except SyntaxError:
            pass
    raise ValueError(f'dimension {dim!r}: expected a size, a name or an expression such as "N/16" or "ceil(N/32)"')


def _names(dim: Dim) -> frozenset[str]:
    names = set()
    tree = _parse(dim)
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if id(node) in called:
            call = called[id(node)]
            if not isinstance(node, ast.Name) or node.id not in _ROUNDINGS or len(call.args) != 1 or call.keywords:
                raise ValueError(f"dimension {dim!r}: {ast.unparse(call)} is neither ceil(...) nor floor(...)")
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Constant):
            if type(node.value) is not int:
                raise ValueError(f"dimension {dim!r}: {node.value!r} is not an integer")
        elif not isinstance(node, (ast.BinOp, ast.Call, ast.expr_context, *_OPERATORS)):
            raise ValueError(f"dimension {dim!r}: only names, integers, * / // + -, ceil, floor and parentheses")
    return frozenset(names)


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> Fraction:
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_evaluate(node.left, sizes), _evaluate(node.right, sizes))
    if isinstance(node, ast.Call):
        return Fraction(_ROUNDINGS[ast.unparse(node.func)](_evaluate(node.args[0], sizes)))
    if isinstance(node, ast.Name):
        return Fraction(sizes[node.id])
    return Fraction(ast.literal_eval(node))
