"""Block-scaled products of one tile have the bits of the definition, and are computed in vectors where these can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.kernel import products_in_vectors
from ptxdiff.emulator.kernel.tcgen05.products import sparse_scaled_product
from ptxdiff.emulator.numeric import scaled_vectors, scaledproducts
from ptxdiff.emulator.numeric.scaledproducts import BLACKWELL
from ptxdiff.emulator.numeric.vectorise import Array
from tests.emulator.numeric.test_scaled_vectors import SAMPLE, operands

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
