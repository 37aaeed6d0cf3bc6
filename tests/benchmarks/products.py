"""Measure products of tensor cores: `python -m tests.benchmarks.products [--seconds 1] [--only sparse]`.

Prints, for formats and shapes of instructions, how many products a processor second the definition gives (such as
`tensorcore.dot`), how many the processor's vectors (such as `tensorcore_vectors.dot`), and their ratio, which another
load of the machine changes little. Both run on the same tiles, and their results are compared. Products with a sparse
matrix count stored elements. The definition of integers is a sum of int64; what runs is numpy's product of float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ptxdiff.emulator.kernel import products_in_vectors
from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.numeric import scaled_vectors, scaledproducts, tensorcore, tensorcore_vectors
from ptxdiff.emulator.numeric.scaledproducts import ScaledModel
from ptxdiff.emulator.numeric.tensorcore import FLOATS, MODELS, Model
from ptxdiff.emulator.numeric.vectorise import Array

SHAPES = {"mma": (512, 16, 8), "wgmma": (32, 64, 128), "tcgen05.mma": (1, 128, 128)}
"""Tiles of one call, rows and columns: of 128 blocks of four warps, of 32 blocks, and of one block."""
TYPES: dict[str, tuple[str, Model]] = {
    "f16": ("f16", MODELS["Hopper"]["f16"]), "bf16": ("bf16", MODELS["Hopper"]["f16"]),
    "tf32": ("tf32", MODELS["Hopper"]["tf32"]), "e4m3": ("e4m3", Model(25, 32, -133, -21)),
}  # fmt: skip

SCALED = [
    ("mxf8f6f4", ("e4m3", "e4m3", "ue8m0"), 32, 1), ("mxf4", ("e2m1", "e2m1", "ue8m0"), 64, 2),
    ("mxf4nvf4", ("e2m1", "e2m1", "ue4m3"), 64, 4),
]  # fmt: skip
"""Kinds of block-scaled products, their types, k, and how many scales a row has."""
INTEGERS = Arithmetic(("s32", "s8", "s8", "s32"), "integers", word="satfinite")
PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
"""Of four columns of a sparse matrix, those of the two stored elements."""


def codes(rng: np.random.Generator, kind: str, shape: tuple[int, int, int]) -> Array:
    """Codes of normal numbers within a few powers of two of 1."""
    of = FLOATS[kind]
    most = min(3, of.bias)
    field = of.bias + rng.integers(-most, most + 1, shape)
    code = rng.integers(0, 2, shape) << of.exponent + of.fraction | field << of.fraction
    return np.asarray((code | rng.integers(0, 1 << of.fraction, shape)) << of.ignored, np.uint32)


def rate(call: Callable[[], Array], products: int, seconds: float) -> float:
    """Products a processor second, of calls for so many seconds; the first call is not counted."""
    call()
    began, calls = time.process_time(), 0
    while time.process_time() - began < seconds:
        call()
        calls += 1
    return calls * products / (time.process_time() - began)


@dataclass(frozen=True)
class Row:
    """A line of the table. ways: the definition and the vectors, on the same tiles. products: of one call."""

    label: str
    ways: tuple[Callable[[], Array], Callable[[], Array]]
    products: int


def dense_rows() -> Iterator[Row]:
    """Floats, in formats that tensor cores have without scales."""
    for kind, (name, model) in TYPES.items():
        for instruction, (tiles, m, n) in SHAPES.items():
            rng, k, types = np.random.default_rng(0), model.terms, ("f32", name, name, "f32")
            shapes = ((tiles, m, k), (tiles, k, n), (tiles, m, n))
            a, b, c = (codes(rng, x, shape) for x, shape in zip(types[1:], shapes, strict=True))
            ways = [partial(way, a, b, c, types, model) for way in (tensorcore.dot, tensorcore_vectors.dot)]
            label = f"{kind}, {m} x {n} x {k}, {tiles} tiles ({instruction})"
            yield Row(label, (ways[0], ways[1]), tiles * m * n * k)


def _sum(a: Array, b: Array, c: Array) -> Array:
    """A product of int8 by its definition, saturated."""
    left, right = (x.view(np.int8).astype(np.int64) for x in (a, b))
    total = np.einsum("tik,tkj->tij", left, right) + c.view(np.int32)
    return np.clip(total, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(np.uint32)


def _rows_alone(how: Arithmetic, a: Array, b: Array, c: Array, where: Array) -> Array:
    """A product with a sparse matrix by its definition: each row is a tile."""
    tiles, rows, stored = a.shape
    met = b[np.arange(tiles)[:, None, None], where].reshape(tiles * rows, stored, -1)
    each = (a.reshape(tiles * rows, 1, stored), met, c.reshape(tiles * rows, 1, -1))
    left, right, start = (np.ascontiguousarray(x) for x in each)
    if how.model is None:
        return _sum(left, right, start).reshape(c.shape)
    return tensorcore.dot(left, right, start, how.types, how.model).reshape(c.shape)


def other_rows() -> Iterator[Row]:
    """Integers, sparse matrices, and block-scaled ones."""
    for instruction, (tiles, m, n) in SHAPES.items():
        rng, size = np.random.default_rng(0), f"{tiles} tiles ({instruction})"
        a, b = (rng.integers(0, 256, shape).astype(np.uint8) for shape in ((tiles, m, 32), (tiles, 32, n)))
        c = rng.integers(0, 1 << 32, (tiles, m, n)).astype(np.uint32)
        ways: Any = partial(_sum, a, b, c), partial(INTEGERS, a, b, c)
        yield Row(f"s8, {m} x {n} x 32, {size}", ways, tiles * m * n * 32)
        for kind, stored in (("s8", 16), ("f16", 16), ("e4m3", 32)):
            how, left, right, start = INTEGERS, a[:, :, :stored], b, c
            if kind != "s8":
                name, model = TYPES[kind]
                how = Arithmetic(("f32", name, name, "f32"), "blocks", model, "Hopper")
                left, right = codes(rng, name, (tiles, m, stored)), codes(rng, name, (tiles, 2 * stored, n))
                start = codes(rng, "f32", (tiles, m, n))
            chosen = PAIRS[rng.integers(0, len(PAIRS), (tiles, m, stored // 2))]
            where = (chosen + 4 * np.arange(stored // 2)[:, None]).reshape(tiles, m, stored)
            given = how, np.ascontiguousarray(left), right, start, where
            ways = partial(_rows_alone, *given), partial(products_in_vectors.sparse, *given, _rows_alone)
            yield Row(f"sparse {kind}, {m} x {n} x {2 * stored}, {size}", ways, tiles * m * n * stored)
        for kind, types, k, blocks in SCALED:
            one = 127 if types[2] == "ue8m0" else 56
            x, y = (rng.integers(one - 5, one + 5, (tiles, rows, blocks)).astype(np.uint32) for rows in (m, n))
            factors = [codes(rng, types[0], (tiles, rows, k)) for rows in (m, n)]
            operands = (*factors, codes(rng, "f32", (tiles, m, n)), x, y)
            ways = [partial(way, operands, types, scaledproducts.BLACKWELL[kind]) for way in (_tiles_alone, _scaled)]
            yield Row(f"{kind}, {m} x {n} x {k}, {size}", tuple(ways), tiles * m * n * k)


def _tiles_alone(operands: tuple[Array, ...], types: tuple[str, str, str], model: ScaledModel) -> Array:
    """A block-scaled product by its definition."""
    tiles = zip(*operands, strict=True)
    return np.stack([scaledproducts.dot(a, b, c, x, y, types, model) for a, b, c, x, y in tiles])


def _scaled(operands: tuple[Array, ...], types: tuple[str, str, str], model: ScaledModel) -> Array:
    """The same in vectors."""
    a, b, c, x, y = operands
    found = scaled_vectors.dot(a, b, c, x, y, types, model)
    assert found is not None
    return found


def main(words: list[str] | None = None) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.products", description=__doc__.partition(":")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="processor seconds of each measurement")
    parser.add_argument("--only", default="", help="rows whose label contains this text")
    given = parser.parse_args(words)
    print(f"{'million products a processor second':<40}{'definition':>12}{'vectors':>10}{'ratio':>8}")
    for row in (*dense_rows(), *other_rows()):
        if given.only not in row.label:
            continue
        if not np.array_equal(row.ways[0](), row.ways[1]()):
            raise SystemExit(f"{row.label}: results differ")
        rates = [rate(way, row.products, given.seconds) for way in row.ways]
        print(f"{row.label:<46}{rates[0] / 1e6:>6.0f}{rates[1] / 1e6:>10.0f}{rates[1] / rates[0]:>8.1f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
