"""Sums, products and quotients of float32 and float16 in every rounding compared with exact rational arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from tests.support.emulator.isa.exact import rounded, value

FORMATS = {"f32": (8, 23, np.uint32, "float32", "r"), "f16": (5, 10, np.uint16, "float16", "h")}
OPERATIONS: dict[str, tuple[int, Callable[..., Fraction]]] = {
    "add": (2, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b),
    "mul": (2, lambda a, b: a * b),
    "fma": (3, lambda a, b, c: a * b + c),
    "div": (2, lambda a, b: a / b),
    "rcp": (1, lambda a: 1 / a),
}


def operands(kind: str, count: int, lanes: int) -> list[np.ndarray]:
    """Columns of patterns: random ones, many with close exponents, subnormals, and ends of the range."""
    exponent_bits, mantissa_bits, dtype, _, _ = FORMATS[kind]
    rng = np.random.default_rng(count)
    width = 1 + exponent_bits + mantissa_bits
    top = (1 << exponent_bits) - 1
    base = rng.integers(1, top, lanes)
    found = []
    for _ in range(count):
        near = np.clip(base + rng.integers(-14, 15, lanes), 0, top - 1)
        far = rng.integers(0, top, lanes)
        exponent = np.where(rng.random(lanes) < 0.7, near, far)
        fraction = rng.integers(0, 1 << mantissa_bits, lanes)
        short = rng.integers(0, 16, lanes) << (mantissa_bits - 4)
        fraction = np.where(rng.random(lanes) < 0.3, short, fraction)
        exponent = np.where(rng.random(lanes) < 0.05, 0, exponent)
        sign = rng.integers(0, 2, lanes) << (width - 1)
        found.append((sign | exponent << mantissa_bits | fraction).astype(dtype))
    return found


# float16 has no directed roundings and no division.
FORMS = [("f32", name, mode) for name in OPERATIONS for mode in ("rn", "rz", "rm", "rp")]
FORMS += [("f16", name, "rn") for name in ("add", "sub", "mul", "fma")]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "name", "mode"), FORMS)
def test_rounded_once(kind: str, name: str, mode: str) -> None:
    exponent_bits, mantissa_bits, dtype, dtype_name, letter = FORMATS[kind]
    count, exact = OPERATIONS[name]
    patterns = operands(kind, count, 1600)
    asm = f"{name}.{mode}.{kind} $0, {', '.join(f'${i + 1}' for i in range(count))};"
    args = [p.view(dtype_name) for p in patterns]
    got = emulate(asm, ",".join([f"={letter}"] + [letter] * count), args, dtype_name).view(dtype)
    wrong = []
    for lane in range(len(got)):
        values = [value(int(p[lane]), exponent_bits, mantissa_bits) for p in patterns]
        assert not any(isinstance(v, str) for v in values)
        try:
            result = exact(*values)
        except ZeroDivisionError:
            continue
        if result != 0 and int(got[lane]) != rounded(result, exponent_bits, mantissa_bits, mode):
            wrong.append([hex(int(p[lane])) for p in patterns] + [hex(int(got[lane]))])
    assert not wrong, wrong[:3]


@pytest.mark.parametrize(
    ("asm", "inputs", "expected"),
    [
        ("add.f32 $0, $1, $2;", (0x7F800000, 0xFF800000), 0x7FFFFFFF),
        ("add.f32 $0, $1, $2;", (0x7FC12345, 0), 0x7FFFFFFF),
        ("add.f32 $0, $1, $2;", (0x3F800000, 0xBF800000), 0),
        ("add.rm.f32 $0, $1, $2;", (0x3F800000, 0xBF800000), 0x80000000),
        ("add.rm.f32 $0, $1, $2;", (0, 0), 0),
        ("add.rm.f32 $0, $1, $2;", (0, 0x80000000), 0x80000000),
        ("add.f32 $0, $1, $2;", (0x80000000, 0x80000000), 0x80000000),
        ("add.ftz.f32 $0, $1, $2;", (0x807FFFFF, 0x80000000), 0x80000000),
        ("add.f32 $0, $1, $2;", (0x007FFFFF, 0x00000001), 0x00800000),
        ("add.sat.f32 $0, $1, $2;", (0x40000000, 0), 0x3F800000),
        ("add.sat.f32 $0, $1, $2;", (0x7FC00000, 0), 0),
        ("add.sat.f32 $0, $1, $2;", (0xC0000000, 0), 0),
        ("mul.f32 $0, $1, $2;", (0x7F800000, 0), 0x7FFFFFFF),
        ("mul.f32 $0, $1, $2;", (0x80000000, 0x3F800000), 0x80000000),
        ("mul.ftz.f32 $0, $1, $2;", (0x80800000, 0x3F000000), 0x80000000),
        ("div.rn.f32 $0, $1, $2;", (0x3F800000, 0x80000000), 0xFF800000),
        ("div.rn.f32 $0, $1, $2;", (0, 0), 0x7FFFFFFF),
        ("max.f32 $0, $1, $2;", (0x80000000, 0), 0),
        ("min.f32 $0, $1, $2;", (0, 0x80000000), 0x80000000),
        ("max.f32 $0, $1, $2;", (0x7FC00000, 0xBF800000), 0xBF800000),
        ("max.NaN.f32 $0, $1, $2;", (0x7FC00000, 0xBF800000), 0x7FFFFFFF),
        ("max.f32 $0, $1, $2;", (0x7FC00000, 0xFFC00000), 0x7FFFFFFF),
        ("max.xorsign.abs.f32 $0, $1, $2;", (0xC0000000, 0x3F800000), 0xC0000000),
        ("fma.rm.f32 $0, $1, $2, 0f80000000;", (0, 0x3F800000), 0x80000000),
        ("fma.rn.f32 $0, $1, $2, 0f7f800000;", (0xFF800000, 0x3F800000), 0x7FFFFFFF),
    ],
)
def test_special_values_of_float32(asm: str, inputs: tuple[int, int], expected: int) -> None:
    args = [np.array([i], np.uint32).view(np.float32) for i in inputs]
    got = emulate(asm, "=r,r,r", args, "uint32")
    assert hex(got[0]) == hex(expected)


E2M1 = [Fraction(n, 2) for n in (0, 1, 2, 3, 4, 6, 8, 12)]


@cache
def nearest_e2m1(x: Fraction) -> int:
    """The code of the nearest magnitude, ties to the even code; x is at most 6."""
    best = min(abs(x - v) for v in E2M1)
    near = [c for c, v in enumerate(E2M1) if abs(x - v) == best]
    return near[0] if len(near) == 1 else next(c for c in near if c % 2 == 0)


@pytest.mark.parametrize("step", [pytest.param(5, id="few"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_e2m1_of_every_bfloat16_and_of_ties(step: int) -> None:
    patterns = (np.arange(0, 1 << 16, step, dtype=np.uint32) << 16).astype(np.uint32)
    ties = np.float32([(float(a) + float(b)) / 2 for a, b in pairwise(E2M1)]).view(np.uint32)
    around = np.concatenate([ties - 1, ties, ties + 1])
    patterns = np.concatenate([patterns, around, around | 0x80000000])
    asm = "{.reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, $2; cvt.u32.u8 $0, t;}"
    other = patterns[::-1].copy()
    got = emulate(asm, "=r,r,r", [patterns.view("f4"), other.view("f4")], "uint32", target="sm_120a")
    codes = {}
    for bits in patterns.tolist():
        x = value(bits, 8, 23)
        if isinstance(x, str):
            codes[bits] = 7 if x == "nan" else (7 | (bits >> 28 & 8))
        else:
            codes[bits] = nearest_e2m1(min(abs(x), E2M1[7])) | (bits >> 28 & 8)
    expected = [codes[a] << 4 | codes[b] for a, b in zip(patterns.tolist(), other.tolist(), strict=True)]
    np.testing.assert_array_equal(got, expected)
