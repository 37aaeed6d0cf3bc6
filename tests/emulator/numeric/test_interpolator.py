"""The special function unit: the definitions compared with an H100's results for all inputs of all segments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest

from ptxdiff.emulator.numeric import hopper, interpolator, special_functions
from ptxdiff.emulator.numeric.vectorise import ArrayFunction

H100 = {
    "rcp": "c408381446132e07fa5581e930dc33fb790bea7ec4276ef3621e322df2492a55",
    "rsqrt": "218fc04d271773269367dedf4cff9ff719081b1218c3d67d248d8d6126040246",
    "sqrt": "4e017678de306e0be8bed66193c2ebf09e9c60a9600cad56cd05bb7b6c3f266f",
    "ex2": "1ec235afedfb90172a727168397a746f3e01f893d174dacb56b18d8cc89e9d20",
    "lg2": "d79971d87764487a27953c2634cb7ae6c146cca8706883c3118f1a17e61c0717",
    "sin": "57676af4861bf1ab7f9ee4cb0875a4e1abb7725e77fa0016a38c8a233c875ce6",
    "tanh": "829f704da5108fe65612457da24a11734628be5cf1bd96ee1c9b5df82b934f2f",
}
"""SHA-256 of an H100's results (driver 580.159.04), in the order of `ARGUMENTS`, as little-endian 32-bit words.

`tests/gpu/test_approximate_unit.py` compares with a device itself. An H200 gave the same results (the ledger).
"""

STEP = 61
SAMPLED = {
    "rcp": "76f5e3e5d75b0fffff3b7a0ef2ce08e2a401df1514784e110616d0cfa2799c9f",
    "rsqrt": "dab1e307a823ef1adaedf88e72eabee8ec1a4120028edef2f166bb1f569db4a3",
    "sqrt": "eeaa3da71bcf8d4cd0a5f06e640525585dd40dd97c7a02af66ee6ec0b78db7c8",
    "ex2": "654b5f170fc4aa0bf7fe467fe00a47bea4ca6b629c6513fe034d036cf747c023",
    "lg2": "856b2e65582708e03859b9517b64994ba6493dfe5828f6992ab4e0abd08f2baa",
    "sin": "32156a0557cf855a8ba114a55edbe8c741006c02f91b9808403c2406d35d4975",
    "tanh": "36335a4d07d219b638675c55cbf96bbf30740c8b76bad554de0f0dfd623a8221",
}
"""SHA-256 of every `STEP`-th of the same results."""

FRACTION = 23
"""Bits of the fraction of a float32."""


def binades(*exponents: int, step: int) -> np.ndarray:
    """Every `step`-th of all float32 numbers with these exponents; one greater by 256 stands for negative numbers."""
    places = np.arange(0, len(exponents) << FRACTION, step, dtype=np.uint32)
    firsts = np.array([(e + 127) << FRACTION for e in exponents], np.uint32)
    return firsts[places >> FRACTION] | places & np.uint32((1 << FRACTION) - 1)


def quarter(step: int) -> np.ndarray:
    """Every `step`-th angle of a quarter of a turn in steps of 2**-25, as float32."""
    angles = np.arange(0, 1 << FRACTION, step, dtype=np.uint32)
    return (angles.astype(np.float32) * np.float32(2.0**-25)).view(np.uint32)


ARGUMENTS: dict[str, Callable[[int], np.ndarray]] = {
    "rcp": lambda step: binades(0, step=step),
    "rsqrt": lambda step: binades(0, 1, step=step),
    "sqrt": lambda step: binades(0, 1, step=step),
    "ex2": lambda step: binades(0, -1 + 256, step=step),
    "lg2": lambda step: binades(-1, 0, step=step),
    "sin": quarter,
    "tanh": lambda step: binades(*range(-8, 4), step=step),
}


def computed(name: str, arguments: np.ndarray) -> np.ndarray:
    function = ArrayFunction(getattr(special_functions, f"unit_{name}"), (), ((32, False),), 32)
    return function.compiled(len(arguments), arguments)


def digest(results: np.ndarray) -> str:
    return hashlib.sha256(results.astype("<u4").tobytes()).hexdigest()


@pytest.mark.slow  # 2^23 to 12 * 2^23 inputs each
@pytest.mark.parametrize("name", H100)
def test_every_result_is_that_of_an_h100(name: str) -> None:
    results = computed(name, ARGUMENTS[name](1))
    assert digest(results) == H100[name]
    assert digest(results[::STEP]) == SAMPLED[name]
    results[123456] ^= 1
    assert digest(results) != H100[name], "a changed last bit is detected"


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SAMPLED)
def test_every_61st_result_is_that_of_an_h100(name: str) -> None:
    """That is more than two thousand results of each segment."""
    results = computed(name, ARGUMENTS[name](STEP))
    assert digest(results) == SAMPLED[name]
    results[1234] ^= 1
    assert digest(results) != SAMPLED[name], "a changed last bit is detected"


def test_the_cosine_is_the_sine_of_the_rest_of_a_quarter_turn() -> None:
    angles = np.arange(0, 1 << 23, 37, dtype=np.uint32)
    turns = quarter(37)
    left = ((angles ^ np.uint32(0x7FFFFF)).astype(np.float32) * np.float32(2.0**-25)).view(np.uint32)
    # The cosine counts back from a quarter turn: the angle's bits are inverted.
    np.testing.assert_array_equal(computed("cos", turns), computed("sin", left))


@pytest.mark.parametrize(("fraction", "expected"), [(0, 1 << 24), (0x400000, 0xAAAAAB), (0x7FFFFF, 0x800001)])
def test_some_reciprocals(fraction: int, expected: int) -> None:
    """The reciprocals of 1, of 1.5 and of the last number below 2."""
    assert hex(special_functions.reciprocal_significand(fraction)) == hex(expected)


def test_the_square_leaves_out_partial_products_of_little_weight() -> None:
    """Both versions, array and scalar, equal the sum of all partial products of bits with a weight of 2**19 or more."""
    x = np.arange(1 << hopper.STEP_BITS)
    bits = [x >> i & 1 for i in range(hopper.STEP_BITS)]
    pairs = [(i, j, i + j + (i != j)) for i in range(hopper.STEP_BITS) for j in range(i + 1)]
    square = sum((bits[i] & bits[j]) << weight for i, j, weight in pairs if weight >= hopper.SQUARE_CUT)
    function = ArrayFunction(interpolator.square_of_steps, (), ((32, False),), 32)
    assert (function.compiled(len(x), x.astype(np.uint32)) == square >> hopper.SQUARE_CUT).all()
    widths = hopper.STEP_BITS, hopper.SQUARE_CUT
    assert [interpolator.truncated_square(int(n), *widths) for n in x[::977]] == (square[::977] >> widths[1]).tolist()


def test_the_model_is_small() -> None:
    """It holds coefficients, 640 segments of about 54 bits, and not the results of more than 2**32 inputs."""
    tables = [t for name, t in vars(hopper).items() if name.endswith(("_CONSTANT", "_SLOPE", "_CURVE"))]
    assert len(tables) == 21
    assert sum(map(len, tables)) == 3 * 640
    assert sum(max(n.bit_length() for n in t) * len(t) for t in tables) < 8 * 4608
