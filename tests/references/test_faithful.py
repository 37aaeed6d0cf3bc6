"""Functions rounded from float64, compared with mpmath at 120 bits, and their special values."""

from collections.abc import Callable

import mpmath
import pytest
import torch

from ptxdiff.references import faithful, formats
from ptxdiff.references.formats import F32
from tests.support.references.plain_definitions import edges, patterns

WORKING_BITS = 240


def normal(x: mpmath.mpf) -> mpmath.mpf:
    """The probability that a normal variable is less than x."""
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def by_tanh(x: mpmath.mpf) -> mpmath.mpf:
    """GELU's approximation by its formula, in which cancellation costs fewer bits than the working precision has."""
    return x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)))


FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], Callable[[mpmath.mpf], mpmath.mpf]]] = {
    "exp": (faithful.exp, mpmath.exp),
    "log": (faithful.log, mpmath.log),
    "erf": (faithful.erf, mpmath.erf),
    "sigmoid": (faithful.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x))),
    "silu": (faithful.silu, lambda x: x / (1 + mpmath.exp(-x))),
    "gelu": (faithful.gelu, lambda x: x * normal(x)),
    "gelu_tanh": (faithful.gelu_tanh, by_tanh),
    "softplus": (faithful.softplus, lambda x: mpmath.log1p(mpmath.exp(x))),
}


def operands(positive: bool) -> torch.Tensor:
    """Ordinary numbers from 2^-14 to 2^6 and small ones, both signs unless `positive`."""
    generator = torch.Generator().manual_seed(7)
    fields = torch.randint(113, 133, (600,), generator=generator) << 23
    ordinary = fields | torch.randint(0, 1 << 23, (600,), generator=generator)
    codes = torch.cat([ordinary, ordinary | 1 << 31, patterns(F32, 200, 3), torch.tensor(edges(F32))])
    keep = formats.is_finite(F32, codes) & (formats.to_float64(F32, codes).abs() < 100)
    keep &= ~formats.is_zero(F32, codes)
    return codes[keep & (formats.sign(F32, codes) == 0)] if positive else codes[keep]


def nearest(value: mpmath.mpf) -> int:
    """The float32 code nearest to a number. mpmath rounds to nearest, ties to even, at the precision of the number's
    binade."""
    negative = value < 0
    size = abs(value)
    if size == 0:
        return 0
    exponent = max(int(mpmath.floor(mpmath.log(size, 2))), -126)
    places = mpmath.nint(mpmath.ldexp(size, 23 - exponent))
    code = int(places) + ((exponent + 126) << 23)
    return min(code, 0x7F800000) | int(negative) << 31


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_the_nearest_except_near_ties(name: str) -> None:
    """All of some 2,000 operands round to the nearest: a near tie has a probability of 2^-25.

    The exception is tiny x: x / 2, the first term of silu and gelu, is a tie in subnormal numbers.
    """
    function, exact = FUNCTIONS[name]
    codes = operands(positive=name == "log")
    got = function(codes).tolist()
    with mpmath.workprec(WORKING_BITS):
        expected = [nearest(exact(mpmath.mpf(formats.value(F32, code)))) for code in codes.tolist()]
    wrong = [
        (hex(code), hex(right), hex(found))
        for code, right, found in zip(codes.tolist(), expected, got, strict=True)
        if right != found
        and not (right == 0 and found == 1 << 31)  # mpmath has no -0
        and not (code & 0x7FFFFFFF < formats.encode(F32, 2.0**-100) and abs(right - found) == 1)
    ]
    assert not wrong, wrong[:5]


def test_atan2_against_mpmath() -> None:
    codes = operands(positive=False)
    y, x = codes, codes.roll(17)
    got = faithful.atan2(y, x).tolist()
    with mpmath.workprec(WORKING_BITS):
        for a, b, found in zip(y.tolist(), x.tolist(), got, strict=True):
            exact = mpmath.atan2(mpmath.mpf(formats.value(F32, a)), mpmath.mpf(formats.value(F32, b)))
            assert nearest(exact) == found, (hex(a), hex(b))


def test_specials() -> None:
    zero, minus_zero, one, inf, minus_inf, nan = 0, 1 << 31, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FFFFFFF
    half, ln2 = 0x3F000000, 0x3F317218
    table = {
        "exp": [one, one, inf, zero, nan],
        "log": [minus_inf, minus_inf, inf, nan, nan],
        "erf": [zero, minus_zero, one, 0xBF800000, nan],
        "sigmoid": [half, half, one, zero, nan],
        "silu": [zero, minus_zero, inf, nan, nan],
        "gelu": [zero, minus_zero, inf, nan, nan],
        "gelu_tanh": [zero, minus_zero, inf, nan, nan],
        "softplus": [ln2, ln2, inf, zero, nan],
    }
    x = torch.tensor([zero, minus_zero, inf, minus_inf, 0xFFC12345])
    assert {name: function(x).tolist() for name, (function, _) in FUNCTIONS.items()} == table
    y = torch.tensor([zero, minus_zero, zero, minus_zero, inf, minus_inf, inf, one, nan])
    x = torch.tensor([zero, zero, minus_zero, minus_zero, inf, minus_inf, minus_inf, minus_inf, one])
    pi, quarter, three_quarters = 0x40490FDB, 0x3F490FDB, 0x4016CBE4
    expected = [
        zero, minus_zero, pi, pi | 1 << 31, quarter, three_quarters | 1 << 31, three_quarters, pi, nan,
    ]  # fmt: skip
    assert faithful.atan2(y, x).tolist() == expected


def test_flushes() -> None:
    """Both operands and results, or results only."""
    tiny, result = torch.tensor([0x00000001]), torch.tensor([0xC2B00000])  # 1e-45; e^-88 is subnormal
    assert faithful.silu(tiny, ftz=True).item() == 0
    assert faithful.exp(result).item() == 0x0041EDC4
    assert faithful.exp(result, ftz="results").item() == 0
