"""Conversions against fractions, ml_dtypes (from float32, where it rounds once), gfloat and Python integers."""

import math
from fractions import Fraction
from functools import cache

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch

from ptxdiff.references import conversion, formats
from ptxdiff.references.conversion import convert, float_to_integer, integral_value, to_e2m1
from ptxdiff.references.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    TF32,
    U8,
    U16,
    U32,
    U64,
    UE8M0,
    Format,
    encode,
)  # fmt: skip
from ptxdiff.references.rounding import ROUNDINGS, Rounding
from tests.support.references.plain_definitions import edges, patterns, round_fraction, same
from tests.support.sampling import mixed, paired

NARROW = [E2M1, E2M3, E3M2, E4M3, E5M2, F16, BF16, TF32]
INTEGERS = [I8, I16, I32, I64, U8, U16, U32, U64]
FLOATS = [F16, BF16, F32, F64]


@cache
def ties(target: Format, source: Format = F32) -> torch.Tensor:
    """Codes of the source at every midpoint of the target, and their neighbours on either side, with both signs."""
    largest = target.max_finite
    chosen = range(0, largest, max(1, largest // 600))
    gaps = [(formats.fraction(target, code), formats.fraction(target, code + 1)) for code in chosen if code < largest]
    last, previous = formats.fraction(target, largest), formats.fraction(target, largest - 1)
    found = []
    for low, high in [*gaps, (previous, last), (last, 2 * last - previous)]:
        try:
            code = encode(source, (low + high) / 2)
        except ValueError:
            continue  # the source cannot hold this midpoint
        found += [code - 1, code, code + 1]
    both = torch.tensor(found)
    return torch.cat([both, both | (1 << source.sign_shift)]) if source is not F64 else both


@pytest.mark.sample(3)
@pytest.mark.parametrize(("target", "rounding"), paired(NARROW, ROUNDINGS, 2), ids=str)
def test_ties_from_float32(target: Format, rounding: Rounding) -> None:
    codes = ties(target) if target is not TF32 else patterns(F32, 1000, 1)
    codes = torch.cat([codes, patterns(F32, 1000, 9)])
    codes = codes[formats.is_finite(F32, codes)]
    got = convert(codes, source=F32, target=target, rounding=rounding, satfinite=True)
    expected = [
        round_fraction(target, formats.fraction(F32, code), rounding, True, bool(formats.sign(F32, code)))
        for code in codes.tolist()
    ]
    same(torch.tensor(expected), got, codes)


@pytest.mark.parametrize("target", [target for target in NARROW if target.view], ids=str)
def test_random_float32_against_ml_dtypes(target: Format) -> None:
    """Many patterns, and patterns near the target's range. On overflow ml_dtypes gives NaN in e4m3 and infinity in
    e5m2."""
    codes = torch.cat([patterns(F32, 200_000, 4), near(target, 200_000)])
    codes = codes[~formats.is_nan(F32, codes)]
    with np.errstate(all="ignore"):
        host = formats.pack(F32, codes.numpy()).view(np.float32).astype(target.view_dtype())
    expected = torch.from_numpy(formats.as_codes(host)) & target.code_mask
    got = convert(codes, source=F32, target=target, satfinite=target.nan == "none")
    expected = torch.where(formats.is_nan(target, expected), got, expected)
    assert (formats.is_nan(target, got) == formats.is_nan(target, expected)).all()
    same(expected, got, codes)


def near(target: Format, count: int) -> torch.Tensor:
    """float32 patterns whose exponent is in the target's range or just outside it."""
    rng = np.random.default_rng(5)
    exponent = rng.integers(-target.bias - target.mantissa_bits - 3, target.bias + 6, count).clip(-126, 127) + 127
    bits = rng.integers(0, 1 << 23, count) & np.where(rng.random(count) < 0.5, -1, ~0xFFFF)
    return torch.from_numpy(bits | exponent << 23 | rng.integers(0, 2, count) << 31)


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", [F16, BF16, E4M3, E5M2, E2M3, E3M2, E2M1, UE8M0], ids=str)
def test_widening_is_exact(source: Format) -> None:
    """Codes of the source (all of them up to 8 bits) in wider formats: the same value, and the same sign of zero."""
    codes = torch.arange(0, 1 << source.code_bits, 7 if source.code_bits == 16 else 1)
    for target in (F32, F64) + ((F16,) if source.exponent_bits <= 5 else ()):
        got = convert(codes, source=source, target=target)
        for code, wide in zip(codes.tolist(), got.tolist(), strict=True):
            narrow_value, wide_value = formats.value(source, code), formats.value(target, wide)
            assert repr(narrow_value) == repr(wide_value)
    nans = codes[formats.is_nan(source, codes)]
    wide = convert(nans, source=source, target=F32)
    # bfloat16 is the upper half of float32, for NaN too, as on an H200.
    assert (wide == (nans << 16)).all() if source is BF16 else set(wide.tolist()) <= {0x7FFFFFFF}
    if source in (F16, BF16):
        payload = (nans & ((1 << source.mantissa_bits) - 1)) << (52 - source.mantissa_bits)
        top = (nans >> 15) * (-1 << 63)
        assert (convert(nans, source=source, target=F64) == (payload | 0x7FF8000000000000 | top)).all()


@pytest.mark.parametrize("target", [E4M3, E5M2, E2M3, E3M2, E2M1], ids=str)
@pytest.mark.parametrize("source", [F16, BF16], ids=str)
def test_every_16_bit_value_against_gfloat(source: Format, target: Format) -> None:
    names = {E4M3: "ocp_e4m3", E5M2: "ocp_e5m2", E2M3: "ocp_e2m3", E3M2: "ocp_e3m2", E2M1: "ocp_e2m1"}
    info = getattr(gfloat.formats, f"format_info_{names[target]}")
    codes = torch.arange(1 << 16)
    finite = codes[formats.is_finite(source, codes)]
    rounded = gfloat.round_ndarray(
        info, formats.to_float64(source, finite).numpy(), gfloat.RoundMode.TiesToEven, sat=True
    )
    got = formats.to_float64(target, convert(finite, source=source, target=target, satfinite=True))
    same(torch.from_numpy(rounded).view(torch.int64), got.view(torch.int64), finite)


def test_saturation_nan_and_relu() -> None:
    inf, nan, minus = 0x7F800000, 0xFFC00001, 0xBF800000
    codes = torch.tensor([inf, inf | 1 << 31, nan, minus, 0x80000000])

    def run(target: Format, **options: bool) -> list[int]:
        return list(convert(codes, source=F32, target=target, **options).tolist())

    assert run(E4M3, satfinite=True) == [0x7E, 0xFE, 0x7F, 0xB8, 0x80]
    assert run(E5M2, satfinite=True) == [0x7B, 0xFB, 0x7F, 0xBC, 0x80]
    assert run(E2M1, satfinite=True) == [0x7, 0xF, 0x7, 0xA, 0x8]
    assert run(E2M3, satfinite=True, relu=True) == [0x1F, 0, 0x1F, 0, 0]
    assert run(F16) == [0x7C00, 0xFC00, 0x7FFF, 0xBC00, 0x8000]
    assert run(F16, satfinite=True) == [0x7BFF, 0xFBFF, 0x7FFF, 0xBC00, 0x8000]
    assert run(BF16, relu=True) == [0x7F80, 0, 0x7FFF, 0, 0]
    assert run(F16, sat=True) == [0x3C00, 0, 0, 0, 0]


def vendor_ue8m0(bits: int, up: bool, satfinite: bool) -> int:
    """The rule on integers: the exponent field, plus one if rounding up loses bits; NaN is 0xff."""
    size = bits & 0x7FFFFFFF
    code = size >> 23
    if up and size & 0x7FFFFF and 0x00400000 < size < 0x7F800000:
        code += 1
    return 0xFE if satfinite and code == 0xFF and size <= 0x7F800000 else code


@pytest.mark.parametrize("satfinite", [False, True])
@pytest.mark.parametrize("rounding", ["rz", "rp"])
def test_ue8m0(rounding: Rounding, satfinite: bool) -> None:
    special = [0, 1, 0x003FFFFF, 0x00400000, 0x00400001, 0x007FFFFF, 0x7F000000, 0x7F000001, 0x7F7FFFFF, 0x7F800000,
               0x7F800001, 0xFFC00000, 0x80000001, 0xBF800001]  # fmt: skip
    codes = torch.cat([torch.tensor(special), patterns(F32, 20_000, 6)])
    got = convert(codes, source=F32, target=UE8M0, rounding=rounding, satfinite=satfinite)
    expected = [vendor_ue8m0(code, rounding == "rp", satfinite) for code in codes.tolist()]
    same(torch.tensor(expected), got, codes)
    assert convert(torch.arange(256), source=UE8M0, target=BF16).tolist()[:2] == [0x0040, 0x0080]


def integral(exact: Fraction, rounding: str) -> int:
    """A fraction rounded to an integer, with Python's integers."""
    floor, rest = divmod(exact.numerator, exact.denominator)
    whole = exact.denominator
    up = {
        "rn": 2 * rest > whole or (2 * rest == whole and floor % 2 == 1),
        "rna": 2 * rest > whole or (2 * rest == whole and exact > 0),
        "rz": exact < 0 and rest > 0,
        "rm": False,
        "rp": rest > 0,
    }[rounding]
    return floor + up


@cache
def integer_inputs(source: Format) -> torch.Tensor:
    """Halves, thirds, and values around each power of two up to 2^65, with both signs, and random ones."""
    values: list[Fraction] = []
    for power in range(-3, 66):
        values += [Fraction(2) ** power * Fraction(n, 4) for n in range(1, 12)]
        values += [Fraction(2) ** power + Fraction(n, 2) for n in (-3, -2, -1, 1, 2, 3)]
    codes = []
    for value in values:
        for signed in (value, -value):
            try:
                codes.append(encode(source, signed))
            except ValueError:
                continue
    wide = [code - (1 << 64) if code >= 1 << 63 else code for code in codes + edges(source)]
    return torch.cat([torch.tensor(wide), patterns(source, 500, 8)])


@cache
def integers_of(source: Format, rounding: Rounding) -> list[float | int]:
    """The rounded value of each input; NaN and infinities are unchanged."""
    numbers = [formats.value(source, code & source.code_mask) for code in integer_inputs(source).tolist()]
    return [integral(Fraction(x), rounding) if math.isfinite(x) else x for x in numbers]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("source", "target", "rounding"), mixed(FLOATS, INTEGERS, ROUNDINGS, of=3), ids=str)
def test_float_to_integer(source: Format, target: Format, rounding: Rounding) -> None:
    codes = integer_inputs(source)
    got = float_to_integer(codes, source=source, target=target, rounding=rounding)
    lowest = 0 if target.kind == "unsigned" else -(1 << target.sign_shift)
    for code, result, number in zip(codes.tolist(), got.tolist(), integers_of(source, rounding), strict=True):
        if number != number:
            wide = source is F64 or target.code_bits == 64
            expected = 1 << target.sign_shift if wide else 0
        elif number in (float("inf"), float("-inf")):
            expected = target.max_finite if number > 0 else lowest
        else:
            expected = min(max(int(number), lowest), target.max_finite)
        assert result & target.code_mask == expected & target.code_mask, (hex(code & source.code_mask), number)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("target", "source", "rounding"), mixed(FLOATS, INTEGERS, ["rn", "rz", "rm", "rp"], of=3), ids=str
)
def test_integer_to_float(source: Format, target: Format, rounding: Rounding) -> None:
    rng = np.random.default_rng(10)
    bits = rng.integers(-(2**63), 2**63 - 1, 400) >> rng.integers(0, 64, 400)
    powers = [sign * ((1 << n) + d) for n in range(64) for d in (-1, 0, 1) for sign in (1, -1)]
    wrapped = [((value + (1 << 63)) % (1 << 64)) - (1 << 63) for value in powers]
    codes = torch.cat([torch.from_numpy(bits), torch.tensor(wrapped)])
    codes = codes & source.code_mask if source.code_bits < 64 else codes
    got = convert(codes, source=source, target=target, rounding=rounding)
    for code, result in zip(codes.tolist(), got.tolist(), strict=True):
        exact = Fraction(formats.value(source, code))
        assert result & target.code_mask == round_fraction(target, exact, rounding), (code, exact)


@pytest.mark.sample(4)
@pytest.mark.parametrize("sat", [False, True])
@pytest.mark.parametrize("source", INTEGERS, ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_integer_to_integer(source: Format, target: Format, sat: bool) -> None:
    wrapped = [sign * ((1 << n) + d) for n in range(63) for d in (-1, 0, 1) for sign in (1, -1)]
    codes = torch.tensor([*wrapped, -(1 << 63), (1 << 63) - 1])
    codes = codes & source.code_mask if source.code_bits < 64 else codes
    got = convert(codes, source=source, target=target, sat=sat)
    lowest = 0 if target.kind == "unsigned" else -(1 << target.sign_shift)
    for code, result in zip(codes.tolist(), got.tolist(), strict=True):
        value = int(formats.value(source, code))
        expected = min(max(value, lowest), target.max_finite) if sat else value
        assert result & target.code_mask == expected & target.code_mask


@pytest.mark.sample(3)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("fmt", FLOATS, ids=str)
def test_integral_values(fmt: Format, rounding: Rounding) -> None:
    codes = integer_inputs(fmt)
    codes = codes[formats.is_finite(fmt, codes)]
    got = integral_value(codes, fmt=fmt, rounding=rounding)
    for code, result in zip(codes.tolist(), got.tolist(), strict=True):
        exact = formats.fraction(fmt, code)
        expected = encode(fmt, integral(exact, rounding))
        expected |= (formats.sign(fmt, code) & 1) << fmt.sign_shift
        assert result & fmt.code_mask == expected


# ---- The e2m1 table --------------------------------------------------------------------------------------


def e2m1_inputs() -> torch.Tensor:
    """All seven ties with ten neighbours on either side, with both signs; then edges and half a million patterns."""
    middles = [
        encode(F32, float(middle)) + step for middle in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5) for step in range(-10, 11)
    ]
    return torch.cat([
        torch.tensor(middles), torch.tensor(middles) | 1 << 31, torch.tensor(edges(F32)), near(E2M1, 500_000),
    ])  # fmt: skip


def test_e2m1_table_on_all_ties() -> None:
    """The ties, written out: 0.25 to 0, 0.75 to 1, 1.25 to 1, 1.75 to 2, 2.5 to 2, 3.5 to 4, 5 to 4."""
    for middle, magnitude in ((0.25, 0), (0.75, 1), (1.25, 1), (1.75, 2), (2.5, 2), (3.5, 4), (5.0, 4)):
        for sign in (1.0, -1.0):
            code = int(to_e2m1(torch.tensor([encode(F32, sign * middle)])).item())
            assert code == encode(E2M1, sign * magnitude)


def test_e2m1_table_against_rounding_and_ml_dtypes() -> None:
    codes = e2m1_inputs()
    codes = codes[~formats.is_nan(F32, codes)]
    got = to_e2m1(codes)
    same(convert(codes, source=F32, target=E2M1, satfinite=True), got, codes)
    host = formats.pack(F32, codes.numpy()).view(np.float32).astype(ml_dtypes.float4_e2m1fn)
    same(torch.from_numpy(formats.as_codes(host)), got, codes)
    assert to_e2m1(torch.tensor([0x7FC00000, 0xFFFFFFFF, 0x7F800001])).tolist() == [7, 7, 7]


@pytest.mark.parametrize("place", range(7))
def test_a_wrong_tie_in_the_table_is_detected(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = list(conversion.E2M1_MIDPOINTS)
    table[place] = (table[place][0], not table[place][1])
    monkeypatch.setattr(conversion, "E2M1_MIDPOINTS", tuple(table))
    with pytest.raises(AssertionError, match="differ"):
        test_e2m1_table_against_rounding_and_ml_dtypes()
