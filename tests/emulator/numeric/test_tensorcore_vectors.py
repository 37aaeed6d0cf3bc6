"""Products in the processor's vectors have the bits of the definition, `tensorcore._dot`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.numeric import tensorcore, tensorcore_vectors
from ptxdiff.emulator.numeric.tensorcore import FLOATS, MODELS, Model

FACTORS: dict[str, list[Any]] = {
    "f16": [("f16", "f16"), ("bf16", "bf16")], "tf32": [("tf32", "tf32")], "volta": [("f16", "f16")],
    "f8": list(itertools.product(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"), repeat=2)),
    "wgmma f8": list(itertools.product(("e4m3", "e5m2"), repeat=2)),
}  # fmt: skip
TCGEN05 = Model(25, 32, -133, -21)
"""The model of tcgen05.mma of 8-bit floats."""


def forms() -> list[tuple[Model, tuple[str, str, str, str]]]:
    """Every model with every pair of formats, and every accumulator; widened products are those of float16."""
    found: dict[Any, None] = {}
    rows = [(model, pair) for models in MODELS.values() for kind, model in models.items() for pair in FACTORS[kind]]
    rows += [(TCGEN05, pair) for pair in FACTORS["f8"]]
    for model, pair in rows:
        for d, c in itertools.product(("f32", "f16"), repeat=2):
            found[replace(model, widened=False), (d, *pair, c)] = None
    return list(found)


FORMS = forms()
SAMPLE = [
    (MODELS["Hopper"]["f16"], ("f32", "f16", "f16", "f32")), (MODELS["Ampere"]["f16"], ("f16", "f16", "f16", "f16")),
    (MODELS["Hopper"]["f16"], ("f32", "bf16", "bf16", "f32")),
    (MODELS["Hopper"]["tf32"], ("f32", "tf32", "tf32", "f32")),
    (MODELS["Hopper"]["wgmma f8"], ("f32", "e4m3", "e5m2", "f32")), (TCGEN05, ("f16", "e5m2", "e2m1", "f32")),
]  # fmt: skip


def codes(rng: np.random.Generator, kind: str, shape: tuple[int, int, int]) -> Any:
    """Codes of tiles: any, with exponents in a small window, one magnitude, the smallest, mostly zeros, and with a
    special one here and there."""
    of = FLOATS[kind]
    bits, most = of.exponent + of.fraction + 1, (1 << of.exponent) - 1
    found = rng.integers(0, 1 << bits, shape)
    sign, fraction = found & 1 << bits - 1, found & (1 << of.fraction) - 1
    for tile in range(shape[0]):
        how = tile % 7
        if how in (1, 2, 3):
            first = (rng.integers(1, max(most - 5, 2)), most // 2, 0)[how - 1]
            window = np.minimum(first + rng.integers(0, (5, 1, 2)[how - 1], shape[1:]), most - 1)
            found[tile] = sign[tile] | window << of.fraction | fraction[tile]
        elif how == 4:
            found[tile, rng.random(shape[1:]) < 0.7] &= 1 << bits - 1
        elif how == 5:
            found[tile] = np.where(rng.random(shape[1:]) < 0.02, found[tile], sign[tile] | (most // 2) << of.fraction)
        elif how == 6:
            found[tile] = found[tile, :1, :1] & ~(1 << bits - 1) | sign[tile]
    return (found << of.ignored | rng.integers(0, 1 << of.ignored, shape)).astype(np.uint32)


def hold(model: Model, types: tuple[str, str, str, str], tiles: int, m: int, n: int, k: int) -> None:
    """Compare with the definition, and with itself on tiles that have no special code, which vectors compute."""
    rng = np.random.default_rng(k * n)
    a, b, c = (
        codes(rng, types[1], (tiles, m, k)),
        codes(rng, types[2], (tiles, k, n)),
        codes(rng, types[3], (tiles, m, n)),
    )
    got = tensorcore_vectors.dot(a, b, c, types, model)
    wanted = tensorcore.dot(a, b, c, types, model)
    assert got.dtype == wanted.dtype
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, wanted)


SHAPES = [(35, 16, 8, 0), (7, 5, 16, 0), (7, 8, 40, 1), (21, 1, 32, -2), (14, 3, 3, 3)]
"""Tiles, rows, columns, and how many terms more than a block has."""


@pytest.mark.sample(3)
@pytest.mark.parametrize(("model", "types"), SAMPLE, ids=lambda x: "-".join(x) if isinstance(x, tuple) else "")
def test_bits_are_those_of_the_definition(model: Model, types: tuple[str, str, str, str]) -> None:
    """Some models and formats: one block, a part of one, and more than one."""
    for tiles, m, n, more in SHAPES:
        hold(model, types, tiles, m, n, model.terms + more)


@pytest.mark.parametrize(
    ("model", "types"), [*SAMPLE, (MODELS["Ampere"]["f16"], ("f32", "f16", "f16", "f32"))],
    ids=lambda x: "-".join(x) if isinstance(x, tuple) else "",
)  # fmt: skip
def test_the_greatest_sums(model: Model, types: tuple[str, str, str, str]) -> None:
    """All terms and c have the greatest significand and one sign; and exponents down to those that vanish beside them.

    So a sum needs all bits that integers of the vectors have, and a shift is as far as it can be.
    """
    shapes = ((1024, 1, model.terms), (1024, model.terms, 16), (1024, 1, 16))
    found = []
    for kind, shape, bit in zip(types[1:], shapes, (1, 2, 4), strict=True):
        of, tile = FLOATS[kind], np.arange(1024)[:, None, None]
        most = (1 << of.exponent) - (2 if of.special == 2 else 1)
        field = np.array([most, most // 2, most // 2 - 1, 1, 0])[tile // 8 % 5 if bit < 4 else tile // 40 % 5]
        field = np.maximum(field + (tile // 200 if bit == 4 and of.exponent == 8 else 0), 0) % (most + 1)
        low = (1 << of.fraction) - (2 if of.special == 1 else 1)
        code = field << of.fraction | low | ((tile & bit) != 0) << of.exponent + of.fraction
        found.append((np.broadcast_to(code, shape) << of.ignored).astype(np.uint32))
    a, b, c = found
    np.testing.assert_array_equal(tensorcore_vectors.dot(a, b, c, types, model), tensorcore.dot(a, b, c, types, model))


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
@pytest.mark.parametrize("generation", ["Ampere", "Hopper"])
def test_sums_that_a_float32_would_round_up(generation: str, kind: str) -> None:
    """All bits of a sum are ones, more than a float32 has. c, which has the first of them, is the result."""
    model, of = MODELS[generation]["tf32" if kind == "tf32" else "f16"], FLOATS[kind]
    small = (of.bias - 12) << of.fraction
    a, b = np.zeros((2, 1, model.terms), np.uint32), np.zeros((2, model.terms, 16), np.uint32)
    a[:, :, 0], b[:, 0] = (small | 1 << of.fraction - 1) << of.ignored, small << of.ignored
    a[1] |= np.uint32(1 << of.exponent + of.fraction + of.ignored)
    c = np.broadcast_to(np.array([0x3FFFFFFF, 0xBFFFFFFF], np.uint32)[:, None, None], (2, 1, 16)).copy()
    types = ("f32", kind, kind, "f32")
    np.testing.assert_array_equal(tensorcore_vectors.dot(a, b, c, types, model), c)
    np.testing.assert_array_equal(tensorcore.dot(a, b, c, types, model), c)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(FORMS)))
def test_bits_of_every_model_and_format(number: int) -> None:
    """Every model, pair of formats and accumulator. Slow: it compiles four functions each."""
    model, types = FORMS[number]
    for tiles, m, n, more in SHAPES:
        hold(model, types, 6 * tiles, m, n, model.terms + more)


def test_a_kernel_of_tiles_with_specials_and_without() -> None:
    """A NaN or an infinity in one tile, in a, b or c, changes that tile alone."""
    model, types = SAMPLE[0]
    rng = np.random.default_rng(1)
    a, b = (
        rng.standard_normal(s).astype(np.float16).view(np.uint16).astype(np.uint32) for s in ((40, 4, 16), (40, 16, 8))
    )
    c = rng.standard_normal((40, 4, 8)).astype(np.float32).view(np.uint32)
    plain = tensorcore_vectors.dot(a, b, c, types, model)
    a[3, 1, 5], b[17, 2, 7], c[33, 0, 0], c[39, 3, 7] = 0x7C00, 0xFE00, 0xFF800000, 0x7FC00001
    got = tensorcore_vectors.dot(a, b, c, types, model)
    np.testing.assert_array_equal(got, tensorcore.dot(a, b, c, types, model))
    changed = np.unique(np.nonzero(got != plain)[0])
    assert changed.tolist() == [3, 17, 33, 39]


def test_an_overflow_in_a_block_reaches_the_next() -> None:
    """The infinity that a block gives is special for the next, although no operand is."""
    model, types = MODELS["Ampere"]["f16"], ("f16", "f16", "f16", "f16")
    a, b = np.full((2, 3, 16), 0x7BFF, np.uint32), np.full((2, 16, 16), 0x7BFF, np.uint32)
    b[:, 8:] |= 0x8000
    c = np.zeros((2, 3, 16), np.uint32)
    got = tensorcore_vectors.dot(a, b, c, types, model)
    np.testing.assert_array_equal(got, tensorcore.dot(a, b, c, types, model))
    assert (got == 0x7C00).all()


@pytest.mark.parametrize("mistake", ["rounded", "truncated", "decoded", "max"])
def test_wrong_machine_code_is_not_used(mistake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Vectors whose results differ from the definition's are found before their first use, and the definition runs."""
    model, types = SAMPLE[1] if mistake == "rounded" else SAMPLE[0]
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))
    code, right = tensorcore_vectors._Code, getattr(tensorcore_vectors._Code, mistake)

    def wrong(self: Any, *given: Any) -> Any:
        found = right(self, *given)
        if mistake == "decoded":  # subnormal codes get the power of the normal ones above them, plus 1
            size, minus, power, special = found
            small = self.b.icmp_signed("<", size, tensorcore_vectors._all(1 << given[1].fraction))
            return size, minus, self.b.add(power, self.b.zext(small, power.type)), special
        if mistake == "max":
            return given[0] if given[0].type == tensorcore_vectors._INTS else found
        return self.b.xor(found, tensorcore_vectors._all(1))

    monkeypatch.setattr(code, mistake, wrong)
    caches = (tensorcore_vectors._preparation, tensorcore_vectors._multiplication, tensorcore_vectors._right)
    for cached in caches:
        cached.cache_clear()
    rng = np.random.default_rng(0)
    a, b, c = (codes(rng, kind, (7, 16, 16)) for kind in types[1:])
    try:
        with pytest.warns(RuntimeWarning, match="gives wrong results"):
            got = tensorcore_vectors.dot(a, b, c, types, model)
    finally:
        for cached in caches:
            cached.cache_clear()
    np.testing.assert_array_equal(got, tensorcore.dot(a, b, c, types, model))


def test_tensor_cores_use_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instructions run what these tests hold to the definition."""
    used = []

    def dot(a: Any, b: Any, c: Any, types: Any, model: Any) -> Any:
        used.append(types)
        return c

    monkeypatch.setattr(tensorcore_vectors, "dot", dot)
    zeros = np.zeros((1, 16, 16), np.uint32)
    model, types = SAMPLE[0]
    Arithmetic(types, "blocks", model)(zeros, zeros, zeros)
    assert used == [types]
