"""Terms compute what the numeric definitions compute: for every form, on edges and random operands."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import Bound, Form, find
from ptxdiff.proving import definitions, doubles, summaries
from ptxdiff.proving import terms as t
from ptxdiff.proving.terms import NotModelled
from tests.support.emulator.isa.defined_forms import EDGES, SCALAR_FORMS, ends, functions, operands_of
from tests.support.sampling import spread

isa.load()

MODELLED = [f for f in SCALAR_FORMS if not f.approximate]
MANTISSA = {16: 10, 32: 23, 64: 52}
HALF_PLACES = (12, 15, 28, 41, 44)
"""MaskedTerm below the last place of a narrower format, in a float32 and in a float64."""
WITHOUT_TERMS = ["fns.b32"]
"""Patterns of forms whose loops have no constant bound."""


def operands(bound: Bound, count: int) -> list[tuple[int, ...]]:
    """Rows of operands: edges, random bits, patterns with few bits, ties, subnormals and small numbers."""
    rng = random.Random(bound.spelling)

    def one(width: int) -> int:
        if width == 1:
            return rng.getrandbits(1)
        kind = rng.randrange(6 if width in MANTISSA else 5)
        if kind == 0:
            return rng.choice(EDGES[width])
        if kind == 1:
            return rng.getrandbits(width)
        if kind == 2:  # some upper bits, then zeros, or one more or less
            low = rng.randrange(width)
            return ((rng.getrandbits(width) >> low << low) + rng.choice((0, 0, 1, -1))) % (1 << width)
        if kind == 3:  # small, of either sign as an integer and as a float
            small = rng.getrandbits(rng.randrange(1, width))
            return rng.choice((small, -small, small | 1 << (width - 1))) % (1 << width)
        if kind == 4:
            return rng.getrandbits(width) & rng.getrandbits(width) & rng.getrandbits(width)
        # A float of ordinary size whose last bit is set anywhere: half of a place of narrower formats, too.
        bits = MANTISSA[width]
        bias = (1 << (width - 2 - bits)) - 1
        last = rng.choice([rng.randrange(bits), *(place for place in HALF_PLACES if place < bits)])
        fraction = (rng.getrandbits(bits) >> last | 1) << last
        return rng.getrandbits(1) << (width - 1) | (bias + rng.randrange(-20, 20)) % (2 * bias) << bits | fraction

    if not bound.source_types:
        return [()]
    return [tuple(one(width) for width, _ in bound.source_types) for _ in range(count)]


def mismatch(bound: Bound, count: int = 16) -> str:
    """The first operands on which a spelling's term is not its definition; "" if there are none."""
    for result, function in enumerate(functions(bound)):
        widths = [0 if width == 1 else width for width, _ in function.sources]
        names = [f"x{k}" for k in range(len(widths))]
        term = definitions.of_lanes(function, *map(t.variable, names, widths))
        for row in operands(bound, count):
            expected = function.one(*row)
            (found,) = t.evaluate([term], dict(zip(names, row, strict=True)))
            if found != expected:
                shown = ", ".join(map(hex, row))
                return f"{bound.spelling}, result {result}, of {shown}: {found:#x} and not {expected:#x}"
    return ""


@pytest.mark.sample(4)
@pytest.mark.parametrize("form", spread(MODELLED, 24, operands_of, lambda f: f.pattern))
def test_terms_compute_what_definitions_compute(form: Form) -> None:
    if form.pattern in WITHOUT_TERMS:
        with pytest.raises(NotModelled, match="a loop with more than"):
            mismatch(ends(form)[0])
        return
    for bound in ends(form):
        assert mismatch(bound) == ""


def expanding(bound: Bound) -> str:
    """As `mismatch`, with every IEEE operation written by the source of its definition."""
    from ptxdiff.proving.queries import expanded

    for function in functions(bound):
        names = [f"x{k}" for k in range(len(function.sources))]
        widths = [width for width, _ in function.sources]
        term = definitions.of_lanes(function, *map(t.variable, names, widths))
        (term,) = expanded([term], True)
        assert not any(f.name.startswith("ieee") for f in t.functions([term]))
        for row in operands(bound, 100):
            if t.evaluate([term], dict(zip(names, row, strict=True))) != [function.one(*row)]:
                return f"{bound.spelling} of {', '.join(map(hex, row))}"
    return ""


IEEE = [
    "add.rn.f32", "add.rm.ftz.f32", "add.rp.ftz.sat.f32", "sub.rz.f32", "mul.rn.f32", "mul.rp.ftz.f32", "fma.rn.f32",
    "fma.rm.ftz.f32", "div.rn.f32", "div.rz.ftz.f32", "sqrt.rn.f32", "sqrt.rp.ftz.f32", "add.f16", "add.ftz.f16",
    "mul.rm.ftz.f32", "mul.rz.f32", "fma.rp.f32", "fma.rz.ftz.f32", "div.rm.f32", "div.rp.ftz.f32", "add.rm.f32",
    "mul.ftz.sat.f16", "mul.bf16", "fma.rn.ftz.f16", "fma.rn.relu.bf16", "fma.rn.oob.f16",
]  # fmt: skip


def spelled(text: str) -> Bound:
    opcode, *modifiers = text.split(".")
    return find(opcode, tuple(modifiers))[0]


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", IEEE)
def test_ieee_operations_and_their_source_agree(text: str) -> None:
    assert mismatch(spelled(text), 100) == ""
    assert expanding(spelled(text)) == ""


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", spread(IEEE, 4))
def test_ieee_operations_and_the_solvers_theory_agree(text: str) -> None:
    """Every result of some operands is asserted; the solver must find no fault in any."""
    pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
    pytest.importorskip("z3", reason="the extra `prove` is not installed")
    from ptxdiff.proving import queries, solving

    bound = spelled(text)
    (function,) = functions(bound)
    wrong = t.FALSE
    for row in operands(bound, 16):
        # Behind a variable, so that the terms are not computed here.
        zero = t.variable("zero", 64)
        widths = [width for width, _ in function.sources]
        given = [t.xor(t.const(v, w), t.extract(zero, w - 1, 0)) for v, w in zip(row, widths, strict=True)]
        result = definitions.of_lanes(function, *given)
        wrong = t.bor(wrong, t.bnot(t.eq(result, t.const(function.one(*row), result.width))))
    asked = queries.query(wrong, [t.eq(zero, t.const(0, 64))], "floats")
    assert asked.exact
    assert solving.ask(asked, 60).answer == "unsat"


# Planted faults: each must be found by the comparison above.


def _plant(owner: Any, name: str, fault: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        if isinstance(owner, dict):
            monkeypatch.setitem(owner, name, fault)
        else:
            monkeypatch.setattr(owner, name, fault)

    return plant


def _truncating(a: t.Term, exponent_bits: int, mantissa_bits: int) -> t.Term:
    """A rounding that ignores ties."""
    found = _narrowed(a, exponent_bits, mantissa_bits)
    tie = t.eq(t.and_(a, t.const((1 << (52 - mantissa_bits)) - 1, 64)), t.const(1 << (51 - mantissa_bits), 64))
    return t.ite(tie, t.sub(found, t.const(1, found.width)), found)


_narrowed, _widened, _less, _from, _integral = (
    doubles.narrowed, doubles.widened, doubles.less, doubles.from_integer, doubles.integral,
)  # fmt: skip
_OF = dict(summaries.OF_DEFINITIONS)
RIGHT = dict(definitions.HELPERS)


def _of(name: str) -> Any:
    return next(f for f in _OF if f.__name__ == name)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "a signed comparison that is unsigned": (_plant(t, "slt", t.ult), "max.s32"),
    "a right shift without the sign": (_plant(t, "ashr", t.lshr), "shr.s32"),
    "a tie that is not rounded to even": (_plant(doubles, "narrowed", _truncating), "cvt.rn.f32.f64"),
    "a subnormal that is not normalised": (
        _plant(doubles, "widened", lambda a, e, m: t.ite(
            t.eq(t.extract(a, e + m - 1, m), t.const(0, e)), t.const(0, 64), _widened(a, e, m))),
        "cvt.f64.f32",
    ),
    "less, of equal numbers": (
        _plant(doubles, "less", lambda a, b: t.bor(_less(a, b), doubles.equal(a, b))), "cvt.rz.f32.f64",
    ),
    "a conversion of integers without a sign": (
        _plant(doubles, "from_integer", lambda a: _from(t.and_(a, t.const((1 << 63) - 1, 64)))), "cvt.rn.f32.s32",
    ),
    "an integral value rounded up at a half": (
        _plant(summaries.OF_DEFINITIONS, _of("integral"), lambda x, rnd: definitions.Double(_integral(x.bits, 3))),
        "cvt.rni.f32.f32",
    ),
    "an upper half of a product that is signed": (
        _plant(definitions.HELPERS, "high64", lambda a, b: t.const(0, 64)), "mul.hi.u64",
    ),
    "a count of leading zeros of one bit less": (
        _plant(definitions.HELPERS, "clz64", lambda a: t.sub(RIGHT["clz64"](a), t.const(1, 64))), "clz.b64",
    ),
    "a clamp that keeps NaN": (
        _plant(summaries.OF_DEFINITIONS, _of("add_f32"), lambda *a: _OF[_of("add_f32")](*a[:-1], t.const(0, 64))),
        "add.sat.f32",
    ),
    "a product that is not flushed": (
        _plant(summaries.OF_DEFINITIONS, _of("mul_f32"),
               lambda a, b, rnd, ftz, sat: _OF[_of("mul_f32")](a, b, rnd, t.const(0, 64), sat)),
        "mul.ftz.f32",
    ),
    "a sum without its carry": (_plant(definitions.INTEGER, ast.Add, t.xor), "add.u32"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, text = FAULTS[name]
    assert mismatch(spelled(text), 300) == ""
    plant(monkeypatch)
    assert mismatch(spelled(text), 300) != ""


# Simplification keeps values.


BUILD = {
    "and": t.and_, "or": t.or_, "xor": t.xor, "add": t.add, "mul": t.mul, "shl": t.shl, "lshr": t.lshr, "ashr": t.ashr,
    "udiv": t.udiv,
}  # fmt: skip


def _random_term(rng: random.Random, depth: int, width: int) -> t.Term:
    if depth == 0:
        masks = [1 << rng.randrange(width), (1 << rng.randrange(width)) - 1, rng.getrandbits(width)]
        return rng.choice([t.variable("a", width), t.variable("b", width), *(t.const(m, width) for m in masks)])
    kind = rng.choice(["and", "or", "xor", "add", "mul", "shl", "lshr", "ashr", "udiv", "ite", "part", "sext", "not"])
    one, other = (_random_term(rng, depth - 1, width) for _ in range(2))
    if kind == "not":
        return t.not_(one)
    if kind == "ite":
        return t.ite(rng.choice([t.eq, t.ult, t.slt])(one, other), one, other)
    if kind in ("part", "sext"):
        high = rng.randrange(width)
        low = rng.randrange(high + 1)
        part = t.extract(one, high, low)
        return t.zext(part, width) if kind == "part" else t.sext(part, width)
    if kind in ("shl", "lshr", "ashr"):
        other = t.const(rng.randrange(width + 2), width)
    return BUILD[kind](one, other)


def _plainly(term: t.Term, numbers: dict[str, int]) -> int:
    (found,) = t.evaluate([term], numbers)
    return found


def test_simplified_terms_have_the_values_of_their_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each term is built twice: as it is simplified, and from constants, which are computed at once."""
    for seed in range(400):
        width = random.Random(seed).choice([8, 16, 64])
        term = _random_term(random.Random(seed), 4, width)
        for k in range(4):
            values = random.Random(seed * 7 + k)
            a, b = (values.choice([0, 1, (1 << width) - 1, values.getrandbits(width)]) for _ in range(2))
            numbers = {"a": a, "b": b}
            with monkeypatch.context() as patch:
                patch.setattr(t, "variable", lambda name, width, n=numbers: t.const(n[name], width))
                computed = _random_term(random.Random(seed), 4, width)
            assert computed.op == "const"
            assert _plainly(term, numbers) == computed.constant, seed
            assert _plainly(term, numbers) & ~term.maybe == 0, seed


def test_a_digest_does_not_depend_on_the_order_of_a_sum() -> None:
    a, b = t.variable("a", 8), t.variable("b", 8)
    first = t.digest([t.add(t.not_(a), b)])
    assert first == t.digest([t.add(b, t.not_(a))])
    assert first != t.digest([t.add(t.not_(b), a)])
