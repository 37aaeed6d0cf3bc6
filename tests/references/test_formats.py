"""Formats against numpy and ml_dtypes views, gfloat's tables and Python's own integers and floats."""

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import gfloat
import gfloat.formats
import numpy as np
import pytest
import torch

from ptxdiff.references import formats
from ptxdiff.references.formats import (
    BF16,
    E2M1,
    E2M1X2,
    E2M3,
    E2M3X2,
    E3M2,
    E4M3,
    E4M3X2,
    E5M2,
    F16,
    F32,
    F64,
    FORMATS,
    I8,
    I32,
    I64,
    TF32,
    U8,
    U32,
    U64,
    UE8M0,
    Class,
    Format,
)  # fmt: skip

SINGLE = [fmt for fmt in FORMATS.values() if fmt.packs is None]
FLOATS = [fmt for fmt in SINGLE if fmt.is_float]
GFLOAT = {
    F64: "binary64", F32: "binary32", F16: "binary16", BF16: "bfloat16", E4M3: "ocp_e4m3", E5M2: "ocp_e5m2",
    E2M3: "ocp_e2m3", E3M2: "ocp_e3m2", E2M1: "ocp_e2m1", UE8M0: "ocp_e8m0", TF32: "tf32",
}  # fmt: skip


def some_codes(fmt: Format) -> np.ndarray:
    """All codes of a narrow format; edges and random ones of a wide one."""
    if fmt.code_bits <= 16:
        return np.arange(1 << fmt.code_bits, dtype=np.int64)
    rng = np.random.default_rng(1)
    mask = fmt.code_mask if fmt.code_bits < 64 else -1
    edges = [0, 1, mask, fmt.max_finite, fmt.max_finite + 1, fmt.min_normal, fmt.min_normal - 1, 1 << fmt.sign_shift]
    signed = [code - (1 << 64) if code >= 1 << 63 else code for code in edges if code < 1 << 64]
    return np.concatenate([rng.integers(-(2**63), 2**63 - 1, 4000) & mask, np.array(signed, dtype=np.int64) & mask])


def gfloat_value(fmt: Format, code: int) -> gfloat.FloatValue:
    names = {"tf32": "binary32"}
    info = getattr(gfloat.formats, f"format_info_{names.get(fmt.name, GFLOAT[fmt])}")
    return gfloat.decode_float(info, code >> fmt.ignored_bits << fmt.ignored_bits)


CLASSES = {
    gfloat.FloatClass.ZERO: Class.ZERO, gfloat.FloatClass.SUBNORMAL: Class.SUBNORMAL, gfloat.FloatClass.NAN: Class.NAN,
    gfloat.FloatClass.NORMAL: Class.NORMAL, gfloat.FloatClass.INFINITE: Class.INFINITY,
}  # fmt: skip


@pytest.mark.parametrize("fmt", FLOATS, ids=str)
def test_values_and_classes_against_gfloat(fmt: Format) -> None:
    codes = some_codes(fmt)
    step = max(1, len(codes) // 5000)
    classes, signs = formats.classify(fmt, codes), formats.sign(fmt, codes)
    for code, kind, sign in zip(*(x[::step].tolist() for x in (codes, classes, signs)), strict=True):
        decoded = gfloat_value(fmt, code & fmt.code_mask)
        value = formats.value(fmt, code)
        assert CLASSES[decoded.fclass] == kind, hex(code)
        assert decoded.signbit == sign
        assert math.isnan(value) if math.isnan(decoded.fval) else repr(decoded.fval) == repr(value)


@pytest.mark.parametrize("fmt", FLOATS, ids=str)
def test_float64_values_against_views(fmt: Format) -> None:
    codes = some_codes(fmt)
    got = formats.to_float64(fmt, codes)
    on_torch = formats.to_float64(fmt, torch.from_numpy(codes)).numpy()
    number = ~formats.is_nan(fmt, codes)
    assert np.array_equal(got.view(np.int64)[number], on_torch.view(np.int64)[number])
    assert np.array_equal(np.isnan(on_torch), ~number)
    if fmt.view is not None:
        with np.errstate(invalid="ignore"):
            viewed = formats.pack(fmt, codes).view(fmt.view_dtype()).astype(np.float64)
        assert np.array_equal(viewed, got, equal_nan=True)
        assert np.array_equal(np.signbit(viewed)[number], np.signbit(got)[number])


@pytest.mark.sample(3)
@pytest.mark.parametrize("fmt", SINGLE, ids=str)
def test_numpy_torch_and_python_integers_agree(fmt: Format) -> None:
    codes = some_codes(fmt)
    functions = [
        formats.sign, formats.magnitude, formats.is_nan, formats.is_infinity, formats.is_zero, formats.is_subnormal,
        formats.is_finite, formats.classify, formats.ordinal,
    ]  # fmt: skip
    for function in functions:
        whole = function(fmt, codes)
        assert np.array_equal(whole, function(fmt, torch.from_numpy(codes)).numpy())
        for code, expected in list(zip(codes.tolist(), whole.tolist(), strict=True))[:: max(1, len(codes) // 200)]:
            single = function(fmt, code & fmt.code_mask)
            assert expected in (single, single - (1 << 64) if function is formats.magnitude else single)


@pytest.mark.sample(3)
@pytest.mark.parametrize("fmt", SINGLE, ids=str)
def test_ordinals_are_the_order_of_values(fmt: Format) -> None:
    codes = some_codes(fmt)
    codes = codes[formats.is_finite(fmt, codes)]
    places = formats.ordinal(fmt, codes)
    values = [formats.value(fmt, code) for code in codes.tolist()]  # all of them exact, whole numbers or floats
    by_place = sorted(range(len(codes)), key=lambda i: int(places[i]))
    ordered = [values[i] for i in by_place]
    assert ordered == sorted(values)
    back = formats.from_ordinal(fmt, places)
    assert [formats.value(fmt, code) for code in back.tolist()] == values
    for code in codes.tolist()[::97]:
        code &= fmt.code_mask
        place = formats.ordinal(fmt, code)
        assert formats.value(fmt, formats.from_ordinal(fmt, place)) == formats.value(fmt, code)


@pytest.mark.sample(3)
@pytest.mark.parametrize("fmt", [fmt for fmt in SINGLE if fmt.code_bits <= 16], ids=str)
def test_finite_codes_ascend_without_gaps(fmt: Format) -> None:
    codes = list(formats.finite_codes(fmt))
    values = [formats.value(fmt, code) for code in codes]
    assert all(low < high for low, high in itertools.pairwise(values))
    everything = np.arange(1 << fmt.code_bits)
    finite = everything[formats.is_finite(fmt, everything)]
    negative_zeros = int(fmt.is_float and fmt.has_sign)
    assert len(codes) == len(finite) - negative_zeros if fmt is not TF32 else True


def test_distance_counts_values_and_saturates() -> None:
    one = formats.encode(F32, 1.0)
    assert formats.distance(F32, one, one + 3) == 3
    assert formats.distance(F32, 1, 0x80000001) == 2
    assert formats.distance(F32, 0, 0x80000000) == 0
    assert formats.distance(F32, F32.max_finite, 0x7F800000) == 1
    far = torch.tensor([F64.max_finite, 0, 5]), torch.tensor([F64.max_finite, 0, 3]) | torch.tensor([-(1 << 63), 0, 0])
    assert formats.distance(F64, *far).tolist() == [(1 << 63) - 1, 0, 2]
    assert formats.distance(F64, F64.max_finite, F64.max_finite | 1 << 63) == (1 << 63) - 1
    unsigned = torch.tensor([-1, 0, 1 << 62]), torch.tensor([0, 0, 1])
    assert formats.distance(U64, *unsigned).tolist() == [(1 << 63) - 1, 0, (1 << 62) - 1]


@pytest.mark.sample(3)
@pytest.mark.parametrize("fmt", SINGLE, ids=str)
def test_encode_finds_every_code(fmt: Format) -> None:
    codes = some_codes(fmt)
    for code in codes.tolist()[:: max(1, len(codes) // 1000)]:
        code &= fmt.code_mask
        if formats.is_finite(fmt, code):
            kept = code >> fmt.ignored_bits << fmt.ignored_bits
            assert formats.encode(fmt, formats.value(fmt, code)) == kept
            if formats.value(fmt, code):
                assert formats.encode(fmt, Fraction(formats.value(fmt, code))) == kept


@pytest.mark.parametrize(
    ("fmt", "value"),
    [(E2M1, 2.5), (E2M1, 8.0), (E2M1, math.inf), (E2M1, math.nan), (F16, 65520.0), (F32, Fraction(1, 3)), (U8, 256),
     (U8, -1), (I8, 128), (I8, 0.5), (UE8M0, 0.0), (UE8M0, -1.0), (UE8M0, 3.0)],
)  # fmt: skip
def test_encode_refuses_to_round(fmt: Format, value: float) -> None:
    with pytest.raises(ValueError, match=f"{fmt.name} has no code for"):
        formats.encode(fmt, value)


def test_encode_specials() -> None:
    assert formats.encode(F32, -0.0) == 0x80000000
    assert formats.encode(F32, math.nan) == 0x7FFFFFFF
    assert formats.encode(E5M2, -math.inf) == 0xFC
    assert formats.encode(I32, -1) == 0xFFFFFFFF
    assert formats.encode(I64, -(1 << 63)) == 1 << 63


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_packing_round_trips(fmt: Format) -> None:
    """Unpacking returns the packed codes, and the numpy and torch units have the same bytes."""
    codes = (some_codes(fmt)[:96] if fmt.code_bits > 6 else np.arange(96) & fmt.code_mask).reshape(2, 48)
    units = formats.pack(fmt, codes)
    assert units.dtype == fmt.numpy_dtype()
    assert units.shape == (2, 48 // fmt.codes_per_unit)
    assert np.array_equal(codes, formats.unpack(fmt, units))
    as_torch = formats.pack(fmt, torch.from_numpy(codes))
    assert np.array_equal(units, as_torch.numpy())
    assert np.array_equal(codes, formats.unpack(fmt, as_torch).numpy())


def test_packing_order() -> None:
    assert formats.pack(E2M1X2, np.array([0x1, 0xF])).tolist() == [0xF1]
    assert formats.pack(E4M3X2, np.array([0x12, 0x34])).tolist() == [0x3412]
    assert formats.pack(E2M3X2, np.array([0x3F, 0x01])).tolist() == [0x013F]
    assert formats.unpack(E2M3X2, np.array([0xC1FF], dtype=np.uint16)).tolist() == [0x3F, 0x01]
    with pytest.raises(ValueError, match="e2m1x2 packs 2 codes a unit, but 3 codes are given"):
        formats.pack(E2M1X2, np.arange(3))


def test_bits_of_any_storage() -> None:
    assert formats.as_codes(np.array([-1.0], np.float32)).tolist() == [0xBF800000]
    assert formats.as_codes(np.array([-1], np.int8)).tolist() == [0xFF]
    assert formats.as_codes(np.array([1 << 63], np.uint64)).tolist() == [-(1 << 63)]
    assert formats.as_codes(torch.tensor([-1.0], dtype=torch.bfloat16)).tolist() == [0xBF80]
    assert formats.as_codes(torch.tensor([-2], dtype=torch.int32)).tolist() == [0xFFFFFFFE]
    assert formats.as_codes(np.float32(1.0).reshape(())).tolist() == 0x3F800000


@pytest.mark.slow
def test_rendered_neighbours_differ() -> None:
    assert formats.render(F32, 0x3F800000) == "0x3f800000 (1.0)"
    assert formats.render(F32, 0x3DCCCCCD) == "0x3dcccccd (0.1)"
    assert formats.render(F16, 0x7BFF) == "0x7bff (65504.0)"
    assert formats.render(E2M1, 0xF) == "0xf (-6.0)"
    assert formats.render(I32, 0xFFFFFFFF) == "0xffffffff (-1)"
    assert formats.render(F32, 0xFFC00000) == "0xffc00000 (nan)"
    assert formats.render(F32, 0x80000000) == "0x80000000 (-0.0)"
    for fmt in (F32, F16, BF16, F64):
        codes = [code & fmt.code_mask for code in some_codes(fmt).tolist()[:: 1 if fmt.code_bits > 16 else 37]]
        finite = [code for code in codes if formats.is_finite(fmt, code)]
        for code in finite:
            text = formats.render(fmt, code).partition("(")[2].rstrip(")")
            if fmt.view is not None:
                again = np.array(float(text)).astype(fmt.view_dtype())
                assert int(formats.as_codes(again)) & fmt.code_mask == code


def test_shapes() -> None:
    argument = E2M1X2["M", "N/2"]
    assert argument.shape({"M": 3, "N": 8, "K": 1}) == (3, 4)
    assert str(argument) == "e2m1x2[M, N/2]"
    assert argument.names == {"M", "N"}
    assert F32["M*N/16", 7, "(N+2)*2-1"].shape({"M": 4, "N": 8}) == (2, 7, 19)
    assert F32[()].shape({}) == ()
    assert F32["N"].shape({"N": 0}) == (0,)
    assert F32.scalar.format is F32


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        ("N/2", r"e2m1x2\[N/2\]: dimension 'N/2' is 7/2, not a whole number with N = 7"),
        ("N-9", r"dimension 'N-9' is negative \(-2\) with N = 7"),
        ("Q*N", r"no size given for Q \(given: N\)"),
        ("N/(N-7)", "divides by zero with N = 7"),
        ("N**2", "only names, integers"),
        ("f(N)", "neither ceil"),
        ("1.5*N", "1.5 is not an integer"),
        ("N+", "expected a size"),
        (-1, "expected a size"),
        (True, "expected a size"),
    ],
)
def test_shape_errors_say_what_and_where(dim: str | int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        E2M1X2[dim].shape({"N": 7})


def test_packed_formats_have_no_scalar() -> None:
    with pytest.raises(ValueError, match="packs 2 codes"):
        _ = E2M1X2.scalar


def test_importing_formats_loads_no_array_library() -> None:
    heavy = ("numpy", "torch", "ml_dtypes")
    code = f"import sys, ptxdiff.references.formats; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.slow
def test_traces_into_one_graph() -> None:
    traced = torch.compile(lambda x: formats.distance(F32, x, formats.from_ordinal(F32, formats.ordinal(F32, x) + 1)),
                           backend="eager", fullgraph=True)  # fmt: skip
    assert traced(torch.tensor([0x3F800000, 0x80000001])).tolist() == [1, 1]
    unpacked = torch.compile(lambda x: formats.unpack(E2M1X2, x), backend="eager", fullgraph=True)
    assert unpacked(torch.tensor([0x21], dtype=torch.uint8)).tolist() == [1, 2]
    assert formats.classify(U32, torch.tensor([0, 5])).tolist() == [Class.ZERO, Class.NORMAL]


@pytest.mark.parametrize(
    ("dim", "size"), [("ceil(N/32)", 2), ("floor(N/32)", 1), ("N//32", 1), ("32*ceil(N/32) - N", 27), ("(N+31)//32", 2)]
)
def test_dimensions_round(dim: str, size: int) -> None:
    assert F32[dim].shape({"N": 37}) == (size,)
    assert F32[dim].names == {"N"}


@pytest.mark.parametrize("dim", ["ceil(N, 2)", "round(N/2)", "ceil()", "N.ceil(2)", "ceil"])
def test_other_functions_in_dimensions_are_refused(dim: str) -> None:
    with pytest.raises(ValueError, match=r"dimension|no size given"):
        F32[dim].shape({"N": 37})


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (formats.F32, "float32: 1 sign, 8 exponent and 23 significand bits, in uint32"),
        (formats.UE8M0, "ue8m0: 0 sign, 8 exponent and 0 significand bits, in uint8"),
        (formats.E2M1X2, "e2m1x2: 2 times e2m1, 1 sign, 2 exponent and 1 significand bits each, in uint8"),
        (formats.U16, "uint16: 16 bits, without a sign, in uint16"),
        (formats.BF16["M", "N/2"], "bfloat16[M, N/2]"),
        (formats.I32.scalar, "int32, by value"),
    ],
    ids=str,
)
def test_a_notebook_shows_one_line(shown: object, line: str) -> None:
    pretty = pytest.importorskip("IPython.lib.pretty", reason="IPython is not installed; it shows the lines")
    assert pretty.pretty(shown) == line
