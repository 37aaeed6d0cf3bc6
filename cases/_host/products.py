"""Shared parts of matrix products: generations, the tiles of a launch, the expected product, and its inputs."""

from functools import partial

import numpy as np
import torch
import triton.language as tl

from ptxdiff import only
from ptxdiff.references import conversion, sums, tensor_core
from ptxdiff.references.formats import F16, F32

SOURCE = "MMA-Sim, arXiv 2511.10909; PTX ISA, mma"
EIGHT = only("sm_80", "sm_86", "sm_87", "sm_88", "sm_89")
SIXTEEN = only("sm_90a", "sm_100a", "sm_101a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a")
NONE = only("sm_75")
HALVES = "Triton multiplies float16, with k in the runs that lanes hold, by mma, which adds 8 terms at a time"
FUSED = "Triton has no mma for it: a fused multiply-add in float32 for each term, in the order of k"
STEP = 32
TO = {"TILE": 32, "STEP": STEP, "TO": tl.float32}


def tiles(values):
    """One program for each tile of d."""
    return (-(-values["M"] // values["TILE"]), -(-values["N"] // values["TILE"]))


def padded(x, rows, columns):
    """Pads with zeros to whole steps, as the kernel reads them beyond its inputs; zero terms affect rounding."""
    return torch.nn.functional.pad(x, (0, columns - x.shape[1], 0, rows - x.shape[0]))


def cores(generation, fmt):
    """a b + c on a generation's tensor cores."""
    return partial(tensor_core.dot, a_format=fmt, b_format=fmt, generation=generation)


def fused(fmt):
    """a b + c by fused multiply-adds of float32."""

    def multiply(a, b, c):
        a, b = (conversion.convert(x, source=fmt, target=F32) for x in (a, b))
        return sums.fused_product(a, b, c)

    return multiply


def halves(fmt):
    """a b + c of 8-bit floats as float16, by the `mma` of Ampere."""

    def multiply(a, b, c):
        order = across_lanes(a.shape[1], 4)
        a, b = (conversion.convert(x, source=fmt, target=F16) for x in (a[:, order], b[order]))
        return cores(tensor_core.AMPERE, F16)(a, b, c)

    return multiply


def in_steps(multiply):
    """The product from zero, in whole steps of STEP."""

    def reference(a, b):
        k = -(-a.shape[1] // STEP) * STEP
        a, b = padded(a, a.shape[0], k), padded(b, k, b.shape[1])
        return multiply(a, b, torch.zeros(a.shape[0], b.shape[1], dtype=torch.int64, device=a.device))

    return reference


def by(generation, fmt):
    """The product of a generation, from zero, in steps of STEP."""
    return in_steps(cores(generation, fmt))


def across_lanes(k, width):
    """The columns in the order in which Triton gives them to `mma` of 16-bit numbers.

    Four lanes hold a row. An `mma` takes two neighbours of each lane as its columns 0 to 7, and two as its columns 8 to
    15. Numbers that Triton widens stay in the lane that loaded them, in runs of `width`: 4 for 8-bit numbers, 8 for two
    in a byte. So each `mma` takes the next two of every run. Runs of 2 give the order of k.
    """
    return torch.arange(k).reshape(-1, 2, 4, width // 2, 2).permute(0, 3, 1, 2, 4).flatten()


def values(dtype):
    """Numbers of some binades, some zeros, and rows that cancel except for their last terms."""

    def generate(sizes, rng):
        found = {}
        for name, shape in (("a", (sizes["M"], sizes["K"])), ("b", (sizes["K"], sizes["N"]))):
            x = rng.normal(size=shape) * np.exp2(rng.integers(-6, 6, size=shape)) * (rng.random(shape) < 0.9)
            found[name] = x
        half = sizes["K"] // 2
        found["a"][::3, half : 2 * half] = -found["a"][::3, :half]
        found["b"][half : 2 * half] = found["b"][:half] * (1 + np.exp2(rng.integers(-12, -6, size=(half, 1))))
        return {n: x.astype(dtype).view(f"u{np.dtype(dtype).itemsize}") for n, x in found.items()}

    return generate
