"""Inputs of whole kernels that random bits and edges do not cover: functions of sizes and a generator."""

import ml_dtypes
import numpy as np


def activations(sizes, rng):
    """Typical values, exact ties of the quantised grid, and blocks of zeros, infinities and NaN."""
    x = rng.normal(size=(sizes["M"], sizes["N"])) * np.exp2(rng.integers(-8, 6, size=(sizes["M"], 1)))
    blocks = x.reshape(-1, 16)
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    kind = rng.integers(0, 12, size=len(blocks))
    blocks[kind == 0] = 0
    blocks[kind == 1] = rng.choice(np.concatenate([ties, -ties]), size=(int((kind == 1).sum()), 16)) * 4
    blocks[kind == 2, 3] = np.inf
    blocks[kind == 3, 5] = np.nan
    return {"x": blocks.reshape(x.shape).astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)}
