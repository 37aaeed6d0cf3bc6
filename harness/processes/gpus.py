"""The GPUs of this host as CUDA lists them, and locks on them.

A separate process asks the driver, so that this one makes no context.

When run as a program, this file prints the driver's list, and imports nothing of the harness.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT = 60.0
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@dataclass(frozen=True)
class Gpu:
    """One GPU. visible: the value of CUDA_VISIBLE_DEVICES with which a process sees it alone. memory: in bytes."""

    visible: str
    name: str
    uuid: str
    target: str
    memory: int


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """The GPUs that a process started here sees, in CUDA's order; none without a working driver.

    CUDA_VISIBLE_DEVICES is respected, and its names (numbers, UUIDs, MIG instances) are kept as they are.
    """
    from ptxdiff.model.targets import normal

    if not gpu_visible():
        return ()
    try:
        done = subprocess.run(
            [sys.executable, "-I", __file__], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
        )
        listed: list[dict[str, Any]] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()
    names = names_of(os.environ.get("CUDA_VISIBLE_DEVICES"), len(listed))
    devices = []
    for visible, facts in zip(names, listed, strict=False):
        number = f"{facts['major']}{facts['minor']}"
        try:
            target = normal(number)
        except ValueError:  # a generation unknown to ptxdiff
            target = f"sm_{number}"
        devices.append(Gpu(visible, facts["name"], facts["uuid"], target, facts["memory"]))
    return tuple(devices)


def gpu_visible() -> bool:
    """Whether this machine seems to have an NVIDIA GPU, without loading torch."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return Path("/proc/driver/nvidia/gpus").is_dir() or Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()


def names_of(variable: str | None, count: int) -> list[str]:
    """The name of each of the `count` GPUs in CUDA_VISIBLE_DEVICES. variable: its value here, None if it is not set."""
    if variable is None:
        return [str(k) for k in range(count)]
    return [name.strip() for name in variable.split(",")][:count]


def share(found: Sequence[Gpu], target: str, worker: int) -> Gpu | None:
    """The GPU of one of several processes: round robin over those of a target; None if there is none."""
    fitting = [g for g in found if g.target == target]
    return fitting[worker % len(fitting)] if fitting else None


def worker_number() -> int:
    """This process's number among the workers of pytest-xdist; 0 elsewhere."""
    digits = "".join(c for c in os.environ.get("PYTEST_XDIST_WORKER", "") if c.isdigit())
    return int(digits or "0")


def _listed() -> list[dict[str, Any]]:
    """The driver's facts on each GPU. Raises OSError without a driver."""
    driver = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    return [_facts(driver, ordinal) for ordinal in range(count.value)]


def _facts(driver: Any, ordinal: int) -> dict[str, Any]:
    device, number, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name, identity = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    driver.cuDeviceGetUuid_v2(identity, device)
    capability = {}
    for key, attribute in (("major", _MAJOR), ("minor", _MINOR)):
        driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        capability[key] = number.value
    text = f"GPU-{uuid.UUID(bytes=identity.raw)}"
    return {"name": name.value.decode(), "uuid": text, "memory": memory.value, **capability}


# ---- Locks, between the processes of one user on one host ------------------------------------------------------------
#
# Many may compute, or one may measure. A pytest-xdist worker holds the GPU shared while it runs a kernel. One that
# measures times waits until the others are done and holds the GPU alone; meanwhile the others wait. The locks are
# flocks: they end with their process.


@contextlib.contextmanager
def lock_shared(device: str) -> Iterator[None]:
    """Hold a device together with others that do not measure. device: its UUID."""
    with _locked(device, "gate", fcntl.LOCK_SH):
        use = _lock(device, "use", fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(use)


@contextlib.contextmanager
def lock_alone(device: str) -> Iterator[None]:
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


if __name__ == "__main__":
    print(json.dumps(_listed()))
