"""wgmma on very many tiles: a GPU runs the instruction and compares it with the definition's arithmetic itself.

A layout's matrices are drawn once. From round to round, a, b, the metadata and c are combined anew, within each kind of
magnitude. Three checks tie the comparison to the definition. Some tiles of each layout run in whole kernels of the
emulator. More of them, from the first round, are computed here by the definition's code. And one round gives the
arithmetic other matrices than the instruction: it must differ. Agreeing results are counted, so that a comparison that
did not run is detected.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.conformance import group_products, kernels, products
from ptxdiff.conformance.group_products import GroupKernel
from ptxdiff.conformance.measure import OFFENDERS, Tally
from ptxdiff.emulator.errors import NotElementwise, PtxError
from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.kernel.warp import sparse_mma
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.numeric.tensorcore import BITS, FLOATS, _decode, _encode
from ptxdiff.emulator.numeric.vectorise import Array, register_helpers, wrapping

KINDS = len(products.KINDS)
DRAWN = 64 * KINDS
"""Tiles that are drawn for a layout of 64 columns or more; narrower layouts have more tiles."""
LAYOUTS = 4
"""Layouts of a form; each form has other layouts."""
HOSTED = 8 * KINDS
"""Tiles of a layout that the definition's code computes on the host."""
TURNS = 32
"""Rounds between two checks of the counts."""
BLIND = "the comparison on the device does not see other matrices"
"""The failure of a form whose comparison does not detect wrong matrices."""


def measured(device: products.ProductDevice, form: str, count: int, seconds: float = math.inf, start: int = 0) -> Tally:
    """Compare the emulator with the device on `count` tiles, or on as many as the time allows, layout by layout.

    start: a number that makes the tiles of one run differ from those of another.
    """
    tally = Tally(form, "")
    ends = time.monotonic() + seconds
    known = group_products.layouts_of(form)
    first, some = hashlib.sha256(f"{form} {start}".encode()).digest()[0], min(LAYOUTS, len(known))
    try:
        turn, operands, before = 0, [], 0
        while tally.reached < count and (not turn or time.monotonic() < ends) and not _settled(tally):
            kernel = group_products.program(form, device.identity.target, known[(first + turn) % len(known)])
            left = some - turn % some  # layouts that will still use these matrices
            if left == some:
                before = tally.reached
                operands = group_products.drawn(
                    kernel, f"{form} {start} {turn}", DRAWN * max(64 // kernel.product.b.rows, 1)
                )
            goal = tally.reached + -(-(count - tally.reached) // left)
            _layout(device, kernel, operands, tally, tally.reached - before, goal, _share(ends, left))
            turn += 1
    except NotElementwise as e:
        tally.failure = str(e).splitlines()[0]
    except PtxError as e:
        tally.refused = str(e).splitlines()[0]
    return tally


def _settled(tally: Tally) -> bool:
    return bool(tally.failure) or tally.mismatches > 64


def _share(ends: float, parts: int) -> float:
    now = time.monotonic()
    return now + (ends - now) / parts


def _cpu(target: str) -> str:
    return f"sm_{min(int(target.removeprefix('sm_').rstrip('af')), 90)}"


def _layout(
    device: products.ProductDevice, kernel: GroupKernel, operands: list[Array], tally: Tally, used: int, goal: int,
    ends: float,
) -> None:  # fmt: skip
    """Measure one layout until the form has `goal` tiles, time is up, or no rounds are left.

    used: tiles that were made of these matrices before.
    """
    tiles = len(operands[0])
    few = [x[:KINDS] for x in operands]
    given = group_products.arrays(kernel, few)
    if not np.array_equal(group_products.emulated(kernel, given), group_products.computed(kernel, few)):
        tally.failure = products.APART
        return
    turns = tiles // KINDS
    with loaded(device, kernel, operands) as rounds:
        got = rounds.run([0] * len(rounds.rolls))
        _hosted(tally, kernel, operands, got)
        # For this check the arithmetic gets each tile's neighbour of the same kind as b.
        if right_tiles(rounds.check([0, KINDS, *[0] * 2], tiles), kernel).mean() > 0.5:
            tally.failure = BLIND
            return
        # Each layout continues where the previous one stopped, so that it has other tiles.
        start = turn = used // tiles
        while tally.reached < goal and turn < turns * turns and (turn == start or time.monotonic() < ends):
            batch = [rolls_of_turn(n, turns) for n in range(turn, min(turn + TURNS, turns * turns))]
            wrong = np.flatnonzero(~right_tiles(rounds.agreeing(batch), kernel))
            tally.mismatches += len(wrong)
            tally.reached += len(batch) * tiles
            _explained(device, kernel, operands, tally, [(batch[w // tiles], int(w % tiles)) for w in wrong])
            if _settled(tally):
                return
            turn += len(batch)


def rolls_of_turn(turn: int, turns: int) -> list[int]:
    """The tiles by which a, b and the metadata are shifted: over all rounds, each a meets each b of its kind."""
    a = turn % turns
    return [KINDS * (n % turns) for n in (a, turn // turns + 2 * a, 3 * turn)]


def right_tiles(agreeing: Array, kernel: GroupKernel) -> Array:
    """Which tiles agree in all of their results."""
    return np.asarray(agreeing == 64 * kernel.product.b.rows)


def _hosted(tally: Tally, kernel: GroupKernel, operands: list[Array], got: Array) -> None:
    """Compare the first tiles of the first round with the results of the definition's code on the host."""
    some = [x[:HOSTED] for x in operands]
    given = group_products.arrays(kernel, some)
    host = Tally(tally.form, "")
    group_products.compare(host, kernel, given, group_products.computed(kernel, some), got[:HOSTED])
    tally.hosted += KINDS
    tally.offenders += host.offenders[: OFFENDERS - len(tally.offenders)]
    if host.mismatches:
        # The rounds count these mismatches too, unless their comparison misses them.
        tally.mismatches += host.mismatches


def _explained(
    device: products.ProductDevice, kernel: GroupKernel, operands: list[Array], tally: Tally,
    wrong: list[tuple[list[int], int]],
) -> None:  # fmt: skip
    """Describe tiles that differ by their inputs and results, with the definition's code on the host."""
    for rolls, tile in wrong[: OFFENDERS - len(tally.offenders)]:
        one = _tile(operands, rolls, tile)
        given = group_products.arrays(kernel, one)
        host = Tally(tally.form, "")
        got = group_products.on_device(device, kernel, given)
        group_products.compare(host, kernel, given, group_products.computed(kernel, one), got)
        if not host.mismatches:
            tally.failure = "the definition gives other results on the device than on the host"
            return
        kind = products.KINDS[tile % KINDS]
        tally.offenders += [replace(o, variant=o.variant.replace(products.KINDS[0], kind, 1)) for o in host.offenders]


def _tile(operands: list[Array], rolls: list[int], tile: int) -> list[Array]:
    """a, b, c and the metadata of one tile of a round."""
    a, b, metadata = ((tile + n) % len(operands[0]) for n in rolls)
    where = [a, b, tile, *[metadata] * (len(operands) - 3)]
    return [x[n : n + 1] for x, n in zip(operands, where, strict=True)]


# on the device ----------------------------------------------------------------------------------------------------


@dataclass
class Rounds:
    """A layout's matrices on a device: the kernels of the instruction and of the comparison, and their addresses.

    `strides`: bytes of a tile: of the images, a's registers and the metadata; of the packed a and b, and of `w`.
    """

    device: products.ProductDevice
    kernels: tuple[Any, Any]
    tiles: int
    n: int
    result: Array
    places: dict[str, int]
    strides: dict[str, int]
    rolls: tuple[str, ...] = ("a", "b", "metadata")

    def run(self, rolls: list[int]) -> Array:
        """Run the instruction on all tiles of a round, and return its registers."""
        self._instruction(rolls)
        self.device.gpu.download(self.result, self.places["d"])
        return self.result

    def check(self, rolls: list[int], tiles: int) -> Array:
        """The number of agreeing results of each tile, for the round whose registers are in memory."""
        flags = np.zeros(tiles, np.uint32)
        self.device.gpu.upload(self.places["flags"], flags)
        self._compare(rolls, 0)
        self.device.gpu.download(flags, self.places["flags"])
        return flags

    def agreeing(self, batch: list[list[int]]) -> Array:
        """The number of agreeing results of each tile, over several rounds."""
        flags = np.zeros(len(batch) * self.tiles, np.uint32)
        self.device.gpu.upload(self.places["flags"], flags)
        for number, rolls in enumerate(batch):
            self._instruction(rolls)
            self._compare(rolls, number)
        self.device.gpu.download(flags, self.places["flags"])
        return flags

    def _instruction(self, rolls: list[int]) -> None:
        a, b, metadata = rolls
        given = [
            self._at("image", a), self._at("image", b), self._at("registers", a), self.places["c"],
            *([self._at("metadata", metadata)] if "metadata" in self.places else []), self.places["d"], self.tiles,
        ]  # fmt: skip
        self.device.gpu.launch(self.kernels[0], given, 128 * self.tiles)

    def _compare(self, rolls: list[int], number: int) -> None:
        a, b, metadata = rolls[:3]
        each = 64 * self.n // COLUMNS
        given = [
            self.places["flags"] + 4 * number * self.tiles, each, self._at("a", a), self._at("b", b),
            self._at("w", metadata), self.places["places"], self.places["c"], self.places["d"], self.n,
            each * self.tiles,
        ]  # fmt: skip
        self.device.gpu.launch(self.kernels[1], given, each * self.tiles)

    def _at(self, name: str, tile: int) -> int:
        return self.places[name] + tile * self.strides[name]


@contextmanager
def loaded(device: products.ProductDevice, kernel: GroupKernel, operands: list[Array]) -> Iterator[Rounds]:
    """The matrices of a layout on the device. Shifted ones lie there twice, so that a shift only changes an address."""
    gpu, tiles = device.gpu, len(operands[0])
    image, registers, c, *metadata = group_products.arrays(kernel, operands)
    matrices = {"image": image, "registers": registers, **decoded(kernel, operands)}
    if metadata:
        matrices["metadata"] = metadata[0]
    strides = {name: x.nbytes // tiles for name, x in matrices.items()}
    result = np.zeros_like(c)
    still = {
        "c": c, "d": result, "places": places(kernel), "flags": np.zeros(TURNS * tiles, np.uint32),
    }  # fmt: skip
    addresses: dict[str, int] = {}
    try:
        for name, array in {**{k: np.concatenate([x, x]) for k, x in matrices.items()}, **still}.items():
            addresses[name] = gpu.allocate(array.nbytes)
            gpu.upload(addresses[name], array)
        check = source(_cpu(device.identity.target), constants(kernel))
        launched = (device.kernel(kernel.apart), device.kernel(check, "check"))
        yield Rounds(device, launched, tiles, kernel.product.b.rows, result, addresses, strides)
    finally:
        for address in addresses.values():
            gpu.free(address)


def constants(kernel: GroupKernel) -> tuple[int, ...]:
    """The constants of the comparison's kernel: see `devicemodel.agreed`."""
    product = kernel.product
    per_word = 32 if product.a.type == "b1" else 1
    numbers = model_numbers(product.arithmetic).words()
    return (
        product.b.k // per_word, product.a.k // per_word, int(product.storage is not None),
        int(kernel.bits == 16), *numbers
    )  # fmt: skip


def decoded(kernel: GroupKernel, operands: list[Array]) -> dict[str, Array]:
    """a and b in the form of the comparison; for a sparse a, also the rows of b that its elements meet."""
    product = kernel.product
    a, b = (
        x ^ x.dtype.type(1 << BITS[m.type] - 1) if m.negative and m.type in FLOATS else x
        for x, m in zip(operands, (product.a, product.b), strict=False)
    )
    across = packed(np.ascontiguousarray(b.transpose(0, 2, 1)), product.b.type)
    codes = {
        "a": packed(a, product.a.type), "b": np.ascontiguousarray(across.transpose(0, 2, 1)),
        "w": np.zeros((len(a), 1, 1), np.int32),
    }  # fmt: skip
    if product.storage is not None:
        where = sparse_mma.kept(sparse_mma.chunks_of(operands[3].reshape(-1, 32), product.storage), product.storage)
        codes["w"] = where.reshape(a.shape).astype(np.int32)
    return codes


def places(kernel: GroupKernel) -> Array:
    """The position of each of a tile's 64 x n results among its registers, counted in results."""
    table, per = kernel.product.table, 32 // kernel.bits
    word, half = np.divmod(table.reshape(16, -1).astype(np.int64), per)
    register, lane = np.divmod(word, 32)
    warps = np.arange(4)[:, None, None] * 32
    positions = (register * 128 + warps + lane) * per + half
    return np.ascontiguousarray(positions.reshape(64, -1).astype(np.int32))


# The arithmetic of a warpgroup's product as a kernel ---------------------------------------------------------------
#
# The arithmetic of a warpgroup's product as a kernel, so that a GPU compares its own results with the definition.
#
# numba compiles the functions below for the host, and llvmlite lowers the same LLVM code to PTX, as in `kernels`. They
# compute what `ptxdiff.emulator.numeric.tensorcore` and `ptxdiff.emulator.kernel.tensor_cores` define, with their
# `_encode` and `_decode`, one result at a time. Codes are decoded beforehand (`packed`), because each is used many
# times.

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


def model_numbers(how: Arithmetic) -> ModelNumbers:
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
    packed = _decoder()(codes, form.exponent, form.fraction, form.ignored, form.special)
    return np.asarray(packed)


def _decoded(codes: Any, exponent: int, fraction: int, ignored: int, special: int) -> Any:
    decoded_codes = np.empty(len(codes), np.int32)
    for number in range(len(codes)):
        size, power, kind = _decode(codes[number], exponent, fraction, ignored, special)
        decoded_codes[number] = size << 16 | (max(power, _LOW) & 0x3FFF) << 2 | kind
    return decoded_codes


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
    kinds = 0
    for p in range(start, stop):
        q = np.int64(w[at_a + p]) if thin else p
        x, y = np.int64(a[at_a + p]), np.int64(b[at_b + q * n])
        of_x, of_y = x & 3, y & 3
        if of_x == 3 or of_y == 3 or (of_x == 2 and of_y == 0) or (of_x == 0 and of_y == 2):
            kinds |= 4
        elif of_x == 2 or of_y == 2:
            kinds |= 1 if (x < 0) == (y < 0) else 2
    return kinds


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
        kinds = 0
        if special:
            if kind == 3:
                kinds = 4
            elif kind == 2:
                kinds = 1 if size > 0 else 2
            kinds |= _non_finite(a, b, w, at_a, at_b, n, start, stop, thin)
        if kinds:
            if kinds > 2:
                code = 0x7FFF if half else 0x7FFFFFFF
            else:
                code = (0x7C00 if half else 0x7F800000) | (0 if kinds == 1 else (0x8000 if half else 0x80000000))
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
        position = tile * 64 * n + np.int64(places[row % 64 * n + column])
        code: Any = _element(c, position, narrow)
        at_b = tile * deep * n + column
        if way == 0:
            code = _of_blocks(
                a, b, w, code, row * stored, at_b, n, stored, thin, terms, fraction, up, zero, kept, exponent, mantissa
            )  # fmt: skip
        elif way == 1:
            code = _of_integers(a, b, w, code, row * stored, at_b, n, stored, thin, saturate)
        else:
            code = _of_bits(a, b, code, row * stored, at_b, n, stored)
        count += np.int64(code == _element(d, position, narrow))
    return count


POINTERS = ("a", "b", "w", "places", "c", "d")
NUMBERS = 5 + len(ModelNumbers(0).words())


@cache
def on_host() -> Any:
    """`agreed` as a function of addresses, compiled for this machine."""
    numba = register_helpers()
    types = numba.types
    word_pointer = types.CPointer(types.int32)
    signature = types.int64(types.int64, *[word_pointer] * len(POINTERS), *[types.int64] * NUMBERS)
    with wrapping():
        return numba.cfunc(signature, nopython=True, error_model="numpy")(agreed)


_KERNEL = f"""\
declare i64 @agreed(i64, {{pointers}}, {{model_numbers}})
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
        model_numbers=", ".join(["i64"] * NUMBERS),
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
