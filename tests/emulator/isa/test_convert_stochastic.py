"""cvt.rs compared with its definition: truncation of the value plus random bits, in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.support.emulator.isa.exact import value
from tests.support.emulator.isa.forms import run

FORMATS = {"e4m3": (4, 3, 7, 0x7E), "e5m2": (5, 2, 15, 0x7B), "e2m3": (2, 3, 1, 0x1F), "e3m2": (3, 2, 3, 0x1F)}
FORMATS |= {"e2m1": (2, 1, 1, 7), "f16": (5, 10, 15, 0x7C00), "bf16": (8, 7, 127, 0x7F80)}
"""Exponent bits, mantissa bits, bias, and the code for overflow."""
SIGN = {"e4m3": 0x80, "e5m2": 0x80, "e2m3": 0x20, "e3m2": 0x20, "e2m1": 8, "f16": 0x8000, "bf16": 0x8000}


def stochastic(bits: int, random: int, random_bits: int, kind: str) -> int:
    """The code of |x| + random * 2**-random_bits units, truncated, with the sign of x."""
    _, mantissa_bits, bias, largest = FORMATS[kind]
    x = value(bits, 8, 23)
    assert isinstance(x, Fraction | int)
    magnitude = abs(Fraction(x))
    exponent = 1 - bias
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    steps = magnitude / Fraction(2) ** (exponent - mantissa_bits)
    code = ((exponent + bias - 1) << mantissa_bits) + int(steps + Fraction(random, 1 << random_bits))
    return (SIGN[kind] if bits >> 31 else 0) | min(code, largest)


def inputs(kind: str, count: int) -> list[int]:
    """float32 patterns over the format's range, above it, and below it as far as random bits can round up."""
    rng = np.random.default_rng(2)
    exponent_bits, mantissa_bits, bias, _ = FORMATS[kind]
    low, high = 127 - bias - mantissa_bits - 18, 127 - bias + (1 << exponent_bits) + 2
    exponents = rng.integers(max(low, 0), min(high, 255), count)
    fractions = rng.integers(0, 1 << 23, count) & ~np.where(rng.random(count) < 0.3, 0xFFFFF, 0)
    return [
        int(s) << 31 | int(e) << 23 | int(f)
        for s, e, f in zip(rng.integers(0, 2, count), exponents, fractions, strict=True)
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kind", "random_bits"), [("f16", 13), ("bf16", 16)])
def test_pairs(kind: str, random_bits: int) -> None:
    """The upper half of the random bits belongs to the first source; float16 uses 13 bits of each."""
    a, b = inputs(kind, 700), inputs(kind, 700)[::-1]
    random = np.random.default_rng(4).integers(0, 1 << 32, 700).tolist()
    mask = (1 << random_bits) - 1
    for x, y, r, pair in zip(a, b, random, run(f"cvt.rs.{kind}x2.f32", a, b, random).tolist(), strict=True):
        assert pair >> 16 == stochastic(x, r >> 16 & mask, random_bits, kind), hex(x)
        assert pair & 0xFFFF == stochastic(y, r & mask, random_bits, kind), hex(y)


def fields(random: int, kind: str) -> list[int]:
    """The 16 random bits for each of the four values, picked from a string of binary digits."""
    digits = f"{random:032b}"
    if kind == "e2m1":
        first, second = digits[0:8] + digits[16:24], digits[8:16] + digits[24:32]
    else:
        first, second = digits[:16], digits[16:]
    return [int(d, 2) for d in (first[::-1], first, second[::-1], second)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_fours(kind: str) -> None:
    columns = [inputs(kind, 4000)[i::4] for i in range(4)]
    random = np.random.default_rng(4).integers(0, 1 << 32, 1000).tolist()
    field = 4 if kind == "e2m1" else 8
    got = run(f"cvt.rs.satfinite.{kind}x4.f32", *columns, random).tolist()
    for lane, (r, packed) in enumerate(zip(random, got, strict=True)):
        for place, bits in enumerate(fields(r, kind)):
            code = packed >> field * (3 - place) & ((1 << field) - 1)
            assert code == stochastic(columns[place][lane], bits, 16, kind)


def test_random_fields_as_reported_for_a_b200() -> None:
    assert fields(0x12345678, "e4m3") == [0x2C48, 0x1234, 0x1E6A, 0x5678]
    assert fields(0x12345678, "e2m1") == [0x6A48, 0x1256, 0x1E2C, 0x3478]


@pytest.mark.parametrize("random", [0, 0xFFFFFFFF])
def test_special_values_ignore_the_random_bits(random: int) -> None:
    specials = [0x7FC00000, 0x7F800000, 0xFF800000, 0x80000000]
    columns = [[s] for s in specials]
    assert run("cvt.rs.satfinite.e4m3x4.f32", *columns, [random]).tolist() == [0x7F7EFE80]
    assert run("cvt.rs.relu.satfinite.e5m2x4.f32", *columns, [random]).tolist() == [0x7F7B0000]
    assert run("cvt.rs.satfinite.e2m1x4.f32", *columns, [random]).tolist() == [0x77F8]
    assert run("cvt.rs.f16x2.f32", [0x7F800000], [0xFFC00000], [random]).tolist() == [0x7C007FFF]
    assert run("cvt.rs.satfinite.relu.bf16x2.f32", [0x7F800000], [0xFF800000], [random]).tolist() == [0x7F7F0000]


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_smallest_values_that_can_round_up(kind: str) -> None:
    """With all random bits set, a value rounds up if it is at least one unit of the lowest of 16 random bits."""
    column = [e << 23 | f for e in range(80, 130) for f in (0, 1, 0x7FFFFF)]
    got = run(f"cvt.rs.satfinite.{kind}x4.f32", column, column, column, column, [0xFFFFFFFF] * len(column)).tolist()
    field = 4 if kind == "e2m1" else 8
    assert [g & ((1 << field) - 1) for g in got] == [stochastic(bits, 0xFFFF, 16, kind) for bits in column]
    assert 0 < sum(g != 0 for g in got) < len(got)
