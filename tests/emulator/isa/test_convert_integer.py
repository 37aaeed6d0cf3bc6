"""Conversions from and to integers compared with exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor, trunc
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.isa.forms import FORMS
from tests.support.emulator.isa.exact import rounded, value
from tests.support.emulator.isa.forms import form, run
from tests.support.sampling import mixed

FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
INTEGERS = [f"{s}{w}" for s in "us" for w in (8, 16, 32, 64)]
MODES = ("rn", "rz", "rm", "rp")


def limits(kind: str) -> tuple[int, int]:
    """The smallest and largest value of an integer type."""
    width = int(kind[1:])
    return (0, (1 << width) - 1) if kind[0] == "u" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


def integers(kind: str) -> list[int]:
    """Values around powers of two and midpoints of floats, the ends of the range, and random ones of all sizes."""
    low, high = limits(kind)
    rng = np.random.default_rng(int(kind[1:]))
    found = {0, low, high, low + 1, high - 1}
    for power in range(int(kind[1:])):
        for bits in (53, 24, 11, 8):
            halves = {0, 1 << max(power - bits, 0), 3 << max(power - bits, 0)}
            # Single low bits show whether all bits below a midpoint are read.
            low_bits = (-1, 0, 1, 1 << 11) if power == 63 else (-1, 0, 1)
            found.update((1 << power) + half + d for half in halves for d in low_bits)
        found.add(int(rng.integers(0, 1 << 62)) >> (62 - min(power, 62)))
    found |= {-x for x in found}
    return sorted(x for x in found if low <= x <= high)


def pattern(x: int, kind: str) -> int:
    """The bit pattern of an integer."""
    return x & ((1 << int(kind[1:])) - 1)


def number(bits: int, kind: str) -> int:
    """The value of a bit pattern."""
    width = int(kind[1:])
    return bits - (1 << width) if kind[0] == "s" and bits >> (width - 1) else bits


@pytest.mark.sample(4)
@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
def test_between_integers(source: str, target: str) -> None:
    values = integers(source)[::5] + list(limits(source))
    low, high = limits(target)
    results = run(f"cvt.{target}.{source}", [pattern(x, source) for x in values]).tolist()
    assert results == [pattern(x, target) for x in values]
    saturating = [f for f in FORMS["cvt"] if f.pattern.startswith("cvt.sat")]
    if limits(source)[0] < low or limits(source)[1] > high:
        clamped = run(f"cvt.sat.{target}.{source}", [pattern(x, source) for x in values]).tolist()
        assert clamped == [pattern(min(max(x, low), high), target) for x in values]
    else:
        assert saturating
        with pytest.raises(StopIteration):
            form(f"cvt.sat.{target}.{source}", 1)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("target", "source", "mode"), mixed(FLOATS, INTEGERS, MODES, of=2))
def test_integer_to_float(target: str, source: str, mode: str) -> None:
    values = integers(source)
    results = run(f"cvt.{mode}.{target}.{source}", [pattern(x, source) for x in values]).tolist()
    for x, result in zip(values, results, strict=True):
        expected = rounded(Fraction(x), *FLOATS[target], mode) if x else 0
        assert result == expected, f"{x} gave {result:#x}, not {expected:#x}"


def nearest(x: Fraction) -> int:
    """The nearest integer, ties to even."""
    return round(x)


ROUNDINGS: dict[str, Any] = {"rni": nearest, "rzi": trunc, "rmi": floor, "rpi": ceil}


def floats(kind: str, target: str) -> list[int]:
    """All patterns of 16-bit formats; of wider ones those near halves, integers and the target's limits, and random."""
    exponent_bits, mantissa_bits = FLOATS[kind]
    if exponent_bits + mantissa_bits == 15:
        return list(range(1 << 16))
    found = {0, 1, ((1 << exponent_bits) - 1) << mantissa_bits}
    points = [Fraction(n, 2) for n in range(1, 40)] + [Fraction(abs(x)) for x in limits(target) if x]
    points += [Fraction(2) ** p + Fraction(n, 2) for p in (10, 22, 23, 24, 51, 52, 53, 63, 64) for n in (-1, 0, 1)]
    for point in points:
        code = rounded(point, exponent_bits, mantissa_bits)
        found.update(range(code - 2, code + 3))
    rng = np.random.default_rng(3)
    bias = (1 << (exponent_bits - 1)) - 1
    exponents = bias + rng.integers(-3, 66, 300)
    found.update(
        int(e) << mantissa_bits | int(f)
        for e, f in zip(exponents, rng.integers(0, 1 << mantissa_bits, 300), strict=True)
    )
    return sorted(found | {p | 1 << (exponent_bits + mantissa_bits) for p in found})


@pytest.mark.sample(4)
@pytest.mark.parametrize(("source", "target", "mode"), mixed(FLOATS, INTEGERS, ROUNDINGS, of=2))
def test_float_to_integer(source: str, target: str, mode: str) -> None:
    patterns = floats(source, target)
    if len(patterns) > 4096:
        patterns = patterns[:: 61 if mode != "rni" else 17]
    low, high = limits(target)
    results = run(f"cvt.{mode}.{target}.{source}", patterns).tolist()
    for bits, result in zip(patterns, results, strict=True):
        x = value(bits, *FLOATS[source])
        if x == "nan":
            wide = source == "f64" or target.endswith("64")
            assert result == (1 << (int(target[1:]) - 1) if wide else 0)
        elif isinstance(x, str):
            assert number(result, target) == (high if x == "+inf" else low)
        else:
            assert number(result, target) == min(max(ROUNDINGS[mode](x), low), high), hex(bits)


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ROUNDINGS)
@pytest.mark.parametrize("kind", FLOATS)
def test_integral_value_of_the_same_type(kind: str, mode: str) -> None:
    patterns = floats(kind, "u32")
    if len(patterns) > 4096:
        patterns = patterns[::11]
    sign = 1 << sum(FLOATS[kind])
    for bits, result in zip(patterns, run(f"cvt.{mode}.{kind}.{kind}", patterns).tolist(), strict=True):
        x = value(bits, *FLOATS[kind])
        if x == "nan":
            continue
        assert result & sign == bits & sign, hex(bits)
        expected = x if isinstance(x, str) else ROUNDINGS[mode](x)
        assert value(result, *FLOATS[kind]) == expected, hex(bits)


def test_flush_and_saturation() -> None:
    assert run("cvt.rpi.s32.f32", [1, 0x007FFFFF]).tolist() == [1, 1]
    assert run("cvt.rpi.ftz.s32.f32", [1, 0x007FFFFF]).tolist() == [0, 0]
    assert run("cvt.rmi.ftz.f32.f32", [0x80000001]).tolist() == [0x80000000]
    assert run("cvt.rmi.f32.f32", [0x80000001]).tolist() == [0xBF800000]
    assert run("cvt.rni.sat.f32.f32", [0x40490FDB, 0xC0490FDB, 0x3F000001]).tolist() == [0x3F800000, 0, 0x3F800000]
    assert run("cvt.rn.sat.f32.s32", [5, 0xFFFFFFFB, 0, 1]).tolist() == [0x3F800000, 0, 0, 0x3F800000]


def test_pack() -> None:
    """The first source lies above the second, and the low bits of c above both."""
    assert run("cvt.pack.sat.u16.s32", [70000, 40000], [-3, 5]).tolist() == [0xFFFF0000, 0x9C400005]
    assert run("cvt.pack.sat.s16.s32", [40000], [-40000]).tolist() == [0x7FFF8000]
    c = [0x89ABCDEF]
    assert run("cvt.pack.sat.u8.s32.b32", [300], [-1], c).tolist() == [0xCDEFFF00]
    assert run("cvt.pack.sat.s8.s32.b32", [200], [-200], c).tolist() == [0xCDEF7F80]
    assert run("cvt.pack.sat.u4.s32.b32", [17], [7], c).tolist() == [0xABCDEFF7]
    assert run("cvt.pack.sat.s4.s32.b32", [8], [-9], c).tolist() == [0xABCDEF78]
    assert run("cvt.pack.sat.u2.s32.b32", [4], [-1], c).tolist() == [0x9ABCDEFC]
    assert run("cvt.pack.sat.s2.s32.b32", [2], [-3], c).tolist() == [0x9ABCDEF6]
