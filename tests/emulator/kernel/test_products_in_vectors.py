"""Block-scaled products of one tile have the bits of the definition, and are computed in vectors where these can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.kernel import products_in_vectors
from ptxdiff.emulator.kernel.tcgen05.products import sparse_scaled_product
from ptxdiff.emulator.kernel.warp import scaled_mma, sparse_scaled_mma
from ptxdiff.emulator.numeric import scaled_vectors, scaledproducts
from ptxdiff.emulator.numeric.scaledproducts import BLACKWELL
from ptxdiff.emulator.numeric.tensorcore import FLOATS
from ptxdiff.emulator.numeric.vectorise import Array
from tests.emulator.numeric.test_scaled_vectors import OTHERS, SAMPLE, operands

PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
ROWS = 6


def columns(rng: np.random.Generator, stored: int, run: int) -> Array:
    """Of each four runs of columns, two, for each row."""
    chunks = stored // (2 * run)
    chosen = PAIRS[rng.integers(0, len(PAIRS), (ROWS, chunks))] * run
    found = chosen[..., None] + np.arange(run) + 4 * run * np.arange(chunks)[:, None, None]
    return np.asarray(found.reshape(ROWS, stored))


def tiles(types: tuple[str, str, str], k: int, blocks: int) -> list[list[Any]]:
    """a, b, c and scales of 28 tiles: any codes, and some of one kind alone."""
    given = operands(np.random.default_rng(k), types, (28, ROWS, 16, blocks), k)
    return [[x[t] for x in given] for t in range(28)]


@pytest.mark.parametrize(("kind", "types", "k", "blocks"), SAMPLE)
def test_a_dense_product(kind: str, types: tuple[str, str, str], k: int, blocks: int) -> None:
    for a, b, c, x, y in tiles(types, k, blocks):
        got = products_in_vectors.scaled(a, b, c, [x, y], types, BLACKWELL[kind])
        np.testing.assert_array_equal(got, scaledproducts.dot(a, b, c, x, y, types, BLACKWELL[kind]))


@pytest.mark.parametrize(("kind", "types", "k", "blocks"), SAMPLE)
def test_a_sparse_product(kind: str, types: tuple[str, str, str], k: int, blocks: int) -> None:
    """Of k stored columns. Most tiles have no NaN and no infinity, so the definition computes few of them."""
    rng, left = np.random.default_rng(blocks), 0

    def definition(*given: Any) -> Array:
        nonlocal left
        left += 1
        return sparse_scaled_product(*given)

    for whole, b, c, x, y in tiles(types, 2 * k, blocks):
        a, where = np.ascontiguousarray(whole[:, :k]), columns(rng, k, 1 if kind == "mxf8f6f4" else 2)
        got = products_in_vectors.sparse_scaled(a, b, c, [x, y], types, BLACKWELL[kind], where, definition)
        wanted = sparse_scaled_product(a, b, c, [x, y], types, BLACKWELL[kind], where)
        np.testing.assert_array_equal(got, wanted)
    assert left <= 16


def special(given: list[Any], types: tuple[str, str, str]) -> Array:
    """Which tiles have a NaN or an infinity, by the classes of the definition."""

    def classes(codes: Array, kind: str) -> Array:
        of = FLOATS[kind]
        parts = (of.exponent, of.fraction, of.ignored, of.special)
        return np.array([scaledproducts._decode(int(x), *parts)[2] for x in codes.ravel()]).reshape(len(codes), -1)

    found = [classes(x, kind) >= 2 for x, kind in zip(given, (*types[:2], "f32"), strict=False)]
    for x in given[3:5]:
        kinds = [scaledproducts._scale(int(v), int(types[2] == "ue4m3"))[2] for v in x.ravel()]
        found.append(np.array(kinds).reshape(len(x), -1) == 3)
    return np.any([f.any(axis=1) for f in found], axis=0)


def edges(given: list[Any], types: tuple[str, str, str]) -> list[Any]:
    """The same tiles, the first of which have scales of zero or the least, the greatest, and NaNs."""
    a, b, c, x, y = (v.copy() for v in given)
    most = 0x7E if types[2] == "ue4m3" else 0xFE
    x[0], y[1], x[2], y[2], x[3, 1], y[4, 2] = 0, 0, most, most, most + 1, most + 1
    if types[2] == "ue4m3":
        x[5] |= 0x80  # the sign of a scale is ignored, also that of a NaN
        y[6, 0] = 0xFF
    c[7], c[8, 0, 0] = 0x80000000, 0x7F800000
    return [a, b, c, x, y]


def hold_tiles(kind: str, types: tuple[str, str, str], k: int, blocks: int) -> None:
    """Compare dense and sparse products of many tiles with the definitions, which compute only tiles with specials."""
    given = edges(operands(np.random.default_rng(k), types, (28, ROWS, 16, blocks), k), types)
    seen: list[int] = []

    def dense(*some: Any) -> Array:
        seen.append(len(some[0]))
        return scaled_mma.multiplied(*some)

    a, b, c, *factors = given
    wanted = scaled_mma.multiplied(a, b, c, factors, types, BLACKWELL[kind])
    got = products_in_vectors.scaled_tiles(a, b, c, factors, types, BLACKWELL[kind], dense)
    np.testing.assert_array_equal(got, wanted)
    assert seen == [special(given, types).sum()]

    def sparse(*some: Any) -> Array:
        seen.append(len(some[0]))
        return sparse_scaled_mma.multiplied(*some)

    rng, model = np.random.default_rng(blocks), BLACKWELL[kind]
    wide, b, c, *factors = edges(operands(rng, types, (28, ROWS, 16, blocks), 2 * k), types)
    a = np.ascontiguousarray(wide[:, :, :k])
    where = np.stack([columns(rng, k, 1 if kind == "mxf8f6f4" else 2) for _ in a])
    wanted = sparse_scaled_mma.multiplied(a, b, c, factors, types, model, where)
    got = products_in_vectors.sparse_scaled_tiles(a, b, c, factors, types, model, where, sparse)
    np.testing.assert_array_equal(got, wanted)
    assert seen[1:] == [special([a, b, c, *factors], types).sum()]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "types", "k", "blocks"), SAMPLE)
def test_products_of_many_tiles(kind: str, types: tuple[str, str, str], k: int, blocks: int) -> None:
    hold_tiles(kind, types, k, blocks)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "types", "k", "blocks"), [o for o in OTHERS if o[2] == 32])
def test_products_of_many_tiles_of_every_pair(kind: str, types: tuple[str, str, str], k: int, blocks: int) -> None:
    """Slow: it compiles a function for each format."""
    hold_tiles(kind, types, k, blocks)


def test_many_tiles_without_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, types, k, blocks = SAMPLE[2]
    given = operands(np.random.default_rng(1), types, (3, 3, 8, blocks), k)
    monkeypatch.setattr(products_in_vectors, "installed", lambda name: False)
    monkeypatch.setattr(scaled_vectors, "dot", None)
    a, b, c, *factors = given
    got = products_in_vectors.scaled_tiles(a, b, c, factors, types, BLACKWELL[kind], scaled_mma.multiplied)
    np.testing.assert_array_equal(got, scaled_mma.multiplied(a, b, c, factors, types, BLACKWELL[kind]))


def test_finite_tiles_are_computed_in_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition, made unusable, is reached by a tile with a NaN alone."""
    kind, types, k, blocks = SAMPLE[3]
    given = [np.full(s, 8, np.uint32) for s in ((3, k), (8, k), (3, 8), (3, blocks), (8, blocks))]
    model = BLACKWELL[kind]
    wanted = scaledproducts.dot(*given, types, model)  # type: ignore[call-arg]

    def unusable(*given: Any) -> Array:
        raise AssertionError

    monkeypatch.setattr(scaledproducts, "dot", unusable)
    a, b, c, *factors = given
    np.testing.assert_array_equal(products_in_vectors.scaled(a, b, c, factors, types, model), wanted)
    c[0, 0] = 0x7FC00000
    with pytest.raises(AssertionError):
        products_in_vectors.scaled(a, b, c, factors, types, model)


def test_without_llvm_the_definition_computes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, types, k, blocks = SAMPLE[0]
    given = operands(np.random.default_rng(1), types, (1, 3, 8, blocks), k)
    a, b, c, x, y = (v[0] for v in given)
    monkeypatch.setattr(products_in_vectors, "installed", lambda name: False)
    monkeypatch.setattr(scaled_vectors, "dot", None)
    got = products_in_vectors.scaled(a, b, c, [x, y], types, BLACKWELL[kind])
    np.testing.assert_array_equal(got, scaledproducts.dot(a, b, c, x, y, types, BLACKWELL[kind]))
