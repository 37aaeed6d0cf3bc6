"""The calls of the CUDA driver that are needed to run a cubin, through ctypes: only the driver is needed, no
package."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COMPUTE_MAJOR, _COMPUTE_MINOR, _PROCESSORS = 75, 76, 16
_BLOCKING = 4  # waiting threads sleep, so that others can use their core
THREADS = 128


class CudaError(RuntimeError):
    """The driver refused a call; the message names the call and the driver's error."""


class NoDevice(RuntimeError):
    """There is no NVIDIA GPU or no driver."""


class CudaContext:
    """The first GPU and a context in this process. Raises NoDevice."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise NoDevice("no NVIDIA driver here: libcuda.so.1 cannot be loaded") from None
        self._handles: list[Any] = []
        try:
            self._call("cuInit", 0)
            device = ctypes.c_int()
            self._call("cuDeviceGet", ctypes.byref(device), 0)
        except CudaError as e:
            raise NoDevice(f"no NVIDIA GPU is available: {e}") from None
        self._device = device.value
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxSetFlags_v2", self._device, _BLOCKING)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self.use()
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, self._device)
        self.name = name.value.decode()
        self.capability = 10 * self._attribute(_COMPUTE_MAJOR) + self._attribute(_COMPUTE_MINOR)
        self.processors = self._attribute(_PROCESSORS)

    def use(self) -> None:
        """Make the context current in the calling thread."""
        self._call("cuCtxSetCurrent", self._context)

    @property
    def target(self) -> str:
        """The most capable target that the GPU runs: architecture-specific from 9.0 on."""
        return f"sm_{self.capability}{'a' if self.capability >= 90 else ''}"

    @property
    def driver(self) -> str:
        """The driver's release ("580.159.04"), or the CUDA version that it implements."""
        try:
            version_words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
        except OSError:
            version_words = []
        release = next((w for w in version_words if w[0].isdigit() and "." in w), "")
        if release:
            return release
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"

    def load(self, cubin: bytes) -> ctypes.c_void_p:
        """A module from a cubin."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        return module

    def kernel(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """A kernel of a module by its name."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def allocate(self, size: int) -> int:
        """Allocate device memory and return its address."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def free(self, pointer: int) -> None:
        """Free device memory."""
        self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def upload(self, pointer: int, array: NDArray[Any]) -> None:
        """Copy an array to the device."""
        array = np.ascontiguousarray(array)
        host = array.ctypes.data_as(ctypes.c_void_p)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), host, ctypes.c_size_t(array.nbytes))

    def download(self, array: NDArray[Any], pointer: int) -> None:
        """Copy from the device into an array, after all earlier work has finished."""
        host = array.ctypes.data_as(ctypes.c_void_p)
        self._call("cuMemcpyDtoH_v2", host, ctypes.c_uint64(pointer), ctypes.c_size_t(array.nbytes))

    def launch(self, kernel: ctypes.c_void_p, arguments: Sequence[int], items: int) -> None:
        """Start a kernel whose arguments are all 64-bit words, with threads for up to `items` items."""
        self.start(kernel, arguments, max(1, min(-(-items // THREADS), self.processors * 16)), THREADS)

    def start(
        self, kernel: ctypes.c_void_p, arguments: Sequence[int], blocks: int, threads: int, shared: int = 0
    ) -> None:
        """Start a kernel whose arguments fit 64-bit words. shared: bytes of dynamic shared memory."""
        values = [ctypes.c_uint64(a & 0xFFFFFFFFFFFFFFFF) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(w) for w in values))
        self._call("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, shared, None, pointers, None)

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), which, self._device)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status:
            word = ctypes.c_char_p()
            self._cuda.cuGetErrorName(status, ctypes.byref(word))
            raise CudaError(f"{name}: {word.value.decode() if word.value else status}")
