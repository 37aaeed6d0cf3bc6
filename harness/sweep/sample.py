"""The sample of unflagged results that the plain judge checks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ptxdiff.inputs.sets import seed_of

SAMPLE = 1 << 16
"""The total number of inputs."""


class Sampler:
    """Random places in each chunk, equal at each call. host: int64[chunks, each], ascending in a chunk."""

    def __init__(self, chunk: int, chunks: int, name: str, device: str) -> None:
        rng = np.random.default_rng(seed_of(name, "sampled again"))
        each = min(chunk, -(-SAMPLE // chunks))
        apart = chunk // each
        self.host = np.arange(each) * apart + rng.integers(0, apart, (chunks, each))
        self._places = torch.from_numpy(self.host).to(device)

    def places(self, chunk: int) -> Tensor:
        """The places of one chunk, ascending."""
        return self._places[chunk]
