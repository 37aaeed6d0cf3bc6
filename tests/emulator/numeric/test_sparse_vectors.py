"""Products with a sparse matrix in vectors have the bits of the definition: each row a tile of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.kernel import products_in_vectors
from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.kernel.warp import sparse_mma
from ptxdiff.emulator.numeric import sparse_vectors, tensorcore
from ptxdiff.emulator.numeric.tensorcore import Model
from tests.emulator.numeric.test_tensorcore_vectors import FORMS, SAMPLE, codes

PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (3, 1), (1, 0)])
"""Of four columns, those of the two stored elements; wgmma takes them in any order."""


def columns(rng: np.random.Generator, shape: tuple[int, int, int]) -> Any:
    tiles, rows, stored = shape
    chosen = PAIRS[rng.integers(0, len(PAIRS), (tiles, rows, stored // 2))]
    return (chosen + 4 * np.arange(stored // 2)[:, None]).reshape(shape)


def definition(how: Any, a: Any, b: Any, c: Any, where: Any) -> Any:
    """By `tensorcore.dot`, which `sparse_mma.multiplied` reaches through vectors."""
    tiles, rows, stored = a.shape
    met = b[np.arange(tiles)[:, None, None], where].reshape(tiles * rows, stored, -1)
    each = [a.reshape(tiles * rows, 1, stored), met, c.reshape(tiles * rows, 1, -1)]
    laid = [np.ascontiguousarray(x) for x in each]
    return tensorcore.dot(laid[0], laid[1], laid[2], how.types, how.model).reshape(c.shape)


def hold(model: Model, types: tuple[str, str, str, str]) -> int:
    """Compare tile by tile, as one with a NaN is left to the definition, and those that are not together; how many."""
    how, used = Arithmetic(types, "blocks", model), 0
    for tiles, m, n, stored in ((35, 16, 8, model.terms), (14, 5, 24, 2 * model.terms), (7, 4, 16, model.terms // 2)):
        rng = np.random.default_rng(n)
        a, b = codes(rng, types[1], (tiles, m, stored)), codes(rng, types[2], (tiles, 2 * stored, n))
        c, where = codes(rng, types[3], (tiles, m, n)), columns(rng, (tiles, m, stored))
        wanted, some = definition(how, a, b, c, where), []
        for t in range(tiles):
            one = slice(t, t + 1)
            got = sparse_vectors.multiplied(a[one], b[one], c[one], where[one], types, model)
            if got is not None:
                some.append(t)
                np.testing.assert_array_equal(got[0], wanted[t])
        got = sparse_vectors.multiplied(a[some], b[some], c[some], where[some], types, model)
        assert got is not None
        np.testing.assert_array_equal(got, wanted[some])
        used += len(some)
    return used


@pytest.mark.sample(2)
@pytest.mark.parametrize(("model", "types"), SAMPLE[:-1], ids=lambda x: "-".join(x) if isinstance(x, tuple) else "")
def test_bits_are_those_of_the_definition(model: Model, types: tuple[str, str, str, str]) -> None:
    """A block of stored elements, two, and a part of one."""
    assert hold(model, types) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(FORMS)))
def test_bits_of_every_model_and_format(number: int) -> None:
    """Every model, pair of formats and accumulator. Slow: it compiles two functions each."""
    model, types = FORMS[number]
    if model.terms > 4 and (types[0], types[3]) != ("f16", "f32"):
        hold(model, types)


def test_an_accumulator_of_zero_cuts_small_products() -> None:
    """Its exponent is that of zero terms: what products have below 2^-158 is lost, and their sum is below 2^-148."""
    model, types = SAMPLE[2]
    where, c = columns(np.random.default_rng(0), (1, 1, 16)), np.zeros((1, 1, 16), np.uint32)
    a = np.full((1, 1, 16), 0x1F80, np.uint32)  # 2^-64
    b = np.full((1, 32, 16), 0x137F, np.uint32)  # products of 2^-152 - 2^-160
    b[0, where[0, 0, 0]] = 0x1388  # 2^-152 + 2^-156
    got = sparse_vectors.multiplied(a, b, c, where, types, model)
    assert got is not None
    np.testing.assert_array_equal(got, definition(Arithmetic(types, "blocks", model), a, b, c, where))
    assert (got == 1).all()


def test_a_wider_accumulator_than_the_result_is_left_to_the_definition() -> None:
    model, given = SAMPLE[0][0], [np.zeros(shape, np.uint32) for shape in ((1, 1, 16), (1, 32, 8), (1, 1, 8))]
    where = columns(np.random.default_rng(0), (1, 1, 16))
    for types, left in ((("f16", "f16", "f16", "f32"), True), (("f16", "f16", "f16", "f16"), False)):
        assert (sparse_vectors.multiplied(*given, where, types, model) is None) == left


@pytest.mark.parametrize("special", ["a", "b", "c"])
def test_a_nan_is_left_to_the_definition(special: str) -> None:
    model, types = SAMPLE[0]
    rng = np.random.default_rng(3)
    given = {"a": rng.integers(0, 0x7C00, (3, 4, 16)), "b": rng.integers(0, 0x7C00, (3, 32, 8))}
    given["c"] = rng.integers(0, 0x7F000000, (3, 4, 8))
    tiles = {name: x.astype(np.uint32) for name, x in given.items()}
    tiles[special][1, 2, 3] = 0x7FC00000 if special == "c" else 0x7E00
    where = columns(rng, (3, 4, 16))
    assert sparse_vectors.multiplied(tiles["a"], tiles["b"], tiles["c"], where, types, model) is None


@pytest.mark.parametrize("word", ["", "satfinite"])
@pytest.mark.parametrize("kinds", [("s8", "s8"), ("u8", "s8"), ("u8", "u8"), ("s4", "u4")])
def test_integers(kinds: tuple[str, str], word: str) -> None:
    """Exact sums, of the least and the greatest numbers too, with and without saturation."""
    rng, most = np.random.default_rng(5), 256 if kinds[0][1] == "8" else 16
    a, b = (
        rng.choice([0, 1, most // 2 - 1, most // 2, most - 1], s).astype(np.uint8) for s in ((6, 4, 32), (6, 64, 8))
    )
    c = rng.choice(np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 12345], np.uint32), (6, 4, 8))
    where, how = columns(rng, (6, 4, 32)), Arithmetic(("s32", *kinds, "s32"), "integers", word=word)
    got = products_in_vectors.sparse(how, a, b, c, where, sparse_mma.multiplied)
    left, right = (
        x.astype(np.int64) - (x >= most // 2) * most * (k[0] == "s") for x, k in zip((a, b), kinds, strict=True)
    )
    met = right[np.arange(6)[:, None, None], where]
    total = (left[..., None] * met).sum(axis=2) + c.view(np.int32)
    if word:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    np.testing.assert_array_equal(got, (total & 0xFFFFFFFF).astype(np.uint32))
    np.testing.assert_array_equal(got, sparse_mma.multiplied(how, a, b, c, where))
