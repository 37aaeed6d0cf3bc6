"""Launch a kernel's machine code through CUDA's driver API, by cuda-python.

The launches use torch's CUDA context, which is current after torch has used the device.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ptxdiff.extras import advice


class NoDriver(RuntimeError):
    """The bindings of the driver API are not installed here."""


class DriverError(RuntimeError):
    """The driver refused a call. The text names the call and the driver's error code."""


@dataclass(frozen=True)
class DriverLaunch:
    """The arguments of a launch. parameters: the bytes of each, in order. shared: bytes of dynamic shared memory."""

    entry: str
    grid: tuple[int, ...]
    block: tuple[int, int, int]
    shared: int
    parameters: tuple[bytes, ...]


def prepared(cubin: bytes, launch: DriverLaunch) -> Callable[[], None]:
    """A function that launches the kernel on torch's current stream. Raises NoDriver and DriverError."""
    return _start(_function(_module(cubin), launch.entry), launch)


def launch_all(cubin: bytes, launches: Sequence[DriverLaunch]) -> None:
    """Load machine code, launch kernels of it, wait for their end and unload it. Raises NoDriver and DriverError."""
    driver = bindings()
    (module,) = checked("cuModuleLoadData", driver.cuModuleLoadData(cubin))
    for launch in launches:
        _start(_function(module, launch.entry), launch)()
    checked("cuCtxSynchronize", driver.cuCtxSynchronize())
    checked("cuModuleUnload", driver.cuModuleUnload(module))


def _start(function: Any, launch: DriverLaunch) -> Callable[[], None]:
    driver = bindings()
    if launch.shared > _DEFAULT_SHARED:
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked("cuFuncSetAttribute", driver.cuFuncSetAttribute(function, most, launch.shared))
    grid = (*launch.grid, 1, 1)[:3]
    values = [ctypes.create_string_buffer(p, len(p)) for p in launch.parameters]
    # The array keeps only addresses: `values` has to live as long as the function that passes them.
    addresses = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))

    def start(held: object = values) -> None:
        import torch

        stream = torch.cuda.current_stream().cuda_stream
        given = ctypes.addressof(addresses)
        launched = driver.cuLaunchKernel(function, *grid, *launch.block, launch.shared, stream, given, 0)
        checked("cuLaunchKernel", launched)

    return start


_DEFAULT_SHARED = 48 << 10  # bytes of dynamic shared memory that a kernel may use without setting its attribute


def bindings() -> Any:
    """cuda-python's module of the driver API. Raises NoDriver."""
    try:
        from cuda.bindings import driver  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise NoDriver(advice(["cuda"], "launching PTX by the driver")) from None
    return driver


@functools.lru_cache(maxsize=256)
def _module(cubin: bytes) -> Any:
    """Machine code, loaded until this process ends, because prepared launches use it."""
    return checked("cuModuleLoadData", bindings().cuModuleLoadData(cubin))[0]


def _function(module: Any, entry: str) -> Any:
    return checked("cuModuleGetFunction", bindings().cuModuleGetFunction(module, entry.encode()))[0]


def checked(call: str, returned: Sequence[Any]) -> Sequence[Any]:
    """The values that a call returned after its status. Raises DriverError for any status but success."""
    status, *values = returned
    if int(status) != 0:
        raise DriverError(f"{call}: {getattr(status, 'name', status)}")
    return values
