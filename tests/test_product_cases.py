"""Check the expected results of the cases of whole products with float64 computations, independent of tensor cores."""

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
import triton

from cases._host.products import across_lanes
from ptxdiff.model.load import load

CASES = Path(__file__).parent.parent / "cases"
BOUND = 2.0**-6  # as cases/block_scaled_matmul.py derives it


def numbers(shape, seed, spread=1.0):
    """float16 numbers, and their codes."""
    x = (np.random.default_rng(seed).normal(size=shape) * spread).astype(np.float16)
    return x.astype(np.float64), torch.from_numpy(x.view(np.uint16).astype(np.int64))


def float32(codes):
    return codes.numpy().astype(np.uint32).view(np.float32).astype(np.float64)


def softmax_attention(q, k, v):
    """Softmax attention by its definition."""
    scores = q @ k.T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights @ v / weights.sum(1, keepdims=True)


def references(case, variant):
    """The variant's reference, and those that it has instead on some targets, each once."""
    own = case.variants[variant]
    on_targets = {d.reference: target for target, d in (own.differs or {}).items() if not isinstance(d, str)}
    return {"": own.reference or case.reference} | {target: found for found, target in on_targets.items()}


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["", "sm_75", "sm_89"])
@pytest.mark.parametrize("keys", [32, 96])
def test_attention_is_softmax_of_the_scaled_scores_times_the_values(keys, target):
    reference = references(load(CASES / "attention.py")[0].case, "asm")[target]
    (q, qc), (k, kc), (v, vc) = (numbers((n, 32), seed) for seed, n in enumerate((32, keys, keys)))
    expected = softmax_attention(q, k, v)
    assert np.abs(float32(reference(qc, kc, vc)) - expected).max() < 2e-3  # weights have 11 bits
    assert np.abs(float32(reference(qc, kc, vc.flip(0))) - expected).max() > 0.1
    assert np.abs(float32(reference(qc, kc, vc)) - softmax_attention(2 * q, k, v)).max() > 0.1


def test_rows_without_a_number_give_nan_and_an_infinite_score_has_all_weight():
    reference = load(CASES / "attention.py")[0].case.reference
    (_, q), (_, k), (v, vc) = (numbers((32, 32), seed) for seed in range(3))
    q[3] = 0x7E00
    q[5], k[7] = 0, 0
    q[5, 0], k[7, 0] = 0x7BFF, 0x7BFF  # 65504 squared is far above all other scores
    out = float32(reference(q, k, vc))
    assert np.isnan(out[3]).all()
    np.testing.assert_allclose(out[5], v[7], rtol=1e-6)


@pytest.mark.parametrize("target", ["", "sm_75", "sm_89"])
def test_a_product_with_int4_is_the_product_with_their_numbers(target):
    case = load(CASES / "matmul_int4.py")[0].case
    reference = references(case, "lop3")[target]
    a, codes = numbers((5, 48), 1)
    words = np.random.default_rng(2).integers(0, 1 << 16, size=(48, 3))
    weights = np.stack([(words >> 4 * k & 15) - 8 for k in range(4)], -1).reshape(48, 12)
    found = float32(reference(codes, torch.from_numpy(words)))
    np.testing.assert_allclose(found, a @ weights, atol=1e-3)
    assert np.abs(found - a @ weights[:, ::-1]).max() > 1


@pytest.mark.parametrize(
    ("name", "target"),
    [("e4m3", ""), ("e4m3", "sm_89"), ("e4m3", "sm_121a"), ("e5m2", ""), ("e5m2", "sm_75"), ("e5m2", "sm_88")],
)
def test_products_of_8_bits_are_products_of_their_numbers(name, target):
    case = next(c for c in load(CASES / "matmul_fp8.py") if c.attribute == name).case
    reference = references(case, "tiles-of-64")[target]
    kind = ml_dtypes.float8_e4m3fn if name == "e4m3" else ml_dtypes.float8_e5m2
    a, b = (np.random.default_rng(s).normal(size=size).astype(kind) for s, size in enumerate([(8, 32), (32, 8)]))
    codes = [torch.from_numpy(x.view(np.uint8).astype(np.int64)) for x in (a, b)]
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(float32(reference(*codes)) - wanted).max() < 0.02  # 13 fraction bits of the largest term
    assert np.abs(float32(reference(codes[0].roll(1, 1), codes[1])) - wanted).max() > 0.1


@pytest.mark.parametrize("width", [2, 4, 8])
def test_mma_takes_two_neighbours_of_each_lane_at_a_time(width):
    """By the figures of the PTX ISA: columns 2t, 2t + 1 and 2t + 8, 2t + 9 of m16n8k16 are lane t's."""
    taken = []
    for start in range(0, 128, 8 * width):
        held = {t: [start + h * 4 * width + t * width + e for h in (0, 1) for e in range(width)] for t in range(4)}
        for first in range(0, width, 2):
            columns = {}
            for t, e in itertools.product(range(4), (0, 1)):
                columns[2 * t + e] = held[t][first + e]
                columns[2 * t + e + 8] = held[t][width + first + e]
            taken += [columns[c] for c in range(16)]
    assert across_lanes(128, width).tolist() == taken
    assert sorted(taken) == list(range(128))
    assert (taken == list(range(128))) == (width == 2)


E2M1_SIZES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def dequantised(name, codes, scales):
    """The numbers that elements and scales stand for."""
    if name == "mxfp8":
        return codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64) * 2.0 ** (scales.repeat(32, 1) - 127.0)
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
    numbers = np.where(nibbles & 8, -1, 1) * E2M1_SIZES[nibbles & 7]
    return numbers * scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64).repeat(16, 1)


@pytest.mark.parametrize("variant", ["dot_scaled", "dequantised"])
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_block_scaled_products_are_products_of_the_dequantised_numbers_on_every_target(name, variant):
    file = next(c for c in load(CASES / "block_scaled_matmul.py") if c.attribute == f"{name}_matmul")
    given = file.case.generate(file.case.sizes[0], np.random.default_rng(5))
    left, right = dequantised(name, given["a"], given["x"]), dequantised(name, given["b"], given["y"])
    codes = [torch.from_numpy(given[n].astype(np.int64)) for n in file.case.inputs]
    found = {t: f(*codes) for t, f in references(file.case, variant).items()}
    for target, d in found.items():
        assert np.abs(float32(d) - left @ right.T).max() < BOUND, target
        assert np.abs(float32(d) - np.roll(left, 1, 1) @ right.T).max() > 1, target
    assert len(found) == 3 or triton.__version__.startswith("3.6.")
