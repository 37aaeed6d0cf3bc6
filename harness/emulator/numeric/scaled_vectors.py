"""Block-scaled products of many tiles in the processor's vectors: the results of `scaledproducts.dot`, bit for bit.

A product of `mxf8f6f4` is one of `tensorcore_vectors` in the range of float64: a scale is a power of two, so it belongs
to the exponents of the elements. For products of e2m1 in groups of 16, numpy computes the sums of groups, which are
integers below 2^12, and then the terms in float64: a term has at most 20 bits and the sum of all aligned terms at most
50, so nothing is rounded but what the definition truncates. A NaN or an infinity is left to the definition.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ptxdiff.diskcache import DiskCache
from ptxdiff.emulator.numeric import compilecache, scaledproducts
from ptxdiff.emulator.numeric import tensorcore_vectors as vectors
from ptxdiff.emulator.numeric.scaledproducts import ScaledModel
from ptxdiff.emulator.numeric.tensorcore import _LOW, FLOATS
from ptxdiff.emulator.numeric.tensorcore_vectors import LANES
from ptxdiff.emulator.numeric.translation import machinecode
from ptxdiff.emulator.numeric.vectorise import Array

Types = tuple[str, str, str]
_C = FLOATS["f32"]
_kept = DiskCache("checked")
_TOGETHER = 1 << 14
"""Results of products of groups that are computed together."""


def dot(a: Array, b: Array, c: Array, x: Array, y: Array, types: Types, model: ScaledModel) -> Array | None:
    """`a b + c` for tiles of codes: uint32 arrays of t x m x k, t x n x k (the columns of b) and t x m x n.

    x, y: codes of the scales, t x m x blocks and t x n x blocks. types: the PTX names of a, b and the scales. None: the
    definition has to compute some tile, because of a NaN or an infinity; or formats are others than those of `model`.
    """
    if ((c >> np.uint32(23) & np.uint32(0xFF)) == 0xFF).any() or _nan(x, types[2]).any() or _nan(y, types[2]).any():
        return None
    if model.group == 1 and types[2] == "ue8m0":
        return _of_powers(a, b, c, x, y, types, model) if _right(types[:2], model, a.shape[2]) else None
    if model.group > 1 and types[0] == types[1] == "e2m1":
        some = max(1, _TOGETHER // (c.shape[1] * c.shape[2]))  # few enough for the processor's cache
        pieces = [slice(start, start + some) for start in range(0, len(a), some)]
        return np.concatenate([_of_groups(a[p], b[p], c[p], x[p], y[p], types[2], model) for p in pieces])
    return None


def special_tiles(a: Array, b: Array, c: Array, x: Array, y: Array, types: Types) -> Array:
    """Which of the tiles that `dot` takes have a NaN or an infinity, so that the definition has to compute them."""
    found = vectors._special_tiles(a, FLOATS[types[0]]) | vectors._special_tiles(b, FLOATS[types[1]])
    found |= vectors._special_tiles(c, _C)
    return np.asarray(found | _nan(x, types[2]).any(axis=(1, 2)) | _nan(y, types[2]).any(axis=(1, 2)))


def _nan(scales: Array, kind: str) -> Array:
    """Which scales are NaNs."""
    return np.asarray(scales & np.uint32(0x7F) == 0x7F if kind == "ue4m3" else scales == 0xFF)


# Scales that are powers of two, one product a term ------------------------------------------------------------------


def _of_powers(
    a: Array, b: Array, c: Array, x: Array, y: Array, types: Types, model: ScaledModel
) -> Array | None:  # fmt: skip
    (tiles, m, k), n = a.shape, c.shape[2]
    columns = -(-n // LANES)
    padded = columns * LANES
    right = vectors._filled(b.transpose(0, 2, 1), (k, padded))
    above = vectors._filled(np.repeat(y.transpose(0, 2, 1), k // y.shape[2], axis=1), (k, padded))
    left, of_c = np.ascontiguousarray(a), vectors._filled(c, (m, padded))
    of_a = _scaled(left, np.repeat(x, k // x.shape[2], axis=2), types[0])
    of_b = _scaled(right, above, types[1])
    if of_a is None or of_b is None:
        return None
    least_a = np.ascontiguousarray(np.minimum.reduce(of_a[1], axis=2))
    least_b = np.ascontiguousarray(np.minimum.reduce(of_b[1], axis=1))
    d, special = np.empty_like(of_c), np.zeros(tiles, np.int32)
    multiply = vectors._multiplication(model.fraction, k, 23, model.zero, _C, _C, True, False)
    arrays = (d, special, of_c, *of_a, least_a, *of_b, least_b, np.array([m, columns]))
    multiply(*map(id, arrays), tiles)
    return None if special.any() else np.ascontiguousarray(d[:, :, :n])


_POWERS = np.ldexp(1.0, np.arange(256) - 127)
"""By code, the values of ue8m0 in float64. Their products with narrow elements are exact and stay in its range, and a
multiplication takes a tenth of the time of `ldexp`."""


def _scaled(codes: Array, scales: Array, kind: str) -> tuple[Array, Array] | None:
    """Values and powers of elements with their scales, as `tensorcore_vectors._multiplication` takes them; None if
    there is a NaN or an infinity. scales: of each element."""
    values, powers, special = vectors._prepared(codes, FLOATS[kind], True)
    if special.any():
        return None
    exponents = scales.astype(np.int32) - 127
    return values * _POWERS[scales], np.where(powers == _LOW, np.int32(_LOW), powers + exponents)


@cache
def _right(types: tuple[str, str], model: ScaledModel, k: int) -> bool:
    """Whether the machine code for products of powers gives the definition's results, on a sample; see
    `tensorcore_vectors._right`."""
    parts = (repr((types, model, k)), compilecache.stamp(__name__), *machinecode.identity())
    key = tuple(part.encode() for part in parts)
    if _kept.get(*key) is None:
        rng, three = np.random.default_rng(k), (*types, "ue8m0")
        a, b, c = vectors._sample(("f32", *types, "f32"), k, False)
        b = np.ascontiguousarray(b.transpose(0, 2, 1))
        wide = np.array([1, 4, 40, 127])[np.arange(64) % 4][:, None, None]
        x, y = ((127 + rng.integers(-wide, wide + 1, (64, z.shape[1], 1))).astype(np.uint32) for z in (a, b))
        found = _of_powers(a, b, c, x, y, three, model)
        for tile in range(len(a)):
            wanted = scaledproducts.dot(a[tile], b[tile], c[tile], x[tile], y[tile], three, model)
            if found is None or not np.array_equal(found[tile], wanted):
                return False
        _kept.put(b"right", *key)
    return True


# e2m1, groups of 16 products a term ---------------------------------------------------------------------------------

_HALVES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
"""The codes of e2m1, in halves."""


def _of_groups(a: Array, b: Array, c: Array, x: Array, y: Array, kind: str, model: ScaledModel) -> Array:
    k, group = a.shape[2], model.group
    each = k // x.shape[2]
    left, right = (_HALVES[codes >> np.uint32(2) & np.uint32(15)] for codes in (a, b))
    (size_x, power_x), (size_y, power_y) = _of_scales(x, kind), _of_scales(y, kind)
    exponent = (c >> np.uint32(23) & np.uint32(0xFF)).astype(np.int32)
    size_c = (c & np.uint32(0x7FFFFF)).astype(np.float64) + np.where(exponent > 0, 8388608.0, 0.0)
    top = np.where(size_c == 0, model.zero, np.maximum(exponent, 1) - 127)
    power_c = top
    terms, powers = [], []
    for start in range(0, k, group):
        some, g = slice(start, start + group), start // each
        one, other = left[:, :, some], right[:, :, some].transpose(0, 2, 1)
        scale = size_x[:, :, g, None] * size_y[:, None, :, g]
        term = np.matmul(one, other) * scale  # exact: at most 12 and 8 bits
        zero = (np.matmul(np.abs(one), np.abs(other)) == 0) | (scale == 0)
        power = np.where(zero, model.zero, power_x[:, :, g, None] + power_y[:, None, :, g])
        top = np.maximum(top, power)
        terms.append(term)
        powers.append(power)
    signed_c = np.where(c >> np.uint32(31) != 0, -size_c, size_c)
    total = np.trunc(np.ldexp(signed_c, model.fraction - 23 - (top - power_c)))
    for term, power in zip(terms, powers, strict=True):
        # The places of products in halves, and of scales in eighths.
        total += np.trunc(np.ldexp(term.astype(np.float64), model.fraction - 2 - 6 - (top - power)))
    return _truncated(np.ldexp(total, top - model.fraction))


def _of_scales(codes: Array, kind: str) -> tuple[Array, Array]:
    """`scaledproducts._scale`: significands in eighths, as float32, and exponents."""
    if kind == "ue8m0":
        return np.full(codes.shape, 8, np.float32), codes.astype(np.int32) - 127
    field, low = (codes >> np.uint32(3) & np.uint32(15)).astype(np.int32), (codes & np.uint32(7)).astype(np.float32)
    return np.where(field > 0, low + np.float32(8), low), np.maximum(field, 1) - 7


def _truncated(values: Array) -> Array:
    """float64 as the codes of float32, towards zero; from 2^128 on an infinity, and no negative zero."""
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    size, codes = np.abs(values), found.view(np.uint32)
    codes = codes - ((np.abs(found).astype(np.float64) > size) & (size < 2.0**128)).astype(np.uint32)
    return np.where(codes & np.uint32(0x7FFFFFFF) == 0, np.uint32(0), codes)
