"""The arithmetic of tensor cores: one function over tiles, with the parameters of a GPU generation as data.

A product over k is computed in blocks of L terms. A block's terms and its accumulator are aligned to their largest
exponent and truncated to F fraction bits. Their exact sum is rounded once and becomes the next block's accumulator.
`MODELS` has F, L and the exponent of zero terms, a row for each generation. Products of integers and single bits are
exact, and equal on all generations.

Sources: MMA-Sim, arXiv 2511.10909 (parameters of all generations); PTX ISA 9, mma.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.emulator.limits import compiled_for
from ptxdiff.emulator.numeric import compilecache
from ptxdiff.emulator.numeric.bits import clz64, scalar
from ptxdiff.emulator.numeric.vectorise import Array, register_helpers, wrapping


@dataclass(frozen=True)
class Model:
    """The arithmetic of products into float32 or float16.

    `fraction`: F. `terms`: L. `zero32`, `zero16`: the exponent of zero terms, by accumulator. `kept`: fraction bits of
    a float32 result. `widened`: the tensor cores have no such product; its factors become float16, and this is the
    model of that product.
    """

    fraction: int
    terms: int
    zero32: int
    zero16: int
    kept: int = 23
    widened: bool = False

    def of(self, terms: int) -> Model:
        """The same model for a product of at most `terms` terms."""
        return replace(self, terms=min(terms, self.terms), widened=False)


_VOLTA = Model(23, 4, -131, -19)
_AMPERE, _AMPERE_TF32 = Model(24, 8, -132, -20), Model(24, 4, -132, -20)
_HOPPER, _HOPPER_TF32 = Model(25, 16, -133, -21), Model(25, 8, -133, -21)
_WIDENED = replace(_HOPPER, widened=True)

MODELS: dict[str, dict[str, Model]] = {
    "Volta": {"volta": _VOLTA},
    "Turing": {"f16": _AMPERE, "volta": _VOLTA},
    "Ampere": {"f16": _AMPERE, "tf32": _AMPERE_TF32},
    "Ada": {"f16": _AMPERE, "tf32": _AMPERE_TF32, "f8": Model(13, 16, -132, -20, kept=13)},
    "Hopper": {"f16": _HOPPER, "tf32": _HOPPER_TF32, "f8": _WIDENED, "wgmma f8": Model(13, 32, -133, -21, kept=13)},
    "Blackwell": {"f16": _HOPPER, "tf32": _HOPPER_TF32, "f8": _WIDENED},
    "RTX Blackwell": {"f16": _HOPPER, "tf32": _HOPPER_TF32, "f8": Model(25, 32, -133, -21)},
}
"""By generation and type of factors: f16 and bf16, tf32, floats of at most 8 bits; `volta` is m8n8k4."""

SINCE = (
    ("RTX Blackwell", 120), ("Blackwell", 100), ("Hopper", 90), ("Ada", 89), ("Ampere", 80), ("Turing", 75),
    ("Volta", 70),
)  # fmt: skip
"""For each generation, the number of its first target."""
MEASURED = "Hopper"
"""The generation whose results hardware has confirmed; others are models."""


@dataclass(frozen=True)
class Float:
    """A floating-point format: exponent bits, fraction bits, low bits that are ignored, and special values.

    `special`: 2: infinities and NaNs have the highest exponent. 1: only the code of all ones is a NaN. 0: no code is
    special.
    """

    exponent: int
    fraction: int
    ignored: int = 0
    special: int = 2

    @property
    def bias(self) -> int:
        """The exponent bias."""
        return (1 << (self.exponent - 1)) - 1


FLOATS = {
    "f32": Float(8, 23), "tf32": Float(8, 10, 13), "f16": Float(5, 10), "bf16": Float(8, 7), "e4m3": Float(4, 3, 0, 1),
    "e5m2": Float(5, 2), "e3m2": Float(3, 2, 0, 0), "e2m3": Float(2, 3, 0, 0), "e2m1": Float(2, 1, 2, 0),
}  # fmt: skip
BITS = {"f32": 32, "tf32": 32, "f64": 64, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1": 8}
BITS |= {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}
"""Bits of an element in a register. Formats of 6 and 4 bits take a byte; e2m1 is in its bits 2 to 5."""

_LOW = -20_000  # a zero's exponent until the model's replaces it; below those of all products
_ZERO, _FINITE, _INFINITE, _NAN = 0, 1, 2, 3


@scalar
def _decode(code: Any, exponent: int, fraction: int, ignored: int, special: int) -> tuple[int, int, int]:
    """The signed significand (0 if not finite), the exponent of its bit 2^fraction, and the class."""
    code = code >> ignored
    field = (code >> fraction) & ((1 << exponent) - 1)
    low = code & ((1 << fraction) - 1)
    highest = field == (1 << exponent) - 1
    if special == 2 and highest:
        return (1 - 2 * (code >> (exponent + fraction))), _LOW, _NAN if low else _INFINITE
    if special == 1 and highest and low == (1 << fraction) - 1:
        return 1, _LOW, _NAN
    if field == 0 and low == 0:
        return 0, _LOW, _ZERO
    bias = (1 << (exponent - 1)) - 1
    normal = np.int64(field > 0)
    size = low | normal << fraction
    minus = -((code >> (exponent + fraction)) & 1)  # no branch: half of all codes are negative
    return (size ^ minus) - minus, field + 1 - normal - bias, _FINITE


@scalar
def _encode(total: Any, last: int, half: int, kept: int) -> int:
    """`total * 2^last`, rounded to nearest even in float16 (`half`), else toward zero in float32 of `kept` bits."""
    if total == 0:
        return 0
    precision, least, infinity, sign = 24, -149, 0x7F800000, 0x80000000
    if half:
        precision, least, infinity, sign = 11, -24, 0x7C00, 0x8000
    minus = total >> 63
    sign &= minus
    size = (total ^ minus) - minus
    unit = max(last + 64 - clz64(size) - precision, least)
    shift = unit - last
    if shift > 62:
        return 0
    if shift <= 0:
        whole = size << (-shift)
    else:
        whole = size >> shift
        if half:
            rest = size - (whole << shift)
            middle = 1 << (shift - 1)
            if rest > middle or (rest == middle and whole & 1):
                whole += 1
    if not half:
        whole = (whole >> (23 - kept)) << (23 - kept)
    # The leading one of a normal number adds 1 to the exponent field, which is therefore one less.
    code = ((unit - least) << (precision - 1)) + whole
    if code >= infinity:
        code = infinity
    return (code | sign) if code else 0


def _dot(a: Array, b: Array, c: Array, d: Array, fa: Any, fb: Any, fc: Any, fd: Any, model: Any) -> None:
    """d = a b + c for tiles of codes; `fa` to `fd` describe their formats, `model` the arithmetic."""
    tiles, m, k = a.shape
    n = b.shape[2]
    fraction, terms, zero, kept = model
    blocks = (k + terms - 1) // terms
    up = fraction - fa[1] - fb[1]
    half = fd[1] == 10
    quiet = 0x7FFF if half else 0x7FFFFFFF
    infinity = 0x7C00 if half else 0x7F800000
    negative = 0x8000 if half else 0x80000000
    # Rows of a and columns of b, both along k; for each block the highest class and whether it contains a zero.
    size_a, power_a, class_a = np.empty((m, k), np.int32), np.empty((m, k), np.int32), np.empty((m, k), np.int8)
    size_b, power_b, class_b = np.empty((n, k), np.int32), np.empty((n, k), np.int32), np.empty((n, k), np.int8)
    special_a, special_b = np.empty((m, blocks), np.bool_), np.empty((n, blocks), np.bool_)
    zero_a, zero_b = np.empty((m, blocks), np.bool_), np.empty((n, blocks), np.bool_)
    for tile in range(tiles):
        special_a[:], special_b[:], zero_a[:], zero_b[:] = False, False, False, False
        for i in range(m):
            for p in range(k):
                size, power, kind = _decode(np.int64(a[tile, i, p]), fa[0], fa[1], fa[2], fa[3])
                size_a[i, p], power_a[i, p], class_a[i, p] = size, power, kind
                special_a[i, p // terms] |= kind > _FINITE
                zero_a[i, p // terms] |= kind == _ZERO
        for p in range(k):
            for j in range(n):
                size, power, kind = _decode(np.int64(b[tile, p, j]), fb[0], fb[1], fb[2], fb[3])
                size_b[j, p], power_b[j, p], class_b[j, p] = size, power, kind
                special_b[j, p // terms] |= kind > _FINITE
                zero_b[j, p // terms] |= kind == _ZERO
        for i in range(m):
            for j in range(n):
                code: Any = np.int64(c[tile, i, j])
                of_c = fc
                for block in range(blocks):
                    start = block * terms
                    stop = min(start + terms, k)
                    some = slice(start, stop)
                    sizes, powers, size_j, power_j = (
                        size_a[i, some],
                        power_a[i, some],
                        size_b[j, some],
                        power_b[j, some],
                    )
                    size, power, kind = _decode(code, of_c[0], of_c[1], of_c[2], of_c[3])
                    fraction_c = of_c[1]
                    of_c = fd
                    if special_a[i, block] or special_b[j, block] or kind > _FINITE:
                        found = _special(size, kind, size_a[i], class_a[i], size_b[j], class_b[j], start, stop)
                        if found:
                            code = quiet if found > 2 else infinity if found == 1 else infinity | negative
                            continue
                    top: Any = np.int32(power)
                    for p in range(len(sizes)):
                        top = max(top, np.int32(powers[p] + power_j[p]))
                    if zero_a[i, block] or zero_b[j, block] or kind == _ZERO:
                        top = max(top, np.int32(zero))
                    highest = np.int64(top)
                    total: Any = np.int64(0)
                    for p in range(len(sizes)):
                        product = np.int64(sizes[p]) * np.int64(size_j[p])
                        flip = product >> 63
                        down = min(highest - powers[p] - power_j[p], 63)
                        part = (((product ^ flip) - flip) << up) >> down
                        total += (part ^ flip) - flip
                    part = abs(size)
                    lift = fraction - fraction_c - (highest - power)
                    part = part << lift if lift >= 0 else part >> min(-lift, 63)
                    code = _encode(total + (part if size > 0 else -part), highest - fraction, half, kept)
                d[tile, i, j] = code


@scalar
def _special(size: int, kind: int, a: Any, class_a: Any, b: Any, class_b: Any, start: int, stop: int) -> int:
    """The result of a block with NaNs or infinities: 1: +infinity, 2: -infinity, more: NaN, 0: it has none."""
    found = 0
    if kind == _NAN:
        found = 4
    elif kind == _INFINITE:
        found = 1 if size > 0 else 2
    for p in range(start, stop):
        x, y = class_a[p], class_b[p]
        if x == _NAN or y == _NAN or (x + y == _INFINITE and x != y and (x == _ZERO or y == _ZERO)):
            found |= 4
        elif x == _INFINITE or y == _INFINITE:
            found |= 1 if (a[p] < 0) == (b[p] < 0) else 2
    return found


_lock = threading.Lock()
_made: list[Any] = []


def _compiled() -> Any:
    with _lock:
        if not _made:
            started = time.monotonic()
            numba = register_helpers()
            dispatcher = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(_dot)
            compilecache.attach(dispatcher, f"{__name__}._dot", __name__)
            codes = numba.types.Array(numba.uint32, 3, "C")
            four = numba.types.UniTuple(numba.int64, 4)
            with wrapping():
                dispatcher.compile((codes, codes, codes, codes, four, four, four, four, four))
            dispatcher.disable_compile()
            _made.append(dispatcher)
            compiled_for(time.monotonic() - started)
    return _made[0]


@cache
def _described(name: str) -> tuple[int, int, int, int]:
    found = FLOATS[name]
    return found.exponent, found.fraction, found.ignored, found.special


def dot(a: Array, b: Array, c: Array, types: tuple[str, str, str, str], model: Model) -> Array:
    """`a b + c` for tiles of codes: uint32 arrays of t x m x k, t x k x n and t x m x n, C-contiguous.

    `types`: the PTX names of d, a, b and c.
    """
    d_type, a_type, b_type, c_type = types
    d = np.empty_like(c)
    zero = model.zero16 if d_type == "f16" else model.zero32
    numbers = (model.fraction, model.terms, zero, model.kept)
    _compiled()(a, b, c, d, *map(_described, (a_type, b_type, c_type, d_type)), numbers)
    return d


def dot_integer(a: Array, b: Array, c: Array, saturate: bool) -> Array:
    """`a b + c` for tiles of signed or unsigned numbers of at most 8 bits (as float32), and codes of int32.

    float32 holds the sum of a tile's products over k exactly, because it stays below 2^24; a check ensures this.
    """
    if a.shape[2] > 256:
        raise ValueError("a tile's k is 256 at most")
    total = np.matmul(a, b).astype(np.int64) + c.view(np.int32)
    if saturate:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return np.ascontiguousarray(total.astype(np.int32)).view(np.uint32)


def dot_bits(a: Array, b: Array, c: Array, exclusive: bool) -> Array:
    """The number of ones in `a and b`, or `a xor b`, over k, plus c, for tiles of bits (as float32) and codes of
    int32."""
    total = np.matmul(a, b)
    if exclusive:
        total = a.sum(2)[:, :, None] + b.sum(1)[:, None, :] - 2 * total
    return np.ascontiguousarray((total.astype(np.int64) + c.view(np.int32)).astype(np.int32)).view(np.uint32)
