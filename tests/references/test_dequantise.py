"""Dequantisation against numpy's and torch's own arithmetic, gfloat's e2m1, and rationals; every byte."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from statistics import NormalDist

import gfloat
import numpy as np
import pytest
import torch
from gfloat import formats as gf

from ptxdiff.references import dequantise
from ptxdiff.references.formats import BF16, F16, F32, Format, fraction

DTYPES = {F16: torch.float16, BF16: torch.bfloat16, F32: torch.float32}
BYTES = torch.arange(256)


@cache
def magnitudes() -> list[Fraction]:
    return [fraction(F16, c) for c in range(0x7C00)] + [Fraction(65536)]


def coded(values: list[float], fmt: Format) -> list[int]:
    """The codes of values in the format, by torch's casts from float64: rounded correctly to float32, then to the
    format."""
    made = torch.tensor(values, dtype=torch.float64).to(torch.float32).to(DTYPES[fmt])
    signed = made.view({2: torch.int16, 4: torch.int32}[made.element_size()])
    return [int(c) & fmt.code_mask for c in signed]


def digits(number: int, bits: int, count: int, signed: bool) -> list[int]:
    """The fields of a number, computed by division."""
    found = [number // (1 << bits * k) % (1 << bits) for k in range(count)]
    return [f - (1 << bits) if signed and f >= 1 << bits - 1 else f for f in found]


@pytest.mark.parametrize("fmt", [F16, BF16, F32], ids=str)
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize(("signed", "zero"), [(False, 0), (False, 8), (True, 0), (True, 3)])
def test_integers_of_every_byte(fmt, bits, signed, zero):
    found = dequantise.integers(BYTES, bits=bits, signed=signed, zero=zero, fmt=fmt)
    expected = [float(v - zero) for b in range(256) for v in digits(b, bits, 8 // bits, signed)]
    assert found.tolist() == coded(expected, fmt)


def test_integers_of_words():
    words = torch.from_numpy(np.random.default_rng(1).integers(0, 1 << 32, 500))
    found = dequantise.integers(words, bits=4, width=32, zero=8, fmt=F16)
    expected = [float(v - 8) for w in words.tolist() for v in digits(w, 4, 8, False)]
    assert found.tolist() == coded(expected, F16)
    pairs = dequantise.interleaved(found, groups=4)
    for k, output in enumerate(pairs):
        assert output.tolist() == [c for w in found.reshape(-1, 8).tolist() for c in (w[k], w[k + 4])]


@pytest.mark.parametrize(("fmt", "dtype"), [(F16, np.float16), (F32, np.float32)], ids=str)
def test_nf4_is_the_table_rounded_by_numpy(fmt, dtype):
    table = np.array(dequantise.NF4).astype(dtype).view(f"u{dtype().itemsize}")
    found = dequantise.nf4(BYTES, fmt=fmt).reshape(256, 2)
    assert found.tolist() == [[int(table[b % 16]), int(table[b // 16])] for b in range(256)]


def test_the_table_of_nf4_has_the_papers_quantiles():
    """8 positive and 7 negative levels besides zero, with probabilities evenly spaced between 0.5 and an end."""
    normal = np.vectorize(NormalDist().inv_cdf)
    end = 0.9677083  # 1 - (1/32 + 1/30) / 2
    positive = normal(np.linspace(end, 0.5, 9)[:-1])
    negative = -normal(np.linspace(end, 0.5, 8)[:-1])
    levels = np.sort(np.concatenate([positive, [0.0], negative]))
    assert np.abs(levels / levels.max() - np.array(dequantise.NF4)).max() < 1e-6


def test_e2m1_equals_gfloats():
    values = [gfloat.decode_float(gf.format_info_ocp_e2m1, n).fval for n in range(16)]
    for fmt in (F16, BF16):
        found = dequantise.e2m1(BYTES, fmt=fmt).reshape(256, 2)
        codes = coded(values, fmt)
        assert found.tolist() == [[codes[b % 16], codes[b // 16]] for b in range(256)]


def rounded_product(value: Fraction, scale: int, negative: bool) -> int:
    """A finite float16 scale times a number, rounded by exact rationals to the nearest code; a tie goes to the even
    one."""
    exact = abs(value * fraction(F16, scale))
    low, high = 0, 0x7C00
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if magnitudes()[middle] <= exact else (low, middle)
    if exact < 65536:
        below, above = exact - magnitudes()[low], magnitudes()[low + 1] - exact
        low += below > above or (below == above and low % 2 == 1)
    else:
        low = 0x7C00
    return low | negative << 15


def test_scaled_codes_by_rationals():
    rng = np.random.default_rng(7)
    edges = [0, 1, 2, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0x7800, 0x8000, 0x8001, 0xFBFF, 0x5555]
    scales = np.concatenate([edges, rng.integers(0, 0x7C00, 20), rng.integers(0x8000, 0xFC00, 20)])
    q, s = (torch.from_numpy(a.reshape(-1)) for a in np.meshgrid(rng.integers(0, 256, 12), scales))
    zero = torch.from_numpy(rng.integers(0, 256, len(q)))
    affine = dequantise.affine(q, zero, s, bits=4).reshape(-1, 2).tolist()
    e2m1 = dequantise.scaled(q, s).reshape(-1, 2).tolist()
    magnitudes = [Fraction(v) / 2 for v in (0, 1, 2, 3, 4, 6, 8, 12)]
    for byte, point, scale, made, floats in zip(q.tolist(), zero.tolist(), s.tolist(), affine, e2m1, strict=True):
        for place, nibble in enumerate((byte % 16, byte // 16)):
            value = Fraction(nibble - point % 16)
            assert made[place] == rounded_product(value, scale, (value < 0) != (scale >= 0x8000))
            assert floats[place] == rounded_product(magnitudes[nibble % 8], scale, (nibble >= 8) != (scale >= 0x8000))


@pytest.mark.parametrize("scale", [0x7C00, 0xFC00, 0x7E00])
def test_special_scales(scale):
    s = torch.full((256,), scale)
    found = dequantise.scaled(BYTES, s).reshape(-1, 2).tolist()
    for byte, codes in enumerate(found):
        for nibble, code in zip((byte % 16, byte // 16), codes, strict=True):
            infinite = scale != 0x7E00 and nibble % 8 != 0
            assert code == ((0x7C00 | (((nibble >= 8) != (scale >= 0x8000)) << 15)) if infinite else 0x7FFF)
