"""Block-scaled products, on examples computed by hand."""

from __future__ import annotations

import pytest
import torch

from ptxdiff.references import scaled_tensor_core as scaled
from ptxdiff.references.formats import E2M1, E4M3, E5M2

ONE = 0x3F800000


def one(
    a: list[int], b: list[int], c: int, x: list[int], y: list[int], scale: str = "ue8m0", fmt: object = E2M1
) -> int:
    """A single element of a product."""
    left, right = torch.tensor([a]), torch.tensor(b).reshape(-1, 1)
    found = scaled.dot(
        left, right, torch.tensor([[c]]), torch.tensor([x]), torch.tensor([y]), a_format=fmt, b_format=fmt,  # type: ignore[arg-type]
        scale=scale, grouped=fmt == E2M1,
    )  # fmt: skip
    return int(found)


def test_scales_are_powers_of_two_or_numbers() -> None:
    """64 products of 1 and 1; half of them have the scale 2^1, half 2^-1."""
    assert one([2] * 64, [2] * 64, 0, [128, 126], [127, 127]) == 0x42A00000  # 80
    # 0x3C is 1.5, 0x38 is 1, 0 is zero, and the sign of 0xB8 is not read
    assert one([2] * 64, [2] * 64, ONE, [0x3C, 0x38, 0, 0xB8], [0x38] * 4, "ue4m3") == 0x42640000  # 57


def test_terms_are_cut_at_their_own_fraction_bits() -> None:
    """A one far below the largest term: e4m3 keeps 25 bits, e2m1 keeps 35, and then float32 keeps 24."""
    a, b = [0x38] + [0] * 31, [0x38] + [0] * 31
    assert one(a, b, 0x4C000000, [127], [127], fmt=E4M3) == 0x4C000000  # 2^25 + 1
    assert one(a, b, 0xCC000000, [127], [127], fmt=E4M3) == 0xCBFFFFFF  # -(2^25) + 1
    assert one(a, b, 0xCC800000, [127], [127], fmt=E4M3) == 0xCC800000  # below 2^26 the 1 is truncated
    halves = [2] + [0] * 63
    assert one(halves, halves, 0xCC800000, [127, 127], [127, 127]) == 0xCC7FFFFF


def test_specials() -> None:
    nothing = [0] * 32
    assert one([0x7F, *nothing[1:]], nothing, 0, [127], [127], fmt=E4M3) == 0x7FFFFFFF
    assert one([0x7C, *nothing[1:]], [0xBC, *nothing[1:]], 0, [127], [127], fmt=E5M2) == 0xFF800000
    assert one([0x7C, *nothing[1:]], nothing, 0, [127], [127], fmt=E5M2) == 0x7FFFFFFF  # infinity times zero
    assert one(nothing, nothing, ONE, [255], [127], fmt=E4M3) == 0x7FFFFFFF
    assert one(nothing, nothing, 0x80000000, [127], [127], fmt=E4M3) == 0


def test_which_threads_give_scales() -> None:
    words = scaled.scale_words(torch.arange(1, 33).reshape(16, 2), 2, 1, 16)
    assert int(words[2]) == 0x02010000
    assert int(words[3]) == 0x12110000
    assert int(words[0]) == 0
    assert int(scaled.scale_words(torch.arange(1, 9).reshape(8, 1), 0, 3, 8)[7]) == 2


def test_only_e2m1_is_grouped() -> None:
    with pytest.raises(ValueError, match="e2m1 alone"):
        scaled.dot(
            torch.zeros(1, 64, dtype=torch.int64), torch.zeros(64, 1, dtype=torch.int64), torch.zeros(1, 1),
            torch.zeros(1, 2), torch.zeros(1, 2), a_format=E4M3, b_format=E2M1, scale="ue8m0", grouped=True,
        )  # fmt: skip
