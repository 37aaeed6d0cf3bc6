"""Run a copy of `tensor_copies` on the emulator, or as machine code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxdiff.emulator import Buffer, HostMap, Pixels, run_kernel
from tests.support.emulator.tensor_copies import THREADS, Case

Run = Callable[[str, list[object]], object]


def on_emulator(text: str, arguments: list[object]) -> None:
    """Run the PTX."""
    run_kernel(text, arguments, (1,), num_threads=THREADS)


def as_machine_code(text: str, arguments: list[object], opt: int = 3) -> None:
    """Assemble the PTX, and run its machine code on the CPU."""
    from ptxdiff.launcher import _machine_code
    from ptxdiff.sass.run import run_machine_code

    run_machine_code(_machine_code(text, "k", None, opt, False), arguments, (1,), THREADS)


def host_map(case: Case, buffer: Buffer) -> HostMap:
    """The map of a case's tensor, which the buffer holds."""
    pixels = None
    if case.lower:
        kind = "im2col" if case.mode == "im2col_no_offs" else case.mode
        pixels = Pixels(case.lower, case.upper, case.steps, kind)
    return HostMap(buffer, 0, case.shape, case.strides, case.box, case.element, case.swizzle, case.fill, pixels)


def run_load(case: Case, target: str, run: Run = on_emulator, text: str = "") -> np.ndarray:
    """The bytes that a load leaves in shared memory."""
    y = np.zeros(case.bytes, np.uint8)
    tensor = Buffer(case.tensor.copy(), "tensor")
    run(text or case.text(target), [host_map(case, tensor), Buffer(y, "y"), *case.numbers])
    return y


def run_store(case: Case, data: np.ndarray, target: str, run: Run = on_emulator, text: str = "") -> np.ndarray:
    """The tensor after bytes of shared memory were copied to it, or reduced with it."""
    tensor = case.tensor.copy()
    buffer = Buffer(tensor, "tensor")
    run(text or case.text(target), [host_map(case, buffer), Buffer(data.copy(), "data"), *case.numbers])
    return tensor
