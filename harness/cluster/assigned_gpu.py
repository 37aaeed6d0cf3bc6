"""The GPU that Ray gave to the task that runs in this process."""

from __future__ import annotations

import os

from ptxdiff.processes import gpus
from ptxdiff.processes.gpus import Gpu


def given_gpu(target: str) -> Gpu:
    """The one GPU that this task may use. Raises RuntimeError for none or several, or for another target."""
    gpus.gpus.cache_clear()  # Ray may give this process another GPU than for its previous task
    found = gpus.gpus()
    if len(found) != 1 or found[0].target != target:
        there = ", ".join(f"{g.name} {g.target}" for g in found) or "no GPU"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        raise RuntimeError(f"expected one GPU {target}; Ray gave CUDA_VISIBLE_DEVICES={visible!r}: {there}")
    return found[0]
