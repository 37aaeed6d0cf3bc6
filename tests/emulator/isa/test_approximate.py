"""Approximate instructions: special values and ranges of hardware; the rounding models compared with mpmath."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from ptxdiff.emulator.numeric.elementary import EX2_HARD, SINE_HARD
from tests.support.emulator.isa.exact import rounded
from tests.support.emulator.isa.forms import run
from tests.support.emulator.isa.ieee import F32, F64, FORMATS, Format, operands

NAN, INF = 0x7FFFFFFF, 0x7F800000
MINUS = 0x80000000


def true(name: str, x: Any) -> Any:
    """The function to 200 bits."""
    with mpmath.workprec(200):
        functions = {
            "ex2": lambda: mpmath.power(2, x),
            "lg2": lambda: mpmath.log(x, 2),
            "tanh": lambda: mpmath.tanh(x),
            "sin": lambda: mpmath.sinpi(2 * x),
            "cos": lambda: mpmath.cospi(2 * x),
            "rsqrt": lambda: 1 / mpmath.sqrt(x),
        }
        return functions[name]()


def nearest(y: Any, fmt: Format) -> int:
    """The pattern nearest to a number of mpmath."""
    sign, mantissa, exponent, _ = y._mpf_
    x = (-1 if sign else 1) * int(mantissa) * Fraction(2) ** int(exponent)
    return rounded(x, fmt.exponent_bits, fmt.mantissa_bits) if x else 0


def number(a: int, fmt: Format) -> Any:
    """A finite pattern as a number of mpmath, exact."""
    x = fmt.fraction(a)
    with mpmath.workprec(200):
        return mpmath.mpf(x.numerator) / x.denominator


def patterns(values: Any) -> list[int]:
    """float32 patterns."""
    return [int(p) for p in np.asarray(values, np.float32).view(np.uint32)]


# Ranges in which the function is neither constant nor equal to its argument, and the models' hard cases.
RNG = np.random.default_rng(7)
SIGNS = RNG.choice([-1.0, 1.0], 500)
ARGUMENTS = {
    "ex2": patterns(np.exp2(RNG.uniform(-24, 7.2, 500)) * SIGNS) + patterns([a for a, _ in EX2_HARD]),
    "lg2": patterns(np.exp2(RNG.uniform(-149, 127, 400))) + patterns(1 + np.exp2(RNG.uniform(-23, -1, 100))),
    "tanh": patterns(np.exp2(RNG.uniform(-14, 3.3, 500)) * SIGNS),
    "rsqrt": patterns(np.exp2(RNG.uniform(-149, 127, 500))),
}
# A search of all arguments found these, whose results lie nearest to the middle between two float32 numbers.
ARGUMENTS["lg2"] += [0x3EA07AB9, 0x40207AB9, 0x2452A4, 0x4114A90]
ARGUMENTS["tanh"] += [0x3AC37DE2, 0x3EEE0566]
ARGUMENTS["rsqrt"] += [0x403A18E3, 0x553A18E3, 0x4009F038]
ARGUMENTS["ex2"] += [0x33B8AA3B, 0x3DC9ABE2, 0xB466D4CB]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_nearest_float32(name: str) -> None:
    arguments = ARGUMENTS[name]
    for a, g in zip(arguments, run(f"{name}.approx.f32", arguments, rounded=True), strict=True):
        assert int(g) == nearest(true(name, number(a, F32)), F32), f"{name}(0x{a:08x})"


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_nearest_sine_of_the_reduced_angle(name: str) -> None:
    """The angle in turns is the argument times 0x3e22f983, rounded towards zero."""
    arguments = patterns(np.exp2(RNG.uniform(-22, 12, 600)) * RNG.choice([-1.0, 1.0], 600))
    for a, g in zip(arguments, run(f"{name}.approx.f32", arguments, rounded=True), strict=True):
        turns = int(run("mul.rz.f32", [a], [0x3E22F983])[0])
        assert int(g) == nearest(true(name, number(turns, F32)), F32), f"{name}(0x{a:08x})"


def test_series_round_like_the_hosts_functions() -> None:
    """A million arguments; left out are those whose exact result may lie on either side of a middle."""
    x = (np.exp2(RNG.uniform(-40, 5, 1 << 20)) * RNG.choice([-1.0, 1.0], 1 << 20)).astype(np.float32)
    for name, function, arguments in (("tanh", np.tanh, x), ("ex2", np.exp2, x), ("lg2", np.log2, np.abs(x * x))):
        true = function(arguments.astype(np.float64))
        clear = np.abs((true.view(np.int64) & 0x1FFFFFFF) - 0x10000000) > 4
        got = run(f"{name}.approx.f32", arguments.view(np.uint32), rounded=True).view(np.float32)
        assert np.array_equal(got[clear], true.astype(np.float32)[clear]), name
    turns = run("mul.rz.f32", x.view(np.uint32), np.full(x.size, 0x3E22F983, np.uint32)).view(np.float32)
    for name, function in (("sin", np.sin), ("cos", np.cos)):
        true = function(2 * np.pi * np.remainder(turns.astype(np.float64), 1.0))
        clear = np.abs((true.view(np.int64) & 0x1FFFFFFF) - 0x10000000) > 1 << 16
        got = run(f"{name}.approx.f32", x.view(np.uint32), rounded=True).view(np.float32)
        near = np.abs(true) > 2.0**-10
        assert np.array_equal(got[clear & near], true.astype(np.float32)[clear & near])


def test_hard_sines() -> None:
    from ptxdiff.emulator.numeric.bits import f32_round
    from ptxdiff.emulator.numeric.elementary import sine_of_turns

    for u, pattern in SINE_HARD:
        assert f32_round(sine_of_turns(u)) == pattern == nearest(true("sin", mpmath.mpf(u)), F32)
        assert f32_round(sine_of_turns(-u)) == pattern | MINUS


def test_large_angles_are_whole_turns() -> None:
    huge = patterns([2.0**30, -(2.0**40), 3e38])
    assert run("cos.approx.f32", huge).tolist() == [0x3F800000] * 3
    assert not (run("sin.approx.f32", huge) & 0x7FFFFFFF).any()


@pytest.mark.parametrize(
    ("name", "zeros", "others"),
    [
        # Half turns and whole turns of both signs, less than 2**-25 turns, and less than that before half a turn.
        (
            "sin",
            {0x4B000001: MINUS, 0xCB000001: 0, 0xCBF01673: 0, 0xB4490FDB: MINUS, 0x40490FDB: 0, 0xC0490FDB: MINUS},
            (0xB4490FDC, 0xC0490FDA),
        ),
        # A quarter turn, angles just below it, and three quarters of a turn.
        ("cos", {0x4AFFFFFF: MINUS, 0xCAFFFFFF: MINUS, 0x4AD25A27: MINUS, 0x3FC90FDB: 0, 0x3FC90FDA: 0}, (0xBFC90FD9,)),
    ],
)
def test_results_are_zero_where_an_h200_s_are(name: str, zeros: dict[int, int], others: tuple[int, ...]) -> None:
    assert dict(zip(zeros, run(f"{name}.approx.f32", list(zeros)).tolist(), strict=True)) == zeros
    assert all(g & 0x7FFFFFFF for g in run(f"{name}.approx.ftz.f32", list(others)).tolist())


@pytest.mark.parametrize("step", [pytest.param(1 << 5, id="few"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_zeros_of_large_angles(step: int) -> None:
    """An H200 gives -0 exactly at half turns and +0 exactly at whole turns (for the cosine a quarter turn earlier)."""
    starts = np.arange(0x4A800000, 0x4B800000, 1 << 10, dtype=np.uint32)
    angles = (starts[:, None] + np.arange((1 << 10) // step, dtype=np.uint32)).ravel()  # neighbours: zeros are rare
    for name, quarter in (("sin", 0.0), ("cos", 0.25)):
        got = run(f"{name}.approx.f32", angles)
        turns = run("mul.rz.f32", angles, np.full(angles.size, 0x3E22F983, np.uint32)).view(np.float32)
        phase = turns.astype(np.float64) + quarter
        np.testing.assert_array_equal(got == MINUS, phase % 1 == 0.5)
        np.testing.assert_array_equal(got == 0, phase % 1 == 0)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "steps", [pytest.param((3, 25), id="few"), pytest.param((1, 5), id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in ("f16", "bf16") for n in ("ex2", "tanh")])
def test_nearest_half(kind: str, name: str, steps: tuple[int, int]) -> None:
    """Arguments, in these steps, of bfloat16 and float16 whose result is not 0, 1, the argument itself or infinity.

    Powers below the least float16 are an exception: hardware gives zero.
    """
    fmt = FORMATS[kind]
    middle = ((1 << (fmt.exponent_bits - 1)) - 1) << fmt.mantissa_bits
    size = range(middle - (20 << fmt.mantissa_bits if kind == "bf16" else 14 << 10), middle + (8 << fmt.mantissa_bits))
    step = steps[kind == "f16"]
    arguments = [s | sign for s in size if 0 < s < fmt.infinity for sign in (0, fmt.sign)][::step]
    spelling = f"{name}.approx{'.ftz' if (kind, name) == ('bf16', 'ex2') else ''}.{kind}"
    for a, g in zip(arguments, run(spelling, arguments, rounded=True), strict=True):
        x = number(a, fmt)
        if abs(x) > 300:
            continue
        y = true(name, x)
        expected = nearest(y, fmt) if (spelling, x < -24) != ("ex2.approx.f16", True) else 0
        assert int(g) == (fmt.flushed(expected) if ".ftz" in spelling else expected), f"{spelling} 0x{a:04x}"
        if fmt.normal <= expected & (fmt.sign - 1) < fmt.infinity:
            assert off_middle(y, fmt) > 2.0**-27, "the float64 in between could mislead"


def off_middle(y: Any, fmt: Format) -> float:
    """The distance of a number from the middle between two numbers of a format, relative to the number."""
    with mpmath.workprec(200):
        fraction, _ = mpmath.frexp(abs(y))
        steps = fraction * 2 ** (fmt.mantissa_bits + 1)
        return float(abs(steps - mpmath.floor(steps) - 0.5) / steps)


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("name", ["ex2", "tanh"])
@pytest.mark.parametrize("rounded", [False, True])
def test_pairs(name: str, kind: str, rounded: bool) -> None:
    spelling = f"{name}.approx{'.ftz' if (kind, name) == ('bf16x2', 'ex2') else ''}.{kind}"
    (low,), (high,) = operands(FORMATS[kind[:-2]], 1, 200, 1), operands(FORMATS[kind[:-2]], 1, 200, 2)
    packed = [a | b << 16 for a, b in zip(low, high, strict=True)]
    alone = spelling.removesuffix("x2")
    halves = [run(alone, half, rounded=rounded).astype(np.uint32) for half in (low, high)]
    np.testing.assert_array_equal(run(spelling, packed, rounded=rounded), halves[0] | halves[1] << 16)


SPECIALS = {
    # input: 0, -0, smallest subnormal, its negative, inf, -inf, NaN, -1
    "rcp.approx.f32": [INF, INF | MINUS, INF, INF | MINUS, 0, MINUS, NAN, 0xBF800000],
    "rcp.approx.ftz.f32": [INF, INF | MINUS, INF, INF | MINUS, 0, MINUS, NAN, 0xBF800000],
    "sqrt.approx.f32": [0, MINUS, 0x1A3504F3, NAN, INF, NAN, NAN, NAN],
    "sqrt.approx.ftz.f32": [0, MINUS, 0, MINUS, INF, NAN, NAN, NAN],
    "rsqrt.approx.f32": [INF, INF | MINUS, 0x64B504F2, NAN, 0, NAN, NAN, NAN],
    "rsqrt.approx.ftz.f32": [INF, INF | MINUS, INF, INF | MINUS, 0, NAN, NAN, NAN],
    "sin.approx.f32": [0, MINUS, 0, MINUS, NAN, NAN, NAN, None],
    "sin.approx.ftz.f32": [0, MINUS, 0, MINUS, NAN, NAN, NAN, None],
    "cos.approx.ftz.f32": [0x3F800000] * 4 + [NAN, NAN, NAN, None],
    "lg2.approx.f32": [INF | MINUS, INF | MINUS, 0xC3150000, NAN, INF, NAN, NAN, NAN],
    "lg2.approx.ftz.f32": [INF | MINUS] * 4 + [INF, NAN, NAN, NAN],
    "ex2.approx.f32": [0x3F800000] * 4 + [INF, 0, NAN, 0x3F000000],
    "ex2.approx.ftz.f32": [0x3F800000] * 4 + [INF, 0, NAN, 0x3F000000],
    "tanh.approx.f32": [0, MINUS, 1, MINUS | 1, 0x3F800000, 0xBF800000, NAN, 0xBF42F848],
}


@pytest.mark.parametrize("spelling", SPECIALS)
def test_special_values(spelling: str) -> None:
    inputs = [0, MINUS, 1, MINUS | 1, INF, INF | MINUS, 0xFF812345, 0xBF800000]
    got = [int(g) for g in run(spelling, inputs)]
    assert [hex(g) for g, e in zip(got, SPECIALS[spelling], strict=True) if e is not None] == [
        hex(e) for e in SPECIALS[spelling] if e is not None
    ]


@pytest.mark.parametrize(
    ("spelling", "a", "b", "expected"),
    [
        ("div.approx.f32", 0x40000000, 0x7E800001, 0),  # above 2**126 the reciprocal is flushed
        ("div.approx.f32", INF, 0x7F000000, NAN),
        ("div.approx.f32", 0x40000000, 0x7E800000, 0x01000000),
        ("div.approx.f32", 0x00400000, 0x00200000, 0x40000000),
        ("div.approx.ftz.f32", 0x00400000, 0x3F800000, 0),
        ("div.approx.ftz.f32", 0x3F800000, 0x80200000, INF | MINUS),
        ("div.full.f32", 0x7F000000, 0x7F000000, 0x3F800000),
        ("div.full.f32", 0x40400000, 0x3FC00000, 0x40000000),
        ("div.full.ftz.f32", 0x00400000, 0x00200000, NAN),
        ("div.full.f32", 0, 0, NAN),
        ("div.approx.f32", INF, INF, NAN),
        # The product with the rounded reciprocal is the least normal number, though the quotient lies below it.
        ("div.approx.ftz.f32", 0x017FFFFE, 0x407FFFFF, 0x00800000),
        ("div.full.ftz.f32", 0x017FFFFE, 0x407FFFFF, 0x00800000),
    ],
)
def test_division(spelling: str, a: int, b: int, expected: int) -> None:
    assert hex(run(spelling, [a], [b])[0]) == hex(expected)


def test_results_below_the_normal_range() -> None:
    """2**-126.5 is subnormal: without .ftz it is the result, with .ftz the result is zero."""
    x = patterns([-126.5])
    assert run("ex2.approx.f32", x)[0] == 0x005A8279
    assert run("ex2.approx.ftz.f32", x)[0] == 0
    assert run("rcp.approx.f32", [0x7F000000])[0] == 0x00400000
    assert run("rcp.approx.ftz.f32", [0xFF000000])[0] == MINUS


def test_upper_halves_of_float64() -> None:
    """20 bits of the fraction: 1 / 3 is 0x3fd5555555555555."""
    three = [0x4008000000000000]
    assert hex(run("rcp.approx.ftz.f64", three)[0]) == "0x3fd5555500000000"
    assert hex(run("rsqrt.approx.ftz.f64", three)[0]) == "0x3fe279a700000000"
    assert hex(run("rcp.approx.ftz.f64", [0x3FF00000FFFFFFFF])[0]) == "0x3ff0000000000000", "the lower half is not read"
    inputs = [0, 1 << 63, 1, F64.infinity, F64.infinity | 1 << 63]
    expected = [F64.infinity, F64.infinity | 1 << 63, F64.infinity, 0, 1 << 63]
    assert [int(g) for g in run("rcp.approx.ftz.f64", inputs)] == expected
    assert [int(g) for g in run("rsqrt.approx.ftz.f64", inputs[:4])] == expected[:4]
    for spelling in ("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"):
        assert F64.is_nan(int(run(spelling, [F64.nan])[0]))
    assert F64.is_nan(int(run("rsqrt.approx.ftz.f64", [0xBFF0000000000000])[0]))


def test_rsqrt_of_float64() -> None:
    (column,) = operands(F64, 1, 600)
    arguments = [a & ~F64.sign for a in column if 0 < a & ~F64.sign < F64.infinity]
    for a, g in zip(arguments, run("rsqrt.approx.f64", arguments, rounded=True), strict=True):
        assert int(g) == nearest(true("rsqrt", number(a, F64)), F64), hex(a)
    inputs = [0, 1 << 63, F64.infinity, F64.infinity | 1 << 63, F64.infinity | 5]
    expected = [F64.infinity, F64.infinity | 1 << 63, 0, F64.nan, F64.infinity | 5 | 1 << 51]
    assert [int(g) for g in run("rsqrt.approx.f64", inputs)] == expected


def test_approximate_forms_are_marked_as_approximate() -> None:
    from tests.support.emulator.isa.forms import form

    for spelling, count in (("rcp.approx.f32", 1), ("div.full.ftz.f32", 2), ("tanh.approx.bf16x2", 1)):
        assert form(spelling, count).form.approximate
    assert not form("rcp.rn.f32", 1).form.approximate
