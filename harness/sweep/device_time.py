"""The device time of a sweep, and of a copy of as many bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch

COPIED = 1 << 29
"""Bytes of one copy: more than any cache holds."""


@contextlib.contextmanager
def stopwatch(device: str) -> Iterator[Callable[[], float]]:
    """Gives a function that returns the device time of the block in seconds, after its end; 0.0 without a device."""
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
    """Measures the seconds of a device copy of `size` bytes, which reads and writes them once; 0.0 without a device."""
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
