"""Random patterns of stored elements of a sparse matrix."""

from __future__ import annotations

import numpy as np
import torch

from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.targets import Target
from ptxdiff.references import sparse_tensor_core as sparse
from ptxdiff.references import tensor_core
from tests.support.emulator.warp_products import launched

GENERATIONS = {"sm_80": tensor_core.AMPERE, "sm_89": tensor_core.ADA, "sm_90a": tensor_core.HOPPER}


def target_of(bound: Bound) -> str:
    """The first target that has the form and whose arithmetic is known (not Hopper's of 8-bit floats)."""
    return next(t for t in GENERATIONS if bound.requirement_unmet(Target.parse(t)) is None)


def pattern(rng: np.random.Generator, bits: int, k: int) -> torch.Tensor:
    size, run = sparse.CHUNK[bits], 2 if bits == 4 else 1
    places = size // run
    order = rng.random((16, k // size, places)).argsort(-1)
    mask = np.repeat(order < (1 if bits == 32 else 2), run, -1)
    return torch.from_numpy(mask.reshape(16, k))


def run(bound: Bound, registers: list[np.ndarray], selector: int, target: str = "") -> np.ndarray:
    """The codes of d, 16 x 8, that the emulator computes."""
    return launched(bound, registers, f"{{3}}, {selector}", target or target_of(bound))
