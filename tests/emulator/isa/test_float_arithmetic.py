"""Sums, products, fused products, quotients and roots in every format and mode compared with exact arithmetic."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from tests.support.emulator.isa.forms import run
from tests.support.emulator.isa.ieee import BF16, F16, F32, F64, FORMATS, Format, arithmetic, operands

MODES = ("rn", "rz", "rm", "rp")
COUNTS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "rcp": 1, "sqrt": 1}


def check(spelling: str, name: str, form: Format, mode: str, ftz: bool, sat: bool, lanes: int) -> None:
    """Check that an instruction agrees with the rational definition; some lanes have special values."""
    columns = operands(form, COUNTS[name], lanes, len(spelling))
    got = [int(x) for x in run(spelling, *columns)]
    wrong = []
    for lane, result in enumerate(got):
        inputs = [c[lane] for c in columns]
        expected = arithmetic({"mad": "fma"}.get(name, name), inputs, form, mode, ftz, sat)
        if form is F64 and form.is_nan(result) and form.is_nan(expected):
            continue  # another test compares payloads
        if result != expected:
            wrong.append([hex(i) for i in inputs] + [hex(result), hex(expected)])
    assert not wrong, f"{spelling}: inputs, got, expected of {len(wrong)}: {wrong[:3]}"


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", COUNTS)
def test_float32(name: str, mode: str) -> None:
    for ftz, sat in itertools.product((False, True), (False, True) if name not in ("div", "rcp", "sqrt") else (False,)):
        modifiers = f".{mode}" + ".ftz" * ftz + ".sat" * sat
        check(f"{name}{modifiers}.f32", name, F32, mode, ftz, sat, 300)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", COUNTS)
def test_float64(name: str, mode: str) -> None:
    """To nearest on more lanes than are interpreted, so that the compiled form, which all modes share, is checked
    too."""
    check(f"{name}.{mode}.f64", name, F64, mode, False, False, 1600 if mode == "rn" else 600)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_float16(name: str) -> None:
    for ftz, sat in itertools.product((False, True), (False, True)):
        check(f"{name}.rn{'.ftz' * ftz}{'.sat' * sat}.f16", name, F16, "rn", ftz, sat, 1200)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_bfloat16(name: str) -> None:
    check(f"{name}.rn.bf16", name, BF16, "rn", False, False, 1600)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", FORMATS)
def test_ties(kind: str) -> None:
    """Half a unit, slightly more and slightly less are added to and subtracted from even and odd significands."""
    form = FORMATS[kind]
    rng = np.random.default_rng(3)
    exponents = rng.integers(form.mantissa_bits + 2, (1 << form.exponent_bits) - 2, 200)
    fractions = [0, 1, 2, 3, form.normal - 1, form.normal - 2] * 40
    a = [(int(e) << form.mantissa_bits) + f for e, f in zip(exponents, fractions, strict=False)]
    half = [(int(e) - form.mantissa_bits - 1) << form.mantissa_bits for e in exponents]
    for name, mode in itertools.product(("add", "fma"), MODES if kind in ("f32", "f64") else ("rn",)):
        one = [[form.infinity >> 1 & ~(form.normal - 1)] * 200] if name == "fma" else []
        for sign, off in itertools.product((0, form.sign), (-1, 0, 1)):
            c = [(h + off) | sign for h in half]
            got = [int(g) for g in run(f"{name}.{mode}.{kind}", a, *one, c)]
            assert got == [arithmetic("add", x, form, mode) for x in zip(a, c, strict=True)]


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_without_a_mode_results_are_rounded_to_nearest(name: str) -> None:
    for kind, form in FORMATS.items():
        check(f"{name}.{kind}", name, form, "rn", False, False, 200)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_relu_clamps_negative_results(kind: str) -> None:
    form = FORMATS[kind]
    columns = operands(form, 3, 800)
    plain = run(f"fma.rn.{kind}", *columns)
    clamped = np.where((plain & 0x8000 != 0), 0, plain)
    np.testing.assert_array_equal(run(f"fma.rn.relu.{kind}", *columns), clamped)
    assert (plain == 0x7FFF).any()
    assert (clamped != plain).any()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_oob_gives_zero_for_the_out_of_bounds_nan_as_a_factor(kind: str) -> None:
    columns = [[0x3C00 if p & 0x7FFF == 0x7FF7 else p for p in c] for c in operands(FORMATS[kind], 3, 300)]
    np.testing.assert_array_equal(run(f"fma.rn.oob.{kind}", *columns), run(f"fma.rn.{kind}", *columns))
    for place in range(3):
        for nan, factor in ((0x7FF7, 0), (0xFFF7, 0), (0x7FFF, 0x7FFF), (0xFFFF, 0x7FFF)):
            expected = factor if place < 2 else 0x7FFF
            marked = [[nan] * 300 if i == place else c for i, c in enumerate(columns)]
            np.testing.assert_array_equal(run(f"fma.rn.oob.{kind}", *marked), expected)


PACKED = ["add.ftz.sat.f16x2", "sub.f16x2", "mul.rn.bf16x2", "fma.rn.ftz.f16x2", "fma.rn.relu.oob.bf16x2", "sub.bf16x2"]
PACKED += ["add.rm.ftz.f32x2", "sub.rp.f32x2", "mul.f32x2", "fma.rz.f32x2"]


@pytest.mark.parametrize("spelling", PACKED)
def test_packed_forms_work_on_each_part(spelling: str) -> None:
    kind = spelling.rpartition(".")[2].removesuffix("x2")
    width = 32 if kind == "f32" else 16
    count = COUNTS[spelling.partition(".")[0]]
    low = operands(FORMATS[kind], count, 400, 1)
    high = operands(FORMATS[kind], count, 400, 2)
    packed = [[a | b << width for a, b in zip(x, y, strict=True)] for x, y in zip(low, high, strict=True)]
    got = [int(g) for g in run(spelling, *packed)]
    alone = spelling.removesuffix("x2")
    parts = [run(alone, *low), run(alone, *high)]
    assert got == [int(a) | int(b) << width for a, b in zip(*parts, strict=True)]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_mixed_precision_widens_exactly(kind: str) -> None:
    form = FORMATS[kind]
    halves = operands(form, 2, 500)
    wide = [[_widened(h, form) for h in column] for column in halves]
    (c,) = operands(F32, 1, 500)
    for mode, sat in itertools.product(MODES, ("", ".sat")):
        for name in ("add", "sub"):
            got = run(f"{name}.{mode}{sat}.f32.{kind}", halves[0], c)
            np.testing.assert_array_equal(got, run(f"{name}.{mode}{sat}.f32", wide[0], c))
        got = run(f"fma.{mode}{sat}.f32.{kind}", *halves, c)
        np.testing.assert_array_equal(got, run(f"fma.{mode}{sat}.f32", *wide, c))


def _widened(a: int, form: Format) -> int:
    if form.is_nan(a):
        return F32.nan
    sign = 0x80000000 if a & form.sign else 0
    if a & (form.sign - 1) == form.infinity:
        return sign | F32.infinity
    return sign | int(np.float32(float(abs(form.fraction(a)))).view(np.uint32))


QUIET = 1 << 51
A, B, C = 0x7FF0000000000123, 0xFFF8000000000456, 0x7FF4000000000789
ONE64 = 0x3FF0000000000000


@pytest.mark.parametrize(
    ("spelling", "inputs", "expected"),
    [
        ("add.f64", (A, ONE64), A | QUIET),
        ("add.f64", (ONE64, B), B),
        ("add.f64", (B, A), A | QUIET),
        ("sub.rz.f64", (ONE64, A), A | QUIET),
        ("mul.rm.f64", (A, B), B),
        ("mul.rn.f64", (B, A), A | QUIET),
        ("fma.rm.f64", (A, ONE64, B), B),
        ("fma.rn.f64", (B, A, C), A | QUIET),
        ("abs.f64", (A | 1 << 63,), A | QUIET | 1 << 63),
        ("neg.f64", (A,), A | QUIET),
        ("fma.rn.f64", (ONE64, ONE64, C), C | QUIET),
        ("fma.rp.f64", (ONE64, B, C), B),
        ("div.rn.f64", (ONE64, A), A | QUIET),
        ("div.rz.f64", (B, A), B),
        ("rcp.rn.f64", (A,), A | QUIET),
        ("sqrt.rm.f64", (B,), B),
        ("add.f64", (F64.infinity, F64.infinity | 1 << 63), F64.nan),
        ("mul.rp.f64", (F64.infinity, 0), F64.nan),
        ("fma.rz.f64", (0, F64.infinity, ONE64), F64.nan),
        ("div.rn.f64", (0, 0), F64.nan),
        ("div.rm.f64", (F64.infinity, F64.infinity), F64.nan),
        ("sqrt.rn.f64", (ONE64 | 1 << 63,), F64.nan),
    ],
)
def test_nans_of_float64(spelling: str, inputs: tuple[int, ...], expected: int) -> None:
    assert hex(run(spelling, *([i] for i in inputs))[0]) == hex(expected)


def test_a_result_is_flushed_if_it_is_subnormal_with_an_unbounded_exponent() -> None:
    """2**-126 - 2**-150 has 24 bits and is flushed, though 2**-126 is the nearest float32."""
    below, least = 0x3F7FFFFF, 0x00800000
    assert run("mul.f32", [below], [least])[0] == least
    assert run("mul.ftz.f32", [below], [least])[0] == 0
    closer = [0x3F7FFFFE], [0x00800001]  # 2**-126 * (1 - 2**-46), which 24 bits do not hold
    assert run("mul.ftz.f32", *closer)[0] == least
    assert run("mul.rz.ftz.f32", *closer)[0] == 0
    assert run("mul.f16", [0x3BFF], [0x0400])[0] == 0x0400
    assert run("mul.ftz.f16", [0x3BFF], [0x0400])[0] == 0
    assert run("mul.ftz.f16", [0x3BFE], [0x0401])[0] == 0x0400


def test_ptxas_compiles_a_directed_bfloat16_fma_to_float16_arithmetic() -> None:
    """The ISA has no such form, but ptxas assembles it; its code multiplies the patterns as float16, here 1.5 * 1.5."""
    assert run("fma.rz.bf16", [0x3E00], [0x3E00], [0])[0] == 0x4080
    assert run("fma.rz.relu.oob.bf16", [0xBE00], [0x3E00], [0])[0] == 0xC080
    packed = [0x3FC03FC0], [0x3F803F80], [0]
    assert run("fma.rp.bf16x2", *packed)[0] == 0x3FC03FC0


def test_rcp_of_float64_takes_ftz_and_keeps_subnormals() -> None:
    subnormal = [0x0008000000000000]
    np.testing.assert_array_equal(run("rcp.rn.ftz.f64", subnormal), run("rcp.rn.f64", subnormal))


def test_float64_matches_the_host_to_nearest() -> None:
    a, b = (np.array(x, np.uint64).view(np.float64) for x in operands(F64, 2, 3000))
    with np.errstate(all="ignore"):
        for name, expected in (("add", a + b), ("mul", a * b), ("div", a / b), ("sqrt", np.sqrt(a))):
            arguments = (a,) if name == "sqrt" else (a, b)
            asm = f"{name}.rn.f64 $0, {', '.join(f'${i + 1}' for i in range(len(arguments)))};"
            got = emulate(asm, ",".join(["=d"] + ["d"] * len(arguments)), list(arguments), "float64")
            same = np.isnan(expected) & np.isnan(got)
            np.testing.assert_array_equal(
                np.where(same, 0, got.view(np.uint64)), np.where(same, 0, expected.view(np.uint64))
            )
