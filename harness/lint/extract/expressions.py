"""Evaluate expressions of a Python file as far as its text determines them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ptxdiff.lint.extract import strings
from ptxdiff.lint.extract.strings import File, pieces, placed
from ptxdiff.lint.extract.values import (
    Class,
    HelperFunction,
    NameScope,
    Ref,
    Tensor,
    TextValue,
    Truth,
    Unknown,
    Value,
    native,
    unresolved,
)


class Expressions:
    """Values of expressions. A subclass decides unknown conditions and evaluates calls."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._literals: dict[ast.expr, TextValue] = {}

    def decide(self, node: ast.expr, scope: NameScope, count: int = 2) -> int:
        """Which of `count` branches an undecided expression takes on this path."""
        raise NotImplementedError

    def called(self, node: ast.Call, function: Value, args: list[Value], keywords: dict[str, Value]) -> Value:
        """The value of a call."""
        raise NotImplementedError

    def step(self) -> None:
        """Count a step of work."""
        raise NotImplementedError

    def value(self, node: ast.expr | None, scope: NameScope) -> Value:
        """The value of an expression."""
        if node is None:
            return None
        self.step()
        follow = getattr(self, f"_{type(node).__name__.lower()}", None)
        if follow is None:
            return Unknown(f"an expression that is not followed ({type(node).__name__})")
        return follow(node, scope)

    def truth(self, node: ast.expr, scope: NameScope) -> bool:
        """Whether a condition holds on this path; assumptions about names are recorded."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self.truth(node.operand, scope)
        if isinstance(node, ast.BoolOp):
            wanted = isinstance(node.op, ast.Or)
            return wanted if any(self.truth(v, scope) is wanted for v in node.values) else not wanted
        held = self.value(node, scope)
        if isinstance(held, Truth):
            return held.holds
        if not isinstance(held, (Unknown, Tensor, Ref)):
            return bool(held.value) if isinstance(held, TextValue) else bool(held)
        holds = bool(self.decide(node, scope))
        self.assume(node, holds, scope)
        return holds

    def assume(self, node: ast.expr, holds: bool, scope: NameScope) -> None:
        """Record that a name is true, or that `name == constant` holds, on this path."""
        if isinstance(node, ast.Name) and isinstance(known := scope.get(node.id), Unknown):
            self.assign_name(node.id, Truth(known.reason, holds), scope)
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.left, ast.Name):
            return
        if isinstance(node.ops[0], (ast.Eq, ast.Is)) is holds and isinstance(
            node.ops[0], (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)
        ):
            other = self.value(node.comparators[0], scope)
            if isinstance(scope.get(node.left.id), Unknown) and not isinstance(other, (Unknown, Tensor)):
                self.assign_name(node.left.id, other, scope)

    def assign_name(self, name: str, value: Value, scope: NameScope) -> None:
        """Bind a name in the scope that has it."""
        owner: NameScope | None = scope
        while owner is not None and name not in owner.names:
            owner = owner.outer
        if owner is not None and owner.outer is not None:
            owner.names[name] = value
        else:
            scope.names[name] = value

    # literals and names ----------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant, scope: NameScope) -> Value:
        if not isinstance(node.value, str):
            return node.value
        if node not in self._literals:
            self._literals[node] = TextValue(node.value, tuple(placed(self.file, node)))
        return self._literals[node]

    def _joinedstr(self, node: ast.JoinedStr, scope: NameScope) -> Value:
        text = TextValue("", ())
        failed: Unknown | None = None
        for piece in list(pieces(self.file, node)):
            if isinstance(piece, ast.FormattedValue):
                part = self._formattedvalue(piece, scope)
            else:
                part = TextValue("".join(c for c, _ in piece), tuple(at for _, at in piece))
            if isinstance(part, TextValue):
                text = text + part
            else:
                failed = failed or part
        return failed or text

    def _formattedvalue(self, node: ast.FormattedValue, scope: NameScope) -> Value:
        spec = self.value(node.format_spec, scope) if node.format_spec else TextValue.plain("")
        if not isinstance(spec, TextValue):
            return Unknown("a format that is not known")
        value = self.value(node.value, scope)
        if isinstance(value, (Ref, Tensor)):
            return Unknown(f"the value of {{{ast.unparse(node.value)}}}")
        return strings.formatted(value, node.conversion, spec.value)

    def _name(self, node: ast.Name, scope: NameScope) -> Value:
        known = scope.get(node.id)
        if isinstance(known, Unknown) and node.id in BUILTINS:
            return Ref(f"builtins.{node.id}")
        return known

    def _attribute(self, node: ast.Attribute, scope: NameScope) -> Value:
        base = self.value(node.value, scope)
        if isinstance(node.value, ast.Name) and not scope.has(node.value.id):
            base = Ref(node.value.id)  # from `import *`, or a piece of a file
        if isinstance(base, Ref):
            return Ref(f"{base.dotted}.{node.attr}")
        if isinstance(base, Class):
            if node.attr in base.assigned:
                return Unknown(f"the attribute {node.attr} is assigned when it runs")
            member = base.scope.names.get(node.attr, Unknown(f"class {base.name} has no {node.attr} in this file"))
            return (
                HelperFunction(member.node, member.scope, member.defaults, base)
                if isinstance(member, HelperFunction)
                else member
            )
        if isinstance(base, TextValue) or node.attr in ("value",):
            return base if node.attr == "value" else Unknown(f"the method {node.attr} of a string")
        return Unknown(f"the attribute {ast.unparse(node)}")

    def _tuple(self, node: ast.Tuple, scope: NameScope) -> Value:
        return self._elements(node.elts, scope, tuple)

    def _list(self, node: ast.List, scope: NameScope) -> Value:
        return self._elements(node.elts, scope, list)

    def _elements(self, nodes: Sequence[ast.expr], scope: NameScope, kind: type) -> Value:
        elements: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.value(node.value, scope)
                if not isinstance(inner, (list, tuple)):
                    return Unknown(f"*{ast.unparse(node.value)}")
                elements += inner
            else:
                elements.append(self.value(node, scope))
        return kind(elements)

    def _dict(self, node: ast.Dict, scope: NameScope) -> Value:
        entries: dict[Value, Value] = {}
        for key, each in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.value(each, scope)
                if not isinstance(inner, dict):
                    return Unknown("a dictionary that is not known")
                entries |= inner
                continue
            name = native(self.value(key, scope))
            try:
                entries[name] = self.value(each, scope)
            except TypeError:
                return Unknown("a dictionary with keys that are not known")
        return entries

    # operators -------------------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp, scope: NameScope) -> Value:
        return operated(type(node.op), self.value(node.left, scope), self.value(node.right, scope))

    def _unaryop(self, node: ast.UnaryOp, scope: NameScope) -> Value:
        if isinstance(node.op, ast.Not):
            inner = self.value(node.operand, scope)
            return inner if isinstance(inner, (Unknown, Tensor, Ref)) else not native(inner)
        inner = self.value(node.operand, scope)
        if not isinstance(inner, NUMBERS):
            return Unknown("a sign before what is no number")
        if isinstance(node.op, ast.Invert):
            return ~inner if isinstance(inner, int) else Unknown("~ of what is no integer")
        return -inner if isinstance(node.op, ast.USub) else inner

    def _compare(self, node: ast.Compare, scope: NameScope) -> Value:
        left = self.value(node.left, scope)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node, scope)
            if isinstance(left, (Unknown, Tensor)) or isinstance(right, (Unknown, Tensor)):
                return Unknown(f"the condition {ast.unparse(node)}")
            try:
                if not compared(type(op), left, right):
                    return False
            except TypeError:
                return Unknown(f"the condition {ast.unparse(node)}")
            left = right
        return True

    def _boolop(self, node: ast.BoolOp, scope: NameScope) -> Value:
        last_value: Value = None
        for each in node.values:
            last_value = self.value(each, scope)
            if isinstance(last_value, (Unknown, Tensor, Ref)):
                return Unknown(f"the condition {ast.unparse(node)}")
            if bool(native(last_value)) is isinstance(node.op, ast.Or):
                return last_value
        return last_value

    def _ifexp(self, node: ast.IfExp, scope: NameScope) -> Value:
        return self.value(node.body if self.truth(node.test, scope) else node.orelse, scope)

    def _subscript(self, node: ast.Subscript, scope: NameScope) -> Value:
        base = self.value(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            return self._sliced(base, node.slice, scope)
        if isinstance(base, (Unknown, Tensor, Ref)):
            return Unknown(f"the element {ast.unparse(node)}")
        index = native(self.value(node.slice, scope))
        if isinstance(base, dict) and isinstance(index, (Unknown, Tensor)):
            if not base or len(base) > 32:
                return Unknown(f"the key of {ast.unparse(node)}")
            key = list(base)[self.decide(node.slice, scope, len(base))]
            if isinstance(node.slice, ast.Name):
                self.assign_name(node.slice.id, TextValue.plain(key) if isinstance(key, str) else key, scope)
            return base[key]
        try:
            return base.part(index, index + 1 or len(base.value)) if isinstance(base, TextValue) else base[index]
        except (KeyError, IndexError, TypeError):
            return Unknown(f"the element {ast.unparse(node)}")

    def _sliced(self, base: Value, node: ast.Slice, scope: NameScope) -> Value:
        bounds = [self.value(part, scope) for part in (node.lower, node.upper, node.step)]
        if not all(b is None or isinstance(b, int) for b in bounds) or not isinstance(base, (TextValue, list, tuple)):
            return Unknown("a slice that is not known")
        where = slice(*bounds)
        return TextValue(base.value[where], base.offsets[where]) if isinstance(base, TextValue) else base[where]

    def _starred(self, node: ast.Starred, scope: NameScope) -> Value:
        return Unknown(f"*{ast.unparse(node.value)}")

    def _namedexpr(self, node: ast.NamedExpr, scope: NameScope) -> Value:
        assigned = self.value(node.value, scope)
        scope.names[node.target.id] = assigned
        return assigned

    def _lambda(self, node: ast.Lambda, scope: NameScope) -> Value:
        return HelperFunction(node, scope)

    # comprehensions --------------------------------------------------------------------------------------

    def _listcomp(self, node: ast.ListComp, scope: NameScope) -> Value:
        return self._comprehended(node.elt, node.generators, scope)

    def _generatorexp(self, node: ast.GeneratorExp, scope: NameScope) -> Value:
        return self._comprehended(node.elt, node.generators, scope)

    def _comprehended(self, element: ast.expr, generators: list[ast.comprehension], scope: NameScope) -> Value:
        elements: list[Value] = []
        failed: list[Unknown] = []

        def run(remaining: list[ast.comprehension], inner: NameScope) -> None:
            if not remaining:
                elements.append(self.value(element, inner))
                return
            first, *rest = remaining
            over = self.iterated(self.value(first.iter, inner))
            if over is None:
                failed.append(Unknown(f"the elements of {ast.unparse(first.iter)}"))
                return
            for each in over:
                self.bind(first.target, each, inner)
                if all(self.truth(test, inner) for test in first.ifs):
                    run(rest, inner)

        run(generators, NameScope(scope))
        return failed[0] if failed else elements

    def iterated(self, value: Value) -> list[Value] | None:
        """The elements of a loop's iterable, or None if they are not known."""
        if isinstance(value, dict):
            value = [TextValue.plain(k) if isinstance(k, str) else k for k in value]
        if isinstance(value, TextValue):
            value = [value.part(n, n + 1) for n in range(len(value.value))]
        return list(value) if isinstance(value, (list, tuple)) and len(value) <= ELEMENTS else None

    def bind(self, target: ast.expr, value: Value, scope: NameScope) -> None:
        """Assign a value to a target."""
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            known = isinstance(value, (list, tuple)) and len(value) == len(target.elts)
            parts = value if known else [Unknown("a part of a value that is not known")] * len(target.elts)
            for part, each in zip(target.elts, parts, strict=True):
                self.bind(part.value if isinstance(part, ast.Starred) else part, each, scope)
        elif isinstance(target, ast.Subscript):
            base = self.value(target.value, scope)
            index = native(self.value(target.slice, scope))
            if isinstance(base, (dict, list)) and not isinstance(index, (Unknown, Tensor)):
                try:
                    base[index] = value
                except (IndexError, TypeError):
                    return

    # calls -----------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, scope: NameScope) -> Value:
        args: list[Value] = []
        for each in node.args:
            if isinstance(each, ast.Starred):
                inner = self.value(each.value, scope)
                args += inner if isinstance(inner, (list, tuple)) else [Unknown(f"*{ast.unparse(each.value)}")]
            else:
                args.append(self.value(each, scope))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            inner = self.value(keyword.value, scope)
            if keyword.arg is not None:
                keywords[keyword.arg] = inner
            elif isinstance(inner, dict):
                keywords |= {str(k): v for k, v in inner.items()}
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value, scope)
            if isinstance(base, TextValue):
                return method(base, node.func.attr, args, keywords)
            if isinstance(base, Tensor) and node.func.attr == "ir_value":
                return base
            if isinstance(base, (list, dict)):
                return mutated(base, node.func.attr, args)
        unbound = isinstance(node.func, ast.Name) and not scope.has(node.func.id)
        function = Ref(node.func.id) if unbound and isinstance(node.func, ast.Name) else self.value(node.func, scope)
        return self.called(node, function, args, keywords)


# The functions and methods of Python that the linter evaluates -----------------------------------------------------
#
# Built-in ones, and those of strings, lists and dictionaries.

ELEMENTS = 256
"""The most elements of a sequence, and iterations of a loop, that are evaluated."""
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "str": str, "hex": hex, "int": int, "min": min, "max": max, "abs": abs,
}  # fmt: skip
BUILTINS = frozenset((
    "str", "int", "hex", "min", "max", "abs", "len", "range", "zip", "enumerate", "list", "tuple", "sorted", "reversed",
    "dict", "print", "isinstance", "getattr", "type",
))  # fmt: skip


def method(text: TextValue, name: str, args: list[Value], keywords: dict[str, Value]) -> Value:
    """The value of a string method."""
    if name == "format":
        return strings.brace_format(text, args, keywords)
    implementation = strings.METHODS.get(name)
    if implementation is None:
        return Unknown(f"the method {name} of a string")
    if unknown := unresolved(*args):
        return unknown
    try:
        return implementation(text, *args)
    except (TypeError, AttributeError, ValueError):
        return Unknown(f"the method {name} of a string")


def mutated(base: Value, name: str, args: list[Value]) -> Value:
    """Apply a method that changes a list or dictionary."""
    if isinstance(base, list) and name == "append" and args:
        base.append(args[0])
    elif isinstance(base, list) and name == "extend" and args and isinstance(args[0], (list, tuple)):
        base.extend(args[0])
    elif isinstance(base, dict) and name == "items":
        return [(TextValue.plain(k) if isinstance(k, str) else k, v) for k, v in base.items()]
    elif isinstance(base, dict) and name == "values":
        return list(base.values())
    elif isinstance(base, dict) and name == "get" and args and not isinstance(args[0], (Unknown, Tensor)):
        return base.get(native(args[0]), args[1] if len(args) > 1 else None)
    elif isinstance(base, list):
        base.append(Unknown(f"the list was changed by {name}"))
    return Unknown(f"the result of {name}")


def builtin(name: str, args: list[Value]) -> Value:
    """The value of a built-in function."""
    if name in ("constexpr", "const_expr", "dedent") or (name == "str" and args and isinstance(args[0], TextValue)):
        result = args[0] if args else Unknown(name)
        return strings.dedented(result) if name == "dedent" and isinstance(result, TextValue) else result
    if name in ("range", "static_range") and args and all(isinstance(a, int) for a in args):
        numbers = range(*args[:3])
        return list(numbers) if len(numbers) <= ELEMENTS else Unknown("a long range")
    if name in ("list", "tuple", "sorted", "reversed") and args and isinstance(args[0], (list, tuple)):
        return tuple(args[0]) if name == "tuple" else [*reversed(args[0])] if name == "reversed" else [*args[0]]
    if name == "zip" and args and all(isinstance(a, (list, tuple)) for a in args):
        return [tuple(each) for each in zip(*args, strict=False)]
    if name == "enumerate" and args and isinstance(args[0], (list, tuple)):
        return [*enumerate(args[0], *args[1:2])]
    if name == "len" and args and isinstance(args[0], (TextValue, list, tuple, dict)):
        return len(native(args[0]))
    if name in _FUNCTIONS and args and not unresolved(*args):
        plain = [native(a) for a in args]
        try:
            result = _FUNCTIONS[name](*plain)
        except (TypeError, ValueError):
            return Unknown(f"{name} of what it does not take")
        return TextValue.plain(result) if isinstance(result, str) else result
    return Unknown(f"the result of {name}")


# Python's operators on known values --------------------------------------------------------------------------------

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
