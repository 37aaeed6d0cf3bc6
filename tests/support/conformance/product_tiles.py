"""Tiles of 8, 6 and 4-bit floats for mma, and the places of their elements in the registers of a warp.

The layout is written from the formulas of PTX ISA 9, "Matrix multiply-accumulate instruction mma": groupID is lane / 4,
threadID_in_group is lane % 4. Registers are tiles x registers x 32, as `ptxdiff.conformance` loads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.conformance import arithmetic
from tests.support.conformance import definitions as d

KINDS = ("any", "near", "ends", "cancelling", "zeros", "tiny", "special")
"""The kinds of magnitudes. Tile i has kind i modulo their number."""
_LANE = np.arange(32)
_GROUP, _THREAD = _LANE // 4, _LANE % 4


@dataclass(frozen=True)
class Tiles:
    """Codes. a: tiles x 16 x stored, b: tiles x 8 x k, c: tiles x 16 x 8; scales: tiles x rows x blocks, or None.

    kept: for a sparse `a`, the column of each stored element: tiles x 16 x stored.
    """

    a: Any
    b: Any
    c: Any
    a_scales: Any = None
    b_scales: Any = None
    kept: Any = None


# drawing -------------------------------------------------------------------------------------------------------------


def codes(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Codes of a narrow format. The first axis is tiles, whose kinds alternate."""
    fmt = d.FORMATS[name]
    kind = (np.arange(shape[0]) % len(KINDS)).reshape(-1, *[1] * (len(shape) - 1))
    top = fmt.largest >> fmt.mantissa
    low = rng.integers(0, 1 << fmt.mantissa, shape)
    ends = rng.choice([0, 1, top - 1, top, fmt.bias], shape)
    field = {
        "near": fmt.bias + rng.integers(-1, 2, shape),
        "ends": ends,
        "cancelling": np.where(rng.random(shape) < 0.5, ends, fmt.bias + rng.integers(-1, 2, shape)),
        "tiny": rng.integers(0, 2, shape),
    }
    found = rng.integers(0, fmt.largest + 1, shape)
    for word, drawn in field.items():
        found = np.where(kind == KINDS.index(word), np.clip(drawn, 0, top) << fmt.mantissa | low, found)
    found = np.where((kind == KINDS.index("zeros")) & (rng.random(shape) < 0.7), 0, found)
    found = np.minimum(found, fmt.largest)
    if name in ("e4m3", "e5m2"):
        odd = (kind == KINDS.index("special")) & (rng.random(shape) < 0.01)
        found = np.where(odd, 0x7F - (name == "e5m2") * rng.integers(0, 4, shape), found)
    return found | rng.integers(0, 2, shape) << (fmt.bits - 1)


def accumulators(sizes: Any, to: str, rng: np.random.Generator) -> Any:
    """Codes of c: about as large as the sum of magnitudes that c is added to, smaller, larger, or at an end of the
    range."""
    exponent = np.frexp(np.where(np.isfinite(sizes) & (sizes > 0), sizes, 1.0))[1]
    x = np.ldexp(rng.random(sizes.shape) + 0.5, exponent + rng.integers(-34, 30, sizes.shape))
    x = np.where(rng.random(sizes.shape) < 0.3, np.ldexp(1.0 + rng.random(sizes.shape), exponent), x)
    x = x * rng.choice([-1.0, 1.0], sizes.shape)
    # A large accumulator would hide the remainder of sums that cancel.
    x[np.arange(len(x)) % len(KINDS) == KINDS.index("cancelling")] *= 2.0**-20
    with np.errstate(over="ignore", invalid="ignore"):
        if to == "f16":
            found = x.astype(np.float16).view(np.uint16).astype(np.int64)
            found = np.where(found & 0x7FFF == 0x7C00, found - 1, found)
            odd = [0, 0x8000, 1, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01]
        else:
            found = x.astype(np.float32).view(np.uint32).astype(np.int64)
            odd = [0, 1 << 31, 1, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001]
    chance = rng.random(sizes.shape)
    found = np.where(chance < 0.1, rng.choice(odd, sizes.shape), found)
    return np.where((sizes == 0) & (chance < 0.5), rng.choice(odd[:2], sizes.shape), found)


def drawn(
    names: tuple[str, str], k: int, to: str, count: int, scale: str, blocks: int, sparse: bool, seed: int
) -> Tiles:
    """Tiles for a shape m16n8k. scale: the format of scales, or empty. `blocks`: the number of scales along k."""
    rng = np.random.default_rng(seed)
    stored = k // 2 if sparse else k
    kept = _kept(count, stored, rng) if sparse else None
    a, b = codes(names[0], (count, 16, stored), rng), codes(names[1], (count, 8, k), rng)
    if to == "f16":
        # With large factors most results would be infinite.
        fmt, every = d.FORMATS[names[1]], np.arange(count) // len(KINDS) % 2 == 0
        b[every] &= fmt.sign | (1 << fmt.mantissa + 1) - 1
    for matrix, name in ((a, names[0]), (b, names[1])):
        # Every other row has only subnormals: their exponents decide at which bit terms are cut.
        fmt, tiny = d.FORMATS[name], np.arange(count) % len(KINDS) == KINDS.index("tiny")
        matrix[tiny, ::2] &= fmt.sign | (1 << fmt.mantissa) - 1
        matrix[np.arange(count) % len(KINDS) == KINDS.index("zeros"), ::4] &= fmt.sign
    if names[0] == names[1]:
        # Half of the terms are the negatives of the others, except for one bit of some elements of b.
        some = np.arange(count) % len(KINDS) == KINDS.index("cancelling")
        half, sign = stored // 2, 1 << (d.FORMATS[names[0]].bits - 1)
        a[some, :, half:] = a[some, :, :half] ^ sign
        if kept is not None:
            kept[some, :, half:] = kept[some, :, :half] + k // 2
        first = b[some, :, : k // 2]
        small = first & (sign - 1) < 3 << d.FORMATS[names[1]].mantissa
        b[some, :, k // 2 :] = first ^ (small & (rng.random(first.shape) < 0.3))
    scales = [_scales(scale, (count, rows, blocks), rng) if scale else None for rows in (16, 8)]
    with np.errstate(invalid="ignore"):
        size = [np.abs(arithmetic.values(n)[x]).mean(axis=-1) for n, x in zip(names, (a, b), strict=True)]
        sums = size[0][:, :, None] * size[1][:, None, :] * k
    if scale == "ue8m0":
        sums = np.ldexp(sums, scales[0].max(axis=-1)[:, :, None] + scales[1].max(axis=-1)[:, None, :] - 254)
    return Tiles(a, b, accumulators(np.nan_to_num(sums, posinf=1.0), to, rng), *scales, kept)


def _kept(count: int, stored: int, rng: np.random.Generator) -> Any:
    """Two columns of every four, in ascending order."""
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    chosen = pairs[rng.integers(0, 6, (count, 16, stored // 2))]
    return (chosen + 4 * np.arange(stored // 2)[:, None]).reshape(count, 16, stored)


def _scales(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Scales. ue8m0: around one, in tiles of some kinds any code. ue4m3: any code. Only tiles of the kind "special"
    have NaN."""
    kind = (np.arange(shape[0]) % len(KINDS)).reshape(-1, 1, 1)
    anything = rng.integers(0, 255, shape)
    if name == "ue8m0":
        wide = np.isin(kind, [KINDS.index("any"), KINDS.index("ends")])
        found = np.where(wide, anything, rng.integers(117, 138, shape))
    else:
        found = np.where(anything & 0x7F == 0x7F, 0, anything)
    nan = (kind == KINDS.index("special")) & (rng.random(shape) < 0.02)
    return np.where(nan, 0xFF, found)


# registers -----------------------------------------------------------------------------------------------------------


def of_rows(matrix: Any, bits: int, halves: bool) -> Any:
    """Registers of a (`halves`: rows groupID and groupID + 8 alternate) or of b; the last axis of `matrix` is along k.

    Each register has 32 / bits neighbours along k. Those of thread t begin at element t * 32 / bits; the next registers
    begin after the elements of all four threads.
    """
    each = 32 // bits
    words = []
    for start in range(0, matrix.shape[-1], 4 * each):
        for below in (0, 8) if halves else (0,):
            word = 0
            for i in range(each):
                word = word | matrix[:, _GROUP + below, start + _THREAD * each + i] << bits * i
            words.append(word)
    return np.stack(words, axis=1).astype(np.uint32, order="C")


def of_c(matrix: Any, bits: int) -> Any:
    """Registers of c or d: columns 2 t and 2 t + 1 of row groupID, then of row groupID + 8."""
    words = [matrix[:, _GROUP + 8 * (i // 2), 2 * _THREAD + i % 2] for i in range(4)]
    if bits == 16:
        words = [words[0] | words[1] << 16, words[2] | words[3] << 16]
    return np.stack(words, axis=1).astype(np.uint32, order="C")


def of_scales(scales: Any) -> Any:
    """Registers of scales whose selectors are all 0. Block i is in byte i; all other bits are random, and must not be
    read.

    For a, threads 0 and 1 of a group have rows g and g + 8; for b, thread 0 has column g.
    """
    found = np.random.default_rng(1).integers(0, 1 << 32, (scales.shape[0], 1, 32))
    rows, blocks = scales.shape[1:]
    word = sum(scales[..., i] << 8 * i for i in range(blocks))
    mask = (1 << 8 * blocks) - 1
    for row in range(rows):
        lane = 4 * (row % 8) + row // 8
        found[:, 0, lane] = found[:, 0, lane] & ~mask | word[:, row]
    return found.astype(np.uint32, order="C")


def of_metadata(kept: Any) -> Any:
    """Registers of metadata of 8-bit elements, k = 64: two bits for each stored element, its place among four; the
    first element is in the lowest bits.

    Thread t of a group has row g + 8 (t % 2), from column 32 (t / 2) on.
    """
    place = kept % 4
    word = 0
    for i in range(16):
        word = word | place[:, _GROUP + 8 * (_THREAD % 2), 16 * (_THREAD // 2) + i] << 2 * i
    return word[:, None].astype(np.uint32, order="C")


def contained(found: Any, name: str, rng: np.random.Generator) -> Any:
    """Codes in bytes, as the kinds f8f6f4 and mxf8f6f4 have them: e2m1 in bits 2 to 5. The other bits are random."""
    bits = d.FORMATS[name].bits
    noise = rng.integers(0, 256, found.shape)
    if bits == 4:
        return found << 2 | noise & 0xC3
    return found | noise >> bits << bits
