"""Resolve calls that no walk has reached, in functions too long to walk, from their text and the names around them."""

from __future__ import annotations

import ast
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable

from ptxdiff.lint.extract.interpret import EndOfWork, Interpreter
from ptxdiff.lint.extract.values import NameScope, Unknown

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Unreached:
    """Reports calls of a file whose module an interpreter has walked."""

    def __init__(self, interpreter: Interpreter, tree: ast.Module) -> None:
        self._interpreter = interpreter
        self._functions: dict[ast.AST, tuple[ast.AST, ...]] = {}
        self._scopes: dict[ast.AST, NameScope] = {}
        self._place(tree, ())

    def _place(self, node: ast.AST, around: tuple[ast.AST, ...]) -> None:
        if isinstance(node, ast.Call):
            self._functions[node] = around
        inner = (*around, node) if isinstance(node, _FUNCTIONS) else around
        for child in ast.iter_child_nodes(node):
            self._place(child, inner)

    def report(self, calls: Iterable[ast.Call]) -> None:
        """Report each call, with the known values of its arguments."""
        for call in calls:
            functions = self._functions.get(call, ())
            scope = self._interpreter.module
            for function in functions:
                scope = self._scope(function, scope)
            name = getattr(functions[-1], "name", "") if functions else ""
            self._briefly(lambda c=call, s=scope: self._interpreter.value(c, s), name)  # type: ignore[misc]

    def _scope(self, function: ast.AST, outer: NameScope) -> NameScope:
        """The names of a function. Parameters, and names assigned in several places or in a branch, stay unknown."""
        if function in self._scopes:
            return self._scopes[function]
        scope = self._scopes[function] = NameScope(outer)
        name = getattr(function, "name", "")
        counts = Counter(n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        parameters = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
        for each in {*counts, *parameters}:
            scope.names[each] = Unknown(f"the name {each} of {name}")
        for statement in getattr(function, "body", []):
            if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name):
                plain = len(statement.targets) == 1 and counts[target.id] == 1 and target.id not in parameters
                if plain and not any(isinstance(n, ast.Call) for n in ast.walk(statement)):
                    self._briefly(lambda s=statement: self._interpreter.assign(s, scope), name)  # type: ignore[misc]
        return scope

    def _briefly(self, walk: Callable[[], object], name: str) -> None:
        with contextlib.suppress(EndOfWork, RecursionError):
            self._interpreter.begin(name)
            walk()
