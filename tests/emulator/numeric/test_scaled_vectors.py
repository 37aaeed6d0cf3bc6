"""Block-scaled products in vectors have the bits of the definition, `scaledproducts._dot`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.numeric import scaled_vectors, scaledproducts
from ptxdiff.emulator.numeric.scaledproducts import BLACKWELL
from tests.emulator.numeric.test_tensorcore_vectors import codes

NARROW = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
FP4 = [("mxf4", "ue8m0", 2), ("mxf4nvf4", "ue4m3", 4), ("mxf4nvf4", "ue8m0", 2), ("mxf4nvf4", "ue8m0", 4)]
SAMPLE = [("mxf8f6f4", ("e4m3", "e4m3", "ue8m0"), 32, 1), ("mxf8f6f4", ("e5m2", "e2m1", "ue8m0"), 32, 1)]
SAMPLE += [(kind, ("e2m1", "e2m1", scale), 64, blocks) for kind, scale, blocks in FP4]
OTHERS = [("mxf8f6f4", (*pair, "ue8m0"), k, 1) for pair in itertools.product(NARROW, repeat=2) for k in (32, 64)]


def scales(rng: np.random.Generator, kind: str, tiles: int, rows: int, blocks: int) -> Any:
    """Codes of scales: any, within some powers of two of 1, one, and the smallest."""
    middle = 127 if kind == "ue8m0" else 56
    shape = tiles, rows, blocks
    ways = [rng.integers(0, 256, shape), middle + rng.integers(-9, 10, shape), np.full(shape, middle)]
    ways.append(rng.integers(0, 9, shape))
    return np.ascontiguousarray(np.choose(rng.integers(0, 4, (tiles, 1, 1)), ways).astype(np.uint32))


def operands(
    rng: np.random.Generator, types: tuple[str, str, str], shape: tuple[int, int, int, int], k: int
) -> list[Any]:
    tiles, m, n, blocks = shape
    b = np.ascontiguousarray(codes(rng, types[1], (tiles, k, n)).transpose(0, 2, 1))
    c = codes(rng, "f32", (tiles, m, n))
    return [codes(rng, types[0], (tiles, m, k)), b, c, *(scales(rng, types[2], tiles, x, blocks) for x in (m, n))]


def hold(kind: str, types: tuple[str, str, str], k: int, blocks: int) -> int:
    """Compare tile by tile, and all that vectors compute together; how many these are."""
    used = 0
    for tiles, m, n in ((28, 5, 8), (14, 3, 24)):
        given = operands(np.random.default_rng(n), types, (tiles, m, n, blocks), k)
        wanted = [scaledproducts.dot(*(x[t] for x in given), types, BLACKWELL[kind]) for t in range(tiles)]
        some = []
        for t in range(tiles):
            got = scaled_vectors.dot(*(x[t : t + 1] for x in given), types, BLACKWELL[kind])
            if got is not None:
                some.append(t)
                np.testing.assert_array_equal(got[0], wanted[t])
        together = scaled_vectors.dot(*(x[some] for x in given), types, BLACKWELL[kind])
        np.testing.assert_array_equal(together, np.stack(wanted)[some])
        used += len(some)
    return used


@pytest.mark.parametrize(("kind", "types", "k", "blocks"), SAMPLE)
def test_bits_are_those_of_the_definition(kind: str, types: tuple[str, str, str], k: int, blocks: int) -> None:
    assert hold(kind, types, k, blocks) >= 15


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "types", "k", "blocks"), OTHERS)
def test_bits_of_every_pair_of_formats(kind: str, types: tuple[str, str, str], k: int, blocks: int) -> None:
    """Slow: it compiles a function for each format."""
    assert hold(kind, types, k, blocks) >= 10


@pytest.mark.parametrize(("kind", "types", "k", "blocks"), SAMPLE[:1] + SAMPLE[3:4])
@pytest.mark.parametrize("which", [2, 3, 4])
def test_a_nan_is_left_to_the_definition(
    kind: str, types: tuple[str, str, str], k: int, blocks: int, which: int
) -> None:
    """In c, or a scale of a or of b."""
    given = [np.full(s, 8, np.uint32) for s in ((2, 3, k), (2, 8, k), (2, 3, 8), (2, 3, blocks), (2, 8, blocks))]
    assert scaled_vectors.dot(*given, types, BLACKWELL[kind]) is not None
    given[which][1, 2, 0] = 0x7F800001 if which == 2 else 0xFF
    assert scaled_vectors.dot(*given, types, BLACKWELL[kind]) is None


def test_results_at_the_ends_of_float32() -> None:
    """Sums beyond the greatest number, below the least one, and between, which are truncated."""
    model, types = BLACKWELL["mxf4"], ("e2m1", "e2m1", "ue8m0")
    a, b = np.full((1, 1, 64), 7 << 2, np.uint32), np.full((1, 64, 64), 7 << 2, np.uint32)
    b[0, ::2] |= 8 << 2
    x = np.repeat(
        np.array([[[0, 0], [254, 254], [190, 1], [127, 60], [90, 90], [27, 27]]], np.uint32).reshape(6, 1, 2), 1, 1
    )
    y = np.broadcast_to(np.arange(0, 255, 4, dtype=np.uint32)[None, :, None], (6, 64, 2))
    c = np.broadcast_to(np.array([0, 1, 0x80000000, 0x7F7FFFFF] * 16, np.uint32), (6, 1, 64))
    given = [np.ascontiguousarray(v) for v in (np.repeat(a, 6, 0), np.repeat(b, 6, 0), c, x, y)]
    got = scaled_vectors.dot(*given, types, model)
    wanted = np.stack([scaledproducts.dot(*(v[t] for v in given), types, model) for t in range(6)])
    np.testing.assert_array_equal(got, wanted)
    assert {0, 0x7F800000, 0xFF800000} <= set(wanted.reshape(-1).tolist())
