"""The reference of tensor cores, compared with the published rule in fractions, one output at a time."""

from fractions import Fraction
from math import floor, log2

import pytest
import torch

from ptxdiff.references import formats, tensor_core
from ptxdiff.references.formats import BF16, E4M3, E5M2, F16, F32, TF32, Format
from ptxdiff.references.tensor_core import ADA, AMPERE, BLACKWELL, HOPPER, HOPPER_WGMMA, TURING, VOLTA, Generation
from tests.support.sampling import mixed

ROWS = [
    # name, generation, F, terms, exponents of zero into float32 and float16, fraction bits of a float32 result
    ("Volta f16", VOLTA, F16, 23, 4, -131, -19, 23),
    ("Turing f16", TURING, F16, 24, 8, -132, -20, 23),
    ("Ampere bf16", AMPERE, BF16, 24, 8, -132, -20, 23),
    ("Ampere tf32", AMPERE, TF32, 24, 4, -132, -20, 23),
    ("Ada e4m3", ADA, E4M3, 13, 16, -132, -20, 13),
    ("Hopper f16", HOPPER, F16, 25, 16, -133, -21, 23),
    ("Hopper bf16", HOPPER, BF16, 25, 16, -133, -21, 23),
    ("Hopper tf32", HOPPER, TF32, 25, 8, -133, -21, 23),
    ("Hopper wgmma e5m2", HOPPER_WGMMA, E5M2, 13, 32, -133, -21, 13),
    ("Blackwell e5m2", BLACKWELL, E5M2, 25, 32, -133, -21, 23),
]
KINDS = ["near", "wide", "cancelling", "tiny", "zeros"]


def cut(x: Fraction, unit: Fraction) -> Fraction:
    """A number truncated toward zero to a multiple of `unit`."""
    return floor(abs(x) / unit) * unit * (1 if x > 0 else -1)


def exponent(fmt: Format, code: int) -> int:
    least = 1 - fmt.bias
    size = abs(formats.fraction(fmt, code))
    return max(floor(log2(size)), least) if size else least


def one(fmt: Format, to: Format, a: list[int], b: list[int], c: int, row: tuple) -> Fraction:
    """A whole product, computed by the rule, as a number."""
    _, _, _, bits, terms, zero32, zero16, kept = row
    total, exponent_of_c = formats.fraction(to, c), exponent(to, c)
    for start in range(0, len(a), terms):
        values, exponents = [total], [exponent_of_c if total else (zero16 if to == F16 else zero32)]
        for x, y in zip(a[start : start + terms], b[start : start + terms], strict=True):
            values.append(formats.fraction(fmt, x) * formats.fraction(fmt, y))
            both = exponent(fmt, x) + exponent(fmt, y)
            exponents.append(both if values[-1] else (zero16 if to == F16 else zero32))
        unit = Fraction(2) ** (max(exponents) - bits)
        total = sum((cut(v, unit) for v in values), Fraction(0))
        total = rounded(to, total, kept)
        exponent_of_c = max(floor(log2(abs(total))), 1 - to.bias) if total else 0
    return total


def rounded(to: Format, x: Fraction, kept: int) -> Fraction:
    if not x:
        return x
    place = max(floor(log2(abs(x))), 1 - to.bias)
    if to == F32:
        return cut(x, Fraction(2) ** (place - kept))
    unit = Fraction(2) ** (place - 10)
    return round(x / unit) * unit  # Python rounds fractions to nearest even


def codes(fmt: Format, kind: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    low = fmt.mantissa_bits + fmt.ignored_bits
    raw = torch.randint(0, 1 << fmt.code_bits, shape, generator=generator)
    spread = {"near": 1, "wide": 6, "cancelling": 0, "tiny": 1, "zeros": 2}[kind]
    middle = 1 if kind == "tiny" else fmt.bias
    field = (middle + torch.randint(-spread, spread + 1, shape, generator=generator)).clamp(0, 2 * fmt.bias - 1)
    found = (raw & ((1 << low) - 1 | 1 << fmt.sign_shift)) | field << low
    if kind == "zeros":
        found = torch.where(torch.rand(shape, generator=generator) < 0.5, raw & (1 << fmt.sign_shift), found)
    return found & ~((1 << fmt.ignored_bits) - 1)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("row", "to", "kind"), mixed(ROWS, [F32, F16], KINDS, of=2), ids=lambda v: v[0] if isinstance(v, tuple) else str(v)
)
def test_against_fractions(row: tuple, to: Format, kind: str) -> None:
    _, generation, fmt, *_ = row
    generator = torch.Generator().manual_seed(KINDS.index(kind))
    a, b = (codes(fmt, kind, shape, generator) for shape in ((4, 32), (32, 3)))
    if kind == "cancelling":
        a[:, 16:], b[16:] = a[:, :16] ^ (1 << fmt.sign_shift), b[:16]
    c = codes(to, "near", (4, 3), generator)
    got = tensor_core.dot(a, b, c, a_format=fmt, b_format=fmt, c_format=to, d_format=to, generation=generation)
    for i in range(4):
        for j in range(3):
            wanted = one(fmt, to, a[i].tolist(), b[:, j].tolist(), int(c[i, j]), row)
            if abs(wanted) < Fraction(2) ** (to.bias + 1):
                assert formats.fraction(to, int(got[i, j])) == wanted
            else:
                assert formats.is_infinity(to, got[i, j])


def single(a: list[int], b: list[int], c: int, generation: Generation = HOPPER, to: Format = F32) -> int:
    """One dot product of float16 codes."""
    found = tensor_core.dot(
        torch.tensor([a]), torch.tensor([b]).T, torch.tensor([[c]]),
        a_format=F16, b_format=F16, c_format=to, d_format=to, generation=generation,
    )  # fmt: skip
    return int(found[0, 0])


ONE, INFINITY, NAN = 0x3C00, 0x7C00, 0x7E01


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        ([NAN], [ONE], 0, 0x7FFFFFFF),
        ([INFINITY], [0x8000], 0, 0x7FFFFFFF),
        ([INFINITY, INFINITY], [ONE, ONE | 0x8000], 0, 0x7FFFFFFF),
        ([INFINITY], [ONE], 0xFF800000, 0x7FFFFFFF),
        ([INFINITY], [0xBC00], 0, 0xFF800000),
        ([0x8000], [ONE], 0x80000000, 0),  # -0 + -0 is +0
        ([0], [0], 0x7F7FFFFF, 0x7F7FFFFF),
        ([0x7BFF], [0x7BFF], 0x7F7FFFFF, 0x7F7FFFFF),  # bits below the last place are truncated
    ],
)
def test_specials(a: list[int], b: list[int], c: int, expected: int) -> None:
    assert single(a, b, c) == expected


def test_too_large_is_infinity_though_rounding_is_toward_zero() -> None:
    big = 0x7F00
    found = tensor_core.dot(
        torch.tensor([[big, big]]), torch.tensor([[big], [big]]), torch.tensor([[0]]),
        a_format=BF16, b_format=BF16, generation=HOPPER,
    )  # fmt: skip
    assert int(found) == 0x7F800000


def test_formats_that_no_tensor_core_multiplies_are_refused() -> None:
    x = torch.zeros(1, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match="no tensor core multiplies float32 and float32"):
        tensor_core.dot(x, x, x, a_format=F32, b_format=F32, generation=HOPPER)


def test_integers_wrap_or_saturate() -> None:
    from ptxdiff.references.formats import I8, I32

    a, b, c = torch.tensor([[0x80] * 4]), torch.tensor([[0x80]] * 4), torch.tensor([[0x7FFFFFFF]])
    formats_ = {"a_format": I8, "b_format": I8, "to": I32}
    assert int(tensor_core.dot_integer(a, b, c, **formats_)) == (0x7FFFFFFF + 4 * 16384) & 0xFFFFFFFF
    assert int(tensor_core.dot_integer(a, b, c, **formats_, saturate=True)) == 0x7FFFFFFF
