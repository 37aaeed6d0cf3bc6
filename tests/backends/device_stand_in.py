"""What a GPU's process calls where there is no GPU: kernels are Python functions on host memory."""

import os
import signal
import sys
import time


def begin():
    """Get ready for jobs. torch is imported here, as calls that run no job need none of its seconds."""
    from harness.backends import gpu

    gpu.DEVICE = "cpu"
    gpu._synchronize = lambda: None
    gpu.start = start
    gpu.GpuBackend.unavailable = lambda self, target: None


def begin_late():
    time.sleep(1.5)


def start(job, launch, pointers):
    """Adds, and goes wrong as the padding of the setup says."""
    deeds = {1: killed, 2: hangs, 3: exits, 4: out_of_memory}
    deeds.get(job.setup.padding, lambda: None)()
    pointers["z"].copy_(pointers["x"] + pointers["y"])


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def hangs():
    time.sleep(600)


def exits():
    print("first words\nthe last words", file=sys.stderr)
    os._exit(7)


def out_of_memory():
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 TiB.\nmore")


def process():
    return os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"]


def later(seconds, value):
    time.sleep(seconds)
    return value


def raises():
    raise KeyError("missing")


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def raises_what_does_not_pickle():
    raise Odd(1, 2)
