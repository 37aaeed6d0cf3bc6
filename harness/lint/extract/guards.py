"""Conditions on the target around a call: `if capability >= 9:`, an earlier return, `#if __CUDA_ARCH__ >= 900`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

ABOUT_TARGETS = re.compile(
    r"capab|compute_cap|cuda_cc|(?<!se)(?<!m)arch(?!iv)|(?<![a-z])sm_?\d{2}|is_sm|(?<![a-z])(?:cc|sm)(?![a-z])|hopper|blackwell|"
    r"ampere|(?<![a-z])ada(?![a-z])|target|has_native|device_prop",
    re.IGNORECASE,
)
"""Words of conditions about the GPU."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class PythonGuards:
    """The conditions on the target for each call of a file, in its own function and in callers."""

    def __init__(self, tree: ast.Module) -> None:
        self._of: dict[ast.Call, tuple[tuple[str, ...], str]] = {}
        self._callers: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        self._body(tree.body, (), "")
        for call, location in self._of.items():
            self._callers.setdefault(last(call.func), []).append(location)

    def of(self, call: ast.Call) -> tuple[str, ...]:
        """The conditions around a call, and those of a caller if every call of its function in the file has one."""
        conditions, function = self._of.get(call, ((), ""))
        return conditions or self._through(function, frozenset())

    def _through(self, function: str, seen: frozenset[str]) -> tuple[str, ...]:
        places = self._callers.get(function, ()) if function and function not in seen else ()
        inherited = [own or self._through(caller, seen | {function}) for own, caller in places]
        return inherited[0] if inherited and all(inherited) else ()

    def _body(self, body: Sequence[ast.stmt], held: tuple[str, ...], function: str) -> None:
        """Visit statements in order; after a conditional return or raise, its condition holds for the later
        statements."""
        for statement in body:
            self._statement(statement, held, function)
            if (condition := _leaving_condition(statement)) is not None:
                held += _condition(condition)

    def _statement(self, node: ast.stmt, held: tuple[str, ...], function: str) -> None:
        if isinstance(node, _FUNCTIONS):
            held += tuple(condition for each in node.decorator_list for condition in _condition(each))
            function = node.name
        elif isinstance(node, (ast.If, ast.While)):
            self._expressions(node.test, held, function)
            self._body(node.body, held + _condition(node.test), function)
            self._body(node.orelse, held + _condition(node.test), function)
            return
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in _bodies(getattr(node, field, [])):
                self._body(inner, held, function)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.expr, ast.withitem)):
                self._expressions(child, held, function)

    def _expressions(self, node: ast.AST, held: tuple[str, ...], function: str) -> None:
        if isinstance(node, ast.Call):
            self._of[node] = (held, function)
        if isinstance(node, ast.IfExp):
            held += _condition(node.test)
        for child in ast.iter_child_nodes(node):
            self._expressions(child, held, function)


def _leaving_condition(node: ast.stmt) -> ast.expr | None:
    """The condition that decides whether the statements after this one run."""
    if isinstance(node, ast.If) and any(isinstance(s, _LEAVES) for s in node.body):
        return node.test
    if isinstance(node, ast.Assert):
        return node.test
    call = node.value if isinstance(node, ast.Expr) else None
    asserts = isinstance(call, ast.Call) and last(call.func) == "static_assert"
    return call.args[0] if asserts and isinstance(call, ast.Call) and call.args else None


def _bodies(nodes: Sequence[ast.AST]) -> Iterator[Sequence[ast.stmt]]:
    statements = [n for n in nodes if isinstance(n, ast.stmt)]
    if statements:
        yield statements
    for node in nodes:
        if isinstance(node, (ast.ExceptHandler, ast.match_case)):
            yield node.body


def _condition(node: ast.expr) -> tuple[str, ...]:
    """The text of a condition, if it is about targets."""
    text = ast.unparse(node)
    return (text,) if ABOUT_TARGETS.search(text) else ()


# C++ -------------------------------------------------------------------------------------------------------------

DIRECTIVES = "ifdef|ifndef|if|elifdef|elifndef|elif|else|endif"
"""The conditional directives, as a regular expression."""


@dataclass(frozen=True)
class Directive:
    """A conditional directive. kind: if, elif, else or endif; `#ifdef X` is `if` with the condition `defined(X)`."""

    kind: str
    condition: str = ""

    @classmethod
    def of(cls, text: str) -> Directive:
        """The directive of a text such as `# ifndef X`."""
        kind, _, condition = text.replace("\\\r\n", " ").replace("\\\n", " ").lstrip("# \t").partition(" ")
        kind, paren, rest = kind.partition("(")  # `#if(X)`
        condition = " ".join(f"{paren}{rest} {condition}".split())
        if kind.endswith("def"):
            return cls(
                "elif" if kind.startswith("el") else "if", f"{'!' if 'ndef' in kind else ''}defined({condition})"
            )
        return cls(kind, condition)


def conditions_by_offset(directives: Iterable[tuple[int, Directive]]) -> list[tuple[int, tuple[str, ...]]]:
    """By offset, the `#if` conditions that hold from there on; `!(...)` for the else branch.

    directives: each with the offset of its end.
    """
    by_offset: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    open_ones: list[str] = []
    for end, directive in directives:
        if directive.kind == "if":
            open_ones.append(directive.condition)
        elif directive.kind == "endif" and open_ones:
            open_ones.pop()
        elif directive.kind in ("elif", "else") and open_ones:
            before = f"!({open_ones.pop()})"
            open_ones.append(f"{before} && ({directive.condition})" if directive.kind == "elif" else before)
        by_offset.append((end, tuple(open_ones)))
    return by_offset


def excludes(guards: Sequence[str], number: int) -> bool:
    """Whether code under these conditions is not compiled for a target, such as 90 of sm_90a.

    A condition with only `__CUDA_ARCH__` is computed. Any other is unknown, and counts as excluding.
    """
    return any(not _holds(guard, number) for guard in guards)


def _holds(guard: str, number: int) -> bool:
    return decided(guard, number) is True


def decided(guard: str, number: int) -> bool | None:
    """The value of a condition with only `__CUDA_ARCH__`, for a target such as 90, or 0 for the host.

    None for any other condition.
    """
    text = re.sub(r"\bdefined\s*\(?\s*__CUDA_ARCH__\s*\)?", f" {int(number > 0)} ", guard)
    text = text.replace("__CUDA_ARCH__", str(number * 10))
    if not re.fullmatch(r"[\s\d()<>=!&|]*", text):
        return None
    text = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))
    try:
        return bool(_computed(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError):
        return None


def _computed(node: ast.expr) -> int:
    """The value of a condition over numbers. Raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return int(not _computed(node.operand))
    if isinstance(node, ast.BoolOp):
        values = [_computed(v) for v in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _computed(node.left), _computed(node.comparators[0])
        orders = {ast.Lt: left < right, ast.LtE: left <= right, ast.Gt: left > right, ast.GtE: left >= right}
        return int({**orders, ast.Eq: left == right, ast.NotEq: left != right}[type(node.ops[0])])
    raise ValueError


# Find the functions of a file that make calls of interest, and their statements that may affect these --------------
#
# This keeps the walks short: all other statements are skipped.

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
            functions, wanted = set(self.direct), set(self._called)
            while more := [f for f, used in self.used.items() if f not in functions and used & wanted]:
                functions |= set(more)
                wanted |= {getattr(f, "name", "") for f in more}
            self._all, self._called = functions, frozenset(wanted)
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
            touching: set[str] = set()
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    touching.add(each.id)
                elif isinstance(each, ast.Call):
                    touching.add(last(each.func))
                    if isinstance(each.func, ast.Attribute) and each.func.attr in _CHANGES:
                        touching.add(last(each.func.value))
                elif isinstance(each, ast.Assign):
                    touching |= set(_bases(each))
                elif isinstance(each, _FUNCTIONS):
                    touching |= self.used.get(each, set())
            self._touched[node] = frozenset(touching)
        return self._touched[node]

    def assigned(self, node: ast.AST) -> frozenset[str]:
        """The names that a statement assigns."""
        if node not in self._assigned:
            self._assigned[node] = frozenset(_stored(node))
        return self._assigned[node]

    def augmented(self, node: ast.AST) -> frozenset[str]:
        """The names that a statement changes in place."""
        if node not in self._augmented:
            augmented_names = [
                n.target.id for n in ast.walk(node) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
            ]
            self._augmented[node] = frozenset(augmented_names)
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
