"""How long a sweep takes on the device, and a copy of as many bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch

COPIED = 1 << 29
"""Bytes of one copy: more than any cache holds."""


@contextlib.contextmanager
def stopwatch(device: str) -> Iterator[Callable[[], float]]:
    """Device time of a block in seconds, asked for after it; 0.0 without a device."""
    if not device.startswith("cuda"):
        yield lambda: 0.0
        return
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def seconds() -> float:
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    begin.record()
    yield seconds
    end.record()


def copy_floor(size: int, device: str) -> float:
    """Seconds that a device copy of `size` bytes takes here and now, reading and writing once; 0.0 without a device."""
    if not device.startswith("cuda"):
        return 0.0
    part = min(size, COPIED)
    source = torch.empty(part, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(7):
        with stopwatch(device) as seconds:
            target.copy_(source)
        times.append(seconds())
    return float(np.median(times)) * size / part
