"""Random tiles of block-scaled products."""

from __future__ import annotations

import numpy as np
import torch

from ptxdiff.references.formats import E2M1, E2M3, E3M2, E4M3, E5M2

FORMATS = {"e4m3": E4M3, "e5m2": E5M2, "e3m2": E3M2, "e2m3": E2M3, "e2m1": E2M1}


def scales(kind: str, shape: tuple[int, int], rng: np.random.Generator, spread: int) -> torch.Tensor:
    """Codes of scales: around one, with one NaN in a hundred (ue8m0), or any code, with some zeros."""
    if kind == "ue8m0":
        found = np.where(rng.random(shape) < 0.01, 255, rng.integers(127 - spread, 128 + spread, shape))
    else:
        found = np.where(rng.random(shape) < 0.05, 0, rng.integers(0, 256, shape))
    return torch.from_numpy(found.astype(np.int64))


def drawn(kind: str, shape: tuple[int, int], rng: np.random.Generator, specials: bool) -> torch.Tensor:
    codes = rng.integers(0, 1 << FORMATS[kind].code_bits, shape)
    if not specials and kind in ("e4m3", "e5m2"):  # otherwise few results would be numbers
        codes &= 0xF7 if kind == "e4m3" else 0xBB
    return torch.from_numpy(np.where(rng.random(shape) < 0.1, 0, codes))
