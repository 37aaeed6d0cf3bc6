"""Stand-ins for torch's GPU: tensors on "cuda" are made on the CPU, and the GPU's properties are the target's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ptxdiff.model.targets import capability
from ptxdiff.ptx.limits import shared_memory
from ptxdiff.ptx.targets import Target
from ptxdiff.scripts.pointers import Pointers


class OnTheCpu(TorchFunctionMode):
    """Within it torch makes tensors for "cuda" on the CPU, and `data_ptr()` returns addresses of the emulator."""

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
