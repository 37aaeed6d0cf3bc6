"""Translates a graph of torch operations to the text of a Triton kernel's body.

Integers have bounds, and the narrowest type that holds them, so that a GPU computes with 32 bits where possible.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptxdiff.sweep.result import ROW

ROW_BITS = ROW.bit_length() - 1


class NotFused(RuntimeError):
    """No kernel can be made of some operation; the message names it."""


class Slots(tuple[Any, ...]):
    """The values of one tensor that has several elements for each input: the codes of a storage unit, in order."""

    __slots__ = ()


class Stack(tuple[Any, ...]):
    """The values of tensors that were stacked along a new first dimension."""

    __slots__ = ()


TRACED = 13
"""How many inputs a graph is recorded with: no number of codes of a unit, so that torch refuses to broadcast inputs
along codes."""


class KernelText:
    """The lines so far, for the inputs of numbers `base + off`.

    base: the name of an int64 multiple of `ROW`, equal for all; off: below `ROW`. number_bits: the most bits of a
    number. tables: constants for look-ups, named `t0`, `t1` and so on.
    """

    def __init__(self, number_bits: int, base: str) -> None:
        self.lines: list[str] = []
        self.tables: list[Tensor] = []
        self.base = base
        self._number = number_bits

    # ---- Numbers of inputs ----------------------------------------------------------------------------------

    def number_bounds(self, shift: int) -> Bounds:
        """The bounds of a number shifted right."""
        return 0, ((1 << self._number) - 1) >> shift

    def spelt(self, value: Any) -> Value:
        """A value with a text, also for a shifted number."""
        if not isinstance(value, Value):
            raise NotFused(f"a {type(value).__name__} where a value is needed")
        if value.shift is None:
            return value
        return self.masked(value.shift, self.number_bounds(value.shift)[1])

    def masked(self, shift: int, mask: int) -> Value:
        """`(number >> shift) & mask`; the part from `base` is constant for a whole row."""
        bounds = 0, min(mask, self.number_bounds(shift)[1])
        kind = register(bounds)
        parts = []
        if mask >> max(0, ROW_BITS - shift):
            parts.append(f"(({self.base} >> {shift}) & {literal(mask, 'int64')}).to(tl.{kind})")
        if shift < ROW_BITS:
            parts.append(f"((off >> {shift}) & {literal(mask, 'int32')}).to(tl.{kind})")
        return self.let(" + ".join(parts) if parts else literal(0, kind), "int", bounds)

    # ---- Emitting -------------------------------------------------------------------------------------------

    def let(self, text: str, kind: str, bounds: Bounds = (0, 0)) -> Value:
        """Assign a text to a new name."""
        if kind == "int" and bounds[0] == bounds[1]:
            return constant(bounds[0])
        name = f"{self.base}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return Value(name, kind, (0, 1) if kind == "bool" else bounds)

    def operand(self, value: Any) -> Value:
        """The value of a Python number or a node."""
        if isinstance(value, bool):
            return Value(literal(int(value), "int32") + ".to(tl.int1)", "bool", (0, 1))
        if isinstance(value, int):
            return constant(value)
        if isinstance(value, float):
            return Value(repr(value), "literal")
        return self.spelt(value)

    def fitted(self, bounds: Bounds, dtype: str) -> Bounds:
        """Bounds of a result that wraps in its type."""
        if RANGES[dtype] not in (RANGES["int64"], RANGES["int32"]) and not within(bounds, RANGES[dtype]):
            raise NotFused(f"arithmetic that wraps in {dtype}")
        return bounds if within(bounds, RANGES[dtype]) else RANGES[dtype]

    def modular(self, operation: str, a: Value, b: Value, bounds: Bounds, dtype: str) -> Value:
        """An operation whose low bits depend only on low bits."""
        bounds = self.fitted(bounds, dtype)
        kind = register(bounds)
        narrow = f"{a.as_(kind)} {operation} {b.as_(kind)}"
        if operation == "<<" and b.bounds[1] >= 32 and kind != "int64":
            narrow = f"({a.as_('int64')} << {b.as_('int64')}).to(tl.{kind})"
        return self.let(narrow, "int", bounds)


INT64 = (-(1 << 63), (1 << 63) - 1)
INT32 = (-(1 << 31), (1 << 31) - 1)
UINT32 = (0, (1 << 32) - 1)
RANGES = {
    "int64": INT64, "int32": INT32, "int16": (-(1 << 15), (1 << 15) - 1), "int8": (-128, 127), "uint8": (0, 255),
}  # fmt: skip

Bounds = tuple[int, int]


@dataclass(frozen=True)
class Value:
    """A value in a kernel's text.

    text: an expression without side effects. kind: "int", "bool", or a floating-point type's name. bounds: for integers
    and bools. shift: set for the number of an input that is to be shifted right by this many places and has no text
    yet.
    """

    text: str
    kind: str
    bounds: Bounds = (0, 0)
    shift: int | None = None

    @property
    def type(self) -> str:
        """The type that holds it in the kernel."""
        return register(self.bounds) if self.kind == "int" else "int1" if self.kind == "bool" else self.kind

    @property
    def is_constant(self) -> bool:
        """Whether it has only one possible value."""
        return self.kind == "int" and self.bounds[0] == self.bounds[1]

    def as_(self, kind: str) -> str:
        """The text of the value in another type; integers keep their low bits."""
        if self.is_constant and kind in ("int32", "uint32", "int64"):
            return literal(self.bounds[0], kind)
        return self.text if self.type == kind else f"{self.text}.to(tl.{kind})"


def constant(number: int) -> Value:
    """A constant integer."""
    return Value(literal(number, register((number, number))), "int", (number, number))


def register(bounds: Bounds) -> str:
    """The narrowest type that holds a range."""
    if within(bounds, INT32):
        return "int32"
    return "uint32" if within(bounds, UINT32) else "int64"


def literal(number: int | float, kind: str) -> str:
    """A constant of a type; integers wrap."""
    if kind in ("int32", "uint32", "int64"):
        bits = 64 if kind == "int64" else 32
        number = int(number) & ((1 << bits) - 1)
        if kind != "uint32" and number >> (bits - 1):
            number -= 1 << bits
        return f"tl.full((), {number}, tl.{kind})"
    if number == 0 and math.copysign(1, number) < 0:  # of which `tl.full` makes +0 in Triton 3.6
        bits = int(kind.lstrip("bfloat"))
        return f"tl.full((), {-(1 << (bits - 1))}, tl.int{bits}).to(tl.{kind}, bitcast=True)"
    text = repr(float(number))
    return f"tl.full((), {text if text[-1].isdigit() else f'float({text!r})'}, tl.{kind})"


def within(inner: Bounds, outer: Bounds) -> bool:
    """Whether a range lies in another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def hull(*ranges: Bounds) -> Bounds:
    """The least range that contains all given ranges."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def corners(a: Bounds, b: Bounds, operation: str) -> Bounds:
    """The range of a sum, difference, product or shift."""
    if operation == "+":
        return a[0] + b[0], a[1] + b[1]
    if operation == "-":
        return a[0] - b[1], a[1] - b[0]
    if operation in ("<<", ">>"):
        b = max(0, min(63, b[0])), max(0, min(63, b[1]))
    ends = [_OPERATIONS[operation](x, y) for x in a for y in b]
    return min(ends), max(ends)


_OPERATIONS = {"*": int.__mul__, "<<": int.__lshift__, ">>": int.__rshift__, "//": int.__floordiv__}


def bitwise(a: Bounds, b: Bounds, operation: str) -> Bounds:
    """The range of a bitwise and, or, or exclusive or."""
    positive = [r[1] for r in (a, b) if r[0] >= 0]
    if operation == "&" and positive:
        return 0, min(positive)
    bits = max(max(high, ~low).bit_length() for low, high in (a, b))
    return (0 if len(positive) == 2 else -(1 << bits)), (1 << bits) - 1


def _integers(*values: Value) -> bool:
    return all(v.kind == "int" for v in values)


def _as_int(value: Value) -> Value:
    return Value(f"{value.text}.to(tl.int32)", "int", (0, 1)) if value.kind == "bool" else value


def _float(value: Value, dtype: str) -> str:
    if value.kind == "literal":
        return literal(float(value.text), dtype)
    if value.is_constant:
        return literal(value.bounds[0], dtype)
    return value.as_(dtype)


_FLOATS = ("float32", "float64")


def _arithmetic(operation: str) -> Callable[..., Value]:
    def emit(body: KernelText, dtype: str, a: Any, b: Any) -> Value:
        left, right = body.operand(a), body.operand(b)
        if dtype == "bool" and operation == "*":
            return body.let(f"{left.text} & {right.text}", "bool")
        left, right = _as_int(left), _as_int(right)
        if dtype in RANGES:
            return body.modular(operation, left, right, corners(left.bounds, right.bounds, operation), dtype)
        if dtype not in _FLOATS:
            raise NotFused(f"{operation} in {dtype}")
        return body.let(f"{_float(left, dtype)} {operation} {_float(right, dtype)}", dtype)

    return emit


def _reversed_subtraction(body: KernelText, dtype: str, a: Any, b: Any) -> Value:
    return _arithmetic("-")(body, dtype, b, a)


def _divided(body: KernelText, dtype: str, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is not None:
        if dtype != "int64":
            raise NotFused(f"division in {dtype}, rounded: {rounding_mode}")
        return _floor_divided(body, dtype, a, b)  # of what is not negative: "trunc" and "floor" are the same
    left, right = (_float(body.operand(x), dtype) for x in (a, b))
    if dtype not in _FLOATS:
        raise NotFused(f"division in {dtype}")
    return body.let(f"tl.div_rn({left}, {right})" if dtype == "float32" else f"{left} / {right}", dtype)


def _floor_divided(body: KernelText, dtype: str, a: Any, b: Any) -> Value:
    left, right = body.operand(a), body.operand(b)
    if not _integers(left, right) or left.bounds[0] < 0 or right.bounds[0] <= 0:
        raise NotFused("floor_divide of what may be negative")
    kind = register(hull(left.bounds, right.bounds))
    return body.let(f"{left.as_(kind)} // {right.as_(kind)}", "int", corners(left.bounds, right.bounds, "//"))


def _bits(operation: str) -> Callable[..., Value]:
    def emit(body: KernelText, dtype: str, a: Any, b: Any) -> Value:
        for number, mask in ((a, b), (b, a)):
            if operation == "&" and isinstance(number, Value) and number.shift is not None and isinstance(mask, int):
                return body.masked(number.shift, mask) if mask >= 0 else body.spelt(number)
        left, right = body.operand(a), body.operand(b)
        if dtype == "bool":
            return body.let(f"{left.text} {operation} {right.text}", "bool")
        left, right = _as_int(left), _as_int(right)
        bounds = bitwise(left.bounds, right.bounds, operation)
        if operation == "&":  # a mask that clears no bits
            for value, mask in ((left, right), (right, left)):
                ones = mask.is_constant and mask.bounds[0] & (mask.bounds[0] + 1) == 0
                if ones and within(value.bounds, (0, mask.bounds[0])):
                    return value
        return body.modular(operation, left, right, bounds, dtype)

    return emit


def _inverted(body: KernelText, dtype: str, a: Any) -> Value:
    value = body.operand(a)
    if dtype == "bool":
        return body.let(f"~{value.text}", "bool")
    low, high = value.bounds
    return body.modular("^", value, constant(-1), (~high, ~low), dtype)


def _left(body: KernelText, dtype: str, a: Any, b: Any) -> Value:
    left, right = _as_int(body.operand(a)), body.operand(b)
    if right.is_constant and right.bounds[0] == 0:
        return left
    return body.modular("<<", left, right, corners(left.bounds, right.bounds, "<<"), dtype)


def _right(body: KernelText, dtype: str, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and a.shift is not None and isinstance(b, int):
        return Value("", "int", body.number_bounds(a.shift + b), shift=a.shift + b)
    left, right = _as_int(body.operand(a)), body.operand(b)
    if right.is_constant and right.bounds[0] == 0:
        return left
    kind = "int64" if right.bounds[1] >= 32 else left.type
    bounds = corners(left.bounds, right.bounds, ">>")
    return body.let(f"({left.as_(kind)} >> {right.as_(kind)}).to(tl.{register(bounds)})", "int", bounds)


def _negated(body: KernelText, dtype: str, a: Any) -> Value:
    value = body.operand(a)
    if dtype in RANGES:
        return body.modular("-", constant(0), value, (-value.bounds[1], -value.bounds[0]), dtype)
    bits = int(dtype.lstrip("bfloat"))  # Triton 3.6 computes -x as 0 - x, which is +0 for 0
    sign = f"tl.full((), {-(1 << (bits - 1))}, tl.int{bits})"
    return body.let(
        f"({_float(value, dtype)}.to(tl.int{bits}, bitcast=True) ^ {sign}).to(tl.{dtype}, bitcast=True)", dtype
    )


def _absolute(body: KernelText, dtype: str, a: Any) -> Value:
    value = body.operand(a)
    if dtype not in RANGES:
        return body.let(f"tl.abs({value.text})", dtype)
    low, high = value.bounds
    if low >= 0:
        return value
    if low == RANGES[dtype][0]:
        raise NotFused("the absolute value of what may be the least integer")
    bounds = (0, max(-low, high))
    return body.let(f"tl.abs({value.as_(register((low, high)))}).to(tl.{register(bounds)})", "int", bounds)


def _compared(operation: str) -> Callable[..., Value]:
    def emit(body: KernelText, dtype: str, a: Any, b: Any) -> Value:
        left, right = body.operand(a), body.operand(b)
        if left.kind == "bool" and right.is_constant and right.bounds[0] in (0, 1) and operation in ("==", "!="):
            same = (operation == "==") == (right.bounds[0] == 1)
            return left if same else body.let(f"~{left.text}", "bool")
        left, right = _as_int(left), _as_int(right)
        if _integers(left, right):
            decided = _decided(operation, left, right)
            if decided is not None:
                return body.operand(decided)
            kind = register(hull(left.bounds, right.bounds))
            return body.let(f"{left.as_(kind)} {operation} {right.as_(kind)}", "bool")
        kind = next(v.kind for v in (left, right) if v.kind in _FLOATS)
        return body.let(f"{_float(left, kind)} {operation} {_float(right, kind)}", "bool")

    return emit


def _decided(operation: str, left: Value, right: Value) -> bool | None:
    """The result of a comparison if the bounds determine it, else None."""
    if left.text == right.text and left.text:
        return _COMPARISONS[operation](0, 0)
    (a, b), (c, d) = left.bounds, right.bounds
    if operation in ("==", "!="):
        return operation == "!=" if b < c or d < a else None
    outcomes = {_COMPARISONS[operation](x, y) for x, y in ((a, d), (b, c))}
    return outcomes.pop() if len(outcomes) == 1 else None


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def _where(body: KernelText, dtype: str, condition: Any, a: Any, b: Any) -> Value:
    chosen, left, right = body.operand(condition), body.operand(a), body.operand(b)
    if dtype == "bool":
        return body.let(f"({chosen.text} & {left.text}) | (~{chosen.text} & {right.text})", "bool")
    if dtype in RANGES:
        left, right = _as_int(left), _as_int(right)
        bounds = hull(left.bounds, right.bounds)
        kind = register(bounds)
        return body.let(f"tl.where({chosen.text}, {left.as_(kind)}, {right.as_(kind)})", "int", bounds)
    return body.let(f"tl.where({chosen.text}, {_float(left, dtype)}, {_float(right, dtype)})", dtype)


def _clamped(body: KernelText, dtype: str, a: Any, low: Any = None, high: Any = None) -> Value:
    value = body.operand(a)
    if dtype in _FLOATS:
        return _clamped_float(body, dtype, value, low, high)
    if dtype not in RANGES:
        raise NotFused(f"clamp of {dtype}")
    for limit, function, pick in ((low, "tl.maximum", max), (high, "tl.minimum", min)):
        if limit is None:
            continue
        bound = body.operand(limit)
        bounds = pick(value.bounds[0], bound.bounds[0]), pick(value.bounds[1], bound.bounds[1])
        if bounds == value.bounds:
            continue
        kind = register(hull(value.bounds, bound.bounds))
        text = f"{function}({value.as_(kind)}, {bound.as_(kind)})"
        value = body.let(f"{text}.to(tl.{register(bounds)})", "int", bounds)
    return value


def _clamped_float(body: KernelText, dtype: str, value: Value, low: Any, high: Any) -> Value:
    """As torch on a CPU: NaN, and a zero beside a limit of 0, stay what they are."""
    for limit, beyond in ((low, "<"), (high, ">")):
        if limit is not None:
            bound = _float(body.operand(limit), dtype)
            value = body.let(f"tl.where({value.text} {beyond} {bound}, {bound}, {value.text})", dtype)
    return value


def _converted(body: KernelText, dtype: str, a: Any) -> Any:
    if isinstance(a, Tensor):
        return a.to(getattr(torch, dtype))
    if isinstance(a, Value) and a.shift == 0 and dtype == "int32":
        return body.let(f"{body.base}.to(tl.int32) + off", "int", RANGES["int32"])
    value = body.operand(a)
    if dtype in RANGES:
        if value.kind in _FLOATS:
            return body.let(f"{value.text}.to(tl.{dtype})", "int", RANGES[dtype])
        value = _as_int(value)
        if within(value.bounds, RANGES[dtype]):
            return value
        wrapped = value.as_("int32") if dtype == "int32" else f"{value.text}.to(tl.{dtype}).to(tl.int32)"
        return body.let(wrapped, "int", RANGES[dtype])
    if dtype == "bool":
        return value if value.kind == "bool" else body.let(f"{value.text} != 0", "bool")
    return body.let(_float(_as_int(value), dtype), dtype)


def _viewed(body: KernelText, dtype: str, a: Any, _: Any) -> Value:
    value = body.operand(a)
    if dtype in RANGES:
        if value.kind == "int" and not within(value.bounds, RANGES[dtype]):
            raise NotFused("an integer viewed as another")
        if value.kind == "int":
            return value
        return body.let(f"{value.text}.to(tl.{dtype}, bitcast=True)", "int", RANGES[dtype])
    width = {"float64": "int64", "float32": "int32", "float16": "int16", "bfloat16": "int16"}[dtype]
    if value.kind != "int":
        raise NotFused("a float viewed as another")
    return body.let(f"{value.as_(width)}.to(tl.{dtype}, bitcast=True)", dtype)


def _signbit(body: KernelText, _: str, a: Any) -> Value:
    value = body.operand(a)
    width = {"float64": "int64", "float32": "int32"}[value.kind]
    return body.let(f"{value.text}.to(tl.{width}, bitcast=True) < 0", "bool")


def _filled(body: KernelText, dtype: str, _: Any, number: Any = 0) -> Value:
    return _constant(body, dtype, number)


def _ones(body: KernelText, dtype: str, _: Any) -> Value:
    return _constant(body, dtype, 1)


def _constant(body: KernelText, dtype: str, number: Any) -> Value:
    if dtype == "bool":
        return body.operand(bool(number))
    return body.operand(int(number) if dtype in RANGES else float(number))


def _looked_up(body: KernelText, dtype: str, table: Any, indices: Any) -> Value:
    (index,) = indices
    if not isinstance(table, Tensor) or table.dim() != 1:
        raise NotFused("an index into what is no constant table")
    bounds = int(table.min()), int(table.max())
    kind = "int32" if register(bounds) != "int64" else "int64"
    body.tables.append(table.to(getattr(torch, kind)))
    index_text = body.operand(index).as_("int32")
    return body.let(f"tl.load(t{len(body.tables) - 1} + {index_text}).to(tl.{register(bounds)})", "int", bounds)


def _same(body: KernelText, _: str, a: Any) -> Any:
    return a


def _special(test: str) -> Callable[..., Value]:
    def emit(body: KernelText, _: str, a: Any) -> Value:
        value = body.operand(a)
        infinity = literal(float("inf"), value.kind)
        return body.let(test.format(x=value.text, infinity=infinity), "bool")

    return emit


def _function(name: str) -> Callable[..., Value]:
    def emit(body: KernelText, dtype: str, a: Any) -> Value:
        if dtype != "float64":
            raise NotFused(f"{name} in {dtype}")
        return body.let(f"{name}({_float(body.operand(a), dtype)})", dtype)

    return emit


def _function_of_two(name: str) -> Callable[..., Value]:
    def emit(body: KernelText, dtype: str, a: Any, b: Any) -> Value:
        if dtype != "float64":
            raise NotFused(f"{name} in {dtype}")
        return body.let(f"{name}({_float(body.operand(a), dtype)}, {_float(body.operand(b), dtype)})", dtype)

    return emit


def _stacked(body: KernelText, shape: Sequence[int], parts: Any, dim: int = 0) -> Slots | Stack:
    if dim not in (-2, -1, 0, 1) or any(not isinstance(p, Value) for p in parts):
        raise NotFused("a stack of other than codes of one unit")
    return Slots(parts) if dim in (-1, 1) else Stack(parts)


def _summed(body: KernelText, shape: Sequence[int], value: Any, dims: Any = None) -> Value:
    if not isinstance(value, Stack) or dims not in ([0], [-2]):
        raise NotFused("a sum of other than a stack")
    total = body.operand(value[0])
    for other in value[1:]:
        total = _arithmetic("+")(body, "int64", total, other)
    return total


def _unbound(body: KernelText, shape: Sequence[int], value: Any, dim: int = 0) -> list[Any]:
    if not isinstance(value, Slots) or dim not in (-1, 1):
        raise NotFused("other than the codes of a unit, one by one")
    return list(value)


def _reshaped(body: KernelText, shape: Sequence[int], value: Any, *_: Any) -> Any:
    count = len(value) if isinstance(value, Slots) else 1
    if list(shape) != [TRACED * count] and (shape[0] != TRACED or math.prod(shape[1:]) != count):
        raise NotFused(f"a shape of {list(shape)}")
    return value


def _expanded(body: KernelText, shape: Sequence[int], value: Any, *_: Any) -> Any:
    if isinstance(value, Slots) or len(shape) != 2 or shape[0] != TRACED:
        raise NotFused(f"an expansion to {list(shape)}")
    return Slots([value] * shape[1]) if shape[1] > 1 else value


def _all(body: KernelText, shape: Sequence[int], value: Any, dim: int = 0) -> Any:
    if not isinstance(value, Slots) or dim not in (-1, 1):
        raise NotFused("all of other than the codes of a unit")
    conjunction = value[0]
    for other in value[1:]:
        conjunction = body.let(f"{conjunction.text} & {other.text}", "bool")
    return conjunction


def _selected(body: KernelText, shape: Sequence[int], value: Any, dim: int, index: int) -> Any:
    if not isinstance(value, Slots) or dim not in (-1, len(shape)) or not shape or shape[0] != TRACED:
        raise NotFused("a choice among inputs")
    apart = len(value) // math.prod(shape[1:])
    chosen = Slots(value[index % apart :: apart])
    return chosen if len(chosen) > 1 else chosen[0]


# Operations on the codes of a storage unit, by the name of the aten operation; they also get the shape of the result.
SLOTS: dict[str, Callable[..., Any]] = {
    "stack": _stacked, "unsqueeze": _reshaped, "expand": _expanded, "all": _all, "select": _selected,
    "reshape": _reshaped, "_unsafe_view": _reshaped, "sum": _summed, "unbind": _unbound,
}  # fmt: skip

# Functions of float64 that torch, too, takes from libdevice on a GPU.
_LIBDEVICE = ("exp", "exp2", "log", "log1p", "log2", "sin", "cos", "tanh", "rsqrt", "erf", "erfc")

# Elementwise operations by the name of the aten operation.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": _arithmetic("+"), "sub": _arithmetic("-"), "mul": _arithmetic("*"), "rsub": _reversed_subtraction,
    "div": _divided, "floor_divide": _floor_divided, "neg": _negated, "abs": _absolute, "clamp": _clamped,
    "bitwise_and": _bits("&"), "bitwise_or": _bits("|"), "bitwise_xor": _bits("^"), "bitwise_not": _inverted,
    "logical_not": _inverted, "__lshift__": _left, "__rshift__": _right, "bitwise_left_shift": _left,
    "bitwise_right_shift": _right,
    "eq": _compared("=="), "ne": _compared("!="), "lt": _compared("<"), "le": _compared("<="), "gt": _compared(">"),
    "ge": _compared(">="), "where": _where, "_to_copy": _converted, "view": _viewed, "signbit": _signbit,
    "full_like": _filled, "zeros_like": _filled, "ones_like": _ones,
    "index": _looked_up, "lift_fresh_copy": _same, "detach": _same, "clone": _same,
    "alias": _same, "isnan": _special("{x} != {x}"), "isinf": _special("tl.abs({x}) == {infinity}"),
    "isfinite": _special("tl.abs({x}) < {infinity}"), "sqrt": _function("tl.sqrt"),
    **{name: _function(f"libdevice.{name}") for name in _LIBDEVICE}, "atan2": _function_of_two("libdevice.atan2"),
}  # fmt: skip


_OF_TENSORS = ("dtype", "layout", "device", "pin_memory", "memory_format")


class Body(KernelText):
    """The lines that compute a graph's results from its arguments; None stands for the inputs' numbers.

    results: the texts of the values that the graph returns.
    """

    def __init__(self, graph: Any, arguments: Sequence[Value | None], number_bits: int, *, base: str = "base") -> None:
        super().__init__(number_bits, base)
        self._values: dict[Any, Any] = {}
        self._arguments = iter(arguments)
        self._module = graph
        self.results: list[Any] = []
        for node in graph.graph.nodes:
            if getattr(getattr(node.target, "_schema", None), "is_mutable", False):
                raise NotFused(f"no kernel text for {node.target}, which writes to a tensor")
        graph.graph.eliminate_dead_code()
        for node in graph.graph.nodes:
            self._take(node)

    def _take(self, node: Any) -> None:
        if node.op == "placeholder":
            given = next(self._arguments)
            self._values[node] = given if given is not None else Value("", "int", self.number_bounds(0), shift=0)
        elif node.op == "get_attr":
            self._values[node] = getattr(self._module, node.target)
        elif node.op == "output":
            self.results = [self._result(self._values[n]) for n in node.args[0]]
        elif node.target is operator.getitem:
            self._values[node] = self._values[node.args[0]][node.args[1]]
        else:
            self._values[node] = self._called(node)

    def _called(self, node: Any) -> Any:
        """The value of an operation."""
        options = {k: v for k, v in node.kwargs.items() if k not in _OF_TENSORS}
        name, made = node.target.overloadpacket.__name__, node.meta["val"]
        arguments = [self._value(a) for a in node.args]
        if name in ("arange", "scalar_tensor") or _of_constants(arguments):
            return self._folded(node, arguments)
        if name == "view" and isinstance(arguments[1], list):
            name = "reshape"
        emit = SLOTS.get(name) or OPERATIONS.get(name)
        if emit is None or not _takes(emit, arguments, options):
            raise NotFused(f"no kernel text for {node.target}" + "".join(f", {name}=" for name in options))
        if name in SLOTS:
            return SLOTS[name](self, made.shape if isinstance(made, torch.Tensor) else (), *arguments, **options)
        return self._elementwise(OPERATIONS[name], made, arguments, options)

    def _folded(self, node: Any, arguments: Sequence[Any]) -> torch.Tensor:
        """An operation on constant tensors alone, computed by torch on the CPU."""
        from torch.utils._python_dispatch import _disable_current_modes

        options = {k: v for k, v in node.kwargs.items() if k != "device"}
        with _disable_current_modes():
            folded = node.target(*arguments, **options)
        if not isinstance(folded, torch.Tensor):
            raise NotFused(f"no kernel text for {node.target} of constants")
        return folded

    def _elementwise(self, emit: Callable[..., Any], made: Any, arguments: Sequence[Any], options: Any) -> Any:
        """An operation, or one for each slot of a storage unit."""
        dtype = str(made.dtype).removeprefix("torch.")
        if emit is not OPERATIONS["index"]:
            arguments = [_constants(a) for a in arguments]
        slots = {len(s) for a in arguments for s in (a, *(a if isinstance(a, list) else ())) if isinstance(s, Slots)}
        if not slots:
            if list(made.shape) not in ([TRACED], [TRACED, 1], [1], []):
                raise NotFused(f"a shape of {list(made.shape)}")
            return emit(self, dtype, *arguments, **options)
        if len(slots) > 1:
            raise NotFused("tensors of several numbers of codes for each input")
        (count,) = slots
        if list(made.shape) not in ([TRACED, count], [TRACED * count]):
            raise NotFused(f"a shape of {list(made.shape)} where there are {count} codes for each input")

        def of(argument: Any, k: int) -> Any:
            if isinstance(argument, Slots):
                return argument[k]
            return [of(a, k) for a in argument] if isinstance(argument, list) else argument

        return Slots(emit(self, dtype, *(of(a, k) for a in arguments), **options) for k in range(count))

    def _result(self, value: Any) -> Any:
        return Slots(map(self.spelt, value)) if isinstance(value, Slots) else self.spelt(value)

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self._values[argument]
        if isinstance(argument, (list, tuple)):
            return [self._value(a) for a in argument]
        return argument


def _of_constants(arguments: Sequence[Any]) -> bool:
    """Whether there are tensors among the arguments and all of them are constant."""
    flat = [x for a in arguments for x in (a if isinstance(a, list) else [a])]
    if any(isinstance(x, (Value, tuple)) for x in flat):
        return False
    return any(isinstance(x, torch.Tensor) for x in flat)


def _constants(argument: Any) -> Any:
    """A constant tensor as a number, or as one for each code of a storage unit."""
    if not isinstance(argument, torch.Tensor):
        return argument
    if argument.dim() > 1:
        raise NotFused("a constant table that is not looked up")
    return argument.item() if argument.numel() == 1 else Slots(argument.tolist())


def _takes(emit: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any]) -> bool:
    """Whether a function of `SLOTS` or `OPERATIONS` takes what an operation was called with."""
    try:
        inspect.signature(emit).bind(None, None, *arguments, **options)
    except TypeError:
        return False
    return True
