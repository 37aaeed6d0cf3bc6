"""Correctly rounded functions compared with mpmath, and the table of hard cases compared with plain float64 results."""

from collections.abc import Callable

import mpmath
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ptxdiff.references import correct_rounding, exponential, formats, reciprocal, trigonometric
from ptxdiff.references.formats import BF16, F16, F32, F64, Format
from ptxdiff.references.hard_cases import HARD_CASES
from tests.references.derive_hard_cases import EXACT, exactly
from tests.support.references.plain_definitions import edges, patterns, same

FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "ex2": exponential.ex2, "lg2": exponential.lg2, "tanh": exponential.tanh, "sin": trigonometric.sin,
    "cos": trigonometric.cos, "rsqrt": reciprocal.rsqrt,
}  # fmt: skip
POSITIVE = ("lg2", "rsqrt")
SYMMETRIC = ("sin", "cos", "tanh")


def moderate(count: int, seed: int) -> torch.Tensor:
    """float32 codes with exponents from 2^-14 to 2^7, both signs."""
    generator = torch.Generator().manual_seed(seed)
    exponent = torch.randint(113, 135, (count,), generator=generator)
    bits = torch.randint(0, 1 << 23, (count,), generator=generator)
    return bits | exponent << 23 | torch.randint(0, 2, (count,), generator=generator) << 31


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_against_mpmath(name: str) -> None:
    codes = torch.cat([moderate(1500, 1), patterns(F32, 500, 2), torch.tensor(edges(F32))])
    codes = codes[formats.is_finite(F32, codes) & ~formats.is_zero(F32, codes)]
    if name in POSITIVE:
        codes = codes[formats.sign(F32, codes) == 0]
    if name == "ex2":
        codes = codes[formats.to_float64(F32, codes).abs() < 160]
    expected = torch.tensor([exactly(name, code) for code in codes.tolist()])
    same(expected, FUNCTIONS[name](codes), codes)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hard_cases(name: str) -> None:
    """Every entry equals the result with 500 bits, and the functions return it, with both signs where they have a
    symmetry."""
    keys = [key for key, _ in HARD_CASES[name]]
    assert keys == sorted(set(keys))
    codes = torch.tensor(keys)
    with mpmath.workprec(500):
        expected = torch.tensor([exactly(name, code) for code in keys])
    same(expected, FUNCTIONS[name](codes), codes)
    if name in SYMMETRIC:
        flip = 0 if name == "cos" else 1 << 31
        same(expected ^ flip, FUNCTIONS[name](codes ^ 1 << 31), codes)
    if name == "rsqrt":
        scaled = codes + (40 << 23)
        same(expected - (20 << 23), FUNCTIONS[name](scaled), scaled)


def test_without_the_table_a_hard_case_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is needed: a float64 with an error in its last places, within the margin, rounds to another float32."""
    code, right = next((key, result) for key, result in HARD_CASES["ex2"] if 0x3D000000 < key < 0x42000000)
    operand = torch.tensor([code])
    value = torch.exp2(formats.to_float64(F32, operand)).view(torch.int64)
    seen = set()
    for slip in (-40, 0, 40):
        slipped = (value + slip).view(torch.float64)
        monkeypatch.setattr(torch, "exp2", lambda x, slipped=slipped: slipped)
        seen.add(int(correct_rounding.round_function("ex2", torch.exp2, operand, F32).item()))
        assert exponential.ex2(operand).item() == right
    assert len(seen) == 2


@pytest.mark.parametrize("fmt", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_16_bit_operands_round_safely(name: str, fmt: Format) -> None:
    """No float64 result is near a midpoint of the format, unless it is exactly one, so that its error does not
    matter."""
    codes = torch.arange(1 << 16)
    codes = codes[formats.is_finite(fmt, codes)]
    value = {"lg2": torch.log2, "ex2": torch.exp2}.get(name, getattr(torch, name, None))(formats.to_float64(fmt, codes))
    keep = torch.isfinite(value) & (value != 0)
    codes, value = codes[keep], value[keep]
    rounded = [correct_rounding.round_float64(fmt, value * (1 + slip)) for slip in (-(2.0**-47), 0.0, 2.0**-47)]
    open_question = codes[(rounded[0] != rounded[1]) | (rounded[1] != rounded[2])]
    for code in open_question.tolist():
        operand = formats.value(fmt, code)
        with mpmath.workprec(300):
            true = EXACT[name](mpmath.mpf(operand))
            assert mpmath.mpf(float(true)) == true, f"{name}({operand}) is close to a midpoint and not exact"
    same(rounded[1], FUNCTIONS[name](codes, fmt=fmt), codes)


def test_specials() -> None:
    zero, minus_zero, one, inf, minus_inf, nan = 0, 1 << 31, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FFFFFFF
    table = {
        "ex2": [one, one, inf, zero, nan],
        "lg2": [minus_inf, minus_inf, inf, nan, nan],
        "tanh": [zero, minus_zero, one, 0xBF800000, nan],
        "sin": [zero, minus_zero, nan, nan, nan],
        "cos": [one, one, nan, nan, nan],
        "rsqrt": [inf, minus_inf, zero, nan, nan],
    }
    operands = torch.tensor([zero, minus_zero, inf, minus_inf, 0xFFC12345])
    assert {name: function(operands).tolist() for name, function in FUNCTIONS.items()} == table
    assert exponential.lg2(torch.tensor([0x80000001])).item() == nan
    assert exponential.ex2(torch.tensor([0xC3160000, 0xC315FFFF])).tolist() == [0, 1]  # -150, a tie, and above it


def test_float64_is_refused() -> None:
    with pytest.raises(ValueError, match="defined up to float32"):
        exponential.ex2(torch.tensor([0]), fmt=F64)


def test_traces_into_one_graph() -> None:
    """Tracing does not depend on data, as for a sweep, which traces a reference before it makes a kernel of it."""
    codes = torch.tensor([0x3F800000, 0x40000000])

    def graph_of(function: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        return make_fx(lambda x: function(x), tracing_mode="fake")(codes)

    for name, function in FUNCTIONS.items():
        traced = graph_of(function)
        assert traced(codes).tolist() == function(codes).tolist(), name
