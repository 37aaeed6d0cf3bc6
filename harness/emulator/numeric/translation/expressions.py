"""Translate the expressions of a definition to LLVM code."""

from __future__ import annotations

import ast
import builtins
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from ptxdiff.emulator.numeric import bits
from ptxdiff.emulator.numeric.translation.helpers import BUILDERS, DOUBLE, INT64
from ptxdiff.emulator.numeric.translation.source import Untranslatable, code_of

_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_INTEGER = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
    ast.LShift: "shl", ast.RShift: "ashr",
}  # fmt: skip
_FLOAT = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}


@dataclass(frozen=True)
class Unit:
    """LLVM code of one function: its name, the type of its result, and what it uses.

    `parts`: texts of the function itself, of intrinsics that it declares and of tables that it reads, by name.
    """

    name: str
    result: Any
    parts: tuple[tuple[str, str], ...]
    calls: tuple[Unit, ...]


def int_constant(value: int) -> Any:
    """The signed 64-bit integer with the bits of a number."""
    return ir.Constant(INT64, (value + (1 << 63)) % (1 << 64) - (1 << 63))


class ExpressionTranslation:
    """The translation of one function, as far as expressions need it."""

    def __init__(self, function: Callable[..., Any], name: str, result: Any, arguments: Sequence[Any]) -> None:
        self.function = function
        self.result = result
        self.module = ir.Module()
        self.llvm = ir.Function(self.module, ir.FunctionType(result, arguments), name)
        self.llvm.linkage = "internal"
        self.llvm.attributes.add("alwaysinline")
        self.llvm.attributes.add("nounwind")
        self.entry = self.llvm.append_basic_block()
        self.start = self.llvm.append_basic_block()
        self.b = ir.IRBuilder(self.start)
        self.calls: dict[str, Unit] = {}
        self.slots: dict[tuple[str, Any], Any] = {}
        self.types: dict[str, Any] = {}
        """The type of each local variable at this place; None where it differs by the way taken."""

    def _refused(self, node: ast.AST, what: str) -> Untranslatable:
        """The error for a construct that is not translated."""
        line = getattr(node, "lineno", "?")
        return Untranslatable(f"{self.function.__module__}.{self.function.__qualname__}, line {line}: {what}")

    def _other(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Unit:
        """The translation of a function that this one calls."""
        raise NotImplementedError

    # Conditions

    def _branch(self, node: ast.expr, yes: Any, no: Any) -> None:
        """Go to one of two blocks. `and` and `or` stop at the first operand that decides."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._branch(node.operand, no, yes)
        elif isinstance(node, ast.BoolOp):
            for operand in node.values[:-1]:
                further = self.llvm.append_basic_block()
                if isinstance(node.op, ast.And):
                    self._branch(operand, further, no)
                else:
                    self._branch(operand, yes, further)
                self.b.position_at_end(further)
            self._branch(node.values[-1], yes, no)
        elif isinstance(node, ast.Compare):
            self._comparisons(node, yes, no)
        else:
            value = self._value(node)
            zero = ir.Constant(value.type, 0)
            integer = value.type is INT64
            met = self.b.icmp_signed("!=", value, zero) if integer else self.b.fcmp_unordered("!=", value, zero)
            self.b.cbranch(met, yes, no)

    def _comparisons(self, node: ast.Compare, yes: Any, no: Any) -> None:
        if isinstance(node.ops[0], ast.In):
            self._membership(node, yes, no)
            return
        left = self._value(node.left)
        for number, (op, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            right = self._value(right_node)
            met = self._compared(node, op, left, right)
            further = yes if number == len(node.ops) - 1 else self.llvm.append_basic_block()
            self.b.cbranch(met, further, no)
            self.b.position_at_end(further)
            left = right

    def _membership(self, node: ast.Compare, yes: Any, no: Any) -> None:
        (among,) = node.comparators
        if len(node.ops) != 1 or not isinstance(among, ast.Tuple):
            raise self._refused(node, "`in` with anything but a tuple")
        left = self._value(node.left)
        for member in among.elts:
            further = self.llvm.append_basic_block()
            self.b.cbranch(self._compared(node, ast.Eq(), left, self._value(member)), yes, further)
            self.b.position_at_end(further)
        self.b.branch(no)

    def _compared(self, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> Any:
        if type(op) not in _COMPARE:
            raise self._refused(node, type(op).__name__)
        sign = _COMPARE[type(op)]
        if left.type is not right.type:
            raise self._refused(node, "a comparison of an integer with a float")
        if left.type is INT64:
            return self.b.icmp_signed(sign, left, right)
        return self.b.fcmp_unordered(sign, left, right) if sign == "!=" else self.b.fcmp_ordered(sign, left, right)

    # ExpressionTranslation

    def _value(self, node: ast.expr) -> Any:
        handler = getattr(self, f"_of_{type(node).__name__}", None)
        if handler is None:
            raise self._refused(node, type(node).__name__)
        return handler(node)

    def _integer(self, node: ast.expr) -> Any:
        value = self._value(node)
        if value.type is not INT64:
            raise self._refused(node, "a float where an integer is expected")
        return value

    def _of_Constant(self, node: ast.Constant) -> Any:
        return self._literal(node.value, node)

    def _literal(self, value: Any, node: ast.AST) -> Any:
        """A constant of Python or numpy."""
        if isinstance(value, bool | np.bool_ | int | np.integer) and -(1 << 63) <= int(value) < 1 << 63:
            return ir.Constant(INT64, int(value))
        if isinstance(value, float):
            return ir.Constant(DOUBLE, float(value))
        raise self._refused(node, f"the constant {value!r}")

    def _constant(self, node: ast.expr) -> Any:
        """The object that a name stands for which is not a local variable."""
        if isinstance(node, ast.Name) and node.id not in code_of(self.function).co_varnames:
            name = node.id
            known = self.function.__globals__
            if name in known:
                return known[name]
            if hasattr(builtins, name):
                return getattr(builtins, name)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and self._constant(node.value) is math:
            return getattr(math, node.attr)
        raise self._refused(node, f"`{ast.unparse(node)}`")

    def _of_Name(self, node: ast.Name) -> Any:
        if node.id in code_of(self.function).co_varnames:
            kind = self.types.get(node.id)
            if kind is None:
                raise self._refused(node, f"`{node.id}` is not set on every way, or has several types")
            return self.b.load(self.slots[node.id, kind])
        return self._literal(self._constant(node), node)

    def _of_Attribute(self, node: ast.Attribute) -> Any:
        return self._literal(self._constant(node), node)

    def _of_Subscript(self, node: ast.Subscript) -> Any:
        table = self._constant(node.value)
        if isinstance(table, np.ndarray) and table.dtype not in (np.int64, np.float64):
            raise self._refused(node, f"arithmetic in {table.dtype}: put int() or float() round the entry of the table")
        return self._entry(node)

    def _entry(self, node: ast.Subscript) -> Any:
        """An entry of a table, as a 64-bit integer or a double."""
        table = self._constant(node.value)
        if not isinstance(table, np.ndarray) or table.dtype.kind not in "iuf" or table.dtype == np.uint64:
            raise self._refused(node, "an index into anything but a table of numbers")
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(index) != table.ndim:
            raise self._refused(node, "an index for each dimension is needed")
        place = int_constant(0)
        for position, size in zip(index, table.shape, strict=True):
            at = self._integer(position)
            below = self.b.icmp_signed("<", at, int_constant(0))
            at = self.b.select(below, self.b.add(at, int_constant(size)), at)
            place = self.b.add(self.b.mul(place, int_constant(size)), at)
        pointer = self.b.gep(self._table(node.value, table), [int_constant(0), place])
        value = self.b.load(pointer)
        if value.type is DOUBLE or value.type is INT64:
            return value
        if table.dtype.kind == "f":
            return self.b.fpext(value, DOUBLE)
        return self.b.zext(value, INT64) if table.dtype.kind == "u" else self.b.sext(value, INT64)

    def _table(self, node: ast.expr, table: Any) -> Any:
        """The global constant with the values of an array."""
        name = f"{self.function.__module__}.{ast.unparse(node)}"
        if name in self.module.globals:
            return self.module.globals[name]
        size = table.dtype.itemsize * 8
        if table.dtype.kind == "f" and size not in (32, 64):
            raise self._refused(node, f"a table of {table.dtype}")
        element = ir.IntType(size) if table.dtype.kind != "f" else ir.FloatType() if size == 32 else DOUBLE
        element = INT64 if element == INT64 else element
        kind = ir.ArrayType(element, table.size)
        found = ir.GlobalVariable(self.module, kind, name)
        found.linkage, found.global_constant = "internal", True
        found.initializer = ir.Constant(kind, table.ravel().tolist())
        return found

    def _of_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self._value(node.left), self._value(node.right)
        if isinstance(node.op, ast.FloorDiv) and left.type is right.type is INT64:
            return self._floor_divided(left, right)
        if isinstance(node.op, ast.Mod) and left.type is right.type is INT64:
            return self.b.sub(left, self.b.mul(self._floor_divided(left, right), right))
        if left.type is right.type is INT64:
            if type(node.op) not in _INTEGER:
                raise self._refused(node, type(node.op).__name__)
            return getattr(self.b, _INTEGER[type(node.op)])(left, right)
        if type(node.op) not in _FLOAT:
            raise self._refused(node, type(node.op).__name__)
        left, right = (v if v.type is DOUBLE else self.b.sitofp(v, DOUBLE) for v in (left, right))
        return getattr(self.b, _FLOAT[type(node.op)])(left, right)

    def _floor_divided(self, left: Any, right: Any) -> Any:
        """`left // right`, 0 for a zero divisor; a processor stops at -2**63 / -1, which wraps here."""
        b, zero = self.b, int_constant(0)
        special = b.or_(b.icmp_signed("==", right, zero), b.icmp_signed("==", right, int_constant(-1)))
        by = b.select(special, int_constant(1), right)
        quotient = b.sdiv(left, by)
        rest = b.sub(left, b.mul(quotient, by))
        down = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(rest, by), zero))
        quotient = b.sub(quotient, b.zext(down, INT64))
        wrapped = b.select(b.icmp_signed("==", right, zero), zero, b.sub(zero, left))
        return b.select(special, wrapped, quotient)

    def _of_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self._of_Compare(node)
        value = self._value(node.operand)
        if isinstance(node.op, ast.USub):
            return self.b.neg(value) if value.type is INT64 else self.b.fneg(value)
        if isinstance(node.op, ast.Invert) and value.type is INT64:
            return self.b.not_(value)
        raise self._refused(node, type(node.op).__name__)

    def _of_Compare(self, node: ast.expr) -> Any:
        """0 or 1."""
        yes, no, after = (self.llvm.append_basic_block() for _ in range(3))
        self._branch(node, yes, no)
        for block in (yes, no):
            self.b.position_at_end(block)
            self.b.branch(after)
        self.b.position_at_end(after)
        return self._joined(INT64, [(int_constant(1), yes), (int_constant(0), no)])

    def _of_BoolOp(self, node: ast.BoolOp) -> Any:
        """The first operand that decides, else the last."""
        if _is_truth(node):
            return self._of_Compare(node)
        ends = []
        after = self.llvm.append_basic_block()
        for operand in node.values[:-1]:
            value = self._integer(operand)
            ends.append((value, self.b.block))
            further = self.llvm.append_basic_block()
            met = self.b.icmp_signed("!=", value, int_constant(0))
            self.b.cbranch(met, *((further, after) if isinstance(node.op, ast.And) else (after, further)))
            self.b.position_at_end(further)
        ends.append((self._integer(node.values[-1]), self.b.block))
        self.b.branch(after)
        self.b.position_at_end(after)
        return self._joined(INT64, ends)

    def _joined(self, kind: Any, ends: Sequence[tuple[Any, Any]]) -> Any:
        """The value of the block from which this one was reached."""
        found = self.b.phi(kind)
        for value, block in ends:
            found.add_incoming(value, block)
        return found

    def _of_IfExp(self, node: ast.IfExp) -> Any:
        yes, no, after = (self.llvm.append_basic_block() for _ in range(3))
        self._branch(node.test, yes, no)
        found = []
        for block, expression in ((yes, node.body), (no, node.orelse)):
            self.b.position_at_end(block)
            found.append((self._value(expression), self.b.block))
            self.b.branch(after)
        self.b.position_at_end(after)
        if found[0][0].type is not found[1][0].type:
            raise self._refused(node, "values of two types")
        return self._joined(found[0][0].type, found)

    # Calls

    def _called(self, node: ast.Call) -> Any:
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self._refused(node, "a call with keywords or *")
        return self._constant(node.func)

    def _of_Call(self, node: ast.Call) -> Any:
        function = self._called(node)
        if function in (int, float) and len(node.args) == 1 and isinstance(node.args[0], ast.Subscript):
            values = [self._entry(node.args[0])]
        else:
            values = [self._value(a) for a in node.args]
        if function in _BUILTINS:
            return _BUILTINS[function](self, node, *values)
        if function in bits.COMPILED:
            build, _, wanted = BUILDERS[bits.COMPILED[function]]
            if len(values) != len(wanted) or any(v.type is not w for v, w in zip(values, wanted, strict=True)):
                raise self._refused(node, "arguments of other types")
            return build(self.b, *values)
        if function not in bits.SCALARS:
            raise self._refused(node, f"a call of `{ast.unparse(node.func)}`, which is no helper of definitions")
        called = self._other(function, tuple(v.type for v in values))
        if self.calls.setdefault(called.name, called) is not called:
            raise self._refused(node, f"{called.name} is the name of two functions")
        if called.name not in self.module.globals:
            ir.Function(self.module, ir.FunctionType(called.result, [v.type for v in values]), called.name)
        return self.b.call(self.module.globals[called.name], values)

    def _intrinsic(self, name: str, *values: Any) -> Any:
        kind = ir.FunctionType(DOUBLE, [DOUBLE] * len(values))
        return self.b.call(self.module.declare_intrinsic(name, [DOUBLE], kind), values)

    def _of_abs(self, node: ast.AST, value: Any) -> Any:
        if value.type is DOUBLE:
            return self._intrinsic("llvm.fabs", value)
        return self.b.select(self.b.icmp_signed("<", value, int_constant(0)), self.b.neg(value), value)

    def _of_least(self, node: ast.AST, *values: Any) -> Any:
        return functools.reduce(lambda a, b: self.b.select(self._compared(node, ast.Lt(), b, a), b, a), values)

    def _of_greatest(self, node: ast.AST, *values: Any) -> Any:
        return functools.reduce(lambda a, b: self.b.select(self._compared(node, ast.Gt(), b, a), b, a), values)

    def _of_int(self, node: ast.AST, value: Any) -> Any:
        return value if value.type is INT64 else self.b.fptosi(value, INT64)

    def _of_float(self, node: ast.AST, value: Any) -> Any:
        return value if value.type is DOUBLE else self.b.sitofp(value, DOUBLE)

    def _of_copysign(self, node: ast.AST, size: Any, sign: Any) -> Any:
        if not size.type is sign.type is DOUBLE:
            raise self._refused(node, "copysign of integers")
        return self._intrinsic("llvm.copysign", size, sign)

    def _of_sqrt(self, node: ast.AST, value: Any) -> Any:
        if value.type is not DOUBLE:
            raise self._refused(node, "sqrt of an integer")
        return self._intrinsic("llvm.sqrt", value)


_BUILTINS: dict[Any, Callable[..., Any]] = {
    abs: ExpressionTranslation._of_abs,
    min: ExpressionTranslation._of_least,
    max: ExpressionTranslation._of_greatest,
    int: ExpressionTranslation._of_int,
    float: ExpressionTranslation._of_float,
    math.copysign: ExpressionTranslation._of_copysign,
    math.sqrt: ExpressionTranslation._of_sqrt,
}


def _is_truth(node: ast.expr) -> bool:
    """Whether an expression can only be False or True."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_truth, node.values))
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
