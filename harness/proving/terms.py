"""Terms over bit-vectors: built once each, simplified where that is cheap, and evaluated on numbers.

A term of width 0 is a condition, with the values 0 and 1. Floats are bit patterns; operations on them that are no
plain operations on bits are `TermFunction` applications.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class NotModelled(Exception):
    """Something has no term; the message names it."""


class NotEvaluable(Exception):
    """A function without a numeric definition was evaluated."""


@dataclass(frozen=True)
class TheoryFormat:
    """A format of the solver's theory: its exponent bits, its significand bits with the hidden one, its only NaN."""

    exponent_bits: int
    significand_bits: int
    nan: int


@dataclass(frozen=True)
class TermFunction:
    """A function of terms that the solver need not know.

    name: its symbol; equal names are equal functions. result: bits of its result. numeric: its value on patterns, None
    if it has none here. theory: its text in SMT-LIB's theory of floats, from the texts of its arguments, with the
    format of the result (see `TheoryFormat`). expand: builds it from other terms. A solver takes a function as
    uninterpreted until it is asked to use one of these. approximate: its bits are a model, which no query may use.
    commutes: its first two arguments may be exchanged.
    """

    name: str
    result: int
    numeric: Callable[..., int] | None = None
    theory: Callable[..., str] | None = None
    format: TheoryFormat | None = None
    expand: Callable[..., Term] | None = None
    approximate: bool = False
    commutes: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TermFunction) and other.name == self.name


class Term:
    """A node of a graph of terms, equal to itself alone.

    detail: a constant's value, a variable's name, bounds of `extract`, a `TermFunction`.

    maybe: a mask of the bits that may be set.
    """

    __slots__ = ("__weakref__", "args", "detail", "maybe", "number", "op", "parts", "width")
    op: str
    args: tuple[Term, ...]
    detail: Any
    width: int
    maybe: int
    number: int
    """Its place in the order of creation, which orders the operands of commutative operations."""
    parts: dict[tuple[int, int], Term] | None
    """The results of `extract`, which walks down: without them, shared terms would be walked once for each way."""

    def __repr__(self) -> str:
        return f"<{self.op}:{self.width} {'' if self.detail is None else self.detail}>"

    @property
    def constant(self) -> int | None:
        """The value of a constant term; None for others."""
        return self.detail if self.op == "const" else None


_numbers = itertools.count()
_known: weakref.WeakValueDictionary[tuple[Any, ...], Term] = weakref.WeakValueDictionary()


def _make(op: str, args: tuple[Term, ...], detail: Any, width: int, maybe: int | None = None) -> Term:
    key = (op, detail, width, *args)
    term = _known.get(key)
    if term is None:
        term = Term()
        term.op, term.args, term.detail, term.width = op, args, detail, width
        term.maybe = ones(width) if maybe is None else maybe
        term.number, term.parts = next(_numbers), None
        _known[key] = term
    return term


def ones(width: int) -> int:
    """A mask of all bits; 1 for a condition."""
    return (1 << (width or 1)) - 1


def const(value: int, width: int) -> Term:
    """A constant bit-vector."""
    value &= ones(width)
    return _make("const", (), value, width, value)


TRUE, FALSE = const(1, 0), const(0, 0)


def truth(value: bool | int) -> Term:
    """A constant condition."""
    return TRUE if value else FALSE


def variable(name: str, width: int) -> Term:
    """An input."""
    return _make("var", (), name, width)


def signed(value: int, width: int) -> int:
    """A pattern as a signed number."""
    return value - (1 << width) if value >> (width - 1) & 1 else value


def _width_of(values: Iterable[Term]) -> int:
    (width,) = {v.width for v in values}
    return width


# Plain operations: their values on numbers, by name.

_NUMERIC: dict[str, Callable[[Term, tuple[int, ...]], int]] = {
    "not": lambda t, v: ~v[0],
    "neg": lambda t, v: -v[0],
    "and": lambda t, v: v[0] & v[1],
    "or": lambda t, v: v[0] | v[1],
    "xor": lambda t, v: v[0] ^ v[1],
    "add": lambda t, v: v[0] + v[1],
    "mul": lambda t, v: v[0] * v[1],
    "udiv": lambda t, v: v[0] // v[1] if v[1] else -1,
    "urem": lambda t, v: v[0] % v[1] if v[1] else v[0],
    "shl": lambda t, v: v[0] << v[1] if v[1] < t.width else 0,
    "lshr": lambda t, v: v[0] >> v[1] if v[1] < t.width else 0,
    "ashr": lambda t, v: signed(v[0], t.width) >> min(v[1], t.width - 1),
    "zext": lambda t, v: v[0],
    "sext": lambda t, v: signed(v[0], t.args[0].width),
    "extract": lambda t, v: v[0] >> t.detail[1],
    "ite": lambda t, v: v[1] if v[0] else v[2],
    "eq": lambda t, v: int(v[0] == v[1]),
    "ult": lambda t, v: int(v[0] < v[1]),
    "slt": lambda t, v: int(signed(v[0], t.args[0].width) < signed(v[1], t.args[0].width)),
    "bnot": lambda t, v: 1 - v[0],
    "band": lambda t, v: v[0] & v[1],
    "bor": lambda t, v: v[0] | v[1],
}


def _folded(term: Term) -> Term:
    """The constant that a term of constants is."""
    values = tuple(a.constant for a in term.args)
    if any(v is None for v in values):
        return term
    return const(_NUMERIC[term.op](term, values), term.width)  # type: ignore[arg-type]


def _plain(op: str, args: tuple[Term, ...], width: int, maybe: int | None = None, detail: Any = None) -> Term:
    return _folded(_make(op, args, detail, width, maybe))


def _sorted(a: Term, b: Term) -> tuple[Term, Term]:
    """Operands of a commutative operation in one order, constants last."""
    left, right = (a.op == "const", a.number), (b.op == "const", b.number)
    return (a, b) if left <= right else (b, a)


def not_(a: Term) -> Term:
    """Every bit inverted."""
    return a.args[0] if a.op == "not" else _plain("not", (a,), a.width)


def and_(a: Term, b: Term) -> Term:
    """Bitwise and."""
    a, b = _sorted(a, b)
    width = _width_of((a, b))
    maybe = a.maybe & b.maybe
    if not maybe:
        return const(0, width)
    if a is b:
        return a
    value = b.constant
    if value is not None:
        if a.maybe & ~value == 0:
            return a
        if value & (value + 1) == 0:  # the lower bits
            return zext(extract(a, value.bit_length() - 1, 0), width)
        if a.op == "ashr" and a.args[1].constant is not None and value >> max(width - a.args[1].constant, 0) == 0:
            return and_(lshr(*a.args), b)
        if a.op == "and" and a.args[1].constant is not None:
            return and_(a.args[0], const(a.args[1].constant & value, width))
        if a.op == "or":
            for one, other in (a.args, a.args[::-1]):
                if one.maybe & value == 0:
                    return and_(other, b)
    return _plain("and", (a, b), width, maybe)


def or_(a: Term, b: Term) -> Term:
    """Bitwise or."""
    a, b = _sorted(a, b)
    width = _width_of((a, b))
    if a is b or b.constant == 0:
        return a
    if b.constant == ones(width):
        return b
    for one, other in ((a, b), (b, a)):
        if (extended := _sign_extended(one, other)) is not None:
            return extended
    return _plain("or", (a, b), width, a.maybe | b.maybe)


def _sign_extended(a: Term, b: Term) -> Term | None:
    """x | -(sign << k), where the sign is the highest bit of x, of number k: a sign extension. None for all else."""
    if b.op != "neg" or b.args[0].op != "shl":
        return None
    bit, k = b.args[0].args[0], b.args[0].args[1].constant
    if not k or a.maybe >> (k + 1) or not a.maybe >> k or zext(extract(a, k, k), a.width) is not bit:
        return None
    return sext(extract(a, k, 0), a.width)


def xor(a: Term, b: Term) -> Term:
    """Bitwise exclusive or."""
    a, b = _sorted(a, b)
    width = _width_of((a, b))
    if a is b:
        return const(0, width)
    if b.constant == 0:
        return a
    if a.op == "xor" and b.op == "const" and a.args[1].op == "const":
        return xor(a.args[0], xor(a.args[1], b))
    return _plain("xor", (a, b), width, a.maybe | b.maybe)


def _up_to(most: int, width: int) -> int:
    """The mask of the bits of numbers up to `most`, or of all bits if it wraps."""
    return (1 << most.bit_length()) - 1 if most <= ones(width) else ones(width)


def add(a: Term, b: Term) -> Term:
    """Sum, wrapping."""
    a, b = _sorted(a, b)
    width = _width_of((a, b))
    if b.constant == 0:
        return a
    if a.op == "add" and b.op == "const" and a.args[1].op == "const":
        return add(a.args[0], add(a.args[1], b))
    top = a.args[1].constant if a.op == "xor" else None
    if top and b.constant == -top & ones(width) and top & (top - 1) == 0 and a.maybe < 2 * top:
        return sext(extract(a.args[0], top.bit_length() - 1, 0), width)  # (x ^ top) - top extends a sign
    return _plain("add", (a, b), width, _up_to(a.maybe + b.maybe, width))


def neg(a: Term) -> Term:
    """The negative number, wrapping."""
    return _plain("neg", (a,), a.width)


def sub(a: Term, b: Term) -> Term:
    """Difference, wrapping."""
    if a is b:
        return const(0, a.width)
    return add(a, const(-b.constant, b.width)) if b.constant is not None else add(a, neg(b))


def _signed_bits(a: Term) -> int:
    """MaskedTerm in which a signed number fits."""
    if a.op == "sext":
        return a.args[0].width
    if a.constant is not None:
        value = signed(a.constant, a.width)
        return (value if value >= 0 else ~value).bit_length() + 1
    return min(a.maybe.bit_length() + 1, a.width)


def mul(a: Term, b: Term) -> Term:
    """Product, wrapping."""
    a, b = _sorted(a, b)
    width = _width_of((a, b))
    if b.constant == 0:
        return b
    if b.constant == 1:
        return a
    for one, other in ((a, b), (b, a)):
        if one.maybe == 1 and width > 1:
            return ite(nonzero(extract(one, 0, 0)), other, const(0, width))
    narrow = a.maybe.bit_length() + b.maybe.bit_length()
    if narrow < width:
        return zext(mul(extract(a, narrow - 1, 0), extract(b, narrow - 1, 0)), width)
    narrow = _signed_bits(a) + _signed_bits(b)
    if narrow < width:
        return sext(mul(extract(a, narrow - 1, 0), extract(b, narrow - 1, 0)), width)
    return _plain("mul", (a, b), width, _up_to(a.maybe * b.maybe, width))


def udiv(a: Term, b: Term) -> Term:
    """Quotient of unsigned numbers; all ones for a zero divisor. By a constant it is as narrow as the operands."""
    width = _width_of((a, b))
    if b.constant == 1:
        return a
    if b.constant:
        narrow = max(a.maybe.bit_length(), b.constant.bit_length(), 1)
        if narrow < width:
            return zext(udiv(extract(a, narrow - 1, 0), const(b.constant, narrow)), width)
        return _plain("udiv", (a, b), width, _up_to(a.maybe // b.constant, width))
    return _plain("udiv", (a, b), width)


def urem(a: Term, b: Term) -> Term:
    """Remainder of unsigned numbers; the dividend for a zero divisor."""
    return _plain("urem", (a, b), _width_of((a, b)))


def shl(a: Term, n: Term) -> Term:
    """Left shift; zero from `width` on."""
    width, by = _width_of((a, n)), n.constant
    if by is None:
        return _plain("shl", (a, n), width)
    if by >= width:
        return const(0, width)
    return a if by == 0 else _plain("shl", (a, n), width, a.maybe << by & ones(width))


def lshr(a: Term, n: Term) -> Term:
    """Logical right shift; zero from `width` on."""
    width, by = _width_of((a, n)), n.constant
    if by is None:
        return _plain("lshr", (a, n), width, _up_to(a.maybe, width))
    if by >= width or a.maybe >> by == 0:
        return const(0, width)
    if by == 0:
        return a
    if a.op == "or":
        for one, other in (a.args, a.args[::-1]):
            if one.maybe >> by == 0:
                return lshr(other, n)
    if a.op == "zext":
        return zext(extract(a.args[0], a.args[0].width - 1, by), width)
    if a.op == "shl" and a.args[1].constant == by and a.args[0].maybe << by <= ones(width):
        return a.args[0]
    return _plain("lshr", (a, n), width, a.maybe >> by)


def ashr(a: Term, n: Term) -> Term:
    """Arithmetic right shift."""
    if not a.maybe >> (a.width - 1) & 1:
        return lshr(a, n)
    return a if n.constant == 0 else _plain("ashr", (a, n), _width_of((a, n)))


def zext(a: Term, width: int) -> Term:
    """Zero-extended to a width, which may be its own."""
    if a.width == width:
        return a
    if a.op == "zext":
        return zext(a.args[0], width)
    return _plain("zext", (a,), width, a.maybe)


def sext(a: Term, width: int) -> Term:
    """Sign-extended to a width, which may be its own."""
    if a.width == width:
        return a
    if not a.maybe >> (a.width - 1) & 1:
        return zext(a, width)
    return _plain("sext", (a,), width)


def extract(a: Term, high: int, low: int) -> Term:
    """MaskedTerm `low` to `high`."""
    if high - low + 1 == a.width:
        return a
    if a.parts is None:
        a.parts = {}
    if (high, low) not in a.parts:
        a.parts[high, low] = _extracted(a, high, low)
    return a.parts[high, low]


def _extracted(a: Term, high: int, low: int) -> Term:
    width = high - low + 1
    if a.maybe >> low & ones(width) == 0:
        return const(0, width)
    if a.op == "extract":
        return extract(a.args[0], high + a.detail[1], low + a.detail[1])
    if a.op in ("zext", "sext"):
        inner = a.args[0]
        if high < inner.width:
            return extract(inner, high, low)
        if low == 0 and a.op == "zext":
            return zext(inner, width)
        if low == 0:
            return sext(inner, width)
        if a.op == "zext":
            return zext(extract(inner, inner.width - 1, low), width)
    if a.op in ("and", "or", "xor", "not"):
        parts = [extract(p, high, low) for p in a.args]
        return {"and": and_, "or": or_, "xor": xor, "not": not_}[a.op](*parts)  # type: ignore[operator, no-any-return]
    if a.op == "ite":
        yes, no = extract(a.args[1], high, low), extract(a.args[2], high, low)
        return ite(a.args[0], yes, no)
    if a.op == "shl" and (by := a.args[1].constant) is not None and low >= by:
        return extract(a.args[0], high - by, low - by)
    if a.op == "shl" and by is not None and by < width and low == 0 and high == width - 1:
        return shl(extract(a.args[0], high, 0), const(by, width))
    if a.op in ("lshr", "ashr") and (by := a.args[1].constant) is not None and high + by < a.width:
        return extract(a.args[0], high + by, low + by)
    if a.op in ("add", "mul") and low == 0:
        left, right = (extract(p, high, 0) for p in a.args)
        return add(left, right) if a.op == "add" else mul(left, right)
    if a.op == "neg" and low == 0:
        return neg(extract(a.args[0], high, 0))
    return _plain("extract", (a,), width, a.maybe >> low & ones(width), (high, low))


# Conditions


def bnot(a: Term) -> Term:
    """Not."""
    if a.op == "bnot":
        return a.args[0]
    return _plain("bnot", (a,), 0)


def band(a: Term, b: Term) -> Term:
    """And."""
    if a is FALSE or b is FALSE:
        return FALSE
    if a is TRUE or a is b:
        return b
    if b is TRUE:
        return a
    if bnot(a) is b:
        return FALSE
    return _plain("band", _sorted(a, b), 0)


def bor(a: Term, b: Term) -> Term:
    """Or."""
    if a is TRUE or b is TRUE:
        return TRUE
    if a is FALSE or a is b:
        return b
    if b is FALSE:
        return a
    if bnot(a) is b:
        return TRUE
    if a.op == b.op == "band":  # both sides of a branch
        for one, other in (a.args, a.args[::-1]):
            if one in b.args and bnot(other) in b.args:
                return one
    return _plain("bor", _sorted(a, b), 0)


def ite(condition: Term, a: Term, b: Term) -> Term:
    """One of two terms of a sort."""
    if condition is TRUE or a is b:
        return a
    if condition is FALSE:
        return b
    if condition.op == "bnot":
        return ite(condition.args[0], b, a)
    width = _width_of((a, b))
    if width == 0:
        if a.op == "const":
            return bor(condition, b) if a is TRUE else band(bnot(condition), b)
        if b.op == "const":
            return band(condition, a) if b is FALSE else bor(bnot(condition), a)
    if a.op == "ite" and a.args[0] is condition:
        a = a.args[1]
    if b.op == "ite" and b.args[0] is condition:
        b = b.args[2]
    if a is b:
        return a
    return _plain("ite", (condition, a, b), width, a.maybe | b.maybe)


def eq(a: Term, b: Term) -> Term:
    """Equality."""
    if a is b:
        return TRUE
    a, b = _sorted(a, b)
    value, width = b.constant, _width_of((a, b))
    if width == 0:
        return bor(band(a, b), band(bnot(a), bnot(b)))
    if value is not None:
        if value & ~a.maybe:
            return FALSE
        if a.op == "zext":
            return eq(a.args[0], const(value, a.args[0].width))
        if a.op == "ite" and (a.args[1].op == "const" or a.args[2].op == "const"):
            return ite(a.args[0], eq(a.args[1], b), eq(a.args[2], b))
    return _plain("eq", (a, b), 0)


def ult(a: Term, b: Term) -> Term:
    """Less, of unsigned numbers."""
    if a is b or b.constant == 0:
        return FALSE
    if b.constant is not None and a.maybe < b.constant:
        return TRUE
    if a.constant is not None and a.constant >= b.maybe:
        return FALSE
    return _plain("ult", (a, b), 0)


def slt(a: Term, b: Term) -> Term:
    """Less, of signed numbers."""
    if a is b:
        return FALSE
    top = 1 << (a.width - 1)
    if not a.maybe & top and not b.maybe & top:
        return ult(a, b)
    if not a.maybe & top and b.constant is not None and b.constant & top:
        return FALSE
    if not b.maybe & top and a.constant is not None and a.constant & top:
        return TRUE
    return _plain("slt", (a, b), 0)


def as_bits(condition: Term, width: int) -> Term:
    """1 or 0."""
    return ite(condition, const(1, width), const(0, width))


def nonzero(a: Term) -> Term:
    """Whether any bit is set; a condition itself."""
    return a if a.width == 0 else bnot(eq(a, const(0, a.width)))


def apply(function: TermFunction, *args: Term) -> Term:
    """A function of terms; a constant where all arguments are constants and it can be computed."""
    term = _make("apply", args, function, function.result)
    if function.numeric is not None and all(a.op == "const" for a in args):
        return const(function.numeric(*(a.detail for a in args)), function.result)
    return term


# Graphs of terms


def ordered(roots: Iterable[Term], operands: Callable[[Term], Sequence[Term]] | None = None) -> Iterator[Term]:
    """All terms below some, each once, operands first. operands: those of a term, in the order in which to go."""
    seen: set[Term] = set()
    stack: list[tuple[Term, bool]] = [(r, False) for r in reversed(list(roots))]
    while stack:
        term, done = stack.pop()
        if done:
            yield term
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            stack.extend((a, False) for a in (term.args if operands is None else operands(term)))


def evaluate(roots: Iterable[Term], inputs: Mapping[str, int]) -> list[int]:
    """The values of terms on numbers. Raises NotEvaluable for a function that has none."""
    steps, places = _steps(tuple(roots))
    values: list[int] = []
    for term, mask, compute, operands in steps:
        if compute is not None:
            value = compute(term, tuple([values[k] for k in operands]))
        elif term.op == "const":
            value = term.detail
        elif term.op == "var":
            value = inputs[term.detail]
        elif term.detail.numeric is None:
            raise NotEvaluable(term.detail.name)
        else:
            value = term.detail.numeric(*[values[k] for k in operands])
        values.append(value & mask)
    return [values[k] for k in places]


_Step = tuple[Term, int, Callable[[Term, tuple[int, ...]], int] | None, tuple[int, ...]]
"""A term, the mask of its bits, what computes it if it is an operation, and the places of its operands' values."""


@functools.lru_cache(maxsize=4)
def _steps(roots: tuple[Term, ...]) -> tuple[tuple[_Step, ...], tuple[int, ...]]:
    """The steps that compute terms, and the places of their values. Kept, because terms are often evaluated on many
    numbers in turn."""
    place: dict[Term, int] = {}
    steps: list[_Step] = []
    for term in ordered(roots):
        place[term] = len(steps)
        steps.append((term, ones(term.width), _NUMERIC.get(term.op), tuple(place[a] for a in term.args)))
    return tuple(steps), tuple(place[root] for root in roots)


COMMUTATIVE = frozenset({"and", "or", "xor", "add", "mul", "eq", "band", "bor"})


def digests(roots: Iterable[Term]) -> dict[Term, bytes]:
    """Digests of what terms and those below compute: the same for operands of a sum in either order."""
    found: dict[Term, bytes] = {}
    for term in ordered(roots):
        parts = [found[a] for a in term.args]
        if term.op in COMMUTATIVE:
            parts.sort()
        name = term.detail.name if term.op == "apply" else term.detail
        head = repr((term.op, name, term.width)).encode()
        found[term] = hashlib.sha256(b"".join([head, *parts])).digest()
    return found


def digest(roots: Iterable[Term]) -> str:
    """A digest of what terms compute: the same in every process."""
    roots = list(roots)
    found = digests(roots)
    return hashlib.sha256(b"".join(found[r] for r in roots)).hexdigest()


def functions(roots: Iterable[Term]) -> set[TermFunction]:
    """The functions that are applied in some terms."""
    return {t.detail for t in ordered(roots) if t.op == "apply"}


def rebuilt(roots: Iterable[Term], replaced: Callable[[Term, tuple[Term, ...]], Term | None]) -> list[Term]:
    """Terms with some of their parts replaced: `replaced` takes a term and its new operands; None keeps it."""
    roots = list(roots)
    new_terms: dict[Term, Term] = {}
    for term in ordered(roots):
        args = tuple(new_terms[a] for a in term.args)
        new = replaced(term, args)
        new_terms[term] = new if new is not None else _again(term, args)
    return [new_terms[r] for r in roots]


_BUILD: dict[str, Callable[..., Term]] = {
    "not": not_, "neg": neg, "and": and_, "or": or_, "xor": xor, "add": add, "mul": mul, "udiv": udiv, "urem": urem,
    "shl": shl, "lshr": lshr, "ashr": ashr, "ite": ite, "eq": eq, "ult": ult, "slt": slt, "bnot": bnot, "band": band,
    "bor": bor,
}  # fmt: skip


def _again(term: Term, args: tuple[Term, ...]) -> Term:
    """A term with other operands."""
    if all(a is b for a, b in zip(args, term.args, strict=True)):
        return term
    if term.op == "apply":
        return apply(term.detail, *args)
    if term.op == "extract":
        return extract(args[0], *term.detail)
    if term.op in ("zext", "sext"):
        return {"zext": zext, "sext": sext}[term.op](args[0], term.width)
    return _BUILD[term.op](*args)
