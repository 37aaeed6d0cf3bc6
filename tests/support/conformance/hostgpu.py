"""A stand-in for a GPU: its memory is host memory, and its kernels run in the emulator or as code compiled for the
host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ptxdiff.conformance import group_rounds, products
from ptxdiff.conformance.fetch import Identity
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel


class HostGpu(products.ProductDevice):
    """A stand-in for a ProductDevice and its CudaContext. `wrong`: changes the results of a launch, by the launch's
    number."""

    def __init__(self, wrong: Callable[[int, np.ndarray], None] | None = None, whole: bool = False) -> None:
        self.identity = Identity("Pretended", "sm_90a", "1.0", "0.0")
        self.gpu: Any = self
        self.wrong, self.whole = wrong, whole
        self.memory: dict[int, np.ndarray] = {}
        self.launched = {"product": 0, "check": 0}

    def kernel(self, text: str, name: str = "product") -> Any:
        return name, text

    def allocate(self, size: int) -> int:
        held = np.full(size, 0xA5, np.uint8)
        self.memory[held.ctypes.data] = held
        return held.ctypes.data

    def free(self, pointer: int) -> None:
        del self.memory[pointer]

    def upload(self, pointer: int, array: np.ndarray) -> None:
        self._behind(pointer)[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def download(self, array: np.ndarray, pointer: int) -> None:
        array.reshape(-1).view(np.uint8)[:] = self._behind(pointer)[: array.nbytes]

    def _behind(self, address: int) -> np.ndarray:
        start = max(at for at in self.memory if at <= address)
        return self.memory[start][address - start :]

    def launch(self, kernel: Any, arguments: Any, threads: int) -> None:
        name, text = kernel
        if isinstance(arguments[0], np.ndarray):
            return super().launch(kernel, arguments, threads)
        self.launched[name] += 1
        if name == "check" and not self.whole:
            self._check([*map(int, text.splitlines()[0].split()[3:])], arguments, threads)
            return None
        held = [self._behind(x) if self._within(x) else x for x in arguments[:-1]]
        given = [Buffer(x) if isinstance(x, np.ndarray) else x for x in held]
        run_kernel(load_kernel(text), [*given, arguments[-1]], (-(-threads // 128),), num_threads=128, limit=None)
        if name == "product" and self.wrong:
            self.wrong(self.launched[name], held[-1].view(np.uint32))
        return None

    def _within(self, address: int) -> bool:
        return any(at <= address < at + len(held) for at, held in self.memory.items())

    def _check(self, constants: list[int], arguments: Any, threads: int) -> None:
        flags, each, *given, count = arguments
        assert count == threads
        agreed = group_rounds.on_host().ctypes
        flagged = self._behind(flags).view(np.uint32)
        pointer = ctypes.POINTER(ctypes.c_int)
        words = [*(ctypes.cast(x, pointer) for x in given[:6]), given[6], *constants]
        for i in range(count):
            flagged[i // each] += agreed(i, *words)
