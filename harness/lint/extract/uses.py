"""Find the functions of a file that make calls of interest, and their statements that may affect these.

This keeps the walks short: all other statements are skipped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CHANGES = frozenset(("append", "extend", "insert", "update", "clear", "pop"))


class Uses:
    """The functions of a file and the names that they use.

    `direct`: those with a call of interest in their own text.
    """

    def __init__(self, tree: ast.Module, names: frozenset[str]) -> None:
        self.used: dict[ast.AST, set[str]] = {}
        self.aliases: set[str] = set(names)
        self._owners = {"self", "cls", *(n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef))}
        self._names = names
        self._relevant: dict[ast.AST, frozenset[str] | None] = {}
        self._touched: dict[ast.AST, frozenset[str]] = {}
        self._assigned: dict[ast.AST, frozenset[str]] = {}
        self._augmented: dict[ast.AST, frozenset[str]] = {}
        self._conditions: dict[ast.AST, tuple[list[str], str]] = {}
        self._collect(tree, [])
        self.direct = {f for f, used in self.used.items() if used & self.aliases}
        self._called = frozenset(self.aliases | {getattr(f, "name", "") for f in self.direct})
        self._all: set[ast.AST] | None = None

    def _collect(self, node: ast.AST, around: list[ast.AST]) -> None:
        """Record the names that every function uses, and names to which functions of interest are assigned."""
        if isinstance(node, ast.ImportFrom):
            self.aliases |= {a.asname for a in node.names if a.asname and a.name in self._names}
        elif isinstance(node, ast.Assign) and not around:
            self.aliases |= self._alias(node)
        name = node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Attribute) and (node.attr in self._names or last(node.value) in self._owners):
            name = node.attr
        if name:
            for function in around:
                self.used[function].add(name)
        inner = around
        if isinstance(node, _FUNCTIONS):
            self.used[node] = set()
            inner = [*around, node]
        for child in ast.iter_child_nodes(node):
            self._collect(child, inner)

    def _alias(self, node: ast.Assign) -> set[str]:
        """Names that refer to a function of interest from here on."""
        value = node.value
        if isinstance(value, ast.Call) and last(value.func) == "partial" and value.args:
            value = value.args[0]
        return {t.id for t in node.targets if isinstance(t, ast.Name)} if last(value) in self.aliases else set()

    @property
    def has_text_defaults(self) -> bool:
        """Whether a function with a call of interest has a parameter with a string as its default."""
        defaults = [
            d for f in self.direct if isinstance(f, _FUNCTIONS) for d in (*f.args.defaults, *f.args.kw_defaults)
        ]
        return any(isinstance(d, ast.Constant) and isinstance(d.value, str) for d in defaults)

    def callers(self) -> set[ast.AST]:
        """The functions with a call of interest, and all functions that call them by name, directly or not."""
        if self._all is None:
            found, wanted = set(self.direct), set(self._called)
            while more := [f for f, used in self.used.items() if f not in found and used & wanted]:
                found |= set(more)
                wanted |= {getattr(f, "name", "") for f in more}
            self._all, self._called = found, frozenset(wanted)
            self._relevant.clear()
        return self._all

    def relevant(self, function: ast.AST) -> frozenset[str] | None:
        """The names of functions of interest, and names on which their arguments may depend; None: all names (for a
        helper)."""
        if function not in self._relevant:
            known = function in self.direct or (self._all is not None and function in self._all)
            self._relevant[function] = self._flowing(function) if known else None
        return self._relevant[function]

    def _flowing(self, function: ast.AST) -> frozenset[str]:
        names = {*self._called, *(a for n in ast.walk(function) if isinstance(n, ast.Assign) for a in self._alias(n))}
        called = frozenset(names)
        flows: list[tuple[frozenset[str], set[str]]] = []
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                if last(node.func) in called:
                    names |= set(_names(node))
                elif isinstance(node.func, ast.Attribute):
                    flows.append((frozenset(_names(node.func)), set(_names(node))))
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.NamedExpr)):
                sources = set(_names(node.iter if isinstance(node, ast.For) else node))
                assigns = node.target if isinstance(node, ast.For) else node
                flows.append((frozenset(_stored(assigns)) | frozenset(_bases(node)), sources))
        size = -1
        while size != len(names):
            size = len(names)
            for targets, sources in flows:
                if targets & names:
                    names |= sources
        return frozenset(names)

    def touched(self, node: ast.AST) -> frozenset[str]:
        """The names that a statement assigns, calls or changes."""
        if node not in self._touched:
            found: set[str] = set()
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    found.add(each.id)
                elif isinstance(each, ast.Call):
                    found.add(last(each.func))
                    if isinstance(each.func, ast.Attribute) and each.func.attr in _CHANGES:
                        found.add(last(each.func.value))
                elif isinstance(each, ast.Assign):
                    found |= set(_bases(each))
                elif isinstance(each, _FUNCTIONS):
                    found |= self.used.get(each, set())
            self._touched[node] = frozenset(found)
        return self._touched[node]

    def assigned(self, node: ast.AST) -> frozenset[str]:
        """The names that a statement assigns."""
        if node not in self._assigned:
            self._assigned[node] = frozenset(_stored(node))
        return self._assigned[node]

    def augmented(self, node: ast.AST) -> frozenset[str]:
        """The names that a statement changes in place."""
        if node not in self._augmented:
            found = [
                n.target.id for n in ast.walk(node) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
            ]
            self._augmented[node] = frozenset(found)
        return self._augmented[node]

    def condition(self, node: ast.expr) -> tuple[list[str], str]:
        """The names in an expression, and its text."""
        if node not in self._conditions:
            self._conditions[node] = sorted(set(_names(node))), ast.unparse(node)
        return self._conditions[node]


def last(node: ast.expr) -> str:
    """A name, or the part of a dotted name after the last dot."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _names(node: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _stored(node: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _bases(node: ast.AST) -> Iterator[str]:
    """The names whose elements are assigned: `x[0] = ...`."""
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Subscript):
            yield last(target.value)
