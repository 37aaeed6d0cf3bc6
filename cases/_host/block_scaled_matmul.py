"""Expected products of block-scaled matrices, with the scaled instruction and dequantised, and their inputs."""

import numpy as np
import torch
import triton

from references import arithmetic, block_scaling, conversion, scaled_matrices, tensor_core
from references.formats import BF16, E2M1, E4M3, F16, F32
from references.scaled_matrices import FOUR, MX8

E4M3_SCALES_ON_HOPPER = not triton.__version__.startswith("3.6.")
"""Triton 3.6 dies of an assertion where it compiles a product with scales of e4m3 for Hopper."""


def mxfp8(a, x, b, y):
    """e4m3 in blocks of 32."""
    zero = torch.zeros(a.shape[0], b.shape[0], dtype=torch.int64)
    return scaled_matrices.dot(a, b.T, x, y, zero, a_format=E4M3, b_format=E4M3, kind=MX8)


def nvfp4(a, x, b, y):
    """e2m1, two in a byte, in blocks of 16 with e4m3 scales."""
    a, b = (torch.stack([v & 15, v >> 4], -1).flatten(1) for v in (a, b))
    zero = torch.zeros(a.shape[0], b.shape[0], dtype=torch.int64)
    known = {"a_format": E2M1, "b_format": E2M1, "scale_format": E4M3, "block": 16}
    return scaled_matrices.dot(a, b.T, x, y, zero, **known, kind=FOUR)


def multiplied(a, b, fmt):
    """The product of float32 codes that are first rounded to a format."""
    a, b = (conversion.convert(v, source=F32, target=fmt) for v in (a, b))
    zero = torch.zeros(a.shape[0], b.shape[0], dtype=torch.int64)
    return tensor_core.dot(a, b.T, zero, a_format=fmt, b_format=fmt, generation=tensor_core.BLACKWELL)


def mxfp8_dequantised(a, x, b, y):
    """In bfloat16, which is exact except for products of very large and very small scales."""
    return multiplied(*(block_scaling.mx_dequantize(v, s, source=E4M3) for v, s in ((a, x), (b, y))), BF16)


def nvfp4_dequantised(a, x, b, y):
    """In float16, which is exact for every product of e2m1 and e4m3."""
    found = []
    for codes, scales in ((a, x), (b, y)):
        wide = torch.stack([codes & 15, codes >> 4], -1).flatten(1)
        found.append(arithmetic.product(wide, scales.repeat_interleave(16, 1), left=E2M1, right=E4M3, fmt=F32))
    return multiplied(*found, F16)


def values(largest, scales):
    """Codes of elements up to `largest` of both signs, some rows of zeros, and scales of some binades."""

    def generate(sizes, rng):
        found = {}
        for name, rows in (("a", sizes["M"]), ("b", sizes["N"])):
            if largest == 0xFF:  # all pairs of e2m1
                found[name] = rng.integers(0, 256, (rows, sizes["KA"])).astype(np.uint8)
            else:
                codes = rng.integers(0, largest + 1, (rows, sizes["KA"])) | rng.integers(0, 2, (rows, sizes["KA"])) << 7
                found[name] = (codes * (rng.random((rows, 1)) < 0.9)).astype(np.uint8)
        for name, rows in (("x", sizes["M"]), ("y", sizes["N"])):
            found[name] = rng.integers(*scales, (rows, sizes["KX"])).astype(np.uint8)
        return found

    return generate
