"""The arithmetic of a warpgroup's product as a kernel, so that a GPU compares its own results with the definition.

numba compiles the functions below for the host, and llvmlite lowers the same LLVM code to PTX, as in `kernels`. They
compute what `ptxdiff.emulator.numeric.tensorcore` and `ptxdiff.emulator.kernel.tensor_cores` define, with their
`_encode` and `_decode`, one result at a time. Codes are decoded beforehand (`packed`), because each is used many times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.conformance import kernels
from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.numeric.tensorcore import BITS, FLOATS, _decode, _encode
from ptxdiff.emulator.numeric.vectorise import Array, register_helpers, wrapping

COLUMNS = 8
"""Results of a row that a thread compares."""
_LOW = -8000  # the power of a zero in a packed word; below those of all products, as that of `tensorcore` is


@dataclass(frozen=True)
class ModelNumbers:
    """The arithmetic that `agreed` computes: its way, and numbers whose meaning depends on the way."""

    way: int
    terms: int = 0
    fraction: int = 0
    up: int = 0
    zero: int = 0
    kept: int = 0
    exponent: int = 0
    mantissa: int = 0
    saturate: int = 0

    def words(self) -> list[int]:
        """The numbers in the order of the parameters."""
        return [int(x) for x in vars(self).values()]


def numbers(how: Arithmetic) -> ModelNumbers:
    """The numbers of a warpgroup's arithmetic. Raises ValueError for an unknown way."""
    if how.way in ("integers", "bits"):
        if how.way == "bits" and how.word != "and":
            raise ValueError(f"no kernel compares products of bits by {how.word}")
        return ModelNumbers(1 + (how.way == "bits"), saturate=int(how.word == "satfinite"))
    if how.way != "blocks" or how.model is None or how.types[0] != how.types[3]:
        raise ValueError(f"no kernel compares products of the way {how.way!r}")
    model, (d, a, b, _) = how.model, how.types
    up = model.fraction - FLOATS[a].fraction - FLOATS[b].fraction
    zero = model.zero16 if d == "f16" else model.zero32
    return ModelNumbers(
        0, model.terms, model.fraction, up, zero, model.kept, FLOATS[d].exponent, FLOATS[d].fraction
    )  # fmt: skip


def packed(codes: Array, kind: str) -> Array:
    """Codes as words of 32 bits for the kernel: of floats significand, power and class; of other types the number.

    Single bits are packed: 32 neighbours along the last axis make a word.
    """
    if kind == "b1":
        octets = np.packbits(codes.astype(np.uint8), axis=-1, bitorder="little")
        return np.ascontiguousarray(octets).view(np.int32)
    if kind not in FLOATS:
        half = 1 << BITS[kind] - 1
        signed = codes.astype(np.int32)
        return (signed ^ half) - half if kind[0] == "s" else signed
    table = _words(kind)
    return table[codes] if table is not None else _packed(codes.reshape(-1).astype(np.int64), kind).reshape(codes.shape)


@cache
def _words(kind: str) -> Array | None:
    """The words of all codes of a narrow type; None for tf32."""
    return _packed(np.arange(1 << BITS[kind]), kind) if BITS[kind] <= 16 else None


def _packed(codes: Array, kind: str) -> Array:
    form = FLOATS[kind]
    register_helpers()
    found = _decoder()(codes, form.exponent, form.fraction, form.ignored, form.special)
    return np.asarray(found)


def _decoded(codes: Any, exponent: int, fraction: int, ignored: int, special: int) -> Any:
    found = np.empty(len(codes), np.int32)
    for place in range(len(codes)):
        size, power, kind = _decode(codes[place], exponent, fraction, ignored, special)
        found[place] = size << 16 | (max(power, _LOW) & 0x3FFF) << 2 | kind
    return found


@cache
def _decoder() -> Any:
    numba = register_helpers()
    with wrapping():
        return numba.njit(error_model="numpy")(_decoded)


# what runs on the device ------------------------------------------------------------------------------------------


@scalar
def _element(words: Any, place: Any, narrow: int) -> Any:
    """An element of d or c among registers: half a word of float16, else a word."""
    if narrow:
        return np.int64(words[place >> 1]) >> (16 * (place & 1)) & 0xFFFF
    return np.int64(words[place]) & 0xFFFFFFFF


@scalar
def _non_finite(a: Any, b: Any, w: Any, at_a: Any, at_b: Any, n: int, start: int, stop: int, thin: int) -> Any:
    """What NaNs and infinities make of a block's products: 1 +infinity, 2 -infinity, more a NaN, 0: none are there."""
    found = 0
    for p in range(start, stop):
        q = np.int64(w[at_a + p]) if thin else p
        x, y = np.int64(a[at_a + p]), np.int64(b[at_b + q * n])
        of_x, of_y = x & 3, y & 3
        if of_x == 3 or of_y == 3 or (of_x == 2 and of_y == 0) or (of_x == 0 and of_y == 2):
            found |= 4
        elif of_x == 2 or of_y == 2:
            found |= 1 if (x < 0) == (y < 0) else 2
    return found


@scalar
def _of_blocks(
    a: Any, b: Any, w: Any, code: Any, at_a: Any, at_b: Any, n: int, stored: int, thin: int, terms: int, fraction: int,
    up: int, zero: int, kept: int, exponent: int, mantissa: int,
) -> Any:  # fmt: skip
    """One result of tensor cores: see `tensorcore._dot`."""
    half = mantissa == 10
    start = 0
    while start < stored:
        stop = min(start + terms, stored)
        size, power, kind = _decode(code, exponent, mantissa, 0, 2)
        top: Any = power
        special, none = np.int64(kind > 1), np.int64(kind == 0)
        for p in range(start, stop):
            q = np.int64(w[at_a + p]) if thin else p
            x, y = np.int64(a[at_a + p]), np.int64(b[at_b + q * n])
            top = max(top, (x << 48 >> 50) + (y << 48 >> 50))
            special |= (x | y) & 2
            none |= np.int64((x & 3) == 0) | np.int64((y & 3) == 0)
        found = 0
        if special:
            if kind == 3:
                found = 4
            elif kind == 2:
                found = 1 if size > 0 else 2
            found |= _non_finite(a, b, w, at_a, at_b, n, start, stop, thin)
        if found:
            if found > 2:
                code = 0x7FFF if half else 0x7FFFFFFF
            else:
                code = (0x7C00 if half else 0x7F800000) | (0 if found == 1 else (0x8000 if half else 0x80000000))
            start = stop
            continue
        if none:
            top = max(top, zero)
        total: Any = np.int64(0)
        for p in range(start, stop):
            q = np.int64(w[at_a + p]) if thin else p
            x, y = np.int64(a[at_a + p]), np.int64(b[at_b + q * n])
            product = (x >> 16) * (y >> 16)
            down: Any = min(top - (x << 48 >> 50) - (y << 48 >> 50), 63)
            part = (abs(product) << up) >> down
            total += part if product > 0 else -part
        last: Any = abs(size)
        lift = fraction - mantissa - (top - power)
        last = last << lift if lift >= 0 else last >> min(-lift, 63)
        code = np.int64(_encode(total + (last if size > 0 else -last), top - fraction, half, kept))
        start = stop
    return code


@scalar
def _of_integers(
    a: Any, b: Any, w: Any, code: Any, at_a: Any, at_b: Any, n: int, stored: int, thin: int, saturate: int
) -> Any:
    """One result of integers, wrapped to 32 bits or saturated."""
    total: Any = (code ^ 0x80000000) - 0x80000000
    for p in range(stored):
        q = np.int64(w[at_a + p]) if thin else p
        total += np.int64(a[at_a + p]) * np.int64(b[at_b + q * n])
    if saturate:
        total = min(max(total, -0x80000000), 0x7FFFFFFF)
    return total & 0xFFFFFFFF


@scalar
def _of_bits(a: Any, b: Any, code: Any, at_a: Any, at_b: Any, n: int, stored: int) -> Any:
    """One result of single bits, 32 to a word: the number of ones in `a and b`."""
    total: Any = code
    for p in range(stored):
        both: Any = np.int64(a[at_a + p]) & np.int64(b[at_b + p * n]) & 0xFFFFFFFF
        both = both - (both >> 1 & 0x55555555)
        both = (both & 0x33333333) + (both >> 2 & 0x33333333)
        both = (both + (both >> 4)) & 0x0F0F0F0F
        total += both * 0x01010101 >> 24 & 0xFF
    return total & 0xFFFFFFFF


def agreed(
    i: int, a: Any, b: Any, w: Any, places: Any, c: Any, d: Any, n: int, deep: int, stored: int, thin: int, narrow: int,
    way: int, terms: int, fraction: int, up: int, zero: int, kept: int, exponent: int, mantissa: int, saturate: int,
) -> Any:  # fmt: skip
    """How many of the eight results of thread number `i` are those that the definition gives.

    a: tiles x 64 x stored, b: tiles x deep x n, both `packed`; w: of a sparse a, the row of b that each element of a
    meets, as a; places: 64 x n, where registers of a tile have each result; c, d: those registers, 16 bits to an
    element where `narrow`. Further numbers: `ModelNumbers`.
    """
    groups = n // 8
    row = i // groups
    tile = row // 64
    count: Any = 0
    for q in range(8):
        column = i % groups + q * groups
        place = tile * 64 * n + np.int64(places[row % 64 * n + column])
        code: Any = _element(c, place, narrow)
        at_b = tile * deep * n + column
        if way == 0:
            code = _of_blocks(
                a, b, w, code, row * stored, at_b, n, stored, thin, terms, fraction, up, zero, kept, exponent, mantissa
            )  # fmt: skip
        elif way == 1:
            code = _of_integers(a, b, w, code, row * stored, at_b, n, stored, thin, saturate)
        else:
            code = _of_bits(a, b, code, row * stored, at_b, n, stored)
        count += np.int64(code == _element(d, place, narrow))
    return count


POINTERS = ("a", "b", "w", "places", "c", "d")
NUMBERS = 5 + len(ModelNumbers(0).words())


@cache
def on_host() -> Any:
    """`agreed` as a function of addresses, compiled for this machine."""
    numba = register_helpers()
    types = numba.types
    words = types.CPointer(types.int32)
    signature = types.int64(types.int64, *[words] * len(POINTERS), *[types.int64] * NUMBERS)
    with wrapping():
        return numba.cfunc(signature, nopython=True, error_model="numpy")(agreed)


_KERNEL = f"""\
declare i64 @agreed(i64, {{pointers}}, {{numbers}})
define ptx_kernel void @check(i64 %flags, i64 %each, {{given}}, i64 %n, i64 %count) {{{{
entry:
{kernels.FIRST_AND_STRIDE}{{casts}}
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %good = call i64 @agreed(i64 %i, {{passed}})
  %good32 = trunc i64 %good to i32
  %tile = udiv i64 %i, %each
  %distance = shl i64 %tile, 2
  %address = add i64 %flags, %distance
  %place = inttoptr i64 %address to ptr addrspace(1)
  %old = atomicrmw add ptr addrspace(1) %place, i32 %good32 monotonic
  %next = add i64 %i, %stride
  br label %loop
done:
  ret void
}}}}
"""


@cache
def source(cpu: str, constants: tuple[int, ...]) -> str:
    """PTX of the kernel `check`. cpu: as LLVM names it ("sm_90"). constants: the values of `agreed`'s parameters after
    n.

    Its parameters are words of 64 bits: the address of the counts of agreeing results, one word of 32 bits for each
    tile; threads of a tile; the addresses `POINTERS`; n; and the number of threads.
    """
    text = _KERNEL.format(
        pointers=", ".join(["ptr"] * len(POINTERS)),
        numbers=", ".join(["i64"] * NUMBERS),
        given=", ".join(f"i64 %at_{x}" for x in POINTERS),
        casts="\n".join(
            f"  %g_{x} = inttoptr i64 %at_{x} to ptr addrspace(1)\n"
            f"  %p_{x} = addrspacecast ptr addrspace(1) %g_{x} to ptr"
            for x in POINTERS
        ),
        passed=", ".join([f"ptr %p_{x}" for x in POINTERS] + ["i64 %n"] + [f"i64 {x}" for x in constants]),
    )
    library = re.sub(r"dso_local ", "", str(on_host()._library.get_llvm_str()))
    ptx = kernels.lowered(kernels.HEAD + text, [kernels.portable(library, "agreed")], cpu)
    return f"// made for {' '.join(map(str, constants))}\n{ptx}"
