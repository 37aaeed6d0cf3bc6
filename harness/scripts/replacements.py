"""Replacements for what a GPU needs: Triton's driver and autotuner, and torch's tensors on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from ptxdiff.arguments import LaunchError
from ptxdiff.emulator import Target, shared_memory
from ptxdiff.launcher import first_that_runs
from ptxdiff.model.targets import capability
from ptxdiff.scripts.pointers import Pointers


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
            found, config = first_that_runs(tuner, kwargs, lambda more: tuner.fn.run(*args, **kwargs, **more), known)
            self._chosen[key] = tuner.best_config = config
            return found
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
        found = {
            "max_shared_mem": shared_memory(Target.parse(self._target)),
            "max_num_regs": 65536,
            "multiprocessor_count": self._multiprocessors,
            "warpSize": 32,
        }
        return SimpleNamespace(get_device_properties=lambda device=0: dict(found))

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
