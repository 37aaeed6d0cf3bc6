"""Walk the functions of a Python file along every path, and report each call of interest with its arguments.

Nothing is imported or run. For a condition that the text does not decide, both branches are walked separately, so that
an asm text of one branch is never combined with the constraints of another.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Container
from typing import Literal

from ptxdiff.lint.extract.calls import dtype_name, mlir_call
from ptxdiff.lint.extract.expressions import ELEMENTS, Expressions, builtin, operated
from ptxdiff.lint.extract.guards import Uses, last
from ptxdiff.lint.extract.strings import File
from ptxdiff.lint.extract.values import (
    Class,
    HelperFunction,
    NameScope,
    Partial,
    Ref,
    Tensor,
    Unknown,
    Value,
)

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
