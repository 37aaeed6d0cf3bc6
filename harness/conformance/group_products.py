"""Compare forms of wgmma on a device and in the emulator: one kernel for both, with matrices in every shared memory
layout.

A block of one warpgroup computes one tile: it copies an image of a and b to shared memory, loads its registers of c
(and of a, if a is in registers), runs the instruction and stores its registers of d. The descriptors determine the
places of elements in the image, so a wrong address in the emulator gives wrong results on the device. A sparse a needs
one further register of metadata for each thread; its selector is 0.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxdiff.conformance import products, sparse_tiles
from ptxdiff.conformance.measure import OFFENDERS, Tally, WrongInput
from ptxdiff.conformance.product_forms import bounds_of
from ptxdiff.emulator.errors import NotElementwise, PtxError
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.emulator.kernel.warp import sparse_mma
from ptxdiff.emulator.kernel.warp.fragments import per_register
from ptxdiff.emulator.kernel.wgmma.descriptors import SWIZZLES, Descriptor, addresses
from ptxdiff.emulator.kernel.wgmma.multiply import GroupProduct, Matrix
from ptxdiff.emulator.numeric.tensorcore import BITS, FLOATS
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array

TILES = 1 << 6
"""Tiles of one launch."""


@dataclass(frozen=True)
class GroupLayout:
    """The layout of a and b: bytes of the swizzle (0: a is in registers), whether MN-major, whether negated."""

    a: int
    b: int
    across_a: bool = False
    across_b: bool = False
    negative_a: bool = False
    negative_b: bool = False

    def __str__(self) -> str:
        a = f"a {'MN' if self.across_a else 'K'}-major, {self.a} bytes" if self.a else "a in registers"
        return f"{a}; b {'MN' if self.across_b else 'K'}-major, {self.b} bytes"


def layouts_of(form: str) -> tuple[GroupLayout, ...]:
    """Layouts for a form, with each layout of a and each of b at least once."""
    bound = bounds_of()[form]
    kind, thin = bound.modifiers["atype"] or "", bound.form.operation == "wgmma_sp"
    signs = kind in FLOATS
    sizes = sorted(SWIZZLES.values())
    majors = (False, True) if BITS[kind] == 16 else (False,)
    of_a = [(size, across) for across in majors for size in sizes]
    # If a is sparse, a row of b along k has 64 bytes, which do not fit rows of 32 bytes.
    of_b = [(size, across) for size, across in of_a if not thin or across or size != 32]
    layouts = []
    for number, (size, across) in enumerate([*of_a, (0, False)]):
        size_b, across_b = of_b[((2 if thin else 3) * number + 1) % len(of_b)]
        layouts.append(
            GroupLayout(size, size_b, across, across_b, signs and number % 3 == 1, signs and number % 4 == 2)
        )
    return tuple(layouts)


def placed(matrix: Matrix, swizzle: int, start: int) -> tuple[Descriptor, int]:
    """A descriptor for a matrix at an address, and the bytes that the matrix takes."""
    size, k = matrix.rows, matrix.k
    if matrix.across:
        if swizzle == 16:
            return Descriptor(start, size // 8 * 128, 128, 16), size * k * 2
        atoms = -(-size * 2 // swizzle)
        return Descriptor(start, swizzle * k, swizzle * 8, swizzle), atoms * swizzle * k
    if swizzle == 16:
        return Descriptor(start, size * 16, 128, 16), size * matrix.depth
    # The last bytes of each row, which a step along k crosses.
    return Descriptor(start + swizzle - matrix.depth, 0, 8 * swizzle, swizzle), size * swizzle


@dataclass(frozen=True)
class GroupKernel:
    """A form's kernel as PTX, the emulator's product for the instruction, and its image of shared memory.

    `chunks`: for a (None: in registers) and b, the offset in the image of every 16-byte chunk. `size`: bytes of the
    image.
    `apart`: the same kernel with two images as its first parameters: what a lies in is of the first, b of the second.
    """

    text: str
    product: GroupProduct
    layout: GroupLayout
    chunks: tuple[Array | None, Array]
    size: int
    apart: str = ""

    @property
    def bits(self) -> int:
        """Bits of an element of d and c."""
        return BITS[self.product.arithmetic.types[0]]

    def shapes(self, tiles: int) -> tuple[tuple[int, int, int], ...]:
        """The shapes of the codes of d, a, b and c."""
        n, k = self.product.b.rows, self.product.b.k
        return (tiles, 64, n), (tiles, 64, self.product.a.k), (tiles, k, n), (tiles, 64, n)


@cache
def program(form: str, target: str, layout: GroupLayout) -> GroupKernel:
    """The kernel of a form. Raises PtxError if the emulator refuses it."""
    bound = bounds_of()[form]
    kind, kind_b = bound.modifiers["atype"] or "", bound.modifiers["btype"] or ""
    n, k = map(int, (bound.modifiers["shape"] or "").removeprefix("m64n").split("k"))
    thin = bound.form.operation == "wgmma_sp"
    stored = k // 2 if thin else k
    a = Matrix(64, stored, kind, layout.across_a, layout.negative_a)
    b = Matrix(n, k, kind_b, layout.across_b, layout.negative_b)
    size, codes, split = 0, [], 0
    chunks: list[Array | None] = []
    for matrix, swizzle in ((a, layout.a), (b, layout.b)):
        if not swizzle:
            chunks.append(None)
            codes.append(0)
            continue
        addresses_of, room = placed(matrix, swizzle, size)
        chunks.append(addresses(addresses_of, matrix.across, matrix.rows, matrix.depth))
        split = size  # of the last of them, which is b
        codes.append(addresses_of.code)
        size = -(-(size + room) // 1024) * 1024
    size = -(-size // 2048) * 2048  # 128 threads copy 2048 bytes at a time
    bits = BITS[bound.modifiers["dtype"] or ""]
    count = 64 * n * bits // 4096
    of_a = 0 if layout.a else 64 * stored * BITS[kind] // 4096
    text, apart = (
        _text(bound.spelling, target, layout, size, codes, count, of_a, kind, thin, x) for x in (None, split)
    )
    step = next(s for s in load_kernel(text).program.steps if s.kind == "wgmma")
    assert chunks[1] is not None
    return GroupKernel(text, step.detail, layout, (chunks[0], chunks[1]), size, apart)


def _text(
    spelling: str, target: str, layout: GroupLayout, size: int, codes: list[int], count: int, of_a: int, kind: str,
    thin: bool, split: int | None,
) -> str:  # fmt: skip
    """split: where the second image begins to count; None: there is one."""
    second = [] if split is None else ["other"]
    row = "mul.lo.u64 %q3, %q1, {}; add.s64 {}, {}, %q3;".format
    choice = f" setp.lt.u32 %p2, %r5, {split}; selp.b64 %q3, %q2, %q10, %p2;" if second else " mov.b64 %q3, %q2;"
    names = ["image", *second, "a", "c", *(["m"] if thin else []), "d", "tiles"]
    lines = [
        ".version 8.8", f".target {target}", ".address_size 64",
        f".visible .entry product({', '.join(f'.param .u64 {name}' for name in names)})",
        ".reqntid 128", "{", *(["  .reg .b32 %m<1>;"] if thin else []),
        "  .reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %q<20>;",
        f"  .reg .b32 %d<{count}>; .reg .b32 %a<{max(of_a, 1)}>; .reg .b32 %x<4>;",
        f"  .shared .align 1024 .b8 space[{size}];",
        "  ld.param.u64 %q0, [tiles]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x;",
        "  mov.u32 %r3, space; setp.eq.u32 %p1, 0, 0; shr.u32 %r4, %r3, 4; cvt.u64.u32 %q4, %r4;",
        *(f"  mov.b64 %q{5 + i}, {code}; add.s64 %q{5 + i}, %q{5 + i}, %q4;" for i, code in enumerate(codes)),
        "AGAIN:",
        "  cvt.u64.u32 %q1, %r1; setp.ge.u64 %p0, %q1, %q0; @%p0 bra DONE;",
        f"  ld.param.u64 %q2, [image]; {row(size, '%q2', '%q2')}",
        *(f"  ld.param.u64 %q10, [other]; {row(size, '%q10', '%q10')}" for _ in second),
        "  shl.b32 %r5, %r0, 4;",
        "COPY:",
        f" {choice} cvt.u64.u32 %q11, %r5; add.s64 %q3, %q3, %q11; ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%q3];",
        "  add.u32 %r6, %r3, %r5; st.shared.v4.b32 [%r6], {%x0, %x1, %x2, %x3};",
        f"  add.u32 %r5, %r5, 2048; setp.lt.u32 %p0, %r5, {size}; @%p0 bra COPY;",
        *_moves("a", "ld", of_a), *_moves("c", "ld", count, "d"), *_moves("m", "ld", int(thin)),
        "  fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;",
    ]  # fmt: skip
    operands = ["{" + ", ".join(f"%d{i}" for i in range(count)) + "}"]
    operands.append("%q5" if layout.a else "{" + ", ".join(f"%a{i}" for i in range(of_a)) + "}")
    operands += ["%q6", *(["%m0", "0"] if thin else []), "%p1"]
    if kind in FLOATS:
        operands += ["-1" if negative else "1" for negative in (layout.negative_a, layout.negative_b)]
    if BITS[kind] == 16:
        operands += [str(int(layout.across_a))] if layout.a else []
        operands += [str(int(layout.across_b))]
    lines += [
        f"  {spelling} {', '.join(operands)};",
        "  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; bar.sync 0;",
        *_moves("d", "st", count),
        "  add.u32 %r1, %r1, %r2; bra AGAIN;", "DONE:", "  ret;", "}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _moves(name: str, opcode: str, count: int, register: str = "") -> list[str]:
    """Loads or stores of each thread's registers; memory has rows of 128 registers."""
    if not count:
        return []
    lines = [
        f"  ld.param.u64 %q8, [{name}]; mul.lo.u64 %q9, %q1, {count * 512}; add.s64 %q8, %q8, %q9;",
        "  mul.wide.u32 %q9, %r0, 4; add.s64 %q8, %q8, %q9;",
    ]
    for i in range(count):
        pair = [f"%{register or name}{i}", f"[%q8+{i * 512}]"]
        lines.append(f"  {opcode}.global.b32 {', '.join(pair if opcode == 'ld' else pair[::-1])};")
    return lines


# tiles ------------------------------------------------------------------------------------------------------------


def drawn(known: GroupKernel, seed: str, count: int) -> list[Array]:
    """Codes of a, b and c for `count` tiles of all kinds of magnitudes; for a sparse a, also the metadata of 128
    threads."""
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:7], "big"))
    kind = np.arange(count) % len(products.KINDS)
    types = known.product.arithmetic.types
    codes = [
        products.codes(rng, name, shape, kind, i)
        for i, (name, shape) in enumerate(zip(types, known.shapes(count), strict=True))
    ]
    storage = known.product.storage
    if storage is None:
        products.cancel(rng, known.product.arithmetic, codes, kind)
    else:
        sparse_tiles.cancel(rng, types, storage, codes[1], codes[2], kind)
    matrices = [x.astype(UNSIGNED[max(BITS[t], 8)]) for x, t in zip(codes[1:], types[1:], strict=True)]
    return matrices if storage is None else [*matrices, sparse_tiles.metadata(rng, storage, (count, 1, 128))]


def image(known: GroupKernel, a: Array, b: Array, chunks: tuple[Array | None, Array] | None = None) -> Array:
    """The shared memory of each tile as a row of bytes; bytes outside the matrices are all ones. chunks: None for the
    kernel's."""
    memory = np.full((len(a), known.size), 0xFF, np.uint8)
    for matrix, codes, places in zip(
        (known.product.a, known.product.b), (a, b.transpose(0, 2, 1)), chunks or known.chunks, strict=True
    ):
        if places is None:
            continue
        table = codes.transpose(0, 2, 1) if matrix.across else codes
        rows = np.ascontiguousarray(table).reshape(len(a), -1)
        octets = np.packbits(rows, axis=1, bitorder="little") if BITS[matrix.type] == 1 else rows.view(np.uint8)
        where = places.reshape(-1)[:, None] + np.arange(16)
        memory[:, where.reshape(-1)] = octets
    return memory


def registers(codes: Array, table: Array, bits: int) -> Array:
    """Matrices of 64 rows as registers: tiles x registers x threads, by the table of a warp's 16 rows."""
    order = np.empty(table.size, np.int64)
    order[table.reshape(-1)] = np.arange(table.size)
    rows = codes.reshape(len(codes) * 4, -1)[:, order]
    if bits == 1:
        packed_rows = np.ascontiguousarray(np.packbits(rows.astype(np.uint8), axis=1, bitorder="little")).view(
            np.uint32
        )
    else:
        packed_rows = np.ascontiguousarray(rows.astype(UNSIGNED[bits])).view(np.uint32)
    count = table.size // (32 * per_register(bits))
    return np.ascontiguousarray(packed_rows.reshape(-1, 4, count, 32).transpose(0, 2, 1, 3)).reshape(-1, count, 128)


def arrays(known: GroupKernel, operands: list[Array], of_memory: Array | None = None) -> list[Array]:
    """The arrays of a launch: the image, registers of a and of c, and metadata if a is sparse."""
    a, b, c, *more = operands
    table = known.product.a.table
    of_a = np.zeros((len(a), 1, 128), np.uint32) if table is None else registers(a, table, BITS[known.product.a.type])
    memory = image(known, a, b) if of_memory is None else of_memory
    return [memory, of_a, registers(c, known.product.table, known.bits), *more]


def computed(known: GroupKernel, operands: list[Array]) -> Array:
    """Registers of d, computed by the definition without a kernel."""
    a, b, c, *more = operands
    sides, storage = (known.product.a, known.product.b), known.product.storage
    a, b = (x ^ x.dtype.type(1 << BITS[m.type] - 1) if m.negative else x for x, m in zip((a, b), sides, strict=True))
    if storage is None:
        return registers(known.product.arithmetic(a, b, c), known.product.table, known.bits)
    where = sparse_mma.kept(sparse_mma.chunks_of(more[0].reshape(-1, 32), storage), storage).reshape(len(a), 64, -1)
    return registers(sparse_mma.multiplied(known.product.arithmetic, a, b, c, where), known.product.table, known.bits)


def emulated(known: GroupKernel, given: list[Array]) -> Array:
    """Registers of d, computed by the emulator."""
    result = np.zeros_like(given[2])
    names = ("image", "a", "c", *["metadata"] * (len(given) - 3), "d")
    buffers = [Buffer(x, n) for x, n in zip([*given, result], names, strict=True)]
    run_kernel(load_kernel(known.text), [*buffers, len(result)], (len(result),), num_threads=128, limit=None)
    return result


def on_device(device: products.ProductDevice, known: GroupKernel, given: list[Array]) -> Array:
    """Registers of d, computed by a GPU. Raises PtxError with ptxas's message."""
    kernel = device.kernel(known.text)
    result = np.zeros_like(given[2])
    device.launch(kernel, [*given, result], 128 * len(result))
    return result


def measured(device: products.ProductDevice, form: str, count: int, seconds: float = math.inf) -> Tally:
    """Compare the emulator with the device on `count` tiles, or as many as fit the time, layout by layout.

    The first tiles of each layout go through whole kernels, the others through the definition. The order of layouts
    depends on the form's name, so that a few tiles of many forms cover all layouts.
    """
    tally = Tally(form, "")
    target, ends = device.identity.target, time.monotonic() + seconds
    known = layouts_of(form)
    first = hashlib.sha256(form.encode()).digest()[0]
    try:
        turn = 0
        while tally.reached < count and (turn < 2 or time.monotonic() < ends) and tally.mismatches < 64:
            kernel = program(form, target, known[(first + turn) % len(known)])
            some = min(TILES, count - tally.reached)
            operands = drawn(kernel, f"{form} {turn}", some)
            given = arrays(kernel, operands)
            expected = computed(kernel, operands)
            if turn < len(known):
                few = len(products.KINDS)
                part = emulated(kernel, [x[:few] for x in given])
                assert np.array_equal(part, expected[:few]), f"{form}: {kernel.layout}"
                tally.hosted += len(part)
            compare(tally, kernel, given, expected, on_device(device, kernel, given))
            tally.reached += some
            turn += 1
    except NotElementwise as e:
        tally.failure = str(e).splitlines()[0]
    except PtxError as e:
        tally.refused = str(e).splitlines()[0]
    return tally


def compare(tally: Tally, kernel: GroupKernel, given: list[Array], expected: Array, got: Array) -> None:
    """Count the tiles whose registers differ, and keep some of them."""
    wrong = np.flatnonzero((expected != got).any(axis=(1, 2)))
    tally.mismatches += len(wrong)
    for tile in wrong[: OFFENDERS - len(tally.offenders)].tolist():
        at = np.unravel_index(int(np.flatnonzero(expected[tile] != got[tile])[0]), expected[tile].shape)
        kind = products.KINDS[tile % len(products.KINDS)]
        kind_text = f"tile of {kind} magnitudes, {kernel.layout}; register {at[0]} of thread {at[1]}"
        inputs = (f"c {hex(int(given[2][tile][at]))}",)
        tally.offenders.append(
            WrongInput(kind_text, inputs, (hex(int(expected[tile][at])),), (hex(int(got[tile][at])),))
        )
