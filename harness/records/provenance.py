"""Hashes of a run's input bits and output bits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ptxdiff.records import Block

DIGEST_BLOCK = 1 << 16  # inputs of one digest: few enough to locate a change, many enough to keep digests few


def digest(units: Mapping[str, Any]) -> str:
    """A hash of arrays by name."""
    found = hashlib.sha256()
    for name, array in units.items():
        found.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:32]


def block_digests(outputs: Mapping[str, Any]) -> tuple[Block, ...]:
    """Digests of the output bits, in blocks of inputs, all outputs together."""
    if not outputs:
        return ()
    flat = {n: np.ascontiguousarray(o).reshape(-1) for n, o in outputs.items()}
    count = max(len(o) for o in flat.values())
    blocks = []
    for first in range(0, count, DIGEST_BLOCK):
        part = {n: o[first : first + DIGEST_BLOCK] for n, o in flat.items()}
        blocks.append(Block(first, min(DIGEST_BLOCK, count - first), digest(part)))
    return tuple(blocks)
