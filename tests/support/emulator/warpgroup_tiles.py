"""Tiles of wgmma as they lie in shared memory."""

from __future__ import annotations

import numpy as np

from ptxdiff.conformance import group_products
from ptxdiff.conformance.group_products import GroupKernel
from ptxdiff.emulator.kernel.wgmma.descriptors import Descriptor
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.references.formats import BF16, E4M3, E5M2, F16, F32, TF32

FORMATS = {"f16": F16, "bf16": BF16, "tf32": TF32, "f32": F32, "e4m3": E4M3, "e5m2": E5M2}


def places(descriptor: Descriptor, across: bool, rows: int, k: int, bits: int) -> np.ndarray:
    """The byte of each element (of each eight elements of one bit), by row and place along k.

    ISA 9.7.15.5.1, "Strides" and the canonical layouts: K-major ((8, m), (T, 2)), MN-major ((T, s, m), (8, k)), where T
    elements have 16 bytes; the swizzle exchanges bits of the address. Written as loops over these modes.
    """
    lead, stride, swizzle = descriptor.leading, descriptor.stride, descriptor.swizzle
    size = bits // 8 or 1
    many = k if bits >= 8 else k // 8
    t = 16 // size
    found = np.zeros((rows, many), np.int64)
    for r in range(rows):
        for e in range(many):
            if across and swizzle == 16:
                byte = (r % t) * size + (r // t) * stride + (e % 8) * 16 + (e // 8) * lead
            elif across:
                s = swizzle // 16
                byte = (r % t) * size + (r // t % s) * 16 + (r // t // s) * lead + (e % 8) * swizzle + (e // 8) * stride
            elif swizzle == 16:
                byte = (e % t) * size + (e // t) * lead + (r % 8) * 16 + (r // 8) * stride
            else:
                byte = (e % t) * size + (e // t) * 16 + (r % 8) * swizzle + (r // 8) * stride
            address = descriptor.start + byte
            for low in range({16: 0, 32: 1, 64: 2, 128: 3}[swizzle]):
                address ^= (address >> 7 + low & 1) << 4 + low
            found[r, e] = address
    return found


def image(known: GroupKernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Shared memory that holds a and b at their `places`."""
    found = np.full((len(a), known.size), 0xFF, np.uint8)
    start = 0
    for matrix, codes, swizzle in (
        (known.product.a, a, known.layout.a),
        (known.product.b, b.transpose(0, 2, 1), known.layout.b),
    ):
        if not swizzle:
            continue
        descriptor, room = group_products.placed(matrix, swizzle, start)
        bits = BITS[matrix.type]
        where = places(descriptor, matrix.across, matrix.rows, matrix.k, bits)
        whole = np.packbits(codes, axis=2, bitorder="little") if bits == 1 else np.ascontiguousarray(codes)
        octets = whole.view(np.uint8).reshape(len(a), *where.shape, -1)
        for byte in range(octets.shape[-1]):
            found[:, where + byte] = octets[..., byte]
        start = -(-(start + room) // 1024) * 1024
    return found
