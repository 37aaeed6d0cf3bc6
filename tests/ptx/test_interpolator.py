"""The special function unit's reciprocal: the definition against what an H200 gave for every significand."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from harness.ptx.numeric import interpolator
from harness.ptx.numeric.vectorise import ArrayFunction

H200 = "6738fed66ac3938e70bbdd4bd049433a7daee9dca539705339d2223986bbe04c"
"""SHA-256 of `rcp.approx.ftz.f32` of 1 + fraction * 2**-23 on an H200 (driver 580.159.04), fractions in order, as
little-endian 32-bit words in units of 2**-24. `tests/gpu/test_reciprocal_unit.py` asks the device itself."""


def digest(results: np.ndarray) -> str:
    return hashlib.sha256(results.astype("<u4").tobytes()).hexdigest()


def reciprocals() -> np.ndarray:
    """Of all significands."""
    function = ArrayFunction(interpolator.reciprocal_significand, (), ((32, False),), 32)
    return function.compiled(1 << 23, np.arange(1 << 23, dtype=np.uint32))


def test_every_reciprocal_is_that_of_an_h200() -> None:
    assert digest(reciprocals()) == H200


def test_another_last_bit_is_seen() -> None:
    wrong = reciprocals()
    wrong[1234567] ^= 1
    assert digest(wrong) != H200


@pytest.mark.parametrize(("fraction", "expected"), [(0, 1 << 24), (0x400000, 0xAAAAAB), (0x7FFFFF, 0x800001)])
def test_some_reciprocals(fraction: int, expected: int) -> None:
    """Of 1, of 1.5, of the last number below 2."""
    assert hex(interpolator.reciprocal_significand(fraction)) == hex(expected)


def test_the_square_lacks_the_columns_of_little_weight() -> None:
    """Against the sum of all partial products of bits whose weight is 2**17 or more."""
    x = np.arange(1 << 16)
    bits = [x >> i & 1 for i in range(16)]
    pairs = [(i, j, i + j + (i != j)) for i in range(16) for j in range(i + 1)]
    square = sum((bits[i] & bits[j]) << weight for i, j, weight in pairs if weight >= 17)
    function = ArrayFunction(interpolator.truncated_square, (), ((32, False),), 32)
    assert (function.compiled(1 << 16, x.astype(np.uint32)) == square >> 17).all()
