"""Walk the functions of a Python file along every path, and report each call of interest with its arguments.

Nothing is imported or run. For a condition that the text does not decide, both branches are walked separately, so that
an asm text of one branch is never combined with the constraints of another.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Container, Sequence
from typing import Any, Literal

from ptxdiff.lint.extract import strings
from ptxdiff.lint.extract.calls import dtype_name, mlir_call
from ptxdiff.lint.extract.guards import Uses, last
from ptxdiff.lint.extract.strings import File, pieces, placed
from ptxdiff.lint.extract.values import (
    Class,
    HelperFunction,
    NameScope,
    Partial,
    Ref,
    Tensor,
    TextValue,
    Truth,
    Unknown,
    Value,
    native,
    unresolved,
)

# ---- Expressions, evaluated as far as the text of a file determines them ---------------------------------------------


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


# ---- Functions, walked along every path ------------------------------------------------------------------------------

PATHS = 128
"""The most walks through one function."""
STEPS = 20_000
"""The most expressions evaluated for one function on all its paths."""
STATEMENT_STEPS = 1000
"""The most expressions evaluated for one statement of a module."""
FILE_STEPS = 100_000
"""The most expressions evaluated for one file."""
MODULE_PATHS = 8
"""The most walks through a module, whose conditions mostly ask what is installed."""
DEPTH = 12
"""The deepest nesting of calls."""

Signal = Literal["", "return", "break", "continue", "end"]
Report = Callable[[ast.Call, list[Value], dict[str, Value], str], Value]
"""Called for each call of interest with its arguments and the name of the enclosing function; returns the call's
value."""


class EndOfWork(Exception):
    """The limit of steps is exceeded."""


class PathEnds(EndOfWork):
    """A called function raises an error on this path, or asserts False, so that nothing after the call runs."""


class Interpreter(Expressions):
    """Interprets one file. `names`: calls of these names, or of objects imported under them, are reported."""

    def __init__(self, file: File, tree: ast.Module, names: frozenset[str], report: Report) -> None:
        super().__init__(file)
        self.tree = tree
        self.names = names
        self.report = report
        self.incomplete: list[str] = []
        self.module = NameScope()
        self._decisions: list[int] = []
        self._counts: list[int] = []
        self._at = 0
        self._known: dict[tuple[object, ...], int] = {}
        self._kept: list[Value] = []
        self._steps = self._total = 0
        self._limit = STEPS
        self._first: dict[str, Value] = {}
        self._stack: list[str] = []
        self._returned: Value = None
        self._closures: list[HelperFunction] = []
        self._done: set[tuple[int, int]] = set()
        self._wanted: list[frozenset[str] | None] = []
        self._uses = Uses(tree, names)

    def run(self, unresolved: Callable[[], bool] = lambda: False) -> None:
        """Walk the module and the functions with calls of interest; if `unresolved` returns True, also their
        callers."""
        self._limit = STATEMENT_STEPS
        self._paths("the module", self._statements, most=MODULE_PATHS)
        self._limit, self._total = STEPS, 0
        self.module.names = self._first
        self._walk(self._uses.direct)
        if unresolved() or self._uses.has_text_defaults:
            self._walk(self._uses.callers())

    def _statements(self) -> None:
        """Walk the module's statements one by one; names that a too long one assigns stay unknown."""
        for statement in self.tree.body:
            self._steps = 0
            try:
                if self._block([statement], self.module):
                    return
            except EndOfWork:
                for name in self._uses.assigned(statement):
                    self.module.names[name] = Unknown(f"{name} takes too long to follow")

    def _walk(self, wanted: Container[ast.AST]) -> None:
        """Walk the wanted functions among those found so far and those defined during the walk."""
        at = 0
        while at < len(self._closures):
            function = self._closures[at]
            at += 1
            key = (id(function.node), id(function.scope))
            if function.node in wanted and key not in self._done:
                self._done.add(key)
                said = len(self.incomplete)
                self._paths(function.name, lambda f=function: self._enter(f, [], {}), function.scope)  # type: ignore[misc]
                if function.node not in self._uses.direct:
                    del self.incomplete[said:]  # its notes would be about arguments of other functions

    def begin(self, function: str) -> None:
        """Begin a walk of a few steps within a function."""
        self._steps = self._total = 0
        self._limit = STATEMENT_STEPS
        self._decisions, self._at, self._counts, self._known, self._kept = [], 0, [], {}, []
        self._stack, self._wanted = [function], []

    def assign(self, node: ast.Assign, scope: NameScope) -> None:
        """Bind the names of an assignment."""
        self._do_assign(node, scope)

    # paths -----------------------------------------------------------------------------------------------

    def _paths(self, what: str, walk: Callable[[], object], scope: NameScope | None = None, most: int = PATHS) -> None:
        """Repeat a walk with every combination of decisions, each from the same names and values."""
        self._decisions, self._steps, self._first = [], 0, {}
        scopes = list(scope.chain()) if scope else [self.module]
        kept = [_copied(each.names) for each in scopes]
        for done in range(most):
            self._at, self._counts, self._known, self._kept, self._stack, self._wanted = 0, [], {}, [], [], []
            for each, names in zip(scopes, kept, strict=True):
                each.names = _copied(names)
            try:
                with contextlib.suppress(PathEnds):
                    walk()
            except EndOfWork:
                if done and scope is None:
                    return  # other paths depend on what is installed; the first path defines the names
                self.incomplete.append(f"{what} is too long to follow on every path")
                return
            except RecursionError:
                self.incomplete.append(f"{what} is nested too deeply to follow")
                return
            self._first = {**self.module.names, **self._first}
            del self._decisions[self._at :]
            while self._decisions and self._decisions[-1] == self._counts[len(self._decisions) - 1] - 1:
                self._decisions.pop()
            if not self._decisions:
                return
            self._decisions[-1] += 1
        if scope is not None:
            self.incomplete.append(f"{what} has more than {most} paths; the first ones were followed")

    def step(self) -> None:
        """Count a step of work."""
        self._steps += 1
        self._total += 1
        if self._steps > self._limit or self._total > FILE_STEPS:
            raise EndOfWork

    def decide(self, node: ast.expr, scope: NameScope, count: int = 2) -> int:
        """The branch that this walk takes; equal expressions of equal values are decided once."""
        names, condition = self._uses.condition(node)
        values = [scope.get(name) if scope.has(name) else None for name in names]
        self._kept += values
        key = (condition, *map(id, values))
        if key not in self._known:
            if self._at == len(self._decisions):
                self._decisions.append(0)
            self._counts.append(count)
            self._known[key] = self._decisions[self._at]
            self._at += 1
        decided = self._known[key]
        return 1 - decided if count == 2 else decided % count  # first walk: the condition holds

    # statements ------------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], scope: NameScope) -> Signal:
        wanted = self._wanted[-1] if self._wanted else None
        for statement in body:
            self.step()
            always = isinstance(statement, _ALWAYS) or _static_assert(statement) is not None
            if wanted is not None and not always and not self._uses.touched(statement) & wanted:
                for name in self._uses.assigned(statement):
                    scope.names[name] = Unknown(f"the name {name} is not followed")
                continue
            method = getattr(self, f"_do_{type(statement).__name__.lower()}", None)
            if method is not None:
                signal: Signal = method(statement, scope)
                if signal:
                    return signal
            else:
                for child in ast.iter_child_nodes(statement):
                    if isinstance(child, ast.expr):
                        self.value(child, scope)
        return ""

    def _do_assign(self, node: ast.Assign, scope: NameScope) -> Signal:
        value = self.value(node.value, scope)
        for target in node.targets:
            self.bind(target, value, scope)
        return ""

    def _do_annassign(self, node: ast.AnnAssign, scope: NameScope) -> Signal:
        if node.value is not None:
            self.bind(node.target, self.value(node.value, scope), scope)
        return ""

    def _do_augassign(self, node: ast.AugAssign, scope: NameScope) -> Signal:
        if isinstance(node.target, ast.Name):
            old = scope.get(node.target.id)
            new = self.value(node.value, scope)
            if isinstance(old, list) and isinstance(node.op, ast.Add) and isinstance(new, (list, tuple)):
                old.extend(new)
            else:
                scope.names[node.target.id] = operated(type(node.op), old, new)
        return ""

    def _do_return(self, node: ast.Return, scope: NameScope) -> Signal:
        self._returned = self.value(node.value, scope)
        return "return"

    def _do_raise(self, node: ast.Raise, scope: NameScope) -> Signal:
        return "end"

    def _do_break(self, node: ast.Break, scope: NameScope) -> Signal:
        return "break"

    def _do_continue(self, node: ast.Continue, scope: NameScope) -> Signal:
        return "continue"

    def _do_if(self, node: ast.If, scope: NameScope) -> Signal:
        return self._block(node.body if self.truth(node.test, scope) else node.orelse, scope)

    def _do_assert(self, node: ast.Assert, scope: NameScope) -> Signal:
        condition = self.value(node.test, scope)
        self.assume(node.test, True, scope)
        return "end" if condition is False else ""

    def _do_expr(self, node: ast.Expr, scope: NameScope) -> Signal:
        self.value(node.value, scope)
        test = _static_assert(node)
        return "end" if test is not None and self.value(test, scope) is False else ""

    def _do_for(self, node: ast.For, scope: NameScope) -> Signal:
        over = self.iterated(self.value(node.iter, scope))
        if over is None:
            return self._once(node.body, [node.target], scope)
        for each in over:
            self.bind(node.target, each, scope)
            signal = self._block(node.body, scope)
            if signal == "break":
                return ""
            if signal in ("return", "end"):
                return signal
        return self._block(node.orelse, scope)

    def _do_while(self, node: ast.While, scope: NameScope) -> Signal:
        return self._once(node.body, [], scope)

    def _once(self, body: list[ast.stmt], targets: list[ast.expr], scope: NameScope) -> Signal:
        """Walk the body of a loop with an unknown number of iterations once; names that the loop changes are
        unknown."""
        changed = {name for statement in body for name in self._uses.augmented(statement)}
        for name in changed:
            scope.names[name] = Unknown(f"{name} is built in a loop whose number of runs is not known")
        for target in targets:
            self.bind(target, Unknown("a variable of a loop"), scope)
        signal = self._block(body, scope)
        for name in changed:
            scope.names[name] = Unknown(f"{name} is built in a loop whose number of runs is not known")
        return signal if signal == "end" else ""

    def _do_with(self, node: ast.With, scope: NameScope) -> Signal:
        for item in node.items:
            value = self.value(item.context_expr, scope)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, scope)
        return self._block(node.body, scope)

    def _do_try(self, node: ast.Try, scope: NameScope) -> Signal:
        return self._block([*node.body, *node.orelse, *node.finalbody], scope)

    def _do_match(self, node: ast.Match, scope: NameScope) -> Signal:
        self.value(node.subject, scope)
        return self._block(
            node.cases[self.decide(node.subject, scope, len(node.cases) + 1) % len(node.cases)].body, scope
        )

    def _do_import(self, node: ast.Import, scope: NameScope) -> Signal:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            scope.names[alias.asname or name] = Ref(name)
        return ""

    def _do_importfrom(self, node: ast.ImportFrom, scope: NameScope) -> Signal:
        for alias in node.names:
            scope.names[alias.asname or alias.name] = Ref(f"{node.module or ''}.{alias.name}")
        return ""

    def _do_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: NameScope) -> Signal:
        names = [a.arg for a in [*node.args.posonlyargs, *node.args.args]]
        defaults = {
            name: self.value(each, scope)
            for name, each in zip(names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True)
        }
        defaults |= {
            a.arg: self.value(each, scope)
            for a, each in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            if each is not None
        }
        function = HelperFunction(node, scope, defaults)
        scope.names[node.name] = function
        self._closures.append(function)
        return ""

    _do_asyncfunctiondef = _do_functiondef

    def _do_classdef(self, node: ast.ClassDef, scope: NameScope) -> Signal:
        assigned = frozenset(
            t.attr
            for n in ast.walk(node)
            if isinstance(n, (ast.Assign, ast.AugAssign, ast.AnnAssign))
            for t in (n.targets if isinstance(n, ast.Assign) else [n.target])
            if isinstance(t, ast.Attribute)
        )
        inner = NameScope(scope)
        defined = Class(node.name, inner, assigned)
        scope.names[node.name] = defined
        first = len(self._closures)
        self._block(node.body, inner)
        for n, function in enumerate(self._closures[first:], first):
            if function.scope is inner:
                # Methods can access the module's names but not the class's.
                self._closures[n] = HelperFunction(function.node, scope, function.defaults, defined)
                inner.names[function.name] = self._closures[n]
        return ""

    # calls -----------------------------------------------------------------------------------------------

    def called(self, node: ast.Call, function: Value, args: list[Value], keywords: dict[str, Value]) -> Value:
        """The value of a call: of interest, of a function of the file, or of a Python function."""
        if isinstance(function, Partial):
            return self.called(node, function.function, [*function.args, *args], {**function.keywords, **keywords})
        last = function.last if isinstance(function, Ref) else ""
        written = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if last in self.names or (written in self.names and not isinstance(function, HelperFunction)):
            return self.report(node, args, keywords, self._stack[-1] if self._stack else "")
        if isinstance(function, HelperFunction):
            return self._enter(function, args, keywords)
        if last == "partial" and args:
            return Partial(args[0], args[1:], keywords)
        if (made := mlir_call(written, function, args)) is not None:
            return made
        if written in ("to", "cast", "view") or last == "cast":
            named = [n for a in [*args, *keywords.values()] if (n := dtype_name(a))]
            return Tensor(named[0] if named else None)
        return builtin(last, args) if last else Unknown(f"the result of {ast.unparse(node.func)}")

    def _enter(self, function: HelperFunction, args: list[Value], keywords: dict[str, Value]) -> Value:
        """The value of a call of a function of the file; parameters without an argument are unknown."""
        if len(self._stack) >= DEPTH:
            return Unknown("calls within calls beyond what is followed")
        scope = NameScope(function.scope)
        parameters = function.node.args
        names = [a.arg for a in [*parameters.posonlyargs, *parameters.args]]
        for name in [*names, *(a.arg for a in parameters.kwonlyargs)]:
            scope.names[name] = Unknown(f"the parameter {name} of {function.name}")
        scope.names |= function.defaults
        if function.instance is not None and names[:1] in (["self"], ["cls"]):
            scope.names[names[0]] = function.instance
            names = names[1:]
        scope.names |= dict(zip(names, args, strict=False))
        taken = set(names) | {a.arg for a in parameters.kwonlyargs}
        scope.names |= {name: value for name, value in keywords.items() if name in taken}
        if parameters.vararg:
            scope.names[parameters.vararg.arg] = (
                tuple(args[len(names) :]) if args else Unknown(f"*{parameters.vararg.arg}")
            )
        if parameters.kwarg:
            scope.names[parameters.kwarg.arg] = {n: v for n, v in keywords.items() if n not in taken}
        self._stack.append(function.name)
        self._wanted.append(self._uses.relevant(function.node))
        try:
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, scope)
            self._returned = None
            signal = self._block(function.node.body, scope)
            if signal == "end" and len(self._stack) > 1:
                raise PathEnds
            return self._returned if signal == "return" else None
        finally:
            self._stack.pop()
            self._wanted.pop()


def _copied(names: dict[str, Value]) -> dict[str, Value]:
    """Names with copies of their lists and dictionaries, which a walk may change; large ones are not copied."""
    return {n: v.copy() if isinstance(v, (list, dict)) and len(v) <= ELEMENTS else v for n, v in names.items()}


_ALWAYS = (
    ast.Return, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Break,
    ast.Continue, ast.Raise,
)  # fmt: skip
"""Statements that are always walked."""


def _static_assert(statement: ast.stmt) -> ast.expr | None:
    """What `tl.static_assert(...)` asserts: a path on which that is False does not compile. None for other
    statements."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or last(call.func) != "static_assert":
        return None
    return call.args[0] if call.args else None


__all__ = ["Interpreter"]
