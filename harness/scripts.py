"""`with emulating("sm_90a"):` runs unchanged Python code of Triton, with its kernels in the emulator.

`kernel[grid](...)` runs on the CPU as on the target, through `ptxdiff.emulated`. Host code finds a GPU of the target:
Triton's driver and `torch.cuda` report its properties, and tensors on "cuda" are made on the CPU.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from ptxdiff.emulator import HOPPER, KERNEL_SECONDS, Target, pointed_address, shared_memory
from ptxdiff.extras import require
from ptxdiff.launcher import MOST_POINTED, Emulated, LaunchError, emulated, first_that_runs
from ptxdiff.model.targets import capability, normal


@contextlib.contextmanager
def emulating(
    target: str = "sm_100a",
    *,
    races: bool = True,
    limit: float | None = KERNEL_SECONDS,
    approximate: str = HOPPER,
    processors: int | None = None,
) -> Iterator[None]:
    """Run every Triton kernel that is launched within it on the CPU as `target` would: whole, unchanged files.

        with emulating("sm_90a"):
            runpy.run_path("python/tutorials/09-persistent-matmul.py")

    races, limit, approximate: for each launch, as in `emulated`. processors: the number of multiprocessors that host
    code gets, which persistent kernels use as their grid (None: that of the generation's large product).

    A kernel under `@triton.autotune` runs with the first configuration that the target can hold, because nothing can
    be timed: `do_bench` calls its function once and returns NaN, a `perf_report` does not run, and Proton makes no
    profile; each says so on stderr. `data_ptr()` returns addresses that the emulator's kernels may read from memory;
    they are not valid in this process. cuBLAS is not available.

    It must not be used by several threads at once, nor nested. Raises LaunchError and PtxError as launches do, and
    ImportError without torch or triton.
    """
    require("torch", "triton", purpose="emulating()")
    import torch
    import triton
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    target = normal(target)
    processors = processors or multiprocessors(target)
    emulated(None, target, approximate=approximate)  # raises for a wrong choice, before anything is replaced
    driver = triton.runtime.driver
    if isinstance(driver._active, StandInDriver):
        raise LaunchError("emulating() within emulating(): leave the first before you enter the second")
    pointers, choices = Pointers(), Choices()

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        launch = Emulated(kernel, target, races, limit, approximate, pointers, here=True)
        if warmup:
            with torch._C.DisableTorchFunction():
                return launch.warmup(*args, **kwargs)
        for hook in kernel.pre_run_hooks:
            hook(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # the harness needs addresses of this process
            return launch[grid](*args, **kwargs)

    def tuned(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        return choices.run(tuner, args, kwargs)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(driver, "_active", StandInDriver(target, processors)))
        stack.enter_context(mock.patch.object(JITFunction, "run", run))
        stack.enter_context(mock.patch.object(Autotuner, "run", tuned))
        _without_times(stack)
        for name, answer in answers(target, processors).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        _without_libraries(stack)
        stack.enter_context(OnTheCpu(pointers))
        yield


def _without_times(stack: contextlib.ExitStack) -> None:
    """Replace Triton's benchmarks and profiles by a line on stderr, once each: scripts call them in loops."""
    from triton import testing

    printed: set[str] = set()

    def print_once(text: str) -> None:
        if text not in printed:
            printed.add(text)
            print(f"{text}, because the emulator cannot measure times", file=sys.stderr)

    def untimed(function: Any, *args: Any, quantiles: Any = None, **kwargs: Any) -> Any:
        print_once("do_bench: called its function once, and gave NaN")
        function()
        return math.nan if quantiles is None else [math.nan] * len(quantiles)

    def no_report(mark: Any, *args: Any, **kwargs: Any) -> None:
        print_once(f"{getattr(mark.fn, '__name__', 'a benchmark')}: not run")

    def no_profile(name: str | None = None, *args: Any, **kwargs: Any) -> None:
        print_once(f"the profile {name or 'of Proton'}: not made")

    stack.enter_context(mock.patch.multiple(testing, do_bench=untimed, do_bench_cudagraph=untimed))
    stack.enter_context(mock.patch.object(testing.Mark, "run", no_report))
    with contextlib.suppress(ImportError):  # a build of Triton without Proton
        import triton.profiler

        for module in (triton.profiler, sys.modules["triton.profiler.profile"]):
            stack.enter_context(mock.patch.object(module, "start", no_profile))
            for name in ("activate", "deactivate", "finalize"):
                stack.enter_context(mock.patch.object(module, name, return_value=None))


def _without_libraries(stack: contextlib.ExitStack) -> None:
    """Make Triton's access to cuBLAS None, which the host code of its tutorials checks."""
    from triton._C.libtriton import nvidia

    if hasattr(nvidia, "cublas"):
        stack.enter_context(mock.patch.object(nvidia.cublas, "CublasLt", return_value=None))


# Addresses for host code, for kernels that read pointers from memory, such as a table of matrices ------------------
#
# They are addresses of the emulator, as far apart as those of arguments, so that an access beyond a tensor is an error.
# They are not valid in this process, so host code can only pass them on.


class Pointers:
    """The storages whose addresses host code has asked for, while they live."""

    def __init__(self) -> None:
        self._storages: list[Any] = []
        self._slots: dict[int, int] = {}

    def address(self, tensor: Any) -> int:
        """The result of `tensor.data_ptr()`. Views of one storage keep their distance. Raises LaunchError."""
        from torch.multiprocessing import reductions

        storage = tensor.untyped_storage()
        key = storage._cdata
        slot = self._slots.get(key)
        # A weak reference, so that no other storage gets the same number.
        if slot is None:
            slot = self._slots[key] = len(self._storages)
            self._storages.append(reductions.StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            if slot >= MOST_POINTED:
                raise LaunchError(f"data_ptr() was asked of more than {MOST_POINTED:,} tensors")
        start: int = storage.data_ptr()
        return pointed_address(slot, start) + int(tensor.data_ptr()) - start

    def memory(self, slot: int) -> NDArray[np.uint8] | None:
        """The bytes of a storage; None if it has been freed, or if the slot was never used."""
        import torch

        if slot >= len(self._storages):
            return None
        storage = torch.UntypedStorage._new_with_weak_ptr(self._storages[slot].cdata)
        if storage is None or not storage.nbytes():
            return None
        whole: NDArray[np.uint8] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        return whole


# Replacements for what a GPU needs: Triton's driver and autotuner, and torch's tensors on a device -----------------


class Choices:
    """The configurations chosen so far, by autotuner and by the key with which it distinguishes launches."""

    def __init__(self) -> None:
        self._chosen: dict[tuple[Any, ...], Any] = {}

    def run(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch with the configuration chosen before for this key, or else with the first one that runs
        (`first_that_runs`)."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            key = (tuner, *_key(tuner, kwargs))
            known = self._chosen.get(key)
            launched, config = first_that_runs(tuner, kwargs, lambda more: tuner.fn.run(*args, **kwargs, **more), known)
            self._chosen[key] = tuner.best_config = config
            return launched
        finally:
            tuner.nargs = None


def _key(tuner: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    given = {name: value for name, value in {**tuner.nargs, **kwargs}.items() if name in tuner.arg_names}
    types = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    return (*(repr(given[name]) for name in tuner.keys if name in given), *types)


# Multiprocessors of each generation's complete product: A100 (108), H100 SXM (132), B200 (148); others: CUDA's table.
_MULTIPROCESSORS = {75: 72, 80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 103: 160, 120: 188}


def multiprocessors(target: str) -> int:
    """The number of multiprocessors that host code gets by default."""
    return _MULTIPROCESSORS.get(capability(target), 132)


class StandInDriver:
    """The parts of Triton's driver that host code uses: the GPU, and the torch device of tensors."""

    def __init__(self, target: str, processors: int) -> None:
        self._target, self._multiprocessors = target, processors

    def get_current_target(self) -> Any:
        """The target, as Triton's GPUTarget."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", capability(self._target), 32)

    def get_active_torch_device(self) -> Any:
        """The CPU, on which the emulator's tensors are."""
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        """0: there is one device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Does nothing: there is one device."""

    def get_current_stream(self, device: int = 0) -> int:
        """0: CUDA's default stream."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Major and minor compute capability."""
        return divmod(capability(self._target), 10)

    @property
    def utils(self) -> Any:
        """What Triton asks of CUDA's driver about the GPU; 64 Ki registers are those of every target here."""
        facts = {
            "max_shared_mem": shared_memory(Target.parse(self._target)),
            "max_num_regs": 65536,
            "multiprocessor_count": self._multiprocessors,
            "warpSize": 32,
        }
        return SimpleNamespace(get_device_properties=lambda device=0: dict(facts))

    def get_benchmarker(self) -> NoReturn:
        """Raises LaunchError: nothing can be measured. `Autotuner.run` is replaced too, so that it does not ask."""
        raise LaunchError("the emulator cannot measure times")

    def __getattr__(self, name: str) -> NoReturn:
        raise LaunchError(f"the emulator's stand-in for Triton's driver has no {name!r}")


class OnTheCpu(TorchFunctionMode):
    """Within it torch makes tensors for "cuda" on the CPU, every tensor says that it is on a GPU (`is_cuda`), and
    `data_ptr()` returns addresses of the emulator."""

    def __init__(self, pointers: Pointers) -> None:
        super().__init__()
        self._pointers = pointers

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """One call of torch."""
        if func is torch.Tensor.data_ptr:
            return self._pointers.address(args[0])
        if func is torch.Tensor.cuda:
            return args[0]
        if getattr(func, "__self__", None) is torch.Tensor.is_cuda:
            return True
        args = tuple(_device(value) for value in args)
        return func(*args, **{name: _device(value) for name, value in (kwargs or {}).items()})


def _device(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


def answers(target: str, multiprocessors: int) -> dict[str, Callable[..., Any]]:
    """The functions of `torch.cuda` that describe the GPU, by name."""
    major, minor = divmod(capability(target), 10)
    properties = SimpleNamespace(
        name=f"ptxdiff's emulator of {target}",
        major=major,
        minor=minor,
        multi_processor_count=multiprocessors,
        warp_size=32,
        total_memory=80 << 30,
        shared_memory_per_block_optin=shared_memory(Target.parse(target)),
    )
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties,
    }
