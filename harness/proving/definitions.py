"""Interpret the source of scalar definitions over terms.

As in `ptxdiff.emulator.numeric.translation`, an integer is a 64-bit pattern that wraps, and a condition is 0 or 1. A
float is the pattern of a float64, whose NaNs are one. Both ways of a branch are interpreted where its condition is no
constant, and their results are joined; a loop ends where its condition becomes a constant.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxdiff.emulator.numeric import bits
from ptxdiff.emulator.numeric.translation.source import Untranslatable, code_of, tree
from ptxdiff.emulator.numeric.vectorise import ArrayFunction, read
from ptxdiff.proving import doubles, summaries
from ptxdiff.proving import terms as t
from ptxdiff.proving.terms import FALSE, TRUE, NotModelled, Term, TermFunction

TURNS = 200
"""Turns after which a loop without a constant end is given up."""


@dataclass(frozen=True)
class Double:
    """A float64 in a definition."""

    bits: Term


Value = Term | Double
"""An integer of 64 bits (a condition has width 0), or a float64."""


def of_lanes(function: ArrayFunction, *arguments: Term) -> Term:
    """The result of an instruction's definition for operands as wide as their registers. Raises NotModelled."""
    values = []
    for argument, (width, is_signed) in zip(arguments, function.sources, strict=True):
        wide = t.as_bits(argument, 64) if argument.width == 0 else argument
        if width < 64 and argument.width not in (0, 64):
            wide = t.sext(argument, 64) if is_signed else t.zext(argument, 64)
        values.append(wide)
    fixed = [t.const(c, 64) for c in function.constants]
    result = integer(called(function.function, [*values, *fixed]))
    return t.nonzero(t.extract(result, 0, 0)) if function.width == 1 else t.extract(result, function.width - 1, 0)


def uninterpreted(function: ArrayFunction, *arguments: Term) -> Term:
    """The result of a definition as a function of which the solver knows nothing."""
    name = f"{function.function.__module__}.{function.function.__qualname__}"
    name += "".join(f".{c}" for c in function.constants)
    width = function.width if function.width > 1 else 0
    symbol = TermFunction(f"{name}:{width}", width, function.one, approximate=True)
    return t.apply(symbol, *arguments)


def called(function: Callable[..., Any], arguments: Sequence[Value]) -> Value:
    """The result of a definition or of one of its helpers. Raises NotModelled."""
    known = summaries.OF_DEFINITIONS.get(function)
    result: Value | None = None if known is None else known(*arguments)
    if result is not None:
        return result
    return interpreted(function, arguments)


def interpreted(function: Callable[..., Any], arguments: Sequence[Value]) -> Value:
    """The result by the source of a function, even if there is a summary of it. Raises NotModelled."""
    try:
        node = tree(function)
    except Untranslatable as error:
        raise NotModelled(str(error)) from error
    names = [a.arg for a in node.args.args]
    if len(names) != len(arguments):
        raise NotModelled(f"{function.__qualname__} takes {len(names)} arguments, not {len(arguments)}")
    return _InterpretedCall(function, dict(zip(names, arguments, strict=True))).result(node.body)


def integer(value: Value) -> Term:
    """A value as an integer of 64 bits; a condition as 0 or 1."""
    if isinstance(value, Double):
        raise NotModelled("a float where an integer is expected")
    return t.as_bits(value, 64) if value.width == 0 else value


def _joined(condition: Term, yes: Value | None, no: Value | None) -> Value | None:
    """One of two values; None where a name is not set on the way that was taken."""
    if yes is None or no is None:
        return yes if no is None else no
    if isinstance(yes, Double) != isinstance(no, Double):
        raise NotModelled("a name is an integer on one way and a float on the other")
    if isinstance(yes, Double) and isinstance(no, Double):
        return Double(t.ite(condition, yes.bits, no.bits))
    assert isinstance(yes, Term)
    assert isinstance(no, Term)
    if yes.width != no.width:
        yes, no = integer(yes), integer(no)
    return t.ite(condition, yes, no)


@dataclass
class _PathTaken:
    """A way through a function: the condition under which it is taken, and the names on it."""

    condition: Term
    names: dict[str, Value] = field(default_factory=dict)


def _merged(condition: Term, yes: _PathTaken | None, no: _PathTaken | None) -> _PathTaken | None:
    """The way after a branch; None where both have returned."""
    if yes is None or no is None:
        return yes or no
    names = {}
    for name in {**yes.names, **no.names}:
        joined_value = _joined(condition, yes.names.get(name), no.names.get(name))
        assert joined_value is not None
        names[name] = joined_value
    return _PathTaken(t.bor(yes.condition, no.condition), names)


class _InterpretedCall:
    """One call of a function."""

    def __init__(self, function: Callable[..., Any], names: dict[str, Value]) -> None:
        self.function = function
        self.way = _PathTaken(TRUE, names)
        self.returned: list[tuple[Term, Value]] = []
        """The results so far, each with the condition of its way; the last one that holds counts."""

    def refused(self, node: ast.AST, what: str) -> NotModelled:
        return NotModelled(
            f"{self.function.__module__}.{self.function.__qualname__}, line {getattr(node, 'lineno', '?')}: {what}"
        )

    def result(self, body: Sequence[ast.stmt]) -> Value:
        """What the function returns."""
        rest = self.body(body, self.way)
        if rest is not None and rest.condition is not FALSE:
            raise NotModelled(f"{self.function.__qualname__}: a way through it returns nothing")
        *earlier, (_, merged) = self.returned
        for condition, value in reversed(earlier):
            joined = _joined(condition, value, merged)
            assert joined is not None
            merged = joined
        return merged

    def body(self, statements: Sequence[ast.stmt], way: _PathTaken | None) -> _PathTaken | None:
        for statement in statements:
            if way is None or way.condition is FALSE:
                return None
            way = getattr(self, f"do_{type(statement).__name__}", self.unknown)(statement, way)
        return way

    def unknown(self, node: ast.AST, way: _PathTaken) -> Any:
        raise self.refused(node, type(node).__name__)

    # Statements

    def do_Expr(self, node: ast.Expr, way: _PathTaken) -> _PathTaken:
        if not isinstance(node.value, ast.Constant):
            raise self.refused(node, "an expression without effect")
        return way

    def do_Return(self, node: ast.Return, way: _PathTaken) -> None:
        if node.value is None:
            raise self.refused(node, "return without a value")
        self.returned.append((way.condition, self.value(node.value, way)))

    def do_Assign(self, node: ast.Assign, way: _PathTaken) -> _PathTaken:
        (target,) = node.targets
        if isinstance(target, ast.Name):
            return self.assigned(way, [target], [self.value(node.value, way)])
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.IfExp):
            condition = self.condition(node.value.test, way)
            ways = [self.tuple(n, target, way) for n in (node.value.body, node.value.orelse)]
            joined = [_joined(condition, a, b) for a, b in zip(*ways, strict=True)]
            return self.assigned(way, target.elts, [v for v in joined if v is not None])
        if isinstance(target, ast.Tuple):
            return self.assigned(way, target.elts, self.tuple(node.value, target, way))
        raise self.refused(node, "this target")

    def tuple(self, node: ast.expr, target: ast.Tuple, way: _PathTaken) -> list[Value]:
        if not isinstance(node, ast.Tuple) or len(node.elts) != len(target.elts):
            raise self.refused(node, "this target")
        return [self.value(n, way) for n in node.elts]

    def assigned(self, way: _PathTaken, targets: Sequence[ast.expr], values: Sequence[Value]) -> _PathTaken:
        names = dict(way.names)
        for target, value in zip(targets, values, strict=True):
            if not isinstance(target, ast.Name):
                raise self.refused(target, "this target")
            names[target.id] = value
        return _PathTaken(way.condition, names)

    def do_AnnAssign(self, node: ast.AnnAssign, way: _PathTaken) -> _PathTaken:
        if node.value is None:
            return way
        return self.assigned(way, [node.target], [self.value(node.value, way)])

    def do_AugAssign(self, node: ast.AugAssign, way: _PathTaken) -> _PathTaken:
        if not isinstance(node.target, ast.Name):
            raise self.refused(node, "this target")
        left = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        value = self.value(ast.copy_location(ast.BinOp(left, node.op, node.value), node), way)
        return self.assigned(way, [node.target], [value])

    def do_If(self, node: ast.If, way: _PathTaken) -> _PathTaken | None:
        condition = self.condition(node.test, way)
        if condition.constant is not None:
            return self.body(node.body if condition is TRUE else node.orelse, way)
        yes = self.body(node.body, _PathTaken(t.band(way.condition, condition), way.names))
        no = self.body(node.orelse, _PathTaken(t.band(way.condition, t.bnot(condition)), way.names))
        return _merged(condition, yes, no)

    def do_While(self, node: ast.While, way: _PathTaken) -> _PathTaken | None:
        if node.orelse:
            raise self.refused(node, "else of a loop")
        now: _PathTaken | None = way
        left: list[tuple[Term, _PathTaken]] = []
        for _ in range(TURNS):
            assert now is not None
            condition = self.condition(node.test, now)
            if condition is not TRUE:
                left.append((t.bnot(condition), _PathTaken(t.band(now.condition, t.bnot(condition)), now.names)))
            if condition is FALSE:
                now = None
            else:
                now = self.body(node.body, _PathTaken(t.band(now.condition, condition), now.names))
            if now is None or now.condition is FALSE:
                break
        else:
            raise self.refused(node, f"a loop with more than {TURNS} turns")
        after: _PathTaken | None = None
        for condition, one in reversed(left):
            after = _merged(condition, one, after)
        return after

    def do_For(self, node: ast.For, way: _PathTaken) -> _PathTaken | None:
        if node.orelse:
            raise self.refused(node, "else of a loop")
        now: _PathTaken | None = way
        if isinstance(node.iter, ast.Call) and self.constant(node.iter.func, way) is range:
            ends = [integer(self.value(a, way)).constant for a in node.iter.args]
            if any(e is None for e in ends):
                raise self.refused(node, "a loop whose end is not constant")
            turns = range(*(t.signed(e, 64) for e in ends if e is not None))
            rows: Sequence[Any] = [(k,) for k in turns]
            targets: Sequence[ast.expr] = [node.target]
        else:
            rows, targets = self.constant(node.iter, way), getattr(node.target, "elts", ())
            if not isinstance(rows, tuple) or not targets:
                raise self.refused(node, "this loop")
        if len(rows) > TURNS:
            raise self.refused(node, f"a loop with more than {TURNS} turns")
        for row in rows:
            if now is None:
                return None
            now = self.assigned(now, targets, [self.literal(v, node) for v in row])
            now = self.body(node.body, now)
        return now

    # Conditions

    def condition(self, node: ast.expr, way: _PathTaken) -> Term:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return t.bnot(self.condition(node.operand, way))
        if isinstance(node, ast.BoolOp):
            combined = TRUE if isinstance(node.op, ast.And) else FALSE
            for operand in node.values:
                one = self.condition(operand, way)
                combined = t.band(combined, one) if isinstance(node.op, ast.And) else t.bor(combined, one)
                if combined is (FALSE if isinstance(node.op, ast.And) else TRUE):
                    return combined
            return combined
        if isinstance(node, ast.Compare):
            return self.comparisons(node, way)
        value = self.value(node, way)
        if isinstance(value, Double):
            return t.bnot(doubles.equal(value.bits, doubles.constant(0.0)))
        return t.nonzero(value)

    def comparisons(self, node: ast.Compare, way: _PathTaken) -> Term:
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            (among,) = node.comparators
            if not isinstance(among, ast.Tuple):
                raise self.refused(node, "`in` with anything but a tuple")
            left, truth = self.value(node.left, way), FALSE
            for member in among.elts:
                truth = t.bor(truth, self.compared(node, ast.Eq(), left, self.value(member, way)))
            return truth if isinstance(node.ops[0], ast.In) else t.bnot(truth)
        truth, left = TRUE, self.value(node.left, way)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node, way)
            truth = t.band(truth, self.compared(node, op, left, right))
            left = right
        return truth

    def compared(self, node: ast.AST, op: ast.cmpop, left: Value, right: Value) -> Term:
        if isinstance(left, Double) != isinstance(right, Double):
            raise self.refused(node, "a comparison of an integer with a float")
        if isinstance(left, Double) and isinstance(right, Double):
            equal, less = doubles.equal, doubles.less
            a, b = left.bits, right.bits
        else:
            equal, less = t.eq, t.slt
            a, b = integer(left), integer(right)
        if isinstance(op, ast.Eq):
            return equal(a, b)
        if isinstance(op, ast.NotEq):
            return t.bnot(equal(a, b))
        if isinstance(op, ast.Lt | ast.Gt):
            return less(a, b) if isinstance(op, ast.Lt) else less(b, a)
        if isinstance(op, ast.LtE | ast.GtE):
            low, high = (a, b) if isinstance(op, ast.LtE) else (b, a)
            if isinstance(left, Term):
                return t.bnot(less(high, low))
            return t.bor(less(low, high), equal(low, high))
        raise self.refused(node, type(op).__name__)

    # Expressions

    def value(self, node: ast.expr, way: _PathTaken) -> Value:
        handler = getattr(self, f"of_{type(node).__name__}", None)
        if handler is None:
            raise self.refused(node, type(node).__name__)
        result: Value = handler(node, way)
        return result

    def of_Constant(self, node: ast.Constant, way: _PathTaken) -> Value:
        return self.literal(node.value, node)

    def literal(self, value: Any, node: ast.AST) -> Value:
        if isinstance(value, bool | np.bool_ | int | np.integer) and -(1 << 63) <= int(value) < 1 << 63:
            return t.const(int(value), 64)
        if isinstance(value, float):
            return Double(doubles.constant(float(value)))
        raise self.refused(node, f"the constant {value!r}")

    def constant(self, node: ast.expr, way: _PathTaken) -> Any:
        """The object that a name stands for which is not a local variable."""
        if isinstance(node, ast.Name) and node.id not in code_of(self.function).co_varnames:
            known = self.function.__globals__
            if node.id in known:
                return known[node.id]
            if hasattr(builtins, node.id):
                return getattr(builtins, node.id)
        if isinstance(node, ast.Attribute) and self.constant(node.value, way) is math:
            return getattr(math, node.attr)
        raise self.refused(node, f"`{ast.unparse(node)}`")

    def of_Name(self, node: ast.Name, way: _PathTaken) -> Value:
        if node.id in code_of(self.function).co_varnames:
            if node.id not in way.names:
                raise self.refused(node, f"`{node.id}` is not set on every way")
            return way.names[node.id]
        return self.literal(self.constant(node, way), node)

    def of_Attribute(self, node: ast.Attribute, way: _PathTaken) -> Value:
        return self.literal(self.constant(node, way), node)

    def of_Subscript(self, node: ast.Subscript, way: _PathTaken) -> Value:
        table = self.constant(node.value, way)
        if not isinstance(table, np.ndarray) or table.dtype.kind not in "iuf":
            raise self.refused(node, "an index into anything but a table of numbers")
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        offset = t.const(0, 64)
        for position, size in zip(index, table.shape, strict=True):
            at = integer(self.value(position, way))
            at = t.ite(t.slt(at, t.const(0, 64)), t.add(at, t.const(size, 64)), at)
            offset = t.add(t.mul(offset, t.const(size, 64)), at)
        element = entry(table, offset)
        return Double(element) if table.dtype.kind == "f" else element

    def of_BinOp(self, node: ast.BinOp, way: _PathTaken) -> Value:
        left, right = self.value(node.left, way), self.value(node.right, way)
        if isinstance(left, Double) or isinstance(right, Double):
            a, b = (v.bits if isinstance(v, Double) else doubles.from_integer(integer(v)) for v in (left, right))
            build = _FLOAT.get(type(node.op))
            if build is None:
                raise self.refused(node, type(node.op).__name__)
            return Double(build(a, b))
        a, b = integer(left), integer(right)
        if isinstance(node.op, ast.LShift | ast.RShift):
            return (t.shl if isinstance(node.op, ast.LShift) else t.ashr)(a, b)
        build = INTEGER.get(type(node.op))
        if build is None:
            raise self.refused(node, type(node.op).__name__)
        return build(a, b)

    def of_UnaryOp(self, node: ast.UnaryOp, way: _PathTaken) -> Value:
        if isinstance(node.op, ast.Not):
            return self.condition(node, way)
        value = self.value(node.operand, way)
        if isinstance(node.op, ast.USub):
            return Double(doubles.negated(value.bits)) if isinstance(value, Double) else t.neg(integer(value))
        if isinstance(node.op, ast.Invert) and not isinstance(value, Double):
            return t.not_(integer(value))
        raise self.refused(node, type(node.op).__name__)

    def of_Compare(self, node: ast.Compare, way: _PathTaken) -> Value:
        return self.condition(node, way)

    def of_BoolOp(self, node: ast.BoolOp, way: _PathTaken) -> Value:
        *first, last = node.values
        result = self.value(last, way)
        for operand in reversed(first):
            value = self.value(operand, way)
            condition = self.condition(operand, way)
            pair = (result, value) if isinstance(node.op, ast.And) else (value, result)
            joined = _joined(condition, *pair)
            assert joined is not None
            result = joined
        return result

    def of_IfExp(self, node: ast.IfExp, way: _PathTaken) -> Value:
        condition = self.condition(node.test, way)
        if condition.constant is not None:
            return self.value(node.body if condition is TRUE else node.orelse, way)
        chosen = _joined(condition, self.value(node.body, way), self.value(node.orelse, way))
        assert chosen is not None
        return chosen

    def of_Call(self, node: ast.Call, way: _PathTaken) -> Value:
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.refused(node, "a call with keywords or *")
        function = self.constant(node.func, way)
        values = [self.value(a, way) for a in node.args]
        if function in _BUILTINS:
            result: Value = _BUILTINS[function](self, node, *values)
            return result
        if function in bits.COMPILED:
            return HELPERS[bits.COMPILED[function]](*values)
        if function not in bits.SCALARS:
            raise self.refused(node, f"a call of `{ast.unparse(node.func)}`, which is no helper of definitions")
        return called(function, values)

    def absolute(self, node: ast.AST, value: Value) -> Value:
        if isinstance(value, Double):
            return Double(doubles.absolute(value.bits))
        whole = integer(value)
        return t.ite(t.slt(whole, t.const(0, 64)), t.neg(whole), whole)

    def least(self, node: ast.AST, *values: Value) -> Value:
        return self.chosen(node, ast.Lt(), values)

    def greatest(self, node: ast.AST, *values: Value) -> Value:
        return self.chosen(node, ast.Gt(), values)

    def chosen(self, node: ast.AST, op: ast.cmpop, values: Sequence[Value]) -> Value:
        choice, *others = values
        for other in others:
            joined = _joined(self.compared(node, op, other, choice), other, choice)
            assert joined is not None
            choice = joined
        return choice

    def to_int(self, node: ast.AST, value: Value) -> Value:
        return doubles.to_integer(value.bits) if isinstance(value, Double) else integer(value)

    def to_float(self, node: ast.AST, value: Value) -> Value:
        return value if isinstance(value, Double) else Double(doubles.from_integer(integer(value)))

    def copysign(self, node: ast.AST, size: Value, sign: Value) -> Value:
        if not isinstance(size, Double) or not isinstance(sign, Double):
            raise self.refused(node, "copysign of integers")
        top = t.const(1 << 63, 64)
        return Double(t.or_(t.and_(size.bits, t.not_(top)), t.and_(sign.bits, top)))

    def root(self, node: ast.AST, value: Value) -> Value:
        if not isinstance(value, Double):
            raise self.refused(node, "sqrt of an integer")
        return Double(doubles.square_root(value.bits))


_BUILTINS: dict[Any, Callable[..., Value]] = {
    abs: _InterpretedCall.absolute, min: _InterpretedCall.least, max: _InterpretedCall.greatest,
    int: _InterpretedCall.to_int, float: _InterpretedCall.to_float, math.copysign: _InterpretedCall.copysign,
    math.sqrt: _InterpretedCall.root,
}  # fmt: skip


def floor_divided(a: Term, b: Term) -> Term:
    """`a // b` of signed numbers, 0 for a zero divisor."""
    width = a.width
    zero, negative = t.const(0, width), t.bnot(t.eq(t.slt(a, t.const(0, width)), t.slt(b, t.const(0, width))))
    size_a, size_b = (t.ite(t.slt(v, zero), t.neg(v), v) for v in (a, b))
    quotient = t.udiv(size_a, size_b)
    exact = t.eq(t.mul(quotient, size_b), size_a)
    down = t.add(t.neg(quotient), t.ite(exact, zero, t.const(-1, width)))
    return t.ite(t.eq(b, zero), zero, t.ite(negative, down, quotient))


def _modulo(a: Term, b: Term) -> Term:
    return t.sub(a, t.mul(floor_divided(a, b), b))


INTEGER: dict[type, Callable[[Term, Term], Term]] = {
    ast.Add: t.add, ast.Sub: t.sub, ast.Mult: t.mul, ast.BitAnd: t.and_, ast.BitOr: t.or_, ast.BitXor: t.xor,
    ast.FloorDiv: floor_divided, ast.Mod: _modulo,
}  # fmt: skip
_FLOAT: dict[type, Callable[[Term, Term], Term]] = {
    ast.Add: doubles.add, ast.Sub: doubles.subtract, ast.Mult: doubles.multiply, ast.Div: doubles.divide,
}  # fmt: skip


def _word(value: Value) -> Term:
    return t.extract(integer(value), 31, 0)


def _double(value: Value) -> Term:
    if not isinstance(value, Double):
        raise NotModelled("an integer where a float is expected")
    return value.bits


def _high(a: Value, b: Value) -> Term:
    wide = t.mul(t.zext(integer(a), 128), t.zext(integer(b), 128))
    return t.extract(wide, 127, 64)


HELPERS: dict[str, Callable[..., Value]] = {
    "wrap64": integer,
    "shr64": lambda x, n: t.lshr(integer(x), integer(n)),
    "shl64": lambda x, n: t.shl(integer(x), integer(n)),
    "high64": _high,
    "udiv64": lambda x, y: t.udiv(integer(x), integer(y)),
    "clz64": lambda x: doubles.leading_zeros(integer(x)),
    "popcount64": lambda x: doubles.population(integer(x)),
    "f32_value": lambda x: Double(doubles.widened(_word(x), 8, 23)),
    "f32_round": lambda x: t.zext(doubles.narrowed(_double(x), 8, 23), 64),
    "f64_value": lambda x: Double(integer(x)),
    "f64_bits": _double,
    "divide": lambda a, b: Double(doubles.divide(_double(a), _double(b))),
    "square_root": lambda a: Double(doubles.square_root(_double(a))),
    "to_float": lambda x: Double(doubles.from_integer(integer(x))),
    "to_int": lambda x: doubles.to_integer(_double(x)),
}

LARGEST_TABLE = 512
"""Entries up to which a table is written out as choices; a larger one is a function of its index."""


def entry(table: Any, place: Term) -> Term:
    """An entry of a table of numbers: a 64-bit integer, or the pattern of a float64.

    A large table is a function with a digest of its numbers as name: two tables are one function if they are equal.
    """
    flat = [doubles.pattern(float(v)) if table.dtype.kind == "f" else int(v) for v in table.ravel().tolist()]
    if place.constant is not None:
        return t.const(flat[place.constant] if place.constant < len(flat) else 0, 64)
    if len(flat) > LARGEST_TABLE:
        name = hashlib.sha256(repr(flat).encode()).hexdigest()[:32]
        return t.apply(TermFunction(f"table.{name}", 64, lambda k: flat[k] if k < len(flat) else 0), place)
    values = [t.const(v, 64) for v in flat]
    for bit in range(max(len(flat) - 1, 1).bit_length()):
        chosen = t.nonzero(t.extract(place, bit, bit))
        pairs = [values[k : k + 2] for k in range(0, len(values), 2)]
        values = [t.ite(chosen, p[1], p[0]) if len(p) == 2 else p[0] for p in pairs]
    return values[0]


__all__ = ["Double", "called", "entry", "floor_divided", "integer", "of_lanes", "read", "uninterpreted"]
