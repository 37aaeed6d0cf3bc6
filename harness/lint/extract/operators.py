"""Python's operators on known values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from ptxdiff.lint.extract import strings
from ptxdiff.lint.extract.values import TextValue, Unknown, Value, native, unresolved

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b, ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}  # fmt: skip
NUMBERS = (int, float, bool)


def operated(kind: type[ast.operator], left: Value, right: Value) -> Value:
    """The value of `left op right`."""
    if isinstance(left, TextValue) and kind is ast.Mod:
        return strings.percent_format(left, right)
    if unknown := unresolved(left, right):
        return unknown
    if kind is ast.Add and isinstance(left, TextValue) and isinstance(right, TextValue):
        return left + right if len(left.value) + len(right.value) < strings.MOST else Unknown("a text too long")
    if kind is ast.Add and isinstance(left, (list, tuple)) and type(left) is type(right):
        return [*left, *right] if isinstance(left, list) else (*left, *right)
    if kind is ast.Mult and isinstance(right, (TextValue, list, tuple)) and isinstance(left, int):
        left, right = right, left
    if kind is ast.Mult and isinstance(left, (TextValue, list, tuple)) and isinstance(right, int):
        length = len(left.value) if isinstance(left, TextValue) else len(left)
        if right * length > strings.MOST:
            return Unknown("a text too long")
        if isinstance(left, TextValue):
            return TextValue(left.value * right, left.offsets * max(right, 0))
        return left * right
    if isinstance(left, NUMBERS) and isinstance(right, NUMBERS) and kind in _BINARY:
        if kind in (ast.Pow, ast.LShift) and (abs(right) > 256 or abs(left) > 1 << 64):
            return Unknown("a number too large")
        try:
            return _BINARY[kind](left, right)
        except (ArithmeticError, ValueError, TypeError):
            return Unknown("arithmetic that fails")
    return Unknown("an operation on values that are not followed")


def compared(kind: type[ast.cmpop], left: Value, right: Value) -> bool:
    """Whether `left op right` holds. Raises TypeError if Python would."""
    one, other = native(left), native(right)
    if kind in (ast.Is, ast.IsNot):
        one, other = (one, other) if None in (one, other) else (one == other, True)
    return bool(_COMPARE[kind](one, other))
