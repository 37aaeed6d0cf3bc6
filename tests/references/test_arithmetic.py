"""Arithmetic against the host's IEEE hardware (nearest even) and against fractions (every mode)."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from ptxdiff.references import arithmetic, formats
from ptxdiff.references.formats import BF16, E2M1, E3M2, E4M3, E5M2, F16, F32, F64, UE8M0, Format
from ptxdiff.references.rounding import ROUNDINGS, Rounding, nan_code
from tests.support.references.plain_definitions import edges, pairs, patterns, round_fraction, same
from tests.support.sampling import mixed

FORMATS = [F32, F16, BF16]
NUMPY = {F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16}
HOST: dict[str, Callable[..., np.ndarray]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


def on_host(fmt: Format, operation: Callable[..., np.ndarray], *operands: torch.Tensor) -> torch.Tensor:
    """The host's result, with the canonical NaN. float16 and bfloat16 are computed in float32, which rounds these
    operations correctly, because 24 >= 2p + 2 bits."""
    arrays = [formats.pack(fmt, x.numpy()).view(NUMPY[fmt]) for x in operands]
    with np.errstate(all="ignore"):
        codes = torch.from_numpy(formats.as_codes(operation(*arrays)))
    return torch.where(formats.is_nan(fmt, codes), nan_code(fmt), codes)


@pytest.mark.parametrize("name", HOST)
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_two_operands_against_host(fmt: Format, name: str) -> None:
    function = getattr(arithmetic, name)
    for a, b in (pairs(edges(fmt)), (patterns(fmt, 150_000, 1), patterns(fmt, 150_000, 2))):
        same(on_host(fmt, HOST[name], a, b), function(a, b, fmt=fmt), a, b)


@pytest.mark.sample(3)
@pytest.mark.parametrize("satfinite", [False, True])
@pytest.mark.parametrize(
    ("left", "right", "fmt"), [(E2M1, E4M3, E4M3), (E3M2, E5M2, E5M2), (E4M3, UE8M0, E4M3)], ids=str
)
def test_every_product_of_two_formats(left: Format, right: Format, fmt: Format, satfinite: bool) -> None:
    a, b = (
        x.flatten() for x in torch.meshgrid(*(torch.arange(1 << f.code_bits) for f in (left, right)), indexing="ij")
    )
    got = arithmetic.product(a, b, left=left, right=right, fmt=fmt, satfinite=satfinite)
    finite = formats.is_finite(left, a) & formats.is_finite(right, b)
    nan = formats.is_nan(left, a) | formats.is_nan(right, b)
    assert (got[nan] == 0x7F).all()
    rows = torch.arange(len(a))[finite][::7].tolist()
    for i in rows:
        exact = Fraction(float(formats.value(left, int(a[i])))) * Fraction(float(formats.value(right, int(b[i]))))
        minus = bool(formats.sign(left, int(a[i])) ^ formats.sign(right, int(b[i])))
        expected = round_fraction(fmt, exact, "rn", satfinite, minus)
        assert int(got[i]) == expected, f"{int(a[i]):#x} times {int(b[i]):#x}"


@pytest.mark.parametrize("fmt", [F16, BF16], ids=str)
def test_every_square_root(fmt: Format) -> None:
    codes = torch.arange(1 << 16)
    same(on_host(fmt, np.sqrt, codes), arithmetic.sqrt(codes, fmt=fmt), codes)


def test_square_root_against_host() -> None:
    codes = patterns(F32, 400_000, 5)
    same(on_host(F32, np.sqrt, codes), arithmetic.sqrt(codes), codes)


def exact_result(name: str, fmt: Format, rounding: str, *operands: int) -> int | None:
    """The result from fractions; None for special operands, and for signs of zero that this definition does not
    cover."""
    if any(not formats.is_finite(fmt, operand) for operand in operands):
        return None
    values = [formats.fraction(fmt, operand) for operand in operands]
    signs = [formats.sign(fmt, operand) for operand in operands]
    if name == "div" and values[1] == 0:
        return None
    exact = {
        "add": lambda: values[0] + values[1],
        "sub": lambda: values[0] - values[1],
        "mul": lambda: values[0] * values[1],
        "div": lambda: values[0] / values[1],
        "fma": lambda: values[0] * values[1] + values[2],
    }[name]()
    if exact == 0 and name in ("add", "sub", "fma"):
        left = signs[0] ^ (signs[1] if name == "fma" else 0)
        right = signs[-1] ^ (name == "sub")
        negative = bool(left) if left == right else rounding == "rm"
    else:
        negative = bool(signs[0] ^ signs[1])
    return round_fraction(fmt, exact, rounding, negative=negative)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("fmt", "name", "rounding"), mixed(FORMATS, ["add", "sub", "mul", "div", "fma"], ROUNDINGS, of=3), ids=str
)
def test_every_mode_against_fractions(fmt: Format, name: str, rounding: Rounding) -> None:
    count = 3 if name == "fma" else 2
    few = edges(fmt)[:: 3 if count == 3 else 1]
    operands = [torch.cat([edge, patterns(fmt, 200, seed)]) for seed, edge in enumerate(pairs(few, count), start=7)]
    got = getattr(arithmetic, name)(*operands, fmt=fmt, rounding=rounding)
    expected = [
        exact_result(name, fmt, rounding, *codes) for codes in zip(*(x.tolist() for x in operands), strict=True)
    ]
    known = torch.tensor([code is not None for code in expected])
    same(torch.tensor([code for code in expected if code is not None]), got[known], *(x[known] for x in operands))


@pytest.mark.parametrize("rounding", ["rz", "rm", "rp"])
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_directed_square_roots_bracket(fmt: Format, rounding: Rounding) -> None:
    """The squares of the result and of its neighbour enclose the operand, in exact arithmetic."""
    codes = patterns(fmt, 1500, 11)
    codes = codes[(formats.sign(fmt, codes) == 0) & formats.is_finite(fmt, codes)]
    got = arithmetic.sqrt(codes, fmt=fmt, rounding=rounding)
    for code, root in zip(codes.tolist(), got.tolist(), strict=True):
        operand, value = formats.fraction(fmt, code), formats.fraction(fmt, root)
        if rounding == "rp":
            assert value**2 >= operand
            assert value == 0 or formats.fraction(fmt, root - 1) ** 2 < operand
        else:
            assert value**2 <= operand < formats.fraction(fmt, root + 1) ** 2


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_fma_beside_a_tie(fmt: Format) -> None:
    """Half an ulp times (1 + u)(1 - u) = 1 - u^2: below the tie by less than a float64 sum of the parts can show."""
    u = Fraction(1, 1 << fmt.mantissa_bits)
    factors = [1 - u, Fraction(1), 1 + u]
    exact, rows = [], []
    for mantissa in (Fraction(1), 1 + u, 2 - u, 2 - 2 * u):
        for left, right, scale in itertools.product(factors, factors, (u / 2, -u / 2, -u / 4)):
            exact.append(left * scale * right + mantissa)
            rows.append([formats.encode(fmt, x) for x in (left * scale, right, mantissa)])
    operands = torch.tensor(rows).T.contiguous()
    for rounding in ROUNDINGS:
        expected = torch.tensor([round_fraction(fmt, number, rounding) for number in exact])
        same(expected, arithmetic.fma(*operands, fmt=fmt, rounding=rounding), *operands)


def test_two_roundings_differ_from_one() -> None:
    """fma is not mul then add: the test detects a planted second rounding."""
    a, b, c = (patterns(F16, 20_000, seed) for seed in (21, 22, 23))
    fused = arithmetic.fma(a, b, c, fmt=F16)
    separate = arithmetic.add(arithmetic.mul(a, b, fmt=F16), c, fmt=F16)
    assert (fused != separate).any()


def test_fma_float16_exhaustively_along_lines() -> None:
    """All 2^16 values of each operand with difficult partners, against Python integers: every value times 2^48 is an
    integer."""
    everything = torch.arange(1 << 16)
    partners = [0x3C01, 0x0001, 0x83FF, 0x7BFF, 0x3555]
    finite = formats.is_finite(F16, everything)
    scaled = (formats.to_float64(F16, torch.where(finite, everything, 0)) * (1 << 24)).long().tolist()
    for x, y in itertools.pairwise(partners):
        fixed = [torch.full_like(everything, code) for code in (x, y)]
        for place in range(3):
            operands = [*fixed[:place], everything, *fixed[place:]]
            got = arithmetic.fma(*operands, fmt=F16)
            codes = torch.stack(operands).T[finite][::61].tolist()
            expected = []
            for a, b, c in codes:
                total = scaled[a] * scaled[b] + (scaled[c] << 24)
                left, right = formats.sign(F16, a) ^ formats.sign(F16, b), formats.sign(F16, c)
                expected.append(round_fraction(F16, Fraction(total, 1 << 48), "rn", negative=bool(left and right)))
            same(torch.tensor(expected), got[finite][::61], *(x[finite][::61] for x in operands))


def test_specials_of_every_operation() -> None:
    inf, zero, one, minus_inf, minus_zero = 0x7F800000, 0, 0x3F800000, 0xFF800000, 0x80000000
    nan = 0x7FFFFFFF

    def run(function: Callable[..., torch.Tensor], *codes: int, **options: str) -> int:
        return int(function(*(torch.tensor([code]) for code in codes), **options).item())

    assert run(arithmetic.add, inf, minus_inf) == nan
    assert run(arithmetic.sub, inf, inf) == nan
    assert run(arithmetic.mul, zero, inf) == nan
    assert run(arithmetic.fma, zero, inf, one) == nan
    assert run(arithmetic.fma, inf, one, minus_inf) == nan
    assert run(arithmetic.div, zero, zero) == nan
    assert run(arithmetic.div, one, minus_zero) == minus_inf
    assert run(arithmetic.div, one, minus_inf, rounding="rp") == minus_zero
    assert run(arithmetic.sqrt, minus_zero) == minus_zero
    assert run(arithmetic.sqrt, 0x80000001) == nan
    assert run(arithmetic.add, one, 0xBF800000) == zero
    assert run(arithmetic.add, one, 0xBF800000, rounding="rm") == minus_zero
    assert run(arithmetic.add, minus_zero, minus_zero) == minus_zero
    assert run(arithmetic.add, 0x7F800001, one) == nan


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_minimum_and_maximum(fmt: Format) -> None:
    nan, zero, minus_zero = nan_code(fmt), 0, 1 << fmt.sign_shift
    a, b = pairs(edges(fmt))
    for name, better in (("maximum", max), ("minimum", min)):
        got = getattr(arithmetic, name)(a, b, fmt=fmt)
        strict = getattr(arithmetic, name)(a, b, fmt=fmt, nan=True)
        for x, y, result, propagated in zip(*(t.tolist() for t in (a, b, got, strict)), strict=True):
            is_nan = [bool(formats.is_nan(fmt, code)) for code in (x, y)]
            if any(is_nan):
                assert result == (nan if all(is_nan) else y if is_nan[0] else x)
                assert propagated == nan
                continue
            key = {code: (formats.value(fmt, code), -formats.sign(fmt, code)) for code in (x, y)}
            assert result == propagated == better(x, y, key=key.__getitem__)
    assert arithmetic.maximum(torch.tensor([minus_zero]), torch.tensor([zero]), fmt=fmt).item() == zero
    assert arithmetic.minimum(torch.tensor([zero]), torch.tensor([minus_zero]), fmt=fmt).item() == minus_zero
    smallest = torch.tensor([minus_zero | fmt.min_positive])
    assert arithmetic.maximum(torch.tensor([minus_zero]), smallest, fmt=fmt).item() == minus_zero


def test_xorsign_and_abs() -> None:
    a, b = torch.tensor([0xC0000000, 0x3F800000]), torch.tensor([0x3F800000, 0x40400000])
    assert arithmetic.maximum(a, b, xorsign_abs=True).tolist() == [0xC0000000, 0x40400000]
    assert arithmetic.minimum(a, b, xorsign_abs=True).tolist() == [0xBF800000, 0x3F800000]
    assert arithmetic.maximum(a, b, absolute=True).tolist() == [0x40000000, 0x40400000]


@pytest.mark.parametrize("fmt", [*FORMATS, F64], ids=str)
def test_signs(fmt: Format) -> None:
    top = -(1 << 63) if fmt is F64 else 1 << fmt.sign_shift
    codes = torch.tensor([0, 1, fmt.max_finite])
    assert arithmetic.negate(codes, fmt=fmt).tolist() == [code | top for code in codes.tolist()]
    assert arithmetic.absolute(codes | top, fmt=fmt).tolist() == codes.tolist()
    assert arithmetic.copysign(torch.full_like(codes, top), codes, fmt=fmt).tolist() == (codes | top).tolist()
    not_a_number = torch.tensor([fmt.max_finite + 2])
    assert arithmetic.negate(not_a_number, fmt=fmt).item() == nan_code(fmt)


def test_float64_operands_are_refused() -> None:
    with pytest.raises(ValueError, match="float64: float64 intermediates are exact"):
        arithmetic.add(torch.tensor([0]), torch.tensor([0]), fmt=F64)


def test_a_sum_in_decimal() -> None:
    """An example that a reader can check: 0.1 + 0.2 in float32."""
    tenth, fifth = (torch.tensor([formats.encode(F32, float(np.float32(x)))]) for x in (0.1, 0.2))
    assert math.isclose(formats.value(F32, int(arithmetic.add(tenth, fifth).item())), 0.3, rel_tol=1e-7)
