"""e4m3, e5m2, e2m3, e3m2, e2m1 and scale formats compared with gfloat, ml_dtypes and exact rational arithmetic."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fractions import Fraction
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gfloat import RoundMode, decode_ndarray, encode_ndarray, round_ndarray
from gfloat.formats import (
    format_info_ocp_e2m1,
    format_info_ocp_e2m3,
    format_info_ocp_e3m2,
    format_info_ocp_e4m3,
    format_info_ocp_e5m2,
)

from ptxdiff.emulator import emulate
from tests.support.emulator.isa.exact import rounded, value
from tests.support.emulator.isa.forms import f32_bits, form, run

INFO = {
    "e4m3": format_info_ocp_e4m3,
    "e5m2": format_info_ocp_e5m2,
    "e2m3": format_info_ocp_e2m3,
    "e3m2": format_info_ocp_e3m2,
    "e2m1": format_info_ocp_e2m1,
}
BITS = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}
NAN = {"e4m3": 0x7F, "e5m2": 0x7F, "e2m3": 0x1F, "e3m2": 0x1F, "e2m1": 7}
ML = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
MODES = {"rn": RoundMode.TiesToEven, "rz": RoundMode.TowardZero}


def values(kind: str) -> Any:
    """The finite magnitudes of a format in order of their codes, as float64."""
    codes = np.arange(1 << (BITS[kind] - 1))
    decoded = decode_ndarray(INFO[kind], codes)
    return decoded[np.isfinite(decoded)]


def plain_definition(x: Any, kind: str, mode: str) -> Any:
    """gfloat's codes of float64 values that are no NaN, clamped."""
    finite = np.clip(x, -values(kind)[-1], values(kind)[-1])
    return encode_ndarray(INFO[kind], round_ndarray(INFO[kind], finite, MODES[mode], sat=True))


def ties(kind: str) -> Any:
    """Every value and midpoint of a format, and the float32 next to each on both sides, of both signs."""
    v = values(kind)
    middle = np.concatenate([v, (v[1:] + v[:-1]) / 2, [v[-1] * 1.01, v[-1] * 64]]).astype(np.float32)
    around = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(0))])
    return np.concatenate([around, -around])


def split(pairs: Any, kind: str) -> tuple[Any, Any]:
    """The upper and the lower code of packed pairs."""
    field = 4 if kind == "e2m1" else 8
    wide = pairs.astype(np.int64)
    return wide >> field, wide & ((1 << field) - 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", INFO)
def test_every_half_and_every_tie(kind: str, mode: str) -> None:
    """All float16 and bfloat16, packed and as float32, and all ties are converted as by gfloat."""
    patterns = np.arange(1 << 16, dtype=np.uint32)
    halves = {"f16x2": patterns.astype(np.uint16).view(np.float16), "bf16x2": patterns.astype(np.uint16)}
    halves["bf16x2"] = halves["bf16x2"].view(ml_dtypes.bfloat16)
    for source, x in halves.items():
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
        number = ~np.isnan(wide)
        expected = np.where(number, plain_definition(np.where(number, wide, 0), kind, mode), NAN[kind])
        packed = patterns << np.uint32(16) | patterns[::-1]
        high, low = split(run(f"cvt.{mode}.satfinite.{kind}x2.{source}", packed), kind)
        assert np.array_equal(high, expected)
        assert np.array_equal(low, expected[::-1])
        bits = f32_bits(wide)
        high, low = split(run(f"cvt.{mode}.satfinite.{kind}x2.f32", bits, bits[::-1]), kind)
        assert np.array_equal(high, expected)
        assert np.array_equal(low, expected[::-1])
    x = ties(kind)
    high, low = split(run(f"cvt.{mode}.satfinite.{kind}x2.f32", x.view(np.uint32), x[::-1].view(np.uint32)), kind)
    assert np.array_equal(high, plain_definition(x.astype(np.float64), kind, mode))
    assert np.array_equal(low, high[::-1])


@pytest.mark.parametrize("kind", INFO)
def test_random_float32_against_ml_dtypes(kind: str) -> None:
    check_random(kind, 1 << 18, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", INFO)
def test_many_float32_against_ml_dtypes(kind: str) -> None:
    """2**28 patterns, most with an exponent in the range of the format: a minute for each format."""
    for part in range(64):
        check_random(kind, 1 << 22, part)


def check_random(kind: str, count: int, seed: int) -> None:
    """Random float32, rounded as ml_dtypes does after clamping (it rounds float32 directly)."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 1 << 32, count, np.uint32)
    near = rng.integers(127 - 20, 127 + 18, count, np.uint32) << np.uint32(23)
    patterns[count // 8 :] = ((patterns & np.uint32(0x807FFFFF)) | near)[count // 8 :]
    x = patterns.view(np.float32)
    limit = np.float32(values(kind)[-1])
    with np.errstate(all="ignore"):
        codes = np.clip(x, -limit, limit).astype(ML[kind]).view(np.uint8)
    expected = np.where(np.isnan(x), NAN[kind], codes & ((1 << BITS[kind]) - 1))
    high, low = split(run(f"cvt.rn.satfinite.{kind}x2.f32", patterns, patterns), kind)
    assert np.array_equal(high, expected)
    assert np.array_equal(low, expected)


@pytest.mark.parametrize("kind", INFO)
def test_modifiers(kind: str) -> None:
    """.relu: negative values and -0 give +0, NaN stays; .pzo: values that round to -0 give +0."""
    x = f32_bits([-1.0, -0.0, 1.0, -np.inf, np.nan, -1e-30])
    sign = 1 << (BITS[kind] - 1)
    one = int(plain_definition(np.array([1.0]), kind, "rn")[0])
    top = len(values(kind)) - 1
    plain, _ = split(run(f"cvt.rn.satfinite.{kind}x2.f32", x, x), kind)
    assert plain.tolist() == [sign | one, sign, one, sign | top, NAN[kind], sign]
    relu, _ = split(run(f"cvt.rn.satfinite.relu.{kind}x2.f32", x, x), kind)
    assert relu.tolist() == [0, 0, one, 0, NAN[kind], 0]
    pzo, _ = split(run(f"cvt.rn.satfinite.pzo.{kind}x2.f32", x, x), kind)
    assert pzo.tolist() == [sign | one, 0, one, sign | top, NAN[kind], 0]


@pytest.mark.parametrize("kind", INFO)
def test_one_scale_divides_both_values(kind: str) -> None:
    x = np.random.default_rng(5).standard_normal(4000).astype(np.float32) * 4
    for scale in (0, 100, 126, 127, 128, 140, 254):
        spelling = f"cvt.rn.satfinite.scaled::n1::ue8m0.{kind}x2.f32"
        scales = np.full(len(x), scale, np.uint8)
        high, low = split(run(spelling, x.view(np.uint32), x[::-1].view(np.uint32), scales), kind)
        assert np.array_equal(high, plain_definition(x.astype(np.float64) / 2.0 ** (scale - 127), kind, "rn"))
        assert np.array_equal(low, high[::-1])
    nan = run(f"cvt.rn.satfinite.scaled::n1::ue8m0.{kind}x2.f32", [0x3F800000], [1], [255])
    assert [int(c[0]) for c in split(nan, kind)] == [NAN[kind]] * 2


@pytest.mark.parametrize("kind", INFO)
def test_every_code_to_wider_floats(kind: str) -> None:
    """Both places of a pair are compared."""
    field = 4 if kind == "e2m1" else 8
    codes = np.arange(1 << BITS[kind], dtype=np.uint32)
    exact = decode_ndarray(INFO[kind], codes)
    pairs = codes << np.uint32(field) | codes[::-1]
    for target, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        with np.errstate(all="ignore"):
            expected = np.where(np.isnan(exact), 0x7FFF, exact.astype(dtype).view(np.uint16)).astype(np.int64)
        got = run(f"cvt.rn.{target}x2.{kind}x2", pairs).astype(np.int64)
        assert np.array_equal(got >> 16, expected)
        assert np.array_equal(got & 0xFFFF, expected[::-1])
        relu = run(f"cvt.rn.relu.{target}x2.{kind}x2", pairs).astype(np.int64)
        assert np.array_equal(relu >> 16, np.where(expected & 0x8000, 0, expected))
    finite = run(f"cvt.rn.satfinite.bf16x2.{kind}x2", pairs).astype(np.int64) >> 16
    assert np.array_equal(finite, np.where(expected & 0x7FFF == 0x7F80, expected - 1, expected))


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", INFO)
def test_every_code_times_every_scale(kind: str) -> None:
    """The exact product, rounded once to bfloat16."""
    field = 4 if kind == "e2m1" else 8
    codes, scales = (c.ravel() for c in np.meshgrid(np.arange(1 << BITS[kind]), np.arange(256)))
    exact = decode_ndarray(INFO[kind], codes)
    with np.errstate(all="ignore"):
        # Four bits times a power of two are exact in float64, and `_bf16` rounds the product once.
        product = exact * 2.0 ** (scales - 127)
        direct = [_bf16(p) for p in product.tolist()]
    expected = np.where(np.isnan(exact) | (scales == 255), 0x7FFF, direct)
    pairs = (codes << field | codes).astype(np.uint32)
    both = (scales << 8 | 127).astype(np.uint16)
    got = run(f"cvt.rn.scaled::n2::ue8m0.bf16x2.{kind}x2", pairs, both).astype(np.int64)
    assert np.array_equal(got >> 16, expected)
    unscaled = run(f"cvt.rn.bf16x2.{kind}x2", pairs).astype(np.int64)
    assert np.array_equal(got & 0xFFFF, unscaled & 0xFFFF)
    finite = run(f"cvt.rn.relu.satfinite.scaled::n2::ue8m0.bf16x2.{kind}x2", pairs, both).astype(np.int64) >> 16
    clamped = np.where(expected & 0x7FFF == 0x7F80, expected - 1, expected)
    assert np.array_equal(finite, np.where(clamped & 0x8000, 0, clamped))


def _bf16(x: float) -> int:
    if x != x:
        return 0x7FFF
    sign = 0x8000 if np.signbit(x) else 0
    if x == 0:
        return sign
    return sign | 0x7F80 if np.isinf(x) else rounded(Fraction(x), 8, 7)


POWERS = [Fraction(2) ** (c - 127) for c in range(255)]


def scale_code(bits: int, mode: str, satfinite: bool) -> int:
    """ue8m0 of a float32 pattern, by exact comparison with powers of two."""
    x = value(bits & 0x7FFFFFFF, 8, 23)
    if x == "nan":
        return 0xFF
    code = 0xFF
    if not isinstance(x, str):
        # Upwards the code is 0xFF if x is greater than all powers.
        code = max(bisect_right(POWERS, x) - 1, 0) if mode == "rz" else bisect_left(POWERS, x)
    return 0xFE if satfinite and code == 0xFF else code


@pytest.mark.parametrize("satfinite", [False, True])
@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_ue8m0(mode: str, satfinite: bool) -> None:
    patterns = [0, 1, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000]
    patterns += [0x7F000000, 0x7F000001, 0x3F800000, 0x3F7FFFFF, 0x3F800001, 0x40490FDB, 0xC0490FDB, 0x80000000]
    spelling = f"cvt.{mode}{'.satfinite' if satfinite else ''}.ue8m0x2"
    expected = [scale_code(p, mode, satfinite) for p in patterns]
    got = run(f"{spelling}.f32", patterns, patterns[::-1]).tolist()
    assert [g >> 8 for g in got] == expected
    assert [g & 0xFF for g in got] == expected[::-1]
    halves = [*range(0, 1 << 16, 37), 0x7F80, 0x7F81, 0x0040, 0x0041, 0x003F]
    got = run(f"{spelling}.bf16x2", [h << 16 | h for h in halves]).tolist()
    assert got == [scale_code(h << 16, mode, satfinite) * 0x101 for h in halves]


def test_ue8m0_to_bfloat16() -> None:
    codes = list(range(256))
    got = run("cvt.rn.bf16x2.ue8m0x2", [c << 8 | 255 - c for c in codes]).tolist()
    expected = [0x7FFF if c == 255 else rounded(Fraction(2) ** (c - 127), 8, 7) for c in codes]
    assert [g >> 16 for g in got] == expected
    assert [g & 0xFFFF for g in got] == expected[::-1]


def test_ue5m3() -> None:
    """Bias 15, three mantissa bits, no sign; 0xfe is 114688, 0xff NaN."""
    decoded = run("cvt.rn.bf16x2.ue5m3x2", list(range(256))).tolist()
    exact = [
        Fraction(c, 1 << 17) if c < 8 else Fraction(8 + c % 8, 8) * Fraction(2) ** (c // 8 - 15) for c in range(255)
    ]
    assert [d & 0xFFFF for d in decoded] == [rounded(x, 8, 7) if x else 0 for x in exact] + [0x7FFF]
    for mode in ("rn", "rz", "rp"):
        points = [x for low, high in pairwise(exact) for x in (low, (low + high) / 2, low + (high - low) / 4)]
        got = run(
            f"cvt.{mode}.satfinite.ue5m3x2.f32",
            f32_bits([float(x) for x in points]),
            f32_bits([-float(x) for x in points]),
        )
        for x, pair in zip(points, got.tolist(), strict=True):
            below = max(c for c, v in enumerate(exact) if v <= x)
            rest = x - exact[below]
            unit = exact[min(below + 1, 254)] - exact[below]
            up = rest != 0 and (
                mode == "rp" or (mode == "rn" and (rest > unit / 2 or (rest == unit / 2 and below & 1)))
            )
            assert pair == (below + bool(up)) * 0x101
    ends = f32_bits([114688, 118784, 118785, 122880, 1e30, np.inf, np.nan])
    for spelling, expected in {
        "rn.satfinite": [254] * 6 + [255],
        "rn": [254] * 2 + [255] * 5,
        "rz": [254] * 5 + [255] * 2,
        "rp": [254] + [255] * 6,
    }.items():
        assert [g >> 8 for g in run(f"cvt.{spelling}.ue5m3x2.f32", ends, ends).tolist()] == expected, spelling


def test_s2f6() -> None:
    """Two's complement in 64ths, from -2 to 127/64."""
    x = np.concatenate([np.arange(-300, 301) / 128, [5, -5, np.inf, -np.inf]]).astype(np.float32)
    expected = [
        max(-128, min(127, round(Fraction(float(v)) * 64))) & 0xFF if np.isfinite(v) else 127 if v > 0 else 128
        for v in x
    ]
    got = run("cvt.rn.satfinite.s2f6x2.f32", x.view(np.uint32), x[::-1].view(np.uint32)).tolist()
    assert [g >> 8 for g in got] == expected
    assert [g & 0xFF for g in got] == expected[::-1]
    relu = run("cvt.rn.satfinite.relu.s2f6x2.f32", x.view(np.uint32), x.view(np.uint32)).tolist()
    assert [g & 0xFF for g in relu] == [0 if np.signbit(v) else e for v, e in zip(x, expected, strict=True)]
    assert run("cvt.rn.satfinite.s2f6x2.bf16x2", [0x3F80BF80, 0x7FC00000]).tolist() == [0x40C0, 0x7F00]
    scaled = run("cvt.rn.satfinite.scaled::n2::ue8m0.s2f6x2.f32", f32_bits([64.0]), f32_bits([3.0]), [0x8580]).tolist()
    assert scaled == [0x4060]
    codes = list(range(256))
    wide = run("cvt.rn.scaled::n2::ue8m0.bf16x2.s2f6x2", [c << 8 | c for c in codes], [0x857F] * 256).tolist()
    signed = [c - 256 if c > 127 else c for c in codes]
    assert [g >> 16 for g in wide] == [_bf16(float(s)) for s in signed]
    assert [g & 0xFFFF for g in wide] == [_bf16(s / 64) for s in signed]


def test_targets_are_checked() -> None:
    x = np.ones(4, np.float32)
    asm = "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $2, $1; cvt.u16.u8 $0, t; }"
    assert emulate(asm, "=h,f,f", [x, -x], "uint16", target="sm_100a").tolist() == [0xA2] * 4
    with pytest.raises(Exception, match="sm_100f"):
        emulate(asm, "=h,f,f", [x, -x], "uint16", target="sm_90a")
    assert form("cvt.rn.satfinite.e4m3x2.f32", 2).form.requires.minimum == 89
