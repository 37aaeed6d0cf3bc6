"""A stand-in for a node's GPU: it adds on host memory, hangs for variants of that name, and returns timings.

STAND_IN_LOG names a file in which each use of a device is logged: its UUID, the kind of use, start and end.
"""

import os
import time
from pathlib import Path

import device_stand_in


def begin():
    """Get ready for jobs and for timing."""
    from ptxdiff.backends import gpu
    from ptxdiff.timing import session

    device_stand_in.begin()
    gpu.start = start
    session.time_case = time_case


def used(kind, began):
    if log := os.environ.get("STAND_IN_LOG"):
        uuid = f"{os.environ['STAND_IN_HOST']}-{os.environ['CUDA_VISIBLE_DEVICES']}"
        with Path(log).open("a") as file:
            file.write(f"{uuid} {kind} {began} {time.time()}\n")


def elements(flat, *shape):
    """What lies between the gaps: rows of two dimensions may have one behind each."""
    if len(shape) == 1:
        return flat[: shape[0]]
    rows, columns = shape
    stride = (flat.numel() - columns) // (rows - 1)
    return flat.as_strided(shape, (stride, 1), flat.storage_offset())


def start(job, launch, pointers):
    began = time.time()
    if job.variant_name == "hangs":
        time.sleep(600)
    x, y, z = (elements(pointers[name].view(-1), *job.setup.shape) for name in "xyz")
    z.copy_(x + y)
    used("launch", began)


def time_case(path, attribute, target, *words):
    """A timing session that takes half a second and reports times of a microsecond."""
    from ptxdiff.records import Key, Timing
    from ptxdiff.timing import Session

    began = time.time()
    time.sleep(0.5)
    used("timing", began)
    key = Key(Path(path).stem, "right", target, "gpu", shape="1024")
    return Session((Timing(key, 1024, 12288, (1e-6,), 1e-6, 1e-6, 1e-6, 1e-6, noise=0.004, timer="events"),))
