"""IEEE operations of definitions and references as functions of patterns, in place of the source that computes them.

A definition computes a float32 sum in float64 with a correction, and so does a reference, in another way. Here both are
the same function: `ieee.add.8.23.rn` of two patterns, whose NaN is the canonical one of PTX. What surrounds it (flushes
of operands, clamps) stays a circuit. The function's number is that of the instruction's definition. A solver may take
it as uninterpreted, by its theory of floats, or as the definition's own source over float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ptxdiff.emulator.isa import float32, half
from ptxdiff.emulator.isa.convert_integral import integral
from ptxdiff.emulator.numeric import special_functions
from ptxdiff.emulator.numeric.floatbits import BF16, F16
from ptxdiff.proving import doubles
from ptxdiff.proving import terms as t
from ptxdiff.proving.terms import Term, TermFunction, TheoryFormat

MODES = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
_SOLVERS_MODES = ("RNE", "RTZ", "RTN", "RTP")
_NAMES = tuple(MODES)
FORMATS = {(8, 23): 0, (5, 10): F16, (8, 7): BF16}
"""The exponent and mantissa bits of the formats that are summarised, and the code of a half's type."""

_OF_SINGLES: dict[str, Callable[..., int]] = {
    "add": lambda a, b, rnd, ftz: float32.add_f32(a, b, rnd, ftz, 0),
    "mul": lambda a, b, rnd, ftz: float32.mul_f32(a, b, rnd, ftz, 0),
    "fma": lambda a, b, c, rnd, ftz: float32.fma_f32(a, b, c, rnd, ftz, 0),
    "div": float32.div_f32,
    "sqrt": float32.sqrt_f32,
}
_OF_HALVES: dict[str, Callable[..., int]] = {
    "add": lambda a, b, type, ftz: half.add_half(a, b, type, ftz, 0),
    "mul": lambda a, b, type, ftz: half.mul_half(a, b, type, ftz, 0),
    "fma": lambda a, b, c, type, ftz: half.fma_half(a, b, c, type, 0, 0, ftz, 0),
}
ARGUMENTS = {"add": 2, "mul": 2, "fma": 3, "div": 2, "sqrt": 1}


def known(operation: str, exponent_bits: int, mantissa_bits: int, rounding: int, ftz: bool = False) -> bool:
    """Whether an operation on a format has a summary. No instruction on bfloat16 flushes, so its definitions do not."""
    if (exponent_bits, mantissa_bits) not in FORMATS or not 0 <= rounding <= 3:
        return False
    if ftz and FORMATS[exponent_bits, mantissa_bits] == BF16:
        return False
    return mantissa_bits == 23 or (operation in _OF_HALVES and rounding == 0)


@functools.cache
def function(operation: str, exponent_bits: int, mantissa_bits: int, rounding: int, ftz: bool) -> TermFunction:
    """The IEEE operation on patterns. ftz: whether tiny results are flushed; operands are flushed before it."""
    width = 1 + exponent_bits + mantissa_bits

    def numeric(*patterns: int) -> int:
        if mantissa_bits == 23:
            return _OF_SINGLES[operation](*patterns, rounding, int(ftz))
        return _OF_HALVES[operation](*patterns, FORMATS[exponent_bits, mantissa_bits], int(ftz))

    def theory(*texts: str) -> str:
        mode = f"{_SOLVERS_MODES[rounding]} "
        values = (f"((_ to_fp {exponent_bits} {mantissa_bits + 1}) {text})" for text in texts)
        return f"(fp.{operation} {mode}{' '.join(values)})"

    def expand(*patterns: Term) -> Term:
        from ptxdiff.proving import definitions

        if ftz and operation == "add":  # a tiny sum is exact, so flushing it is no matter of rounding
            return flushed(ieee("add", exponent_bits, mantissa_bits, rounding, False, *patterns), mantissa_bits)
        wide = [t.zext(p, 64) for p in patterns]
        source, fixed = _SOURCE[operation, mantissa_bits == 23]
        type = FORMATS[exponent_bits, mantissa_bits]
        constants = {"rnd": rounding, "ftz": int(ftz), "type": type, "sat": 0, "relu": 0, "oob": 0}
        result = definitions.interpreted(source, [*wide, *(t.const(constants[name], 64) for name in fixed)])
        return t.extract(definitions.integer(result), width - 1, 0)

    name = f"ieee.{operation}.{exponent_bits}.{mantissa_bits}.{_NAMES[rounding]}{'.ftz' if ftz else ''}"
    nan = (1 << (width - 1)) - 1
    # The theory flushes nothing: there the definition's source is used.
    solved = not ftz
    return TermFunction(
        name, width, numeric, theory if solved else None, TheoryFormat(exponent_bits, mantissa_bits + 1, nan), expand,
        commutes=operation in ("add", "mul", "fma"),
    )  # fmt: skip


_SOURCE: dict[tuple[str, bool], tuple[Callable[..., int], tuple[str, ...]]] = {
    ("add", True): (float32.add_f32, ("rnd", "ftz", "sat")),
    ("mul", True): (float32.mul_f32, ("rnd", "ftz", "sat")),
    ("fma", True): (float32.fma_f32, ("rnd", "ftz", "sat")),
    ("div", True): (float32.div_f32, ("rnd", "ftz")),
    ("sqrt", True): (float32.sqrt_f32, ("rnd", "ftz")),
    ("add", False): (half.add_half, ("type", "ftz", "sat")),
    ("mul", False): (half.mul_half, ("type", "ftz", "sat")),
    ("fma", False): (half.fma_half, ("type", "relu", "oob", "ftz", "sat")),
}


def ieee(operation: str, exponent_bits: int, mantissa_bits: int, rounding: int, ftz: bool, *patterns: Term) -> Term:
    """An IEEE operation on patterns as wide as the format, in one form for what is equal by the laws of signs.

    A product or quotient is one of magnitudes with the sign of both. A sum rounded down is the negated sum of negated
    operands rounded up. NaN operands are one NaN, because no result depends on its payload. A flushed result has no
    subnormals.
    """
    shape = operation, exponent_bits, mantissa_bits, rounding, ftz
    top = t.const(1 << (exponent_bits + mantissa_bits), 1 + exponent_bits + mantissa_bits)
    if operation in ("mul", "div"):
        return _with_sign(*shape, *patterns)
    if operation in ("add", "fma") and rounding == MODES["rm"]:
        # -(x + y) rounds as x + y does in the other direction, and so does the sign of an exact zero.
        negated = [t.xor(p, top) if operation == "add" or k != 1 else p for k, p in enumerate(patterns)]
        return _negated(_of_numbers(operation, exponent_bits, mantissa_bits, MODES["rp"], ftz, *negated), top)
    return _of_numbers(*shape, *patterns)


def _negated(a: Term, top: Term) -> Term:
    """A result of the other sign; the NaN unchanged."""
    nan = t.const(top.detail - 1, a.width)
    return t.ite(t.eq(a, nan), nan, t.xor(a, top))


def _with_sign(
    operation: str, exponent_bits: int, mantissa_bits: int, rounding: int, ftz: bool, *patterns: Term
) -> Term:
    """A product or quotient from magnitudes, whose rounding down is one towards zero."""
    width = 1 + exponent_bits + mantissa_bits
    top, size = t.const(1 << (width - 1), width), t.const((1 << (width - 1)) - 1, width)
    sign = t.nonzero(t.extract(t.xor(*patterns), width - 1, width - 1))
    sizes = [t.and_(p, size) for p in patterns]

    def rounded(mode: str) -> Term:
        # A magnitude, or the one NaN: said here, so that the function may stay unknown.
        size_rounded = t.and_(_of_numbers(operation, exponent_bits, mantissa_bits, MODES[mode], ftz, *sizes), size)
        infinity = t.const(((1 << exponent_bits) - 1) << mantissa_bits, width)
        return t.ite(t.ult(infinity, size_rounded), size, size_rounded)

    above, below = {"rn": ("rn", "rn"), "rz": ("rz", "rz"), "rm": ("rz", "rp"), "rp": ("rp", "rz")}[_NAMES[rounding]]
    return t.ite(sign, _negated(rounded(below), top), rounded(above))


def _of_numbers(
    operation: str, exponent_bits: int, mantissa_bits: int, rounding: int, ftz: bool, *patterns: Term
) -> Term:
    """An operation on patterns, whose commutative operands are put in order."""
    nan = t.const((1 << (exponent_bits + mantissa_bits)) - 1, 1 + exponent_bits + mantissa_bits)
    infinity = t.const(((1 << exponent_bits) - 1) << mantissa_bits, nan.width)
    patterns = tuple(t.ite(t.ult(infinity, t.and_(p, nan)), nan, p) for p in patterns)
    symbol = function(operation, exponent_bits, mantissa_bits, rounding, ftz)
    simpler = _without_constants(operation, exponent_bits, mantissa_bits, rounding, ftz, patterns)
    if simpler is not None:
        return simpler
    if symbol.commutes:
        first, second, *rest = patterns
        if (first.op == "const", first.number) > (second.op == "const", second.number):
            first, second = second, first
        patterns = (first, second, *rest)
    made = t.apply(symbol, *patterns)
    return flushed(made, mantissa_bits) if ftz else made


def _without_constants(
    operation: str, exponent_bits: int, mantissa_bits: int, rounding: int, ftz: bool, patterns: tuple[Term, ...]
) -> Term | None:
    """What a product with 1 is, and a sum with -0: assemblers write sums and products as fma, and moves as either.

    A sum of zeros of both signs is -0 if it is rounded down, so that -0 changes it.
    """
    one = ((1 << (exponent_bits - 1)) - 1) << mantissa_bits
    minus_zero = 1 << (exponent_bits + mantissa_bits)
    shape = exponent_bits, mantissa_bits, rounding, ftz
    first, second = (*patterns, patterns[0])[:2]
    down = rounding == MODES["rm"]
    if operation == "fma" and one in (first.constant, second.constant):
        return ieee("add", *shape, second if first.constant == one else first, patterns[2])
    if operation == "fma" and patterns[2].constant == minus_zero and not down:
        return ieee("mul", *shape, first, second)
    if operation == "mul" and one in (first.constant, second.constant):
        return second if first.constant == one else first
    if operation == "add" and minus_zero in (first.constant, second.constant) and not down:
        return second if first.constant == minus_zero else first
    return None


def flushed(a: Term, mantissa_bits: int) -> Term:
    """A pattern with subnormals replaced by zeros of their sign."""
    top = 1 << (a.width - 1)
    field = t.extract(a, a.width - 2, mantissa_bits)
    return t.ite(t.eq(field, t.const(0, field.width)), t.and_(a, t.const(top, a.width)), a)


def _constants(*values: Any) -> list[int] | None:
    constants = [v.constant if isinstance(v, Term) else None for v in values]
    return None if any(v is None for v in constants) else [v for v in constants if v is not None]


def _patterns(values: tuple[Any, ...], width: int, mantissa_bits: int, ftz: int) -> list[Term]:
    patterns = [t.extract(v, width - 1, 0) for v in values]
    return [flushed(v, mantissa_bits) for v in patterns] if ftz else patterns


def _single(operation: str) -> Callable[..., Term | None]:
    def summary(*arguments: Any) -> Term | None:
        count = ARGUMENTS[operation]
        fixed = _constants(*arguments[count:])
        if fixed is None:
            return None
        rounding, ftz, sat = (*fixed, 0)[:3]
        patterns = _patterns(arguments[:count], 32, 23, ftz)
        # A root is never tiny.
        result = ieee(operation, 8, 23, rounding, bool(ftz) and operation != "sqrt", *patterns)
        if sat:
            zero, one = t.const(0, 32), t.const(0x3F800000, 32)
            above = t.ult(one, result)
            result = t.ite(t.ult(t.const(0x7F800000, 32), result), zero, t.ite(above, one, result))
        return t.zext(result, 64)

    return summary


def _half(operation: str) -> Callable[..., Term | None]:
    def summary(*arguments: Any) -> Term | None:
        count = ARGUMENTS[operation]
        fixed = _constants(*arguments[count:])
        if fixed is None or (type := fixed[0]) not in (F16, BF16):
            return None
        relu, oob, ftz, sat = (*fixed[1:], 0, 0)[:4] if operation == "fma" else (0, 0, *(*fixed[1:], 0, 0)[:2])
        exponent_bits, mantissa_bits = (5, 10) if type == F16 else (8, 7)
        if not known(operation, exponent_bits, mantissa_bits, 0, bool(ftz)):
            return None
        patterns = _patterns(arguments[:count], 16, mantissa_bits, ftz)
        result_bits = ieee(operation, exponent_bits, mantissa_bits, 0, bool(ftz), *patterns)
        nan = t.eq(result_bits, t.const(0x7FFF, 16))
        result, zero = result_bits, t.const(0, 16)
        if sat:
            one = t.const(0x3C00, 16)
            result = t.ite(t.ult(one, result), one, result)
        if sat or relu:
            result = t.ite(t.nonzero(t.extract(result_bits, 15, 15)), zero, result)
        if sat:
            result = t.ite(nan, zero, result)
        if oob:
            size = t.const(0x7FFF, 16)
            marks = [t.eq(t.and_(t.extract(v, 15, 0), size), t.const(half.OOB_NAN, 16)) for v in arguments[:2]]
            result = t.ite(t.bor(*marks), zero, result)
        return t.zext(result, 64)

    return summary


def _integral(value: Any, rnd: Any) -> Any:
    from ptxdiff.proving.definitions import Double

    fixed = _constants(rnd)
    return None if fixed is None else Double(doubles.integral(value.bits, fixed[0]))


def _unit(function: Callable[[int], int]) -> Callable[..., Term]:
    """An instruction of the special function unit: of its bits no query knows anything."""
    symbol = TermFunction(f"unit.{function.__name__}", 32, function, approximate=True)
    return lambda a: t.zext(t.apply(symbol, t.extract(a, 31, 0)), 64)


OF_DEFINITIONS: dict[Any, Callable[..., Any]] = {
    float32.add_f32: _single("add"),
    float32.mul_f32: _single("mul"),
    float32.fma_f32: _single("fma"),
    float32.div_f32: _single("div"),
    float32.sqrt_f32: _single("sqrt"),
    half.add_half: _half("add"),
    half.mul_half: _half("mul"),
    half.fma_half: _half("fma"),
    integral: _integral,
    **{f: _unit(f) for n, f in vars(special_functions).items() if n.startswith("unit_")},
}
"""What a call of these definitions becomes; None: its source is interpreted."""
