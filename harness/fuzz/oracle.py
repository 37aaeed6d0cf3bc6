"""The expected outputs of programs, computed by the emulator, and the programs' inputs and modules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator import Buffer, Kernel, load_kernel, run_kernel
from ptxdiff.fuzz.generate import words
from ptxdiff.fuzz.program import BLOCK, INPUTS, OUTPUTS, RandomProgram, entry, module
from ptxdiff.model.targets import INTRODUCED, version_number

Words = NDArray[np.uint32]
VERSION = "8.1"
"""The version of the PTX ISA that programs state; for newer targets, the first version that has the target."""
THREADS = BLOCK
"""The number of threads that run a program, each on different inputs."""


def inputs_of(seed: str) -> Words:
    """The inputs of a program: shape [THREADS, INPUTS]."""
    return _inputs_of(seed).copy()


@lru_cache(maxsize=1024)  # a batch asks twice for those of each of its programs, and drawing them takes a while
def _inputs_of(seed: str) -> Words:
    return np.array(words(THREADS * INPUTS, seed), np.uint32).reshape(THREADS, INPUTS)


def text_of(programs: Sequence[RandomProgram], target: str) -> str:
    """The PTX of a module with some programs as kernels p0, p1, ..."""
    version = max(VERSION, INTRODUCED.get(target, VERSION), key=version_number)
    return module([entry(p, f"p{k}") for k, p in enumerate(programs)], target, version)


def expected(program: RandomProgram, inputs: Words, target: str) -> Words:
    """The right outputs, shape [THREADS, OUTPUTS]. Raises PtxError for a program that the emulator refuses."""
    return emulated(text_of([program], target), "p0", inputs)


def emulated(text: str, name: str, inputs: Words) -> Words:
    """The outputs of one kernel of a module, shape [THREADS, OUTPUTS]. Raises PtxError if the emulator refuses it."""
    return emulated_words(load_kernel(text, name), inputs)


def emulated_words(kernel: Kernel, inputs: Words) -> Words:
    """The outputs of a kernel, shape [THREADS, OUTPUTS]. Raises PtxError."""
    outputs = np.zeros((len(inputs), OUTPUTS), np.uint32)
    buffers = [Buffer(np.ascontiguousarray(inputs), "inputs"), Buffer(outputs, "outputs", defined=False)]
    run_kernel(kernel, buffers, (len(inputs) // BLOCK,), num_threads=BLOCK)
    return outputs
