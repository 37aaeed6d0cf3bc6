"""Expected products of block-scaled matrices, with the scaled instruction and dequantised, and their inputs."""

from functools import partial

import numpy as np
import torch
import triton

from ptxdiff import Differs, since
from ptxdiff.references import arithmetic, block_scaling, conversion, scaled_matrices
from ptxdiff.references.formats import BF16, E2M1, E4M3, F16, F32
from ptxdiff.references.scaled_matrices import FOUR, MX8
from ptxdiff.references.tensor_core import ADA, BLACKWELL, HOPPER

from .products import across_lanes, cores

IN_RUNS = "mma gets k in the runs that lanes hold"
EIGHT_TERMS = "adds 8 terms at a time with 24 fraction bits, others 16 with 25"
WIDENED = "no instruction takes scales: Triton dequantises in bfloat16"
SIGNED = "; a scale's top bit, which tensor cores ignore (ue4m3), is a sign there"


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


def multiplied(a, b, fmt, generation, width):
    """The product of codes of a format, with k in runs of `width` (`across_lanes`)."""
    order = across_lanes(a.shape[1], width)
    zero = torch.zeros(a.shape[0], b.shape[0], dtype=torch.int64)
    return cores(generation, fmt)(a[:, order], b[:, order].T, zero)


def mxfp8_widened(generation=BLACKWELL, width=2, once=False):
    """In bfloat16, which is exact except for products of very large and very small scales. once: element times scale
    is rounded once, not to float32 first, which shows in subnormal numbers."""

    def number(codes, scales):
        if once:
            return block_scaling.mx_dequantize(codes, scales, source=E4M3, target=BF16)
        return conversion.convert(block_scaling.mx_dequantize(codes, scales, source=E4M3), source=F32, target=BF16)

    def reference(a, x, b, y):
        return multiplied(number(a, x), number(b, y), BF16, generation, width)

    return reference


def nvfp4_widened(generation=BLACKWELL, width=2, fmt=F16):
    """In float16 or bfloat16: both are exact for every product of e2m1 and e4m3."""

    def number(codes, scales):
        wide = torch.stack([codes & 15, codes >> 4], -1).flatten(1)
        return arithmetic.product(wide, scales.repeat_interleave(16, 1), left=E2M1, right=E4M3, fmt=fmt)

    def reference(a, x, b, y):
        return multiplied(number(a, x), number(b, y), fmt, generation, width)

    return reference


def in_runs(product, width):
    """What a product gives where Triton computes it by `mma`, in runs of `width`."""
    others = Differs(IN_RUNS, product(HOPPER, width))
    on_ada = Differs(f"{IN_RUNS}, and {EIGHT_TERMS}", product(ADA, width))
    return {"sm_89": on_ada, "sm_120a": others, "sm_121a": others}


def without_scales(product, width, why):
    """What tl.dot_scaled gives where Triton multiplies bfloat16, by `mma` in runs of `width`, or by `wgmma`."""
    return {
        "sm_89": Differs(f"{why}; {IN_RUNS}, and {EIGHT_TERMS}", product(ADA, width)),
        "sm_90a": Differs(f"{why}, and uses wgmma", product(HOPPER)),
    }


MXFP8_PLAIN = {"reference": mxfp8_widened(), "differs": in_runs(mxfp8_widened, 4)}
MXFP8_SCALED = {"differs": without_scales(partial(mxfp8_widened, once=True), 4, WIDENED)}
NVFP4_PLAIN = {"reference": nvfp4_widened(), "differs": in_runs(nvfp4_widened, 4)}
NVFP4_SCALED = {"differs": without_scales(partial(nvfp4_widened, fmt=BF16), 8, WIDENED + SIGNED)}
if triton.__version__.startswith("3.6."):  # which shifts code 0 to 0, and dies of an assertion for scales of e4m3
    MXFP8_SCALED = {"differs": dict.fromkeys(MXFP8_SCALED["differs"], f"{WIDENED}, and the scale 2^-127 to zero")}
    NVFP4_SCALED = {"targets": since("sm_100a")}


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
