"""What a GPU's process calls where there is no GPU: kernels are Python functions on host memory."""

import os
import signal
import sys
import time

import torch

from harness.backends import gpu


def begin():
    gpu.DEVICE = "cpu"
    gpu._synchronize = lambda: None
    gpu.start = start
    gpu.GpuBackend.unavailable = lambda self, target: None


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
