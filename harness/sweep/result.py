"""The result of a sweep, and the digests of its output bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptxdiff.jobs import Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.records import Block

LARGE = 1 << 20
"""Sets with more inputs than this are swept instead of held in memory."""

ROW = 1 << 16
"""Inputs that are tallied together, and the smallest block that has a digest."""


class OracleFault(RuntimeError):
    """The fast judge on the device and the plain one disagree. One of them is wrong, so the sweep has no verdict."""


@dataclass(frozen=True)
class Swept:
    """A sweep's result.

    outcome: as for one run, without outputs. blocks: digests of the output bits, None if not all inputs ran. inputs,
    place: the units of a few inputs around the first difference, and its number among them, for the replay token.
    notes: remarks for the record on how the set was judged. measured: `Result.sweep`.
    """

    outcome: Outcome
    judgement: Judgement
    blocks: tuple[Block, ...] = ()
    inputs: Mapping[str, Any] | None = None
    place: int = 0
    notes: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)


def block_size(count: int) -> int:
    """How many inputs share a digest, in a set of `count` inputs: at least `ROW`, and enough for at most 256 blocks."""
    size = ROW
    while size * 256 < count:
        size *= 2
    return size


def hashed(units: Any, number: Any, *, bits: int, output: int) -> Any:
    """A hash for each unit of an output, int32 in numpy or torch; the digest of a block is their sum.

    units: int64 of `bits` bits, zero-extended. number: the inputs' numbers, int64. output: which output, from 0.
    A sum does not depend on the order of threads, chunks and machines. The arithmetic has 32 bits, because a GPU has
    twice the throughput for it.
    """
    salt = _int32(number) * PLACES + output_salt(output)
    low = mixed(_int32(units) ^ salt)
    return mixed(_int32(units >> 32) ^ low) if bits == 64 else low


def output_salt(output: int) -> Any:
    """What distinguishes the hashes of one output from another's, as a signed integer of 32 bits."""
    return _signed((output + 1) * 0xA7EBD4F5)


def _int32(array: Any) -> Any:
    if type(array).__module__.partition(".")[0] == "torch":
        import torch

        return array.to(torch.int32)
    return array.astype("int32")


def mixed(x: Any) -> Any:
    """The finalizer of MurmurHash3."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * _signed(0x85EBCA6B)
    x = (x ^ ((x >> 13) & 0x7FFFF)) * _signed(0xC2B2AE35)
    return x ^ ((x >> 16) & 0xFFFF)


def _signed(pattern: int) -> int:
    pattern &= (1 << 32) - 1
    return pattern - (1 << 32) if pattern >> 31 else pattern


PLACES = _signed(0x9E3779B1)
"""The factor of an input's number in its hash."""


def blocks_of(sums: Sequence[int], count: int) -> tuple[Block, ...]:
    """Digests of blocks from the sums of consecutive rows of `ROW` inputs (the last row ends at `count`)."""
    import numpy as np

    rows = block_size(count) // ROW
    starts = range(0, len(sums), rows)
    totals = np.add.reduceat(np.asarray(sums, dtype=np.int64), starts).tolist()  # modulo 2^64
    return tuple(
        Block(k * ROW, min(rows * ROW, count - k * ROW), f"{total & ((1 << 64) - 1):016x}")
        for k, total in zip(starts, totals, strict=True)
    )
