"""The device of a campaign: the interface through which it is used, and its implementation for a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxdiff.conformance import kernels
from ptxdiff.conformance.forms import FormSnippet
from ptxdiff.conformance.inputs import Columns

# ---- The calls of the CUDA driver that run a cubin -------------------------------------------------------------------
#
# Through ctypes: only the driver is needed, no package.

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


# ---- A device, as a campaign uses it ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComparedOnDevice:
    """A comparison on the device: how many inputs differ, some of their indices, and the greatest distance."""

    mismatches: int = 0
    indices: tuple[int, ...] = ()
    distance: int = 0
    at: int = 0


@dataclass(frozen=True)
class Identity:
    """The device that ran the instructions: its name and target, and the releases of its driver and assembler."""

    device: str
    target: str
    driver: str
    ptxas: str


class Executor(Protocol):
    """Runs snippets. Call `compiled` before any other method for a snippet."""

    identity: Identity

    def compiled(self, snippets: Sequence[FormSnippet], checks: bool) -> dict[int, str]:
        """Compile snippets, with `checks` also for `check`.

        Returns the assembler's errors, by the snippet's position.
        """

    def use(self) -> None:
        """Called in each further thread that uses the device."""

    def run(self, snippet: FormSnippet, columns: Columns) -> Columns:
        """The instruction's results on these inputs, as unsigned arrays of the registers' widths."""

    def checks(self, snippet: FormSnippet) -> bool:
        """Whether `check` supports a snippet."""

    def check(self, snippet: FormSnippet, start: int, count: int) -> ComparedOnDevice:
        """Compare instruction and definition on `count` inputs from number `start` on."""


@dataclass
class Hardware:
    """The GPU of this machine. Raises NoDevice, or NoTriton if there is no assembler."""

    gpu: CudaContext = field(default_factory=CudaContext)

    def __post_init__(self) -> None:
        gpu = self.gpu
        self.assembler = next(a for a in kernels.assemblers() if _serves(a, gpu.capability))
        self.identity = Identity(gpu.name, gpu.target, gpu.driver, self.assembler.release)
        self._kernels: dict[tuple[str, str], dict[str, Any]] = {}
        self._report = gpu.allocate(8 * kernels.REPORT_WORDS)

    def compiled(self, snippets: Sequence[FormSnippet], checks: bool) -> dict[int, str]:
        """See `Executor`."""
        refused: dict[int, str] = {}
        places = list(range(len(snippets)))
        while places:
            asked = [snippets[p] for p in places]
            cpu = f"sm_{min(self.gpu.capability, 90)}"
            cubin = kernels.assembled(kernels.source(asked, cpu, checks), self.gpu.target, self.assembler)
            if isinstance(cubin, bytes):
                self._load(cubin, asked, checks)
                break
            if not cubin.blamed:
                raise RuntimeError(f"ptxas: {cubin.words[:2000]}")
            refused |= {places[n]: message for n, message in cubin.blamed.items()}
            places = [p for n, p in enumerate(places) if n not in cubin.blamed]
        return refused

    def _load(self, cubin: bytes, snippets: Sequence[FormSnippet], checks: bool) -> None:
        module = self.gpu.load(cubin)
        for n, snippet in enumerate(snippets):
            loaded = {"run": self.gpu.kernel(module, f"run_{n}")}
            if checks and kernels.checkable(snippet):
                loaded["check"] = self.gpu.kernel(module, f"check_{n}")
            self._kernels[snippet.form, snippet.variant] = loaded

    def use(self) -> None:
        """See `Executor`."""
        self.gpu.use()

    def run(self, snippet: FormSnippet, columns: Columns) -> Columns:
        """See `Executor`. Result buffers start as all ones, so that an output that is never written shows."""
        count = len(columns[0])
        outputs: Columns = [np.full(count, -1, f"i{p.bits // 8}").view(f"u{p.bits // 8}") for p in snippet.outputs]
        arrays: list[NDArray[Any]] = [*columns, *outputs]
        pointers = [self.gpu.allocate(a.nbytes) for a in arrays]
        try:
            for pointer, array in zip(pointers, arrays, strict=True):
                self.gpu.upload(pointer, array)
            kernel = self._kernels[snippet.form, snippet.variant]["run"]
            self.gpu.launch(kernel, [*pointers, count], count)
            for pointer, array in zip(pointers[len(columns) :], outputs, strict=True):
                self.gpu.download(array, pointer)
        finally:
            for pointer in pointers:
                self.gpu.free(pointer)
        return outputs

    def checks(self, snippet: FormSnippet) -> bool:
        """See `Executor`."""
        return "check" in self._kernels[snippet.form, snippet.variant]

    def check(self, snippet: FormSnippet, start: int, count: int) -> ComparedOnDevice:
        """See `Executor`."""
        report = np.zeros(kernels.REPORT_WORDS, np.uint64)
        self.gpu.upload(self._report, report)
        kernel = self._kernels[snippet.form, snippet.variant]["check"]
        self.gpu.launch(kernel, [self._report, start, count], count)
        self.gpu.download(report, self._report)
        wrong, peak, *indices = (int(w) for w in report)
        return ComparedOnDevice(
            wrong, tuple(indices[: min(wrong, kernels.KEPT)]), peak >> 32, start + (peak & 0xFFFFFFFF)
        )


def _serves(assembler: kernels.CarriedAssembler, capability: int) -> bool:
    """Whether an assembler supports a capability; CUDA 13 dropped those before 7.5, and has later ones."""
    import subprocess

    help_text = subprocess.run([assembler.path, "--help"], capture_output=True, text=True, timeout=60).stdout
    return f"'sm_{capability}" in help_text
