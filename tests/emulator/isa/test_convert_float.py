"""Conversions between floats compared with exact rational arithmetic, numpy and ml_dtypes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxdiff.emulator import emulate
from tests.support.emulator.isa.exact import rounded, value
from tests.support.emulator.isa.forms import run

FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
NARROWING = [("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16"), ("bf16", "f16")]
NARROWING += [("f16", "bf16")]
MODES = ("rn", "rz", "rm", "rp")


def sign_bit(kind: str) -> int:
    """The sign bit of a format."""
    return 1 << sum(FORMATS[kind])


def infinity(kind: str) -> int:
    """The pattern of +infinity."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    return ((1 << exponent_bits) - 1) << mantissa_bits


def is_nan(bits: int, kind: str) -> bool:
    """Whether a pattern is a NaN."""
    return bits & (sign_bit(kind) - 1) > infinity(kind)


def critical(source: str, target: str) -> list[int]:
    """Positive source patterns around values and midpoints of the target, its ends, and random patterns."""
    exponent_bits, mantissa_bits = FORMATS[target]
    rng = np.random.default_rng(1)
    top = infinity(target)
    codes = [0, 1, 2, 3, (1 << mantissa_bits) - 1, 1 << mantissa_bits, top - 2, top - 1]
    codes += [int(c) for c in rng.integers(0, top - 1, 150)]
    found: set[int] = {0, 1, infinity(source), infinity(source) - 1}
    for code in codes:
        low = value(code, exponent_bits, mantissa_bits)
        unit = Fraction(2) ** (max((code >> mantissa_bits), 1) - (1 << (exponent_bits - 1)) + 1 - mantissa_bits)
        for x in (low, low + unit / 2):
            near = rounded(x, *FORMATS[source]) if x else 0
            found.update(n for n in range(near - 2, near + 3) if 0 <= n <= infinity(source))
    exponents = rng.integers(0, (1 << FORMATS[source][0]) - 1, 200)
    fractions = rng.integers(0, 1 << FORMATS[source][1], 200)
    found.update((int(e) << FORMATS[source][1]) + int(f) for e, f in zip(exponents, fractions, strict=True))
    return sorted(found)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("source", "target"), NARROWING)
def test_narrowing_rounds_once(source: str, target: str, mode: str) -> None:
    patterns = critical(source, target)
    patterns += [p | sign_bit(source) for p in patterns]
    got = run(f"cvt.{mode}.{target}.{source}", patterns)
    for bits, result in zip(patterns, got.tolist(), strict=True):
        x = value(bits, *FORMATS[source])
        sign = sign_bit(target) if bits & sign_bit(source) else 0
        expected = sign
        if isinstance(x, str):
            expected |= infinity(target)
        elif x:
            expected = rounded(x, *FORMATS[target], mode)
        assert result == expected, f"{bits:#x} gave {result:#x}, not {expected:#x}"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("source", "target"), [("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64")]
)
@pytest.mark.parametrize("step", [pytest.param(5, id="few"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_widening_is_exact(source: str, target: str, step: int) -> None:
    patterns = (
        [*range(0, 1 << 16, step), *range(1 << 10), *range(1 << 15, 33 << 10)]
        if source != "f32"
        else [*critical("f32", "f16"), 0x80000001, 0xFF7FFFFF]
    )
    for bits, result in zip(patterns, run(f"cvt.{target}.{source}", patterns).tolist(), strict=True):
        if not is_nan(bits, source):
            assert value(result, *FORMATS[target]) == value(bits, *FORMATS[source]), hex(bits)
            assert (result >= sign_bit(target)) == (bits >= sign_bit(source)), hex(bits)


def test_random_float32_against_numpy_and_ml_dtypes() -> None:
    patterns = np.random.default_rng(7).integers(0, 1 << 32, 1 << 20, np.uint32)
    x = patterns.view(np.float32)
    number = ~np.isnan(x)
    with np.errstate(all="ignore"):
        assert (run("cvt.rn.f16.f32", patterns) == x.astype(np.float16).view(np.uint16))[number].all()
        assert (run("cvt.rn.bf16.f32", patterns) == x.astype(ml_dtypes.bfloat16).view(np.uint16))[number].all()


@pytest.mark.slow
@pytest.mark.parametrize(("target", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_every_float32_against_numpy_and_ml_dtypes(target: str, dtype: Any) -> None:
    """All 2**32 inputs: half a minute a format."""
    for start in range(0, 1 << 32, 1 << 24):
        patterns = np.arange(start, start + (1 << 24), dtype=np.uint64).astype(np.uint32)
        x = patterns.view(np.float32)
        with np.errstate(all="ignore"):
            expected = np.where(np.isnan(x), np.uint16(0x7FFF), x.astype(dtype).view(np.uint16))
        assert np.array_equal(run(f"cvt.rn.{target}.f32", patterns), expected)


NANS = {
    "f16": [0x7C01, 0x7E00, 0x7FFF, 0xFC01, 0xFE55],
    "bf16": [0x7F81, 0x7FC0, 0xFF81, 0xFFD5],
    "f32": [0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFA5A5A5],
    "f64": [0x7FF0000000000001, 0x7FF8000000000000, 0xFFF0123456789ABC, 0x7FFFFFFFFFFFFFFF],
}
CANONICAL = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}


@pytest.mark.parametrize(
    ("spelling", "source", "target"),
    [
        ("rn.f16.f32", "f32", "f16"),
        ("rz.relu.satfinite.f16.f32", "f32", "f16"),
        ("rm.bf16.f32", "f32", "bf16"),
        ("rn.f16.bf16", "bf16", "f16"),
        ("bf16.f16", "f16", "bf16"),
        ("f32.f16", "f16", "f32"),
        ("ftz.f32.bf16", "bf16", "f32"),
        ("ftz.f32.f32", "f32", "f32"),
        ("f16.f16", "f16", "f16"),
        ("bf16.bf16", "bf16", "bf16"),
        ("rni.f32.f32", "f32", "f32"),
        ("rpi.f16.f16", "f16", "f16"),
    ],
)
def test_nans_become_the_canonical_one(spelling: str, source: str, target: str) -> None:
    assert set(run(f"cvt.{spelling}", NANS[source]).tolist()) == {CANONICAL[target]}


@pytest.mark.parametrize(
    ("spelling", "source", "result"),
    [
        ("f32.f32", 0x7F800001, 0x7F800001),
        ("f64.f64", 0xFFF0000000000001, 0xFFF0000000000001),
        ("f32.bf16", 0xFF81, 0xFF810000),
        ("f64.f32", 0xFF800001, 0xFFF8000020000000),
        ("ftz.f64.f32", 0xFF800001, 0x7FFFFFFFE0000000),
        ("f64.f16", 0x7C01, 0x7FF8040000000000),
        ("f64.bf16", 0xFF81, 0xFFF8200000000000),
        ("rn.f32.f64", 0xFFF0000020000000, 0xFFC00001),
        ("rz.f16.f64", 0x7FF0040000000000, 0x7E01),
        ("rn.bf16.f64", 0xFFF0000000000001, 0xFFC0),
        ("rni.f64.f64", 0xFFF0000000000001, 0xFFF8000000000001),
        ("rn.tf32.f32", 0xFFC00000, 0x7FFFE000),
        ("rna.tf32.f32", 0x7F800001, 0x7F800000),
        ("rna.satfinite.tf32.f32", 0x7FC00000, 0x7FBFE000),
        ("sat.f32.f32", 0x7FC00000, 0),
        ("sat.f64.f32", 0x7FC00000, 0),
        ("rn.sat.f16.f64", 0x7FF8000000000000, 0),
    ],
)
def test_nans_of_other_conversions(spelling: str, source: int, result: int) -> None:
    assert run(f"cvt.{spelling}", [source]).tolist() == [result]


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_saturation_clamps_to_the_unit_interval(kind: str) -> None:
    one = value_bits(1, kind)
    patterns = [0, 1, one - 1, one, one + 1, infinity(kind), infinity(kind) + 1]
    patterns += [p | sign_bit(kind) for p in patterns]
    assert run(f"cvt.sat.{kind}.{kind}", patterns).tolist() == [0, 1, one - 1, one, one, one, 0] + [0] * 7


def value_bits(x: int, kind: str) -> int:
    """The pattern of a small integer."""
    return rounded(Fraction(x), *FORMATS[kind])


def test_clamps_of_the_packed_forms() -> None:
    """.satfinite: infinity becomes the largest value; .relu: negative values become +0; the first source is above."""
    a = np.array([0x7F800000, 0xFF800000, 0xC2000000, 0x80000000, 0x47800000, 0x7FC00000], np.uint32)
    b = np.full_like(a, 0x3F800000)
    assert run("cvt.rn.f16x2.f32", a, b).tolist() == [
        0x7C003C00, 0xFC003C00, 0xD0003C00, 0x80003C00, 0x7C003C00, 0x7FFF3C00,
    ]  # fmt: skip
    assert run("cvt.rn.satfinite.f16x2.f32", a, b).tolist() == [
        0x7BFF3C00, 0xFBFF3C00, 0xD0003C00, 0x80003C00, 0x7BFF3C00, 0x7FFF3C00,
    ]  # fmt: skip
    assert run("cvt.rn.relu.bf16x2.f32", a, b).tolist() == [
        0x7F803F80, 0x00003F80, 0x00003F80, 0x00003F80, 0x47803F80, 0x7FFF3F80,
    ]  # fmt: skip
    assert run("cvt.rz.relu.satfinite.bf16x2.f32", a, b).tolist()[:2] == [0x7F7F3F80, 0x00003F80]
    assert run("cvt.rn.pzo.bf16x2.f32", a, b).tolist()[3] == 0x00003F80


def test_tf32_rounding() -> None:
    patterns = [0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F803000, 0x7F7FF000, 0x00000FFF, 0x00001000]
    patterns += [p | 0x80000000 for p in patterns]
    for mode, up in (("rn", {2, 3, 4}), ("rz", set()), ("rna", {1, 2, 3, 4, 6})):
        expected = [(p & ~0x1FFF) + (0x2000 if i % 7 in up else 0) for i, p in enumerate(patterns)]
        assert run(f"cvt.{mode}.tf32.f32", patterns).tolist() == expected, mode
    assert run("cvt.rn.satfinite.tf32.f32", [0x7F7FFFFF, 0xFF800000]).tolist() == [0x7F7FE000, 0xFF7FE000]
    assert run("cvt.rna.satfinite.tf32.f32", [0x7F7FFFFF, 0xFF800000]).tolist() == [0x7F7FE000, 0xFF7FE000]
    assert run("cvt.rn.relu.tf32.f32", [0xBF800000, 0x80000000, 0x3F800000]).tolist() == [0, 0, 0x3F800000]


def test_flush_to_zero() -> None:
    """A result is flushed if it lies below the normal range when it is rounded with an unbounded exponent."""
    normal = 0x3810000000000000  # 2**-126 as float64
    steps = [0, 1, (1 << 28) - 1, 1 << 28, (1 << 28) + 1, (1 << 29) - 1, 1 << 29, (1 << 29) + 1]
    patterns = [normal - s for s in steps]
    unflushed = {"rn": 4, "rz": 1, "rp": 6, "rm": 1}
    for mode, count in unflushed.items():
        expected = [0x00800000] * count + [0] * (len(steps) - count)
        assert run(f"cvt.{mode}.ftz.f32.f64", patterns).tolist() == expected, mode
    assert run("cvt.rm.ftz.f32.f64", [-(1 << 63) | p for p in patterns]).tolist()[:6] == [0x80800000] * 6
    assert run("cvt.ftz.f32.f32", [1, 0x807FFFFF, 0x00800000]).tolist() == [0, 0x80000000, 0x00800000]
    assert run("cvt.rp.ftz.bf16.f32", [1, 0x80000001]).tolist() == [0, 0x8000]
    assert run("cvt.rp.bf16.f32", [1, 0x80000001]).tolist() == [1, 0x8000]
    assert run("cvt.ftz.f32.bf16", [1, 0x807F, 0x0080]).tolist() == [0, 0x80000000, 0x00800000]
    assert run("cvt.ftz.f64.f32", [1, 0x80000001]).tolist() == [0, 1 << 63]


def test_in_a_snippet() -> None:
    x = np.array([1.0, 65520.0, -0.0, 1e-8], np.float32)
    got = emulate("cvt.rn.satfinite.relu.f16.f32 $0, $1;", "=h,f", [x], "float16")
    assert got.tolist() == [1.0, 65504.0, 0.0, 0.0]
    wide = emulate("{ .reg .b16 h; cvt.rn.bf16.f32 h, $1; cvt.f32.bf16 $0, h; }", "=f,f", [x], "float32")
    assert wide.tolist() == x.astype(ml_dtypes.bfloat16).astype(np.float32).tolist()
