"""Locks on GPUs, between the processes of one user on one host: many may compute, or one may measure.

A worker under pytest-xdist that runs a kernel holds the GPU shared; one that times holds it alone, waits until the
others are done, and they wait until it is. The locks are the kernel's (flock): a process that dies leaves none behind.
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
    """Hold a device alone. No process may ask for it alone while it holds it shared."""
    # Others wait at the gate meanwhile: else they could follow each other so closely that the device is never free.
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
    """A descriptor that holds the lock; closing it gives the lock back."""
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
