"""The arithmetic of tensor cores on block-scaled matrices: MXFP8 (and 6, 4 bits), MXFP4 and NVFP4.

Both kinds work as in `ptxdiff.emulator.numeric.tensorcore`: terms and accumulator are aligned to their largest
exponent, truncated to F fraction bits, summed exactly, and rounded once towards zero to float32. They differ in the
terms.

| kind | F | term | the term's exponent | |---|---|---|---|
| mxf8f6f4 | 25 | a product | the sum of the exponents of its factors and both scales |
| mxf4, mxf4nvf4 | 35 | the exact sum of 16 products, times the scales' significands | the sum of the scales' exponents
|

A group of 16 with only zero products, or with a zero scale, has the least exponent; a group whose products cancel does
not. Scales of ue4m3 have no sign: their highest bit is ignored. A NaN scale makes the result NaN.

Source: MMA-Sim, arXiv 2511.10909 (ST-FDPA and GST-FDPA, Blackwell). Not confirmed on hardware.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxdiff.emulator.limits import compiled_for
from ptxdiff.emulator.numeric import compilecache
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.numeric.tensorcore import _FINITE, _NAN, _ZERO, FLOATS, Float, _decode, _encode, _special
from ptxdiff.emulator.numeric.vectorise import Array, register_helpers, wrapping


@dataclass(frozen=True)
class ScaledModel:
    """The parameters of a kind: F, how many products are summed before scaling, and the exponent of zero terms."""

    fraction: int
    group: int
    zero: int


BLACKWELL = {
    "mxf8f6f4": ScaledModel(25, 1, -133),
    "mxf4": ScaledModel(35, 16, -139),
    "mxf4nvf4": ScaledModel(35, 16, -139),
}
"""The model of each kind of tcgen05.mma; the generation is Blackwell."""

_C = FLOATS["f32"]


@scalar
def _scale(code: Any, signless: int) -> tuple[int, int, int]:
    """A scale: its significand in eighths (0 for NaN), its exponent, and its class. signless: ue4m3, not ue8m0."""
    if signless:
        code = code & 0x7F
        field, low = code >> 3, code & 7
        if code == 0x7F:
            return 0, 0, _NAN
        if code == 0:
            return 0, 0, _ZERO
        return (low | 8, field - 7, _FINITE) if field else (low, -6, _FINITE)
    if code == 0xFF:
        return 0, 0, _NAN
    return 8, code - 127, _FINITE


@scalar
def _significands(codes: Any, exponent: int, fraction: int, ignored: int, special: int) -> Any:
    """The signed significands, exponents and classes (see `_decode`) of a matrix of codes."""
    size, power, kind = (
        np.empty(codes.shape, np.int64),
        np.empty(codes.shape, np.int64),
        np.empty(codes.shape, np.int64),
    )
    for i in range(codes.shape[0]):
        for p in range(codes.shape[1]):
            size[i, p], power[i, p], kind[i, p] = _decode(np.int64(codes[i, p]), exponent, fraction, ignored, special)
    return size, power, kind


@scalar
def _scales(codes: Any, signless: int) -> Any:
    """The significands in eighths, exponents and classes of a matrix of scales."""
    size, power, kind = (
        np.empty(codes.shape, np.int64),
        np.empty(codes.shape, np.int64),
        np.empty(codes.shape, np.int64),
    )
    for i in range(codes.shape[0]):
        for g in range(codes.shape[1]):
            size[i, g], power[i, g], kind[i, g] = _scale(np.int64(codes[i, g]), signless)
    return size, power, kind


def _dot(a: Array, b: Array, c: Array, d: Array, x: Array, y: Array, fa: Any, fb: Any, fc: Any, numbers: Any) -> None:
    """d = a b + c of codes, m x k, n x k (columns of b) and m x n; x, y: scales, m x blocks and n x blocks."""
    m, k = a.shape
    n, blocks = y.shape
    fraction, group, zero, signless = numbers
    each = k // blocks
    size_a, power_a, class_a = _significands(a, fa[0], fa[1], fa[2], fa[3])
    size_b, power_b, class_b = _significands(b, fb[0], fb[1], fb[2], fb[3])
    sig_a, exp_a, kind_a = _scales(x, signless)
    sig_b, exp_b, kind_b = _scales(y, signless)
    places = fa[1] + fb[1]
    terms = np.empty(k // group + 1, np.int64)
    powers = np.empty(k // group + 1, np.int64)
    for i in range(m):
        for j in range(n):
            size, power, kind = _decode(np.int64(c[i, j]), fc[0], fc[1], fc[2], fc[3])
            found = _special(size, kind, size_a[i], class_a[i], size_b[j], class_b[j], 0, k)
            for g in range(blocks):
                if kind_a[i, g] == _NAN or kind_b[j, g] == _NAN:
                    found = 4
            if found:
                d[i, j] = 0x7FFFFFFF if found > 2 else 0x7F800000 if found == 1 else 0xFF800000
                continue
            top = power if kind != _ZERO else zero
            for t in range(k // group):
                g = t * group // each
                total, some = np.int64(0), False
                for p in range(t * group, (t + 1) * group):
                    product = size_a[i, p] * size_b[j, p]
                    some = some or product != 0
                    if group > 1:  # align to the smallest product: e2m1 has exponents from 0 to 2
                        product = product << (power_a[i, p] + power_b[j, p])
                    total += product
                scaled = sig_a[i, g] * sig_b[j, g]
                terms[t] = total * scaled
                powers[t] = exp_a[i, g] + exp_b[j, g]
                if group == 1:
                    powers[t] += power_a[i, t] + power_b[j, t]
                if not some or scaled == 0:
                    powers[t] = zero
                top = max(top, powers[t])
            sum_of = _cut(size, fraction - fc[1] - (top - power) if kind != _ZERO else 0)
            for t in range(k // group):
                sum_of += _cut(terms[t], fraction - places - 6 - (top - powers[t]))
            d[i, j] = _encode(sum_of, top - fraction, 0, 23)


@scalar
def _cut(value: Any, up: Any) -> Any:
    """`value * 2^up`, truncated towards zero."""
    minus = value >> 63
    size = (value ^ minus) - minus
    size = size << up if up >= 0 else size >> min(-up, 63)
    return (size ^ minus) - minus


_lock = threading.Lock()
_made: list[Any] = []


def _compiled() -> Any:
    with _lock:
        if not _made:
            started = time.monotonic()
            numba = register_helpers()
            dispatcher = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(_dot)
            compilecache.attach(dispatcher, f"{__name__}._dot", __name__)
            codes = numba.types.Array(numba.uint32, 2, "C")
            four = numba.types.UniTuple(numba.int64, 4)
            with wrapping():
                dispatcher.compile((codes,) * 6 + (four,) * 4)
            dispatcher.disable_compile()
            _made.append(dispatcher)
            compiled_for(time.monotonic() - started)
    return _made[0]


def _described(found: Float) -> tuple[int, int, int, int]:
    return found.exponent, found.fraction, found.ignored, found.special


def dot(a: Array, b: Array, c: Array, x: Array, y: Array, types: tuple[str, str, str], model: ScaledModel) -> Array:
    """`a b + c` for one tile of codes: uint32 arrays of m x k, n x k (the columns of b) and m x n, all C-contiguous.

    c and the result are float32. x, y: codes of the scales, m x blocks and n x blocks. types: the PTX names of a, b and
    the scales. k is that of one instruction, within which nothing is rounded.
    """
    d = np.empty_like(c)
    numbers = (model.fraction, model.group, model.zero, int(types[2] == "ue4m3"))
    formats = tuple(_described(FLOATS[t]) for t in types[:2])
    _compiled()(a, b, c, d, x, y, *formats, _described(_C), numbers)
    return d
