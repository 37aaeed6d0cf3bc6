"""Compare forms of mma on a device and in the emulator: one kernel for both, with tiles of every kind of magnitude.

A warp computes one tile: each lane loads its registers of a, b and c, runs the instruction and stores its registers of
d.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.conformance import kernels
from ptxdiff.conformance.fetch import CudaContext, Hardware, Identity
from ptxdiff.conformance.measure import OFFENDERS, Tally, WrongInput
from ptxdiff.conformance.product_forms import bounds_of
from ptxdiff.emulator.errors import NotElementwise, PtxError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.emulator.kernel.tensor_cores import Arithmetic
from ptxdiff.emulator.kernel.warp.mma import Product
from ptxdiff.emulator.numeric.tensorcore import FLOATS, Float
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array

TILES = 1 << 15
"""How many tiles are drawn for a form, and the tiles of one launch; each further tile combines a, b and c of three of
these."""
KINDS = ("any", "near", "wide", "cancelling", "tiny", "zeros", "special")
"""Kinds of magnitudes; tiles take them in turn."""
_ROLLED = (0, len(KINDS), 2 * len(KINDS))
"""How many tiles a, b and c are shifted in each round; all three keep the tile's kind."""
WARPS = 4
APART = "the definition gives something else by itself than in a kernel of the emulator"
"""Why a form was not measured."""


@dataclass(frozen=True)
class ProductKernel:
    """A form's kernel as PTX, and the emulator's product for the instruction."""

    text: str
    product: Product

    @property
    def dtypes(self) -> tuple[Any, ...]:
        """numpy types of the registers of d, a, b and c."""
        return tuple(np.uint64 if w == 64 else np.uint32 for w in self.product.widths)

    def shape(self, operand: int, tiles: int) -> tuple[int, int, int]:
        """The shape of the array of an operand's registers: tiles x registers x lanes."""
        return tiles, self.product.counts[operand], 32


def opening(target: str, buffers: Iterable[str], registers: str) -> list[str]:
    """The first lines of a kernel whose warps multiply tiles, one after the other: the parameters, the registers (with
    those declared in `registers`), and a loop with the tile in %r2 and the lane in %r3. `CLOSING` ends it."""
    head = ", ".join(f".param .u64 {name}" for name in [*buffers, "tiles"])
    return [
        ".version 8.8", f".target {target}", ".address_size 64", f".visible .entry product({head}) {{",
        f"  .reg .pred %p; {registers} .reg .b32 %r<9>; .reg .b64 %q<9>;",
        "  ld.param.u64 %q0, [tiles];",
        "  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r5, %nctaid.x;",
        f"  shr.u32 %r2, %r0, 5; mad.lo.u32 %r2, %r1, {WARPS}, %r2; mul.lo.u32 %r5, %r5, {WARPS};",
        "  and.b32 %r3, %r0, 31;",
        "AGAIN:",
        "  cvt.u64.u32 %q1, %r2; setp.ge.u64 %p, %q1, %q0; @%p bra DONE;",
    ]  # fmt: skip


CLOSING = ["  add.u32 %r2, %r2, %r5; bra AGAIN;", "DONE:", "  ret;", "}"]


@cache
def program(form: str, target: str) -> ProductKernel:
    """The kernel of a form. Raises PtxError where the emulator refuses it."""
    bound = bounds_of()[form]
    counts, wide = _counts(bound)
    lines = opening(target, "abcd", f".reg .b32 %x<{sum(counts)}>; .reg .f64 %y<{sum(counts)}>;")
    names, at = [], 0
    for operand, name in enumerate("dabc"):
        count, double = counts[operand], wide[operand]
        kind = "y" if double else "x"
        names.append("{" + ", ".join(f"%{kind}{at + i}" for i in range(count)) + "}")
        if operand:
            lines += _moves(name, "ld", count, double, kind, at)
        at += count
    lines.append(f"  {bound.spelling} {', '.join(names)};")
    lines += _moves("d", "st", counts[0], wide[0], "y" if wide[0] else "x", 0)
    text = "\n".join(lines + CLOSING) + "\n"
    step = next(s for s in load_kernel(text).program.steps if s.kind == "mma")
    return ProductKernel(text, step.detail)


def _counts(bound: Bound) -> tuple[list[int], list[bool]]:
    """Registers of d, a, b and c, and which of them have 64 bits, from only the shape and the types."""
    from ptxdiff.emulator.numeric.tensorcore import BITS

    m, rest = (bound.modifiers["shape"] or "")[1:].split("n")
    n, k = rest.split("k")
    sizes = [int(m) * int(n), int(m) * int(k), int(k) * int(n), int(m) * int(n)]
    names = ("dtype", "atype", "btype", "ctype")
    types = [bound.modifiers[x] or "" for x in names] if "atype" in bound.modifiers else ["s32", "b1", "b1", "s32"]
    if "alayout" in bound.modifiers:
        sizes = [4 * s for s in sizes]
    wide = [BITS[t] == 64 for t in types]
    counts = [max(s * BITS[t] // (2048 if w else 1024), 1) for s, t, w in zip(sizes, types, wide, strict=True)]
    return counts, wide


def _moves(name: str, opcode: str, count: int, double: bool, kind: str, at: int) -> list[str]:
    size = 8 if double else 4
    lines = [
        f"  ld.param.u64 %q2, [{name}]; mul.wide.u32 %q3, %r2, {count * 32 * size}; add.s64 %q2, %q2, %q3;",
        f"  mul.wide.u32 %q3, %r3, {size}; add.s64 %q2, %q2, %q3;",
    ]
    for i in range(count):
        register, address = f"%{kind}{at + i}", f"[%q2+{i * 32 * size}]"
        suffix = "f64" if double else "b32"
        lines.append(
            f"  {opcode}.global.{suffix} "
            + (f"{register}, {address};" if opcode == "ld" else f"{address}, {register};")
        )
    return lines


# tiles of every kind -----------------------------------------------------------------------------------------


def tiles(form: str, target: str, start: int, count: int) -> list[Array]:
    """Registers of a, b and c for `count` tiles from number `start` on; equal for equal arguments."""
    known = program(form, target)
    codes = drawn(form, target, start, count)
    return [registers(known.product, i, codes[i - 1]).reshape(known.shape(i, count)) for i in (1, 2, 3)]


def drawn(form: str, target: str, start: int, count: int) -> list[Array]:
    """Codes of a, b and c as matrices, for `count` tiles from number `start` on."""
    known = program(form, target)
    seed = int.from_bytes(hashlib.sha256(f"{form} {start}".encode()).digest()[:7], "big")
    rng = np.random.default_rng(seed)
    product = known.product
    shapes = [(count * t.shape[0], *t.shape[1:]) for t in product.tables]
    kind = np.repeat(np.arange(count) % len(KINDS), product.tables[0].shape[0])
    matrices = [
        codes(rng, name, shape, kind, i)
        for i, (name, shape) in enumerate(zip(product.arithmetic.types, shapes, strict=True))
    ]
    cancel(rng, product.arithmetic, matrices, kind)
    return matrices[1:]


_F64 = Float(11, 52)


def codes(rng: np.random.Generator, name: str, shape: tuple[int, ...], kind: Array, operand: int) -> Array:
    """Random codes of a type; for floats with exponents of each tile's kind."""
    layout = FLOATS.get(name, _F64 if name == "f64" else None)
    bits = {"b1": 1, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s32": 32}.get(name)
    if layout is None:
        assert bits
        return rng.integers(0, 1 << bits, shape, dtype=np.uint64)
    low = layout.fraction + layout.ignored
    total = low + layout.exponent + 1
    codes = rng.integers(0, 1 << total, shape, dtype=np.uint64)
    highest = (1 << layout.exponent) - (2 if layout.special == 2 else 1)
    # An accumulator is about as large as the products: if factors are near the format's least number, twice its
    # exponent.
    twice = 2 if operand in (0, 3) else 1
    spread = {"near": 2, "wide": 12 * twice, "cancelling": 1, "tiny": 2 * twice, "zeros": 3, "special": 3}
    without = np.uint64((1 << low) - 1 | 1 << (total - 1))
    for number, word in enumerate(KINDS[1:], 1):
        rows = np.flatnonzero(kind == number)
        each = (len(rows), *shape[1:])
        middle = layout.bias
        if word == "tiny":
            middle = layout.bias // 2 if operand in (1, 2) else 2
        field = np.clip(middle + rng.integers(-spread[word], spread[word] + 1, each), 0, highest).astype(np.uint64)
        raw = codes[rows]
        some = raw & without | field << np.uint64(low)
        if word == "tiny":
            some = np.where(rng.random(each) < 0.2, raw & without, some)  # subnormal
        if word == "zeros":
            some = np.where(rng.random(each) < 0.6, raw & np.uint64(1 << (total - 1)), some)
        if word == "special" and layout.special:
            top = np.uint64(((1 << layout.exponent) - 1) << low)
            payload = np.where(rng.random(each) < 0.3, raw & np.uint64((1 << low) - 1), np.uint64(0))
            special = raw & np.uint64(1 << (total - 1)) | top | payload
            some = np.where(rng.random(each) < 0.02, special, some)
        codes[rows] = some
    return codes


def cancel(rng: np.random.Generator, how: Arithmetic, codes: list[Array], kind: Array) -> None:
    """In tiles of the kind `cancelling`, make half of k the negative of the other half, except for low bits, in any
    order."""
    a_type, b_type = how.types[1:3]
    layout = FLOATS.get(a_type, _F64 if a_type == "f64" else None)
    a, b = codes[1], codes[2]
    some = np.flatnonzero(kind == KINDS.index("cancelling"))
    if layout is None or not len(some) or a.shape[2] < 2 or a_type != b_type:
        return
    half = a.shape[2] // 2
    sign = np.uint64(1 << (layout.exponent + layout.fraction + layout.ignored))
    order = rng.permutation(a.shape[2])
    first, second = order[:half], order[half : 2 * half]
    a[np.ix_(some, np.arange(a.shape[1]), second)] = a[np.ix_(some, np.arange(a.shape[1]), first)] ^ sign
    flips = rng.integers(0, 2, (len(some), half, b.shape[2]), dtype=np.uint64) << np.uint64(layout.ignored)
    b[np.ix_(some, second, np.arange(b.shape[2]))] = b[np.ix_(some, first, np.arange(b.shape[2]))] ^ flips


def registers(product: Product, operand: int, codes: Array) -> Array:
    """The registers for an operand's matrices, from the tables of fragments; operand 0 is d."""
    table, width = product.tables[operand], product.widths[operand]
    order = np.empty(table.size, np.int64)
    order[table.reshape(-1)] = np.arange(table.size)
    rows = codes.reshape(-1, table.size)[:, order]
    if width >= 8:
        return np.ascontiguousarray(rows.astype(f"u{width // 8}")).view(f"u{max(width, 32) // 8}")
    if width == 4:
        octets = rows[:, ::2] | rows[:, 1::2] << np.uint64(4)
        return np.ascontiguousarray(octets.astype(np.uint8)).view(np.uint32)
    return np.ascontiguousarray(np.packbits(rows.astype(np.uint8), axis=1, bitorder="little")).view(np.uint32)


# running and comparing -----------------------------------------------------------------------------------------


def emulated(known: ProductKernel, operands: list[Array]) -> Array:
    """Registers of d by the emulator."""
    count = len(operands[0])
    result = np.zeros(known.shape(0, count), known.dtypes[0])
    buffers = [Buffer(x, n) for x, n in zip([*operands, result], "abcd", strict=True)]
    run_kernel(
        load_kernel(known.text), [*buffers, count], (-(-count // WARPS),), num_threads=32 * WARPS, races=False,
        limit=None,
    )  # fmt: skip
    return result


class ProductDevice:
    """This machine's GPU, for kernels of products."""

    def __init__(self) -> None:
        hardware = Hardware()
        self.gpu: CudaContext = hardware.gpu
        self.identity: Identity = hardware.identity
        self._assembler = hardware.assembler

    def run(self, known: ProductKernel, operands: list[Array]) -> Array:
        """Registers of d. Raises PtxError with ptxas's message."""
        result = np.zeros(known.shape(0, len(operands[0])), known.dtypes[0])
        self.launch(self.kernel(known.text), [*operands, result], 32 * len(result))
        return result

    def kernel(self, text: str, name: str = "product") -> Any:
        """A kernel, loaded. Raises PtxError with ptxas's words."""
        cubin = kernels.assembled(text, self.gpu.target, self._assembler)
        if not isinstance(cubin, bytes):
            raise PtxError(f"ptxas: {cubin.words[:500]}")
        return self.gpu.kernel(self.gpu.load(cubin), name)

    def launch(self, kernel: Any, arrays: list[Array], threads: int) -> None:
        """Run a kernel on copies of arrays and fetch the last array.

        The kernel's last parameter is the number of rows.
        """
        places = [self.gpu.allocate(x.nbytes) for x in arrays]
        try:
            for address, array in zip(places, arrays, strict=True):
                self.gpu.upload(address, array)
            self.gpu.launch(kernel, [*places, len(arrays[-1])], threads)
            self.gpu.download(arrays[-1], places[-1])
        finally:
            for address in places:
                self.gpu.free(address)


def measured(device: ProductDevice, form: str, count: int, seconds: float = math.inf, start: int = 0) -> Tally:
    """Compare the emulator with the device on `count` tiles, or as many as fit the time.

    The first TILES go through whole kernels, the others through the definition's code. start: tells tiles of one run
    from those of another.
    """
    tally = Tally(form, "")
    target, ends = device.identity.target, time.monotonic() + seconds
    try:
        known = program(form, target)
        codes = drawn(form, target, start, min(TILES, count))
        operands = _loaded(known, codes)
        codes = [narrow(x, w) for x, w in zip(codes, known.product.widths[1:], strict=True)]
        expected = emulated(known, operands)
        if not np.array_equal(expected, _computed(known, codes)):
            tally.failure = APART
            return tally
        compare(tally, operands, expected, device.run(known, operands))
        tally.hosted = tally.reached = len(operands[0])
        turn, each = 0, known.product.tables[0].shape[0]  # matrices of a tile
        while tally.reached < count and time.monotonic() < ends and tally.mismatches < tally.hosted // 8:
            turn += 1
            some = [np.roll(x, turn * n * each, axis=0) for x, n in zip(codes, _ROLLED, strict=True)]
            moved = [np.roll(x, turn * n, axis=0) for x, n in zip(operands, _ROLLED, strict=True)]
            compare(tally, moved, _computed(known, some), device.run(known, moved))
            tally.reached += TILES
    except NotElementwise as e:
        tally.failure = str(e).splitlines()[0]
    except PtxError as e:
        tally.refused = str(e).splitlines()[0]
    return tally


def _computed(known: ProductKernel, codes: list[Array]) -> Array:
    """Registers of d by the definition's code, without a kernel; codes as `narrow` gives them."""
    result = known.product.arithmetic(*codes)
    return registers(known.product, 0, result).reshape(
        known.shape(0, len(codes[0]) // known.product.tables[0].shape[0])
    )


def narrow(codes: Array, width: int) -> Array:
    """Codes in the smallest words that hold them."""
    return codes.astype(UNSIGNED[8 if width < 8 else width])


def _loaded(known: ProductKernel, codes: list[Array]) -> list[Array]:
    count = len(codes[0]) // known.product.tables[0].shape[0]
    return [registers(known.product, i, codes[i - 1]).reshape(known.shape(i, count)) for i in (1, 2, 3)]


def compare(tally: Tally, operands: list[Array], expected: Array, got: Array) -> None:
    """Count the tiles whose registers differ, and keep some of them."""
    wrong = np.flatnonzero((expected != got).any(axis=(1, 2)))
    tally.mismatches += len(wrong)
    for tile in wrong[: OFFENDERS - len(tally.offenders)]:
        tally.offenders.append(_offender(int(tile), operands, expected, got))


def _offender(place: int, operands: list[Array], expected: Array, got: Array) -> WrongInput:
    """The first register of lane 0 of each input, and the first differing registers of the results."""
    at = np.unravel_index(int(np.flatnonzero(expected[place] != got[place])[0]), expected[place].shape)
    variant = f"tile of {KINDS[place % len(KINDS)]} magnitudes, register {at[0]} of lane {at[1]}"
    inputs = tuple(hex(int(x[place, 0, 0])) for x in operands)
    return WrongInput(variant, inputs, (hex(int(expected[place][at])),), (hex(int(got[place][at])),))
