"""A replacement for the process of a GPU on machines without one: kernels are Python functions on host memory."""

import os
import signal
import sys
import time


def begin():
    """Prepare for jobs. torch is imported only here: importing it takes seconds, and only jobs need it."""
    from ptxdiff.backends import gpu

    gpu.DEVICE = "cpu"
    gpu._synchronize = lambda: None
    gpu.start = start
    gpu.prepared = lambda *arguments: lambda: gpu.start(*arguments)
    gpu.GpuBackend.unavailable = lambda self, target: None


def begin_late():
    time.sleep(1.1)


def start(job, launch, pointers):
    """Add the inputs, or fail in the way that the setup's padding encodes."""
    actions = {1: killed, 2: hangs, 3: exits, 4: out_of_memory}
    actions.get(job.setup.padding, lambda: None)()
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


def begin_as_emulator():
    """Run machine code that is PTX, as `tests/fuzz/flipping_ptxas.sh` makes it, on the emulator in this process."""
    from ptxdiff.backends import driver, gpu

    prepared = gpu.prepared
    begin()
    gpu.prepared = prepared
    driver.bindings = lambda: None
    gpu.machine_code = emulated
    gpu.start = started


def started(job, launch, pointers):
    """Triton's own launch. Its ptxas is the wrapper at -O3 if the environment names it, else a correct one."""
    from ptxdiff.backends import gpu

    gpu.prepared(job, launch, pointers)() if launch.setup.assembler or launch.given else tritons(job, launch, pointers)


def tritons(job, launch, pointers):
    from dataclasses import replace

    from ptxdiff.triton.ptxas import assembler_at

    own = assembler_at(os.environ["PTXDIFF_TEST_PTXAS"], 3)
    # made: on a machine with CUDA's driver the sender has machine code by Triton's real ptxas, which cannot run here.
    emulated(job, replace(launch, setup=replace(launch.setup, assembler=own), made=None), pointers)()


def emulated(job, launch, pointers):
    """The launch of machine code that is PTX, on tensors in host memory."""
    from ptxdiff.emulator import Buffer, load_kernel, run_kernel
    from ptxdiff.triton.launch import entry_parameters

    built = launch.build(job.target)
    compilation = built.compilation
    kernel = load_kernel(built.assembly.cubin.decode(), compilation.entry)
    images = {name: tensor.view(dtype_of_bytes()).numpy() for name, tensor in pointers.items()}
    buffers = {name: Buffer(image, name) for name, image in images.items()}
    values = entry_parameters(launch, compilation, buffers)
    block = launch.given.block if launch.given else 32 * compilation.num_warps
    return lambda: run_kernel(kernel, values, launch.grid, num_threads=block, shared_bytes=compilation.shared)


def dtype_of_bytes():
    import torch

    return torch.uint8
