"""Measure products of tensor cores: `python -m tests.benchmarks.products [--seconds 1]`.

Prints, for formats and shapes of instructions, how many products a processor second the definition gives
(`tensorcore.dot`) and how many the processor's vectors (`tensorcore_vectors.dot`), and their ratio, which another load
of the machine changes little. Both run on the same tiles, and their results are compared.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from ptxdiff.emulator.numeric import tensorcore, tensorcore_vectors
from ptxdiff.emulator.numeric.tensorcore import FLOATS, MODELS, Model
from ptxdiff.emulator.numeric.vectorise import Array

SHAPES = {"mma": (512, 16, 8), "wgmma": (32, 64, 128), "tcgen05.mma": (1, 128, 128)}
"""Tiles of one call, rows and columns: of 128 blocks of four warps, of 32 blocks, and of one block."""
TYPES: dict[str, tuple[str, Model]] = {
    "f16": ("f16", MODELS["Hopper"]["f16"]), "bf16": ("bf16", MODELS["Hopper"]["f16"]),
    "tf32": ("tf32", MODELS["Hopper"]["tf32"]), "e4m3": ("e4m3", Model(25, 32, -133, -21)),
}  # fmt: skip


def codes(rng: np.random.Generator, kind: str, shape: tuple[int, int, int]) -> Array:
    """Codes of normal numbers within a few powers of two of 1."""
    of = FLOATS[kind]
    field = of.bias + rng.integers(-3, 4, shape)
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


def main(words: list[str] | None = None) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.products", description=__doc__.partition(":")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="processor seconds of each measurement")
    given = parser.parse_args(words)
    print(f"{'million products a processor second':<36}{'definition':>12}{'vectors':>10}{'ratio':>8}")
    for kind, (name, model) in TYPES.items():
        for instruction, (tiles, m, n) in SHAPES.items():
            rng, k, types = np.random.default_rng(0), model.terms, ("f32", name, name, "f32")
            shapes = ((tiles, m, k), (tiles, k, n), (tiles, m, n))
            a, b, c = (codes(rng, x, shape) for x, shape in zip(types[1:], shapes, strict=True))
            if not np.array_equal(tensorcore.dot(a, b, c, types, model), tensorcore_vectors.dot(a, b, c, types, model)):
                raise SystemExit(f"{kind}, {instruction}: results differ")
            ways = (tensorcore.dot, tensorcore_vectors.dot)
            rates = [rate(partial(way, a, b, c, types, model), tiles * m * n * k, given.seconds) for way in ways]
            label = f"{kind}, {m} x {n} x {k}, {tiles} tiles ({instruction})"
            print(f"{label:<44}{rates[0] / 1e6:>6.0f}{rates[1] / 1e6:>10.0f}{rates[1] / rates[0]:>8.1f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
