"""Locks on GPUs, between the processes of one user on one host: many may compute, or one may measure.

A pytest-xdist worker holds the GPU shared while it runs a kernel. One that measures times waits until the others are
done and holds the GPU alone; meanwhile the others wait. The locks are flocks: they end with their process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def shared(device: str) -> Iterator[None]:
    """Hold a device together with others that do not measure. device: its UUID."""
    with _locked(device, "gate", fcntl.LOCK_SH):
        use = _lock(device, "use", fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(use)


@contextlib.contextmanager
def alone(device: str) -> Iterator[None]:
    """Hold a device alone. A process that holds the device shared must not call this: it would wait for itself."""
    # The others wait at the gate: else they could overlap so closely that the device is never free.
    with _locked(device, "gate", fcntl.LOCK_EX), _locked(device, "use", fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def _locked(device: str, what: str, how: int) -> Iterator[None]:
    held = _lock(device, what, how)
    try:
        yield
    finally:
        os.close(held)


def _lock(device: str, what: str, how: int) -> int:
    """A descriptor that holds the lock. Closing it releases the lock."""
    folder = Path(tempfile.gettempdir()) / f"ptxdiff-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9-]", "_", device)
    held = os.open(folder / f"{name}.{what}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(held, how)
    except BaseException:
        os.close(held)
        raise
    return held


def current() -> str:
    """The UUID of torch's current CUDA device."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
