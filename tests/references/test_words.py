"""Fields of words, hashes and random numbers, compared with Python's integers and with published results."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch

from ptxdiff.references import hashes, words
from ptxdiff.references.formats import F16, F32, U8, U16

RNG = random.Random(5)
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def numbers(bits: int, count: int = 300) -> list[int]:
    """Edges of a width, and random numbers of every magnitude."""
    edges = [0, 1, 2, (1 << bits) - 1, (1 << bits) - 2, 1 << bits - 1, (1 << bits - 1) - 1]
    return edges + [RNG.getrandbits(bits) >> RNG.randrange(bits) for _ in range(count)]


def codes(values: list[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.uint64).view(np.int64))


def patterns(result: torch.Tensor) -> list[int]:
    return [v & M64 for v in result.tolist()]


def test_bytes_exhaustively():
    a, b = (torch.tensor(column) for column in zip(*itertools.product(range(256), repeat=2), strict=True))
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    assert words.add_clamped(a, b, fmt=U8).tolist() == [min(x + y, 255) for x, y in pairs]
    assert words.average(a, b).tolist() == [-(-(x + y) // 2) for x, y in pairs]
    assert words.absolute_difference(a, b).tolist() == [max(x, y) - min(x, y) for x, y in pairs]


def test_clamped_sums_of_words():
    values = numbers(16, 60)
    for x, y in itertools.product(values, repeat=2):
        assert int(words.add_clamped(torch.tensor(x), torch.tensor(y), fmt=U16)) == min(x + y, 65535)


def test_interleaved_bits_by_their_decimal_digits():
    """In base 4, a Morton code has the binary digits of x plus twice those of y. All x, and all y."""
    x = torch.arange(1 << 16)
    y = (x * 40503 + 7) & 0xFFFF
    expected = [int(f"{p:b}", 4) + 2 * int(f"{q:b}", 4) for p, q in zip(x.tolist(), y.tolist(), strict=True)]
    found = words.interleave(x, y)
    assert found.tolist() == expected
    assert [t.tolist() for t in words.deinterleave(found)] == [x.tolist(), y.tolist()]


def test_the_dither_matrix_is_the_published_one():
    """Bayer's recursion, built from blocks."""
    matrix = np.zeros((1, 1), dtype=int)
    for _ in range(3):
        matrix = np.block([[4 * matrix, 4 * matrix + 2], [4 * matrix + 3, 4 * matrix + 1]])
    y, x = (torch.from_numpy(a.reshape(-1)) for a in np.indices((16, 24)))
    assert words.bayer8(x, y).tolist() == [int(matrix[j % 8, i % 8]) for i, j in zip(x, y, strict=True)]
    assert matrix[:2, :4].tolist() == [[0, 32, 8, 40], [48, 16, 56, 24]]


def test_128_bit_arithmetic():
    a, b, c, d = (numbers(64) for _ in range(4))
    columns = [codes(v) for v in (a, b, c, d)]
    for name, operation in (("add128", int.__add__), ("sub128", int.__sub__)):
        low, high = getattr(words, name)(*columns)
        whole = [operation(p | q << 64, r | s << 64) % (1 << 128) for p, q, r, s in zip(a, b, c, d, strict=True)]
        assert patterns(low) == [w & M64 for w in whole]
        assert patterns(high) == [w >> 64 for w in whole]
    low, high = words.mul128(columns[0], columns[1])
    assert patterns(low) == [p * q & M64 for p, q in zip(a, b, strict=True)]
    assert patterns(high) == [p * q >> 64 for p, q in zip(a, b, strict=True)]


def test_bytes_and_rotations():
    values = numbers(32)
    swapped = [int.from_bytes(v.to_bytes(4, "big"), "little") for v in values]
    assert words.byte_swap(codes(values)).tolist() == swapped
    for amount in (0, 1, 7, 31, 32, 33, M32):
        text = [f"{v:032b}" for v in values]
        n = amount % 32
        expected = [int(t[n:] + t[:n], 2) for t in text]
        assert words.rotate_left(codes(values), torch.full((len(values),), amount)).tolist() == expected


@pytest.mark.parametrize(("fmt", "dtype"), [(F16, np.float16), (F32, np.float32)])
def test_sort_keys_are_in_the_order_of_numbers(fmt, dtype):
    """numpy's order of the values, in which all NaNs are last and zeros are equal."""
    unsigned = np.dtype(f"u{dtype().itemsize}")
    every = np.arange(1 << 16, dtype=np.uint64) if fmt is F16 else np.array(numbers(32, 4000), dtype=np.uint64)
    values = every.astype(unsigned).view(dtype)
    key = words.sort_key(codes(every.tolist()), fmt=fmt).numpy()
    assert 0 <= key.min() <= key.max() <= fmt.code_mask
    assert len(set(key.tolist())) == len(set(every.tolist()))
    ordered = values[np.argsort(key)]
    ordered = ordered[~np.isnan(ordered)]
    assert (ordered[1:] >= ordered[:-1]).all()
    zeros = {str(v): int(k) for v, k in zip(values, key, strict=True) if v == 0}
    assert zeros["-0.0"] + 1 == zeros["0.0"]


# ---- Hashes -------------------------------------------------------------------------------------------------------


def python_philox(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds, computed with Python's integers."""
    for _ in range(10):
        p, q = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [(q >> 32) ^ counter[1] ^ key[0], q & M32, (p >> 32) ^ counter[3] ^ key[1], p & M32]
        key = [(key[0] + 0x9E3779B9) & M32, (key[1] + 0xBB67AE85) & M32]
    return counter


def philox_words(*words_in: int) -> list[int]:
    return [int(w) for w in hashes.philox4x32_10(*(torch.tensor([w]) for w in words_in))]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([0] * 6, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([M32] * 6, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_known_answers_of_random123(given, expected):
    assert philox_words(*given) == expected
    assert python_philox(given[:4], given[4:]) == expected


def test_philox_on_pythons_integers():
    for _ in range(200):
        given = [RNG.choice([RNG.getrandbits(32), 0, M32, 1 << 31]) for _ in range(6)]
        assert philox_words(*given) == python_philox(given[:4], given[4:])


def test_hashes_on_pythons_integers():
    def fmix(h: int) -> int:
        h = (h ^ h >> 16) * 0x85EBCA6B & M32
        h = (h ^ h >> 13) * 0xC2B2AE35 & M32
        return h ^ h >> 16

    def shifted(x: int) -> int:
        x ^= x << 13 & M32
        x ^= x >> 17
        return x ^ x << 5 & M32

    values = numbers(32)
    assert hashes.fmix32(codes(values)).tolist() == [fmix(v) for v in values]
    assert hashes.xorshift32(codes(values)).tolist() == [shifted(v) for v in values]
    assert hashes.fmix32(torch.tensor([1])).tolist() == [0x514E28B7]  # a published result of MurmurHash3
    # The first results from the seeds 0 and 1234567, as published with the generator.
    assert patterns(hashes.splitmix64(torch.tensor([0, 1234567]))) == [0xE220A8397B1DCDAF, 6457827717110365317]


def test_splitmix64_on_pythons_integers():
    def mixed(state: int) -> int:
        z = (state + 0x9E3779B97F4A7C15) & M64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
        return z ^ z >> 31

    values = numbers(64)
    assert patterns(hashes.splitmix64(codes(values))) == [mixed(v) for v in values]
