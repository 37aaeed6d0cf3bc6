"""Minimum, maximum, sign, class and comparison of floats compared with their definitions on exact values."""

from __future__ import annotations

import itertools
import operator
from fractions import Fraction

import numpy as np
import pytest

from tests.support.emulator.isa.forms import form, run
from tests.support.emulator.isa.ieee import F32, F64, FORMATS, Format, operands

KINDS = tuple(FORMATS)
FLUSHED = ("f32", "f16")
"""The formats that have .ftz here."""


def order(a: int, fmt: Format) -> tuple[Fraction | float, int]:
    """A key that sorts patterns other than NaN, -0 before +0."""
    negative = bool(a & fmt.sign)
    if a & (fmt.sign - 1) == fmt.infinity:
        return (float("-inf") if negative else float("inf"), 0)
    return fmt.fraction(a), 0 if negative else 1


def extreme(name: str, inputs: list[int], fmt: Format, keep: bool) -> int:
    """min or max of patterns; `keep`: the result is NaN if an input is."""
    numbers = [i for i in inputs if not fmt.is_nan(i)]
    if not numbers or (keep and len(numbers) < len(inputs)):
        return inputs[1] | fmt.normal >> 1 if fmt is F64 else fmt.nan
    return (min if name == "min" else max)(numbers, key=lambda i: order(i, fmt))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_of_two(name: str, kind: str) -> None:
    fmt = FORMATS[kind]
    columns = operands(fmt, 2, 600)
    nans = ("", ".NaN") if kind != "f64" else ("",)
    for ftz, nan in itertools.product(("", ".ftz") if kind in FLUSHED else ("",), nans):
        got = [int(g) for g in run(f"{name}{ftz}{nan}.{kind}", *columns)]
        for a, b, g in zip(*columns, got, strict=True):
            inputs = [fmt.flushed(i) for i in (a, b)] if ftz else [a, b]
            assert g == extreme(name, inputs, fmt, nan != ""), (name, ftz, nan, hex(a), hex(b), hex(g))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_of_magnitudes_with_the_product_of_signs(name: str, kind: str) -> None:
    fmt = FORMATS[kind]
    columns = operands(fmt, 2, 500)
    for nan in ("", ".NaN"):
        got = [int(g) for g in run(f"{name}{nan}.xorsign.abs.{kind}", *columns)]
        for a, b, g in zip(*columns, got, strict=True):
            found = extreme(name, [a & (fmt.sign - 1), b & (fmt.sign - 1)], fmt, nan != "")
            expected = found if fmt.is_nan(found) else found | ((a ^ b) & fmt.sign)
            assert g == expected, (hex(a), hex(b), hex(g))


@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_of_three(name: str) -> None:
    columns = operands(F32, 3, 700)
    for ftz, nan, magnitude in itertools.product(("", ".ftz"), ("", ".NaN"), ("", ".abs")):
        got = [int(g) for g in run(f"{name}{ftz}{nan}{magnitude}.f32", *columns)]
        for a, b, c, g in zip(*columns, got, strict=True):
            inputs = [F32.flushed(i) if ftz else i for i in (a, b, c)]
            inputs = [i & (F32.sign - 1) if magnitude else i for i in inputs]
            assert g == extreme(name, inputs, F32, nan != ""), (hex(a), hex(b), hex(c), hex(g))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("spelling", ["min", "max.NaN", "min.xorsign.abs", "max.NaN.xorsign.abs", "abs", "neg"])
def test_packed_halves(spelling: str, kind: str) -> None:
    count = 1 if spelling in ("abs", "neg") else 2
    low, high = operands(FORMATS[kind], count, 300, 1), operands(FORMATS[kind], count, 300, 2)
    packed = [[a | b << 16 for a, b in zip(x, y, strict=True)] for x, y in zip(low, high, strict=True)]
    alone = f"{spelling}.{kind}"
    expected = run(alone, *low).astype(np.uint32) | run(alone, *high).astype(np.uint32) << 16
    np.testing.assert_array_equal(run(f"{spelling}.{kind}x2", *packed), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["abs", "neg"])
def test_signs(name: str, kind: str) -> None:
    """The NaN is the canonical one; in float64 it is the operand's, made quiet, with its sign."""
    fmt = FORMATS[kind]
    (column,) = operands(fmt, 1, 500)
    for ftz in ("", ".ftz") if kind in FLUSHED else ("",):
        for a, g in zip(column, run(f"{name}{ftz}.{kind}", column), strict=True):
            expected = a & (fmt.sign - 1) if name == "abs" else a ^ fmt.sign
            if fmt.is_nan(a):
                expected = a | fmt.normal >> 1 if fmt is F64 else fmt.nan
            elif ftz:
                expected = fmt.flushed(expected)
            assert int(g) == expected, (hex(a), hex(g))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_copysign_takes_the_sign_of_its_first_source(kind: str) -> None:
    fmt = FORMATS[kind]
    a, b = operands(fmt, 2, 300)
    expected = [(x & fmt.sign) | (y & (fmt.sign - 1)) for x, y in zip(a, b, strict=True)]
    assert [int(g) for g in run(f"copysign.{kind}", a, b)] == expected


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_classes(kind: str) -> None:
    """Zeros are normal numbers here (ISA 9.7.3.1)."""
    fmt = FORMATS[kind]
    (column,) = operands(fmt, 1, 400)
    rules = {
        "finite": lambda m: m < fmt.infinity,
        "infinite": lambda m: m == fmt.infinity,
        "number": lambda m: m <= fmt.infinity,
        "notanumber": lambda m: m > fmt.infinity,
        "normal": lambda m: m == 0 or fmt.normal <= m < fmt.infinity,
        "subnormal": lambda m: 0 < m < fmt.normal,
    }
    for word, rule in rules.items():
        got = run(f"testp.{word}.{kind}", column)
        assert got.tolist() == [int(rule(a & (fmt.sign - 1))) for a in column], word


ORDERED = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt}
ORDERED["ge"] = operator.ge
BOOLS = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def holds(cmp: str, a: int, b: int, fmt: Format) -> bool:
    """A comparison by the table of ISA 9.7.6.2."""
    unordered = fmt.is_nan(a) or fmt.is_nan(b)
    if cmp in ("num", "nan"):
        return unordered == (cmp == "nan")
    if unordered:
        return cmp.endswith("u")
    x, y = order(a, fmt)[0], order(b, fmt)[0]
    return bool(ORDERED[cmp.removesuffix("u") if cmp != "equ" else "eq"](x, y))


COMPARISONS = [*ORDERED, *(f"{c}u" for c in ORDERED), "num", "nan"]


def pairs(fmt: Format) -> list[list[int]]:
    """Operands of which a third are equal, and zeros of both signs."""
    a, b = operands(fmt, 2, 250)
    b = [x if i % 3 == 0 else y for i, (x, y) in enumerate(zip(a, b, strict=True))]
    return [[*a, 0, fmt.sign, 1], [*b, fmt.sign, 0, 0]]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_setp(kind: str) -> None:
    fmt = FORMATS[kind]
    columns = pairs(fmt)
    c = [i % 2 for i in range(len(columns[0]))]
    for cmp, ftz in itertools.product(COMPARISONS, ("", ".ftz") if kind in FLUSHED else ("",)):
        clean = [[fmt.flushed(p) if ftz else p for p in column] for column in columns]
        found = [holds(cmp, a, b, fmt) for a, b in zip(*clean, strict=True)]
        assert run(f"setp.{cmp}{ftz}.{kind}", *columns).tolist() == found, cmp
        for word, joined in BOOLS.items():
            bound = form(f"setp.{cmp}.{word}{ftz}.{kind}", 3)
            inputs = [np.array(x, f"u{(fmt.sign.bit_length() + 7) // 8}") for x in columns] + [np.array(c, np.uint8)]
            for result in range(len(bound.form.destinations)):
                got = bound.array_function(result)(len(c), *inputs)
                assert got.tolist() == [joined(f == (result == 0), bool(k)) for f, k in zip(found, c, strict=True)]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_setp_of_pairs_has_a_predicate_for_each_half(kind: str) -> None:
    low, high = pairs(FORMATS[kind]), [column[::-1] for column in pairs(FORMATS[kind])]
    packed = [[a | b << 16 for a, b in zip(x, y, strict=True)] for x, y in zip(low, high, strict=True)]
    for cmp in COMPARISONS:
        bound = form(f"setp.{cmp}.{kind}x2", 2)
        for result, part in enumerate((low, high)):
            got = bound.array_function(result)(len(packed[0]), *(np.array(p, np.uint32) for p in packed))
            np.testing.assert_array_equal(got, run(f"setp.{cmp}.{kind}", *part))


TRUE = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "u16": 0xFFFF, "s16": 0xFFFF, "f32": 0x3F800000}
TRUE |= {"f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}


@pytest.mark.parametrize("kind", KINDS)
def test_set(kind: str) -> None:
    columns = pairs(FORMATS[kind])
    c = [i % 2 for i in range(len(columns[0]))]
    wanted = {"f32": "u32 s32 f32 f16 bf16", "f64": "u32 s32 f32 f16 bf16", "f16": "u16 s16 u32 s32 f16 bf16"}
    for to, cmp in itertools.product(wanted.get(kind, "u16 s16 u32 s32 bf16").split(), ("lt", "neu")):
        found = run(f"setp.{cmp}.{kind}", *columns)
        np.testing.assert_array_equal(run(f"set.{cmp}.{to}.{kind}", *columns), np.where(found, TRUE[to], 0))
        joined = run(f"setp.{cmp}.xor.{kind}", *columns, c)
        np.testing.assert_array_equal(run(f"set.{cmp}.xor.{to}.{kind}", *columns, c), np.where(joined, TRUE[to], 0))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_set_of_pairs(kind: str) -> None:
    low, high = pairs(FORMATS[kind]), [column[::-1] for column in pairs(FORMATS[kind])]
    packed = [[a | b << 16 for a, b in zip(x, y, strict=True)] for x, y in zip(low, high, strict=True)]
    c = [i % 2 for i in range(len(packed[0]))]
    for to in (f"{kind}x2", "u32", "s32"):
        one = TRUE[to] & 0xFFFF
        halves = [np.where(run(f"setp.ge.{kind}", *part), one, 0).astype(np.uint32) for part in (low, high)]
        np.testing.assert_array_equal(run(f"set.ge.{to}.{kind}x2", *packed), halves[0] | halves[1] << np.uint32(16))
        halves = [np.where(run(f"setp.ge.or.{kind}", *part, c), one, 0).astype(np.uint32) for part in (low, high)]
        got = run(f"set.ge.or.{to}.{kind}x2", *packed, c)
        np.testing.assert_array_equal(got, halves[0] | halves[1] << np.uint32(16))
