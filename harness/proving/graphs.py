"""Evaluate a graph of torch operations on terms: a tensor is a numpy array of terms, which numpy moves about.

A term of a float tensor is its bit pattern. float32 and narrower are computed in float64 and rounded: one sum,
product, quotient or root of float32 values is then rounded as if once (Figueroa).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from ptxdiff.proving import definitions, doubles, summaries
from ptxdiff.proving import terms as t
from ptxdiff.proving.terms import NotModelled, Term, TermFunction
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F16, F32

Terms = Any
"""A numpy array of terms, of dtype object."""

_FLOATS = {torch.float64: (11, 52), torch.float32: (8, 23), torch.float16: (5, 10), torch.bfloat16: (8, 7)}
_WIDTHS = {
    torch.bool: 0, torch.uint8: 8, torch.int8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64, torch.float64: 64,
    torch.float32: 32, torch.float16: 16, torch.bfloat16: 16,
}  # fmt: skip
_OF_TENSORS = ("dtype", "layout", "device", "pin_memory", "memory_format")


def evaluated(graph: Any, arguments: Sequence[Sequence[Term]]) -> list[Term]:
    """The elements of the tensor that a graph returns. Raises NotModelled."""
    return _Evaluation(graph, arguments).result


def _array(elements: Sequence[Any], shape: Sequence[int] | None = None) -> Terms:
    array = np.empty(len(elements), object)
    for k, element in enumerate(elements):
        array[k] = element
    return array if shape is None else array.reshape(tuple(shape))


def _each(function: Callable[..., Term], *arrays: Any) -> Terms:
    """A function of elements, with numpy's broadcasting; other arguments are one element."""
    wide = np.broadcast_arrays(*(a if isinstance(a, np.ndarray) else _array([a], ()) for a in arrays))
    return _array([function(*row) for row in zip(*(w.ravel() for w in wide), strict=True)], wide[0].shape)


class _Evaluation:
    def __init__(self, graph: Any, arguments: Sequence[Sequence[Term]]) -> None:
        self.module = graph
        self.values: dict[Any, Any] = {}
        self.result: list[Term] = []
        given = iter(arguments)
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = _array(list(next(given)))
            elif node.op == "get_attr":
                self.values[node] = getattr(graph, node.target)
            elif node.op == "output":
                self.result = list(self.terms(node.args[0], self.dtype(node.args[0]) or torch.bool).ravel())
            elif node.target is operator.getitem:
                self.values[node] = self.values[node.args[0]][node.args[1]]
            else:
                self.values[node] = self.called(node)

    def called(self, node: Any) -> Any:
        schema = getattr(node.target, "_schema", None)
        if schema is None or schema.is_mutable:
            raise NotModelled(f"{node.target} in the reference")
        name = node.target.overloadpacket.__name__
        arguments = [self.value(a) for a in node.args]
        flat = [x for a in arguments for x in (a if isinstance(a, list) else [a])]
        tensors = [x for x in flat if isinstance(x, torch.Tensor | np.ndarray)]
        if not any(isinstance(x, np.ndarray) for x in tensors) and name not in ("full_like", "zeros_like", "ones_like"):
            options = {k: v for k, v in node.kwargs.items() if k != "device"}
            from torch.utils._python_dispatch import _disable_current_modes

            with _disable_current_modes():
                return node.target(*arguments, **options)
        handler = _OPERATIONS.get(name)
        if handler is None:
            raise NotModelled(f"{node.target} in the reference")
        options = {k: v for k, v in node.kwargs.items() if k not in _OF_TENSORS}
        result = handler(self, node, *node.args, **options)
        if isinstance(result, Term):  # numpy's reductions of one element are no array
            result = _array([result], ())
        made = node.meta["val"]
        if isinstance(made, torch.Tensor) and tuple(made.shape) != result.shape:
            raise NotModelled(f"{node.target} in the reference, of shape {tuple(made.shape)}")
        return result

    def value(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        if isinstance(argument, list | tuple):
            return [self.value(a) for a in argument]
        return argument

    def dtype(self, argument: Any) -> torch.dtype | None:
        """The type of a tensor; None for a number."""
        value = self.value(argument)
        if isinstance(value, torch.Tensor):
            return value.dtype
        return argument.meta["val"].dtype if isinstance(argument, torch.fx.Node) else None

    def terms(self, argument: Any, dtype: torch.dtype) -> Terms:
        """An argument as terms of a type."""
        value, own = self.value(argument), self.dtype(argument)
        if isinstance(value, torch.Tensor):
            flat = [_literal(v, value.dtype) for v in value.reshape(-1).tolist()]
            value = _array(flat, value.shape)
        elif not isinstance(value, np.ndarray):
            return _array([_literal(value, dtype)], ())
        assert own is not None
        return value if own is dtype else _each(lambda x: _converted(x, own, dtype), value)

    def common(self, *arguments: Any) -> torch.dtype:
        """The type in which torch compares or computes with arguments."""
        likes = []
        for a in arguments:
            value = self.value(a)
            if isinstance(value, np.ndarray):
                value = a.meta["val"]
            likes.append(value)
        if all(isinstance(x, torch.Tensor) for x in likes) or len(likes) == 2:
            dtype: torch.dtype = torch.result_type(*likes)
            return dtype
        raise NotModelled("an operation on more than two kinds of numbers")


def _literal(value: Any, dtype: torch.dtype) -> Term:
    if dtype in _FLOATS:
        wide = doubles.constant(float(value))
        return wide if dtype is torch.float64 else doubles.narrowed(wide, *_FLOATS[dtype])
    if dtype is torch.bool:
        return t.truth(bool(value))
    return t.const(int(value), _WIDTHS[dtype])


def _is_unsigned(dtype: torch.dtype) -> bool:
    return dtype in (torch.uint8, torch.bool)


def _widened(x: Term, dtype: torch.dtype) -> Term:
    """A term of a float type as a float64."""
    return x if dtype is torch.float64 else doubles.widened(x, *_FLOATS[dtype])


def _rounded(x: Term, dtype: torch.dtype) -> Term:
    return x if dtype is torch.float64 else doubles.narrowed(x, *_FLOATS[dtype])


def _converted(x: Term, source: torch.dtype, target: torch.dtype) -> Term:
    if source not in _WIDTHS or target not in _WIDTHS:
        raise NotModelled(f"tensors of {source} or {target} in the reference")
    width = _WIDTHS[target]
    if target is torch.bool:
        if source in _FLOATS:
            return t.bnot(doubles.equal(_widened(x, source), doubles.constant(0.0)))
        return t.nonzero(x)
    if source in _FLOATS and target in _FLOATS:
        return _rounded(_widened(x, source), target)
    if target in _FLOATS:
        wide = _resized(x, source, 64)
        if target is not torch.float64 and wide.maybe.bit_length() > 53:
            raise NotModelled(f"integers of more than 53 bits converted to {target} in the reference")
        return _rounded(doubles.from_integer(wide), target)
    if source in _FLOATS:
        wide = _widened(x, source)
        integer = doubles.to_integer(wide)
        if width == 64:
            return integer
        fits = t.ult(doubles.absolute(wide), doubles.constant(2.0 ** (width - 1)))
        unknown = TermFunction(f"f64.out_of_range_of.{width}", width)
        return t.ite(fits, t.extract(integer, width - 1, 0), t.apply(unknown, wide))
    return _resized(x, source, width)


def _resized(x: Term, source: torch.dtype, width: int) -> Term:
    if x.width == 0:
        return t.as_bits(x, width)
    if x.width >= width:
        return t.extract(x, width - 1, 0)
    return t.zext(x, width) if _is_unsigned(source) else t.sext(x, width)


# Operations


def _made(node: Any) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def _arithmetic(of_integers: Callable[..., Term], of_floats: Callable[..., Term] | None) -> Callable[..., Terms]:
    def operation(self: _Evaluation, node: Any, a: Any, b: Any, alpha: int = 1) -> Terms:
        dtype = _made(node)
        if alpha != 1:
            raise NotModelled("alpha= in the reference")
        left, right = self.terms(a, dtype), self.terms(b, dtype)
        if dtype in _FLOATS:
            if of_floats is None:
                raise NotModelled(f"{node.target} of floats in the reference")
            return _each(lambda x, y: _rounded(of_floats(_widened(x, dtype), _widened(y, dtype)), dtype), left, right)
        if dtype is torch.bool:
            if of_integers not in (t.and_, t.or_, t.xor, t.mul):
                raise NotModelled(f"{node.target} of booleans in the reference")
            return _each(_OF_TRUTHS[of_integers], left, right)
        return _each(of_integers, left, right)

    return operation


_OF_TRUTHS: dict[Any, Callable[..., Term]] = {
    t.and_: t.band, t.mul: t.band, t.or_: t.bor, t.xor: lambda a, b: t.bnot(t.eq(a, b)),
}  # fmt: skip


def _reversed_subtraction(self: _Evaluation, node: Any, a: Any, b: Any) -> Terms:
    return _arithmetic(t.sub, doubles.subtract)(self, node, b, a)


def _shifted(build: Callable[..., Term]) -> Callable[..., Terms]:
    def operation(self: _Evaluation, node: Any, a: Any, b: Any) -> Terms:
        dtype = _made(node)
        if dtype in _FLOATS or dtype is torch.bool:
            raise NotModelled(f"{node.target} of {dtype} in the reference")
        by = t.lshr if build is t.ashr and _is_unsigned(dtype) else build
        return _each(by, self.terms(a, dtype), self.terms(b, dtype))

    return operation


def _divided(self: _Evaluation, node: Any, a: Any, b: Any, rounding_mode: str | None = None) -> Terms:
    dtype = _made(node)
    left, right = self.terms(a, dtype), self.terms(b, dtype)
    if dtype in _FLOATS:
        if rounding_mode is not None:
            raise NotModelled("a rounded quotient of floats in the reference")
        return _each(lambda x, y: _rounded(doubles.divide(_widened(x, dtype), _widened(y, dtype)), dtype), left, right)
    if rounding_mode == "floor":
        return _each(definitions.floor_divided, left, right)
    if rounding_mode == "trunc":
        return _each(_truncated, left, right)
    raise NotModelled("a quotient of integers in the reference")


def _truncated(a: Term, b: Term) -> Term:
    zero = t.const(0, a.width)
    minus = [t.slt(v, zero) for v in (a, b)]
    quotient = t.udiv(*(t.ite(m, t.neg(v), v) for m, v in zip(minus, (a, b), strict=True)))
    return t.ite(t.eq(*minus), quotient, t.neg(quotient))


def _floor_divided(self: _Evaluation, node: Any, a: Any, b: Any) -> Terms:
    return _divided(self, node, a, b, "floor")


def _compared(name: str) -> Callable[..., Terms]:
    def operation(self: _Evaluation, node: Any, a: Any, b: Any) -> Terms:
        dtype = self.common(a, b)
        left, right = self.terms(a, dtype), self.terms(b, dtype)
        if dtype is torch.bool:
            dtype = torch.uint8
            left, right = (_each(lambda x: t.as_bits(x, 8), v) for v in (left, right))
        if dtype in _FLOATS:
            left, right = (_each(lambda x: _widened(x, dtype), v) for v in (left, right))
            equal, less = doubles.equal, doubles.less
        else:
            equal, less = t.eq, t.ult if _is_unsigned(dtype) else t.slt
        table: dict[str, Callable[[Term, Term], Term]] = {
            "eq": equal,
            "ne": lambda x, y: t.bnot(equal(x, y)),
            "lt": less,
            "gt": lambda x, y: less(y, x),
            "le": lambda x, y: t.bor(less(x, y), equal(x, y)),
            "ge": lambda x, y: t.bor(less(y, x), equal(x, y)),
        }
        return _each(table[name], left, right)

    return operation


def _where(self: _Evaluation, node: Any, condition: Any, a: Any, b: Any) -> Terms:
    dtype = _made(node)
    return _each(t.ite, self.terms(condition, torch.bool), self.terms(a, dtype), self.terms(b, dtype))


def _clamped(self: _Evaluation, node: Any, a: Any, low: Any = None, high: Any = None) -> Terms:
    dtype = _made(node)
    clamped = self.terms(a, dtype)
    for limit, above in ((low, False), (high, True)):
        if limit is None:
            continue
        bound = self.terms(limit, dtype)

        def one(x: Term, y: Term, above: bool = above) -> Term:
            pair = (y, x) if above else (x, y)
            if dtype in _FLOATS:
                beyond = doubles.less(*(_widened(v, dtype) for v in pair))
            else:
                beyond = (t.ult if _is_unsigned(dtype) else t.slt)(*pair)
            return t.ite(beyond, y, x)

        clamped = _each(one, clamped, bound)
    return clamped


def _extreme(larger: bool) -> Callable[..., Terms]:
    def operation(self: _Evaluation, node: Any, a: Any, b: Any) -> Terms:
        dtype = _made(node)
        if dtype in _FLOATS or dtype is torch.bool:
            raise NotModelled(f"{node.target} of {dtype} in the reference")
        less = t.ult if _is_unsigned(dtype) else t.slt
        pick = (lambda x, y: t.ite(less(x, y), y, x)) if larger else (lambda x, y: t.ite(less(x, y), x, y))
        return _each(pick, self.terms(a, dtype), self.terms(b, dtype))

    return operation


def _inverted(self: _Evaluation, node: Any, a: Any) -> Terms:
    dtype = _made(node)
    return _each(t.bnot if dtype is torch.bool else t.not_, self.terms(a, dtype))


def _negated(self: _Evaluation, node: Any, a: Any) -> Terms:
    dtype = _made(node)
    top = 1 << max(_WIDTHS[dtype] - 1, 0)
    if dtype in _FLOATS:
        return _each(lambda x: t.xor(x, t.const(top, x.width)), self.terms(a, dtype))
    return _each(t.neg, self.terms(a, dtype))


def _absolute(self: _Evaluation, node: Any, a: Any) -> Terms:
    dtype = _made(node)
    if dtype in _FLOATS:
        return _each(lambda x: t.and_(x, t.const(t.ones(x.width) >> 1, x.width)), self.terms(a, dtype))
    return _each(lambda x: t.ite(t.slt(x, t.const(0, x.width)), t.neg(x), x), self.terms(a, dtype))


def _to_copy(self: _Evaluation, node: Any, a: Any) -> Terms:
    return self.terms(a, _made(node))


def _same(self: _Evaluation, node: Any, a: Any) -> Any:
    return self.value(a)


def _viewed(self: _Evaluation, node: Any, a: Any, how: Any) -> Terms:
    own = self.dtype(a)
    assert own is not None
    terms = self.terms(a, own)
    if isinstance(how, torch.dtype):
        if _WIDTHS.get(own) != _WIDTHS.get(how) or torch.bool in (own, how):
            raise NotModelled(f"{own} viewed as {how} in the reference")
        return terms
    return terms.reshape(tuple(node.meta["val"].shape))


def _reshaped(self: _Evaluation, node: Any, a: Any, *_: Any) -> Terms:
    return self.terms(a, _made(node)).reshape(tuple(node.meta["val"].shape))


def _expanded(self: _Evaluation, node: Any, a: Any, *_: Any) -> Terms:
    return np.broadcast_to(self.terms(a, _made(node)), tuple(node.meta["val"].shape))


def _signbit(self: _Evaluation, node: Any, a: Any) -> Terms:
    own = self.dtype(a)
    assert own is not None
    return _each(lambda x: t.nonzero(t.extract(x, x.width - 1, x.width - 1)), self.terms(a, own))


def _test(test: Callable[[Term], Term]) -> Callable[..., Terms]:
    def operation(self: _Evaluation, node: Any, a: Any) -> Terms:
        own = self.dtype(a)
        if own not in _FLOATS:
            raise NotModelled(f"{node.target} of integers in the reference")
        return _each(lambda x: test(_widened(x, own)), self.terms(a, own))

    return operation


_INFINITY = t.const(0x7FF0000000000000, 64)


def _filled(value: Any) -> Callable[..., Terms]:
    def operation(self: _Evaluation, node: Any, a: Any, number: Any = value) -> Terms:
        return np.broadcast_to(self.terms(number, _made(node)), tuple(node.meta["val"].shape))

    return operation


def _function(name: str) -> Callable[..., Terms]:
    def operation(self: _Evaluation, node: Any, *arguments: Any) -> Terms:
        dtype = _made(node)
        if dtype is not torch.float64:
            raise NotModelled(f"{node.target} of {dtype} in the reference")
        function = getattr(torch, name)

        def numeric(*patterns: int) -> int:
            values = [torch.tensor(doubles.number(p), dtype=torch.float64) for p in patterns]
            return doubles.pattern(float(function(*values)))

        symbol = TermFunction(f"f64.{name}", 64, numeric, approximate=True)
        return _each(lambda *x: t.apply(symbol, *x), *(self.terms(a, dtype) for a in arguments))

    return operation


def _root(self: _Evaluation, node: Any, a: Any) -> Terms:
    dtype = _made(node)
    return _each(lambda x: _rounded(doubles.square_root(_widened(x, dtype)), dtype), self.terms(a, dtype))


def _reciprocal(self: _Evaluation, node: Any, a: Any) -> Terms:
    return _divided(self, node, 1.0, a)


def _looked_up(self: _Evaluation, node: Any, table: Any, indices: Any) -> Terms:
    known = self.value(table)
    if len(indices) == 1 and isinstance(known, torch.Tensor) and known.dim() == 1:
        dtype, numbers = _made(node), known.cpu()
        if dtype not in (torch.int64, torch.float64):
            raise NotModelled(f"a table of {dtype} in the reference")
        values = numbers.numpy()
        size = t.const(len(values), 64)

        def one(x: Term) -> Term:
            at = t.ite(t.slt(x, t.const(0, 64)), t.add(x, size), x)
            return definitions.entry(values, at)

        return _each(one, self.terms(indices[0], torch.int64))
    places = [self.value(i) for i in indices]
    if isinstance(known, np.ndarray) and all(isinstance(p, torch.Tensor) for p in places):
        return known[tuple(p.numpy() for p in places)]
    raise NotModelled("an index into what is no constant table, in the reference")


def _stacked(self: _Evaluation, node: Any, parts: Any, dim: int = 0) -> Terms:
    dtype = _made(node)
    return np.stack([self.terms(p, dtype) for p in parts], axis=dim)


def _unbound(self: _Evaluation, node: Any, a: Any, dim: int = 0) -> list[Terms]:
    own = self.dtype(a)
    assert own is not None
    return list(np.moveaxis(self.terms(a, own), dim, 0))


def _selected(self: _Evaluation, node: Any, a: Any, dim: int, index: int) -> Terms:
    return np.take(self.terms(a, _made(node)), index, axis=dim)


def _all(self: _Evaluation, node: Any, a: Any, dim: int = 0) -> Terms:
    rows = np.moveaxis(self.terms(a, torch.bool), dim, 0)
    return functools.reduce(lambda x, y: _each(t.band, x, y), rows)


def _summed(self: _Evaluation, node: Any, a: Any, dims: Any = None) -> Terms:
    dtype = _made(node)
    terms = self.terms(a, dtype)
    if dtype in _FLOATS or dims is None or len(dims) != 1:
        raise NotModelled(f"{node.target} in the reference")
    return functools.reduce(lambda x, y: _each(t.add, x, y), np.moveaxis(terms, dims[0], 0))


def _ieee(
    self: _Evaluation, node: Any, operation: str, fmt: Sequence[int], mode: int, ftz: bool, codes: Sequence[Any]
) -> Terms:
    exponent_bits, mantissa_bits = fmt
    width = 1 + exponent_bits + mantissa_bits

    def one(*patterns: Term) -> Term:
        narrow = [t.extract(p, width - 1, 0) for p in patterns]
        result = summaries.ieee(operation, exponent_bits, mantissa_bits, mode, ftz, *narrow)
        if ftz:
            # A reference that flushes results alone keeps subnormal operands; no instruction does, so it has no term.
            tiny = functools.reduce(t.bor, (t.bnot(t.eq(p, summaries.flushed(p, mantissa_bits))) for p in narrow))
            result = t.ite(tiny, t.apply(_of_subnormals(operation, *fmt, mode), *narrow), result)
        return t.zext(result, 64)

    return _each(one, *(self.terms(c, torch.int64) for c in codes))


@functools.cache
def _of_subnormals(operation: str, exponent_bits: int, mantissa_bits: int, mode: int) -> TermFunction:
    """An operation that flushes its result and keeps its operands, as a function of which no query knows anything."""
    fmt = {(8, 23): F32, (5, 10): F16}[exponent_bits, mantissa_bits]
    rounding = [*summaries.MODES][mode]

    def numeric(*patterns: int) -> int:
        result = getattr(arithmetic, operation)(
            *(torch.tensor([p]) for p in patterns), fmt=fmt, rounding=rounding, ftz="results"
        )
        return int(result)

    def expand(*patterns: Term) -> Term:  # a tiny sum is exact, so flushing it is no matter of rounding
        result = summaries.ieee(operation, exponent_bits, mantissa_bits, mode, False, *patterns)
        return summaries.flushed(result, mantissa_bits)

    name = f"ieee.{operation}.{exponent_bits}.{mantissa_bits}.{rounding}.results"
    width = 1 + exponent_bits + mantissa_bits
    return TermFunction(name, width, numeric, expand=expand if operation == "add" else None)


_OF_DOUBLES = (
    "exp", "exp2", "log", "log1p", "log2", "sin", "cos", "tanh", "rsqrt", "erf", "erfc", "atan2", "expm1", "atan",
    "tan", "sigmoid", "pow",
)  # fmt: skip


def unknown(goals: Iterable[Term]) -> list[str]:
    """The functions of references in terms that no solver knows, so that nothing but equal operands proves anything."""
    return sorted(f.name for f in t.functions(goals) if f.approximate and f.name.startswith("f64."))


def _integral(mode: str) -> Callable[..., Terms]:
    def operation(self: _Evaluation, node: Any, a: Any) -> Terms:
        dtype, rounding = _made(node), summaries.MODES[mode]
        if dtype not in _FLOATS:
            return self.terms(a, dtype)
        return _each(lambda x: _rounded(doubles.integral(_widened(x, dtype), rounding), dtype), self.terms(a, dtype))

    return operation


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": _arithmetic(t.add, doubles.add), "sub": _arithmetic(t.sub, doubles.subtract),
    "mul": _arithmetic(t.mul, doubles.multiply), "rsub": _reversed_subtraction, "div": _divided,
    "floor_divide": _floor_divided, "neg": _negated, "abs": _absolute, "clamp": _clamped,
    "bitwise_and": _arithmetic(t.and_, None), "bitwise_or": _arithmetic(t.or_, None),
    "bitwise_xor": _arithmetic(t.xor, None), "bitwise_not": _inverted, "logical_not": _inverted,
    "__lshift__": _shifted(t.shl), "__rshift__": _shifted(t.ashr), "bitwise_left_shift": _shifted(t.shl),
    "bitwise_right_shift": _shifted(t.ashr),
    **{name: _compared(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "where": _where, "_to_copy": _to_copy, "view": _viewed, "signbit": _signbit, "full_like": _filled(0),
    "zeros_like": _filled(0), "ones_like": _filled(1), "index": _looked_up, "lift_fresh_copy": _same, "detach": _same,
    "clone": _same, "alias": _same, "isnan": _test(doubles.is_nan),
    "isinf": _test(lambda x: t.eq(doubles.absolute(x), _INFINITY)),
    "isfinite": _test(lambda x: t.ult(doubles.absolute(x), _INFINITY)), "sqrt": _root, "reciprocal": _reciprocal,
    **{name: _function(name) for name in _OF_DOUBLES},
    "round": _integral("rn"), "trunc": _integral("rz"), "floor": _integral("rm"), "ceil": _integral("rp"),
    "stack": _stacked, "unbind": _unbound, "select": _selected,
    "minimum": _extreme(False), "maximum": _extreme(True),
    "all": _all, "sum": _summed, "unsqueeze": _reshaped, "reshape": _reshaped, "_unsafe_view": _reshaped,
    "expand": _expanded, "ieee": _ieee,
}  # fmt: skip
