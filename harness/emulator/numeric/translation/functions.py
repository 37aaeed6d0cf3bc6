"""Translate functions to LLVM code."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from ptxdiff.emulator.numeric.translation.expressions import ExpressionTranslation, Unit, int_constant
from ptxdiff.emulator.numeric.translation.helpers import DOUBLE, INT64
from ptxdiff.emulator.numeric.translation.source import Untranslatable, code_of, tree

_RESULTS = {"int": INT64, "bool": INT64, "float": DOUBLE}


@functools.cache
def unit(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Unit:
    """The code of a function for arguments of these LLVM types. Raises Untranslatable."""
    return Translation(function, arguments).unit()


def texts(unit: Unit) -> dict[str, str]:
    """The parts of a unit and of all that it calls, each once, by name. Raises Untranslatable if one name is two."""
    found: dict[str, str] = {}
    queue, seen = [unit], set()
    while queue:
        one = queue.pop()
        if id(one) not in seen:
            seen.add(id(one))
            queue.extend(one.calls)
            for name, text in one.parts:
                if found.setdefault(name, text) != text:
                    raise Untranslatable(f"{name} is the name of two things")
    return found


class Translation(ExpressionTranslation):
    """The translation of one function for arguments of these types."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self.tree = tree(function)
        self.function = function
        names = [a.arg for a in self.tree.args.args]
        code = code_of(function)
        plain = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR) == 0
        plain = plain and not code.co_freevars and not code.co_kwonlyargcount
        if not plain or not len(names) == len(arguments) == code.co_argcount:
            raise self._refused(self.tree, "parameters")
        returned = self.tree.returns.id if isinstance(self.tree.returns, ast.Name) else ""
        if returned not in _RESULTS:
            raise self._refused(self.tree, "a result that is not annotated as int, bool or float")
        kinds = "".join("f" if a is DOUBLE else "i" for a in arguments)
        name = f"{function.__module__}.{function.__qualname__}.{kinds}"
        super().__init__(function, name, _RESULTS[returned], arguments)
        for name, value in zip(names, self.llvm.args, strict=True):
            self._assign(name, value)

    def _other(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Unit:
        """The translation of a function that this one calls."""
        return unit(function, arguments)

    def unit(self) -> Unit:
        """Translate the body."""
        self._body(self.tree.body)
        if not self.b.block.is_terminated:
            raise self._refused(self.tree, "a way through it returns nothing")
        ir.IRBuilder(self.entry).branch(self.start)
        parts = [(self.llvm.name, str(self.llvm))]
        for name, value in self.module.globals.items():
            if value is not self.llvm and name not in self.calls:
                parts.append((name, str(value)))
        return Unit(self.llvm.name, self.result, tuple(parts), tuple(self.calls.values()))

    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self.b.block.is_terminated:
                return
            handler = getattr(self, f"_do_{type(statement).__name__}", None)
            if handler is None:
                raise self._refused(statement, type(statement).__name__)
            handler(statement)

    def _do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            raise self._refused(node, "an expression without effect")

    def _do_Return(self, node: ast.Return) -> None:
        if node.value is None:
            raise self._refused(node, "return without a value")
        value = self._value(node.value)
        if value.type is not self.result:
            raise self._refused(node, "a result of another type than the annotation's")
        self.b.ret(value)

    def _do_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            raise self._refused(node, "several targets")
        target = node.targets[0]
        if isinstance(target, ast.Name):
            self._assign(target.id, self._value(node.value))
            return
        if not (isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple | ast.IfExp)):
            raise self._refused(node, "this target")
        names = [t.id for t in target.elts if isinstance(t, ast.Name)]
        if len(names) != len(target.elts):
            raise self._refused(node, "this target")
        if isinstance(node.value, ast.IfExp):
            self._do_If(_chosen(node.value, target))
            return
        if len(names) != len(node.value.elts):
            raise self._refused(node, "tuples of different lengths")
        for name, value in zip(names, [self._value(v) for v in node.value.elts], strict=True):
            self._assign(name, value)

    def _do_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self._refused(node, "this target")
        left = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        self._assign(node.target.id, self._value(ast.copy_location(ast.BinOp(left, node.op, node.value), node)))

    def _assign(self, name: str, value: Any) -> None:
        if (name, value.type) not in self.slots:
            self.slots[name, value.type] = ir.IRBuilder(self.entry).alloca(value.type)
        self.b.store(value, self.slots[name, value.type])
        self.types[name] = value.type

    def _do_If(self, node: ast.If) -> None:
        yes, no, after = (self.llvm.append_basic_block() for _ in range(3))
        self._branch(node.test, yes, no)
        before = self.types
        ends = []
        for block, statements in ((yes, node.body), (no, node.orelse)):
            self.b.position_at_end(block)
            self.types = dict(before)
            self._body(statements)
            if not self.b.block.is_terminated:
                self.b.branch(after)
                ends.append(self.types)
        self.b.position_at_end(after)
        if not ends:
            self.b.unreachable()
            return
        self.types = {n: t if all(e.get(n) is t for e in ends) else None for end in ends for n, t in end.items()}

    def _do_While(self, node: ast.While) -> None:
        if node.orelse:
            raise self._refused(node, "else of a loop")
        head, inside, after = (self.llvm.append_basic_block() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        self._branch(node.test, inside, after)
        self.b.position_at_end(inside)
        self._loop(node.body, node)
        if not self.b.block.is_terminated:
            self.b.branch(head)
        self.b.position_at_end(after)

    def _loop(self, statements: Sequence[ast.stmt], node: ast.AST) -> None:
        """The body of a loop, which is translated once and so must leave the types as they were before it."""
        before = dict(self.types)
        self._body(statements)
        if not self.b.block.is_terminated and any(self.types[n] is not t for n, t in before.items()):
            raise self._refused(node, "a variable changes its type in a loop")
        self.types = before

    def _do_For(self, node: ast.For) -> None:
        if node.orelse:
            raise self._refused(node, "else of a loop")
        if not isinstance(node.iter, ast.Call):
            self._unrolled(node)
            return
        if self._called(node.iter) is not range or len(node.iter.args) > 2 or not isinstance(node.target, ast.Name):
            raise self._refused(node, "this loop")
        first, end = ([ast.Constant(0)] if len(node.iter.args) == 1 else []) + [*node.iter.args]
        start, stop = self._integer(first), self._integer(end)
        head, inside, after = (self.llvm.append_basic_block() for _ in range(3))
        came = self.b.block
        self.b.branch(head)
        self.b.position_at_end(head)
        count = self.b.phi(INT64)
        count.add_incoming(start, came)
        self.b.cbranch(self.b.icmp_signed("<", count, stop), inside, after)
        self.b.position_at_end(inside)
        had = self.types.get(node.target.id)
        self._assign(node.target.id, count)
        self._loop(node.body, node)
        if had is not INT64:
            self.types[node.target.id] = None  # the loop may have no turn
        if not self.b.block.is_terminated:
            count.add_incoming(self.b.add(count, int_constant(1)), self.b.block)
            self.b.branch(head)
        self.b.position_at_end(after)

    def _unrolled(self, node: ast.For) -> None:
        """A loop over a tuple of tuples of constants."""
        rows = self._constant(node.iter)
        if not (isinstance(rows, tuple) and isinstance(node.target, ast.Tuple)):
            raise self._refused(node, "this loop")
        for row in rows:
            if len(row) != len(node.target.elts):
                raise self._refused(node, "tuples of different lengths")
            if self.b.block.is_terminated:
                return
            for name, value in zip(node.target.elts, row, strict=True):
                if not isinstance(name, ast.Name):
                    raise self._refused(node, "this target")
                self._assign(name.id, self._literal(value, node))
            self._body(node.body)


def _chosen(node: ast.IfExp, target: ast.Tuple) -> ast.If:
    """`a, b = x if c else y` as a statement."""
    ways = [ast.copy_location(ast.Assign([target], v), node) for v in (node.body, node.orelse)]
    return ast.copy_location(ast.If(node.test, [ways[0]], [ways[1]]), node)
