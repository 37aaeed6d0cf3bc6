"""Block-scaled products of the emulator compared with the independent reference, on inputs where they could differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ptxdiff.emulator.numeric import scaledproducts
from ptxdiff.emulator.numeric.scaledproducts import BLACKWELL
from ptxdiff.references import scaled_matrices, scaled_tensor_core
from ptxdiff.references.formats import E2M1, E2M3, E3M2, E4M3, E5M2, UE8M0

FORMATS = {"e4m3": E4M3, "e5m2": E5M2, "e2m3": E2M3, "e3m2": E3M2, "e2m1": E2M1}
M, N = 32, 16
KINDS = [
    *(("mxf8f6f4", x, y, "ue8m0", 32) for x, y in zip(FORMATS, ["e5m2", "e4m3", "e2m1", "e2m3", "e3m2"], strict=True)),
    ("mxf4", "e2m1", "e2m1", "ue8m0", 32),
    ("mxf4nvf4", "e2m1", "e2m1", "ue8m0", 16),
    ("mxf4nvf4", "e2m1", "e2m1", "ue4m3", 16),
]
EDGES = ["any", "sparse", "cancelling", "ties", "extreme scales", "subnormal", "nan scales", "specials"]
Operands = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def drawn(known: tuple[str, str, str, str, int], edge: str) -> Operands:
    """Codes of a (m x k), b (n x k), their scales and the accumulator."""
    kind, a_type, b_type, scale, block = known
    rng = np.random.default_rng([KINDS.index(known), EDGES.index(edge)])
    k = 32 if kind == "mxf8f6f4" else 64
    found = []
    for name, rows in ((a_type, M), (b_type, N)):
        codes = rng.integers(0, 1 << FORMATS[name].code_bits, (rows, k))
        if edge != "specials":
            codes[(codes & 0x7F) > {"e4m3": 0x7E, "e5m2": 0x7B}.get(name, 0x7F)] = 0
        if edge == "sparse":
            codes[rng.random(codes.shape) < 0.95] = 0
        found.append(codes)
    a, b = found
    spread = {"extreme scales": 127, "ties": 13, "cancelling": 18}.get(edge, 4)
    shapes = ((M, k // block), (N, k // block))
    x, y = (
        rng.integers(127 - spread, 128 + spread, s) if scale == "ue8m0" else rng.integers(0, 0x7F, s) for s in shapes
    )
    c = rng.standard_normal((M, N)).astype(np.float32) * np.exp2(rng.integers(-spread, spread, (M, N)))
    codes = c.astype(np.float32).view(np.uint32).astype(np.int64)
    if edge == "cancelling":  # pairs of opposite products; the remaining sum is far smaller
        a[:, 1::2] = a[:, ::2] ^ 1 << FORMATS[a_type].code_bits - 1
        b[:, 1:-4:2] = b[:, :-4:2]
    elif edge == "ties":  # two terms, whose bits reach the place where terms are cut
        a[:, 2:], b[:, 2:] = 0, 0
    elif edge == "subnormal":
        x, y = (v * 0 + rng.integers(0, 60, v.shape) if scale == "ue8m0" else v & 7 for v in (x, y))
        codes = codes & 0x807FFFFF
    elif edge == "nan scales":
        x[rng.random(x.shape) < 0.1] = 0xFF if scale == "ue8m0" else 0x7F
        y[rng.random(y.shape) < 0.1] |= 0x80 if scale == "ue4m3" else 0xFF
    elif edge == "specials":
        some = rng.random(codes.shape) < 0.3
        codes[some] = rng.choice([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F7FFFFF], some.sum())
        rows = rng.random(M) < 0.7
        a[rows] &= 0x3F if FORMATS[a_type].code_bits == 8 else 0xFF
    if edge in ("any", "sparse"):
        codes[::2] = 0
    return a, b, x, y, codes


def both(known: tuple[str, str, str, str, int], operands: Operands) -> tuple[np.ndarray, np.ndarray]:
    kind, a_type, b_type, scale, block = known
    a, b, x, y, c = operands

    def words(codes: np.ndarray, name: str = "") -> np.ndarray:
        return np.ascontiguousarray(codes << 2 if name == "e2m1" else codes).astype(np.uint32)

    got = scaledproducts.dot(
        words(a, a_type), words(b, b_type), words(c), words(x), words(y), (a_type, b_type, scale), BLACKWELL[kind]
    )
    left, right, of_a, of_b, start = (torch.from_numpy(v.astype(np.int64)) for v in operands)
    wanted = scaled_matrices.dot(
        left, right.T, of_a, of_b, start, a_format=FORMATS[a_type], b_format=FORMATS[b_type], block=block,
        scale_format=UE8M0 if scale == "ue8m0" else E4M3,
        kind=scaled_matrices.MX8 if kind == "mxf8f6f4" else scaled_matrices.FOUR,
    )  # fmt: skip
    return got.astype(np.int64), wanted.numpy()


@pytest.mark.sample(3)
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("known", KINDS, ids=lambda k: "-".join(map(str, k)))
def test_the_emulator_and_the_reference_agree(known: tuple[str, str, str, str, int], edge: str) -> None:
    got, wanted = both(known, drawn(known, edge))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.sample(3)
@pytest.mark.parametrize("known", KINDS, ids=lambda k: "-".join(map(str, k)))
def test_the_references_of_whole_matrices_and_of_single_elements_agree(known: tuple[str, str, str, str, int]) -> None:
    """`scaled_tensor_core`, written separately, computes one output of one instruction in Python's integers."""
    kind, a_type, b_type, scale, _ = known
    for edge in EDGES:
        a, b, x, y, c = (torch.from_numpy(v[:8].astype(np.int64)) for v in drawn(known, edge))
        formats = {"a_format": FORMATS[a_type], "b_format": FORMATS[b_type], "scale": scale}
        wanted = scaled_tensor_core.dot(a, b.T, c[:, :8], x, y, **formats, grouped=kind != "mxf8f6f4")
        _, whole = both(known, drawn(known, edge))
        np.testing.assert_array_equal(whole[:8, :8], wanted.numpy())


@pytest.mark.parametrize(("fraction", "zero"), [(24, -133), (26, -133), (25, -60)])
def test_the_edges_detect_other_arithmetic(fraction: int, zero: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that keeps one bit more or less, or aligns to zeros, gives other bits on these inputs."""
    monkeypatch.setitem(BLACKWELL, "mxf8f6f4", scaledproducts.ScaledModel(fraction, 1, zero))
    found = [both(KINDS[0], drawn(KINDS[0], edge)) for edge in EDGES]
    assert any((got != wanted).any() for got, wanted in found)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("fraction", "group", "zero"), [(34, 16, -139), (36, 16, -139), (35, 16, -60), (35, 8, -139)])
def test_the_edges_detect_other_sums_of_four_bit_elements(
    fraction: int, group: int, zero: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("mxf4", "mxf4nvf4"):
        monkeypatch.setitem(BLACKWELL, kind, scaledproducts.ScaledModel(fraction, group, zero))
    found = [both(known, drawn(known, edge)) for edge in EDGES for known in KINDS[-3:]]
    assert any((got != wanted).any() for got, wanted in found)
