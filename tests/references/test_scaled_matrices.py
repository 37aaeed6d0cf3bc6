"""The reference of block-scaled products, on examples computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from ptxdiff.references import scaled_matrices
from ptxdiff.references.formats import E2M1, E4M3, E5M2, F32, UE8M0, Format, encode, to_float64
from ptxdiff.references.scaled_matrices import FOUR, MX8

ONE = 127
"""ue8m0: 2^0."""


def codes(fmt: Format, values: list[float], k: int) -> torch.Tensor:
    """The codes of a row of k numbers; numbers that are not given are zero."""
    found = [encode(fmt, v) for v in values]
    return torch.tensor([found + [0] * (k - len(found))])


def mx8(a: list[float], b: list[float], *, x: int = ONE, y: int = ONE, c: int = 0, fmt: Format = E4M3) -> int:
    """A sum of up to 32 products; c is a code."""
    left, right = codes(fmt, a, 32), codes(fmt, b, 32).T
    found = scaled_matrices.dot(
        left, right, torch.tensor([[x]]), torch.tensor([[y]]), torch.tensor([[c]]), a_format=fmt, b_format=fmt, kind=MX8
    )
    return int(found)


def four(
    a: list[float], b: list[float], *, x: Sequence[int] = (ONE, ONE), y: Sequence[int] = (ONE, ONE), c: int = 0,
    block: int = 32, scale: Format = UE8M0,
) -> int:  # fmt: skip
    """A sum of up to 64 products."""
    found = scaled_matrices.dot(
        codes(E2M1, a, 64), codes(E2M1, b, 64).T, torch.tensor([list(x)]), torch.tensor([list(y)]), torch.tensor([[c]]),
        a_format=E2M1, b_format=E2M1, scale_format=scale, block=block, kind=FOUR,
    )  # fmt: skip
    return int(found)


def f32(value: float) -> int:
    return encode(F32, value)


def test_scales_multiply() -> None:
    assert mx8([3.0, 2.0], [1.5, -0.5], x=130, y=126) == f32(3.5 * 4)
    assert four([6.0, 0.5], [4.0, 0.5], x=(128, 0), y=(127, 0)) == f32(24.25 * 2)
    e4m3 = [encode(E4M3, v) for v in (1.75, 0.0, 0.0, 448.0)]
    k = [0.0] * 48 + [3.0]
    ones = [encode(E4M3, 1.0)] * 4
    assert four([3.0, *k[1:]], [2.0, *[0.0] * 47, 1.5], x=e4m3, y=ones, block=16, scale=E4M3) == f32(
        6 * 1.75 + 4.5 * 448
    )


def test_a_term_keeps_25_fraction_bits() -> None:
    """Beside 2^8 the last bit that is kept is 2^-17."""
    tiny = 2.0**-9
    assert mx8([1.0, tiny], [1.0, tiny], c=f32(-1.0)) == f32(2.0**-18)
    assert mx8([256.0, 2 * tiny], [1.0, tiny], c=f32(-256.0)) == f32(2.0**-17)
    assert mx8([256.0, tiny], [1.0, tiny], c=f32(-256.0)) == 0
    assert mx8([256.0, 3 * tiny], [1.0, tiny], c=f32(-256.0)) == f32(2.0**-17)


def test_the_sum_is_cut_toward_zero() -> None:
    c = f32(1.0) | 1  # 1 + 2^-23
    assert mx8([1.0, 2.0**-9], [1.0, 2.0**-9], c=c) == f32(2.0 + 2.0**-18)
    assert mx8([1.0], [1.0], c=c) == f32(2.0)
    assert mx8([-1.0], [1.0], c=c | 1 << 31) == f32(-2.0)


def test_four_bits_are_summed_before_they_are_aligned() -> None:
    """A sum of 16 that cancels has its scales' exponent, and other terms are truncated below it. Zero products have no
    effect."""
    # 2^60 (1 - 1) in the first group; 1 in the third group, which has another scale.
    cancels = four([1.0, -1.0] + [0.0] * 30 + [1.0], [1.0, 1.0] + [0.0] * 30 + [1.0], x=(ONE + 60, ONE))
    assert cancels == 0
    assert four([0.0] * 32 + [1.0], [0.0] * 32 + [1.0], x=(ONE + 60, ONE)) == f32(1.0)
    kept = four([1.0, -1.0] + [0.0] * 30 + [1.0], [1.0, 1.0] + [0.0] * 30 + [1.0], x=(ONE + 35, ONE))
    assert kept == f32(1.0)
    assert four([1.0, -1.0] + [0.0] * 30 + [1.0], [1.0, 1.0] + [0.0] * 30 + [0.5], x=(ONE + 35, ONE)) == 0


def test_the_accumulator_is_aligned_too() -> None:
    assert four([0.5], [0.5], x=(ONE - 33, ONE), c=f32(1.0)) == f32(1.0)
    assert four([0.5], [0.5], x=(ONE - 33, ONE), c=f32(-1.0)) == f32(-1.0) - 1  # the number below 1 in magnitude


@pytest.mark.parametrize("kind", ["mx8", "four"])
def test_specials(kind: str) -> None:
    nan, infinity = 0x7FFFFFFF, 0x7F800000
    if kind == "mx8":
        assert mx8([1.0], [1.0], x=0xFF) == nan
        assert mx8([0.0], [0.0], y=0xFF) == nan  # a NaN scale of zeros
        assert mx8([float("inf")], [1.0], fmt=E5M2) == infinity
        assert mx8([float("inf"), float("inf")], [1.0, -1.0], fmt=E5M2) == nan
        assert mx8([float("inf")], [0.0], fmt=E5M2) == nan
        assert mx8([float("inf")], [-1.0], fmt=E5M2, c=infinity) == nan
        assert mx8([448.0], [448.0], x=254, y=254) == infinity
        assert mx8([448.0], [-448.0], x=254, y=254) == infinity | 1 << 31
        assert mx8([1.0], [1.0], x=0, y=0) == 0  # 2^-254
        assert mx8([1.0], [1.0], x=0, y=105) == 1  # 2^-149
    else:
        assert four([1.0], [1.0], x=(0xFF, ONE)) == nan
        assert four([0.0], [0.0], x=(ONE, 0xFF)) == nan
        assert four([1.0], [1.0], c=0x7FC00000) == nan
        assert four([1.0], [1.0], c=infinity | 1 << 31) == infinity | 1 << 31
        assert four([6.0], [6.0], x=(254, ONE), y=(254, ONE)) == infinity
        sign = encode(E4M3, 1.0) | 0x80
        e = [encode(E4M3, 1.0)] * 4
        assert four([1.0], [1.0], x=[sign, *e[1:]], y=e, block=16, scale=E4M3) == f32(1.0)
        assert four([1.0], [1.0], x=[0x7F, *e[1:]], y=e, block=16, scale=E4M3) == nan
        assert four([1.0], [1.0], x=[1, *e[1:]], y=e, block=16, scale=E4M3) == f32(2.0**-9)


def test_no_sum_is_minus_zero() -> None:
    assert mx8([-0.0], [1.0], c=1 << 31) == 0
    assert four([-0.0], [1.0], c=1 << 31) == 0


def test_instructions_follow_each_other() -> None:
    """The first instruction's result is rounded before the second one's terms are added."""
    a = codes(E4M3, [1.0] + [0.0] * 31 + [2.0**-9], 64)
    b = codes(E4M3, [1.0] + [0.0] * 31 + [2.0**-9], 64).T
    scales = torch.tensor([[ONE + 20, ONE]])
    found = scaled_matrices.dot(a, b, scales, torch.tensor([[ONE, ONE]]), torch.zeros(1, 1, dtype=torch.int64),
                                   a_format=E4M3, b_format=E4M3)  # fmt: skip
    assert float(to_float64(F32, found)) == 2.0**20


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="no product of e4m3 and e4m3 over 64 elements in blocks of 32"):
        scaled_matrices.dot(*[torch.zeros(1, 64, dtype=torch.int64)] * 5, a_format=E4M3, b_format=E4M3, kind=FOUR)
