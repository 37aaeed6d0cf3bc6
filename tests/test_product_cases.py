"""Check the expected results of the cases of whole products with float64 computations, independent of tensor cores."""

from pathlib import Path

import numpy as np
import pytest
import torch

from harness.model.load import load

CASES = Path(__file__).parent.parent / "cases"


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


@pytest.mark.parametrize("keys", [32, 96])
def test_attention_is_softmax_of_the_scaled_scores_times_the_values(keys):
    reference = load(CASES / "attention.py")[0].case.reference
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


def test_a_product_with_int4_is_the_product_with_their_numbers():
    case = load(CASES / "matmul_int4.py")[0].case
    a, codes = numbers((5, 48), 1)
    words = np.random.default_rng(2).integers(0, 1 << 16, size=(48, 3))
    weights = np.stack([(words >> 4 * k & 15) - 8 for k in range(4)], -1).reshape(48, 12)
    found = float32(case.reference(codes, torch.from_numpy(words)))
    np.testing.assert_allclose(found, a @ weights, atol=1e-3)
    assert np.abs(found - a @ weights[:, ::-1]).max() > 1


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_products_of_8_bits_are_products_of_their_numbers(name):
    import ml_dtypes

    case = next(c for c in load(CASES / "matmul_fp8.py") if c.attribute == name).case
    kind = ml_dtypes.float8_e4m3fn if name == "e4m3" else ml_dtypes.float8_e5m2
    a, b = (np.random.default_rng(s).normal(size=size).astype(kind) for s, size in enumerate([(8, 32), (32, 8)]))
    codes = [torch.from_numpy(x.view(np.uint8).astype(np.int64)) for x in (a, b)]
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(float32(case.reference(*codes)) - wanted).max() < 0.02  # 13 fraction bits of the largest term
