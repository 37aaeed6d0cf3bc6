"""Products by tcgen05.mma: their operands, their launches and the references' results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ptxdiff.emulator.kernel.tcgen05 import instruction_descriptors
from ptxdiff.emulator.kernel.tcgen05.operands import SWIZZLES, MatrixDescriptor
from ptxdiff.references import scaled_matrices, tensor_core
from ptxdiff.references.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, I8, I32, TF32, U8, UE8M0, Format
from tests.support.emulator import tensor_memory_text as tm

FORMATS: dict[str, Format] = {
    "f16": F16, "bf16": BF16, "tf32": TF32, "f32": F32, "e4m3": E4M3, "e5m2": E5M2, "e2m3": E2M3, "e3m2": E3M2,
    "e2m1": E2M1, "s8": I8, "u8": U8,
}  # fmt: skip


CODE = {"f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "i8": {"u8": 0, "s8": 1}}


NARROW = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}


N = 16


@dataclass(frozen=True)
class Product:
    """One product. swizzle: the modes of a and b; None for an a in tensor memory."""

    kind: str
    a: str
    b: str
    d: str = "f32"
    m: int = 128
    n: int = N
    across: tuple[bool, bool] = (False, False)
    swizzle: tuple[int | None, int] = (0, 0)
    negate: tuple[bool, bool] = (False, False)
    saturate: bool = False
    ws: bool = False
    size: str = ""
    scale: str = ""
    parts: tuple[int, int] = (0, 0)

    @property
    def k(self) -> int:
        return instruction_descriptors.K[self.kind]

    @property
    def block(self) -> int:
        return instruction_descriptors.SCALE_BLOCKS[self.kind, self.size or None] if self.scale else 0

    @property
    def idesc(self) -> int:
        """The instruction descriptor, ISA 9.7.16.4.2."""
        types = {"e2m1": 1} if self.kind.startswith("mxf4") else CODE.get(self.kind, NARROW)
        found = types[self.a] << 7 | types[self.b] << 10 | self.negate[0] << 13 | self.negate[1] << 14
        found |= self.across[0] << 15 | self.across[1] << 16 | (self.n >> 3) << 17
        if self.scale:
            found |= self.parts[1] << 4 | (self.scale == "ue8m0") << 23 | (self.m >> 7) << 27 | self.parts[0] << 29
            return found
        return found | self.saturate << 3 | {"f16": 0, "f32": 1, "s32": 2}[self.d] << 4 | (self.m >> 4) << 24


def place(row: int, e: int, byte_of: int, across: bool, swizzle: int, each: int, lead: int, stride: int) -> int:
    """The byte at which an element's chunk begins, by the canonical layouts of ISA 9.7.16.4.1 and the swizzle."""
    wide = SWIZZLES[swizzle].row
    group = 4 if swizzle == 1 else 8
    if across and wide == 16:
        byte = row // each * stride + e % 8 * 16 + e // 8 * lead
    elif across:
        s = wide // 16
        byte = row // each % s * 16 + row // each // s * lead + e % group * wide + e // group * stride
    elif wide == 16:
        byte = byte_of // 16 * lead + row % 8 * 16 + row // 8 * stride
    else:
        byte = byte_of // 16 * 16 + row % 8 * wide + row // 8 * stride
    if swizzle == 1:
        return byte ^ (byte >> 7 & 1) << 5 ^ (byte >> 8 & 1) << 6
    for low in range({16: 0, 32: 1, 64: 2, 128: 3}[wide]):
        byte ^= (byte >> 7 + low & 1) << 4 + low
    return byte


def image(codes: np.ndarray, kind: str, product: Product, across: bool, swizzle: int) -> tuple[np.ndarray, int, int]:
    """A matrix in shared memory (rows x k codes), and its descriptor's offsets."""
    bits = FORMATS[kind].code_bits if kind not in ("s8", "u8") else 8
    dense = product.kind.startswith("mxf4")
    each = 32 if dense else 128 // max(bits, 8)
    rows, k = codes.shape
    wide, group = SWIZZLES[swizzle].row, 4 if swizzle == 1 else 8
    if across:
        lead, stride = (
            (k // 8 * 128 * 0 + 128, k // 8 * 128) if wide == 16 else (-(-k // group) * group * wide, group * wide)
        )
    else:
        lead, stride = (128, 256) if wide == 16 else (0, 8 * wide)
    found, patterns = bytearray(32768), codes.tolist()
    for r in range(rows):
        for e in range(k):
            position = e if not across else r
            within = position % each
            if bits >= 8:
                byte = place(r, e, e * bits // 8, across, swizzle, each, lead, stride) + within * bits // 8
                found[byte : byte + bits // 8] = patterns[r][e].to_bytes(bits // 8, "little")
                continue
            start = place(r, e, e // 2 if dense else e, False, swizzle, each, lead, stride)
            at = within * bits
            whole = int.from_bytes(found[start : start + 16], "little") | patterns[r][e] << at
            found[start : start + 16] = whole.to_bytes(16, "little")
    written = np.frombuffer(found, np.uint8)
    used = -(-int(np.flatnonzero(written).max(initial=0) + 1) // 1024) * 1024
    return written[:used], lead, stride


def drawn(product: Product, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for kind, rows in ((product.a, product.m), (product.b, product.n)):
        form = FORMATS[kind]
        if kind in ("s8", "u8"):
            found.append(rng.integers(0, 256, (rows, product.k)))
            continue
        if form.code_bits > 8:
            real = rng.standard_normal((rows, product.k)) * np.exp2(rng.integers(-6, 6, (rows, product.k)))
            real[rng.random(real.shape) < 0.1] = 0
            view = {"f16": np.float16, "tf32": np.float32}.get(kind)
            codes = (
                real.astype(view).view(f"u{np.dtype(view).itemsize}")
                if view
                else real.astype(np.float32).view("u4") >> 16
            )
            found.append(codes.astype(np.int64))
            continue
        codes = rng.integers(0, 1 << form.code_bits, (rows, product.k))
        codes[(codes & 0x7F) > (0x7B if kind == "e5m2" else 0x7E)] = 0
        found.append(codes)
    return found[0], found[1]


def lanes(product: Product, columns: int) -> list[tuple[int, int]]:
    """Lane and column of each element, row by row: figures of ISA 9.7.16.10.5."""
    m, ws = product.m, product.ws
    found = []
    for r in range(m):
        for c in range(columns):
            if m == 128:
                found.append((r, c))
            elif not ws:
                found.append(((0, 32, 64, 96)[r // 16] + r % 16, c))
            else:
                part = columns // (128 // m)
                found.append((r + m * (c // part), c % part))
    return found


SCALE_A, SCALE_B, ENABLED = 16, 24, 32


def ran(
    product: Product, a: np.ndarray, b: np.ndarray, cells: np.ndarray, *, enable: int = 0, operands: str = "",
    change: Any = lambda d: d,
) -> np.ndarray:  # fmt: skip
    """The emulator's codes of d, m x n. cells: tensor memory before the product, 128 lanes x columns."""
    data = np.zeros(0, np.uint8)
    descriptors = []
    for codes, kind, across, swizzle in zip(
        (a, b), (product.a, product.b), product.across, product.swizzle, strict=True
    ):
        if swizzle is None:
            descriptors.append(MatrixDescriptor(0, 0, 0, SWIZZLES[0]))
            continue
        room, lead, stride = image(codes, kind, product, across, swizzle)
        start = tm.BASE + tm.DATA + len(data)
        descriptors.append(change(MatrixDescriptor(start, lead, stride, SWIZZLES[swizzle])))
        data = np.concatenate([data, room])
    left = "%a" if product.swizzle[0] is not None else "[%base+16]"
    scales = f"[%base+{SCALE_A}], [%base+{SCALE_B}], " if product.scale else ""
    before = (
        f"  mov.b64 %a, {descriptors[0].code};\n  mov.b64 %b, {descriptors[1].code};\n  mov.b32 %x, {product.idesc};\n"
    )
    before += f"  setp.ne.u32 %p0, {int(enable)}, 0;\n"
    head = f"{'ws.' * product.ws}cta_group::1.kind::{product.kind}"
    head += f".block_scale{'.' * bool(product.size)}{product.size}" if product.scale else ""
    width = cells.shape[1]
    count = 1 << max(c for _, c in lanes(product, product.n)).bit_length()
    low = "".join(f"  and.b32 %r{i}, %r{i}, 0xffff;\n" for i in range(10, 10 + count)) * (product.d == "f16")
    pointer = f"  add.s64 %in, %in, {len(data)};\n"
    body = pointer + tm.product(head, operands or f"{left}, %b, %x, {scales}%p0", count, width, before, low)
    memory = np.concatenate([data.view(np.uint32), cells.reshape(-1)])
    kernel = tm.text(body, len(data) // 4, columns=64)
    out = tm.run(kernel, memory, np.zeros(128 * count, np.uint32), 2048 + len(data)).reshape(128, count)
    found = np.array([out[lane, c] for lane, c in lanes(product, product.n)]).reshape(product.m, product.n)
    return found & 0xFFFF if product.d == "f16" else found


def tensor(codes: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(codes.astype(np.int64))


def signed(codes: np.ndarray, kind: str, negative: bool) -> torch.Tensor:
    return tensor(codes) ^ (negative << FORMATS[kind].code_bits - 1)


def expected(product: Product, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    if product.kind == "i8":
        kinds = {"a_format": FORMATS[product.a], "b_format": FORMATS[product.b]}
        found = tensor_core.dot_integer(tensor(a), tensor(b).T, tensor(c), **kinds, to=I32, saturate=product.saturate)
        return found.numpy() & 0xFFFFFFFF
    to = FORMATS[product.d]
    x, y = signed(a, product.a, product.negate[0]), signed(b, product.b, product.negate[1]).T
    kinds = {"a_format": FORMATS[product.a], "b_format": FORMATS[product.b], "c_format": to, "d_format": to}
    return tensor_core.dot(x, y, tensor(c), **kinds, generation=tensor_core.BLACKWELL).numpy()


def accumulator(product: Product, seed: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of d before the product, m x n, and tensor memory that holds them."""
    rng = np.random.default_rng(seed)
    real = rng.standard_normal((product.m, product.n)) * 64
    kind = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[product.d]
    codes = real.astype(kind).view(f"u{np.dtype(kind).itemsize}").astype(np.uint32)
    cells = np.full((128, width), 0xEEEEEEEE, np.uint32)
    for code, (lane, column) in zip(codes.reshape(-1), lanes(product, product.n), strict=True):
        cells[lane, column] = code
    return codes, cells


PRODUCTS = [
    Product("f16", "f16", "f16"), Product("f16", "bf16", "bf16", m=64), Product("f16", "f16", "f16", d="f16", m=64),
    Product("f16", "f16", "f16", n=48, negate=(True, False)), Product("tf32", "tf32", "tf32", negate=(False, True)),
    Product("f8f6f4", "e4m3", "e5m2"), Product("f8f6f4", "e5m2", "e4m3", d="f16", m=64),
    Product("f8f6f4", "e2m1", "e3m2"), Product("f8f6f4", "e2m3", "e2m1", negate=(True, True), swizzle=(2, 4)),
    Product("i8", "s8", "u8", d="s32"), Product("i8", "u8", "s8", d="s32", m=64, n=8, saturate=True),
    *(Product("f16", "f16", "f16", across=(x, not x), swizzle=(s, s)) for s in (0, 2, 4, 6) for x in (True, False)),
    Product("f8f6f4", "e4m3", "e4m3", across=(True, True), swizzle=(4, 6)),
    Product("i8", "s8", "s8", d="s32", across=(True, True), swizzle=(2, 0)),
    Product("tf32", "tf32", "tf32", across=(True, True), swizzle=(1, 1), n=64),
    *(Product("f16", "f16", "f16", m=m, n=64, ws=True) for m in (32, 64, 128)),
]  # fmt: skip


SCALED = [
    *(Product("mxf8f6f4", "e4m3", "e5m2", scale="ue8m0", parts=(x, y)) for x, y in ((0, 0), (1, 3), (2, 1), (3, 2))),
    Product("mxf8f6f4", "e2m1", "e3m2", scale="ue8m0", size="block32", negate=(True, False)),
    Product("mxf8f6f4", "e4m3", "e4m3", scale="ue8m0", across=(True, True), swizzle=(2, 6)),
    Product("mxf4", "e2m1", "e2m1", scale="ue8m0", n=8),
    Product("mxf4", "e2m1", "e2m1", scale="ue8m0", parts=(2, 0), swizzle=(2, 4)),
    Product("mxf4nvf4", "e2m1", "e2m1", scale="ue8m0", size="block32", parts=(0, 2)),
    Product("mxf4nvf4", "e2m1", "e2m1", scale="ue4m3", size="block16", negate=(False, True)),
    Product("mxf4nvf4", "e2m1", "e2m1", scale="ue8m0", size="scale_vec::4X", swizzle=(6, 2)),
]  # fmt: skip


def scales(product: Product, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [(rows, product.k // product.block) for rows in (product.m, product.n)]
    low, high = (110, 140) if product.scale == "ue8m0" else (0, 0x7F)
    return rng.integers(low, high, shapes[0]), rng.integers(low, high, shapes[1])


def put(cells: np.ndarray, column: int, codes: np.ndarray, part: int) -> None:
    """Put scales into tensor memory (ISA 9.7.16.10.7): the column is row // 32, all quarters of the lanes are equal."""
    for row in range(len(codes)):
        for number, code in enumerate(codes[row]):
            for quarter in range(4):
                cells[32 * quarter + row % 32, column + row // 32] &= ~np.uint32(0xFF << 8 * (part + number))
                cells[32 * quarter + row % 32, column + row // 32] |= np.uint32(int(code) << 8 * (part + number))


def scaled_reference(
    product: Product, a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray, c: np.ndarray
) -> np.ndarray:
    kind = scaled_matrices.MX8 if product.kind == "mxf8f6f4" else scaled_matrices.FOUR
    formats = {"a_format": FORMATS[product.a], "b_format": FORMATS[product.b]}
    known = formats | {
        "scale_format": UE8M0 if product.scale == "ue8m0" else E4M3,
        "block": product.block,
        "kind": kind,
    }
    left, right = signed(a, product.a, product.negate[0]), signed(b, product.b, product.negate[1]).T
    return scaled_matrices.dot(left, right, tensor(x), tensor(y), tensor(c), **known).numpy()
