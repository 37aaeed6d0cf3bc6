"""A stand-in for Triton's driver, which describes a GPU that is not there."""

from __future__ import annotations

from typing import Any, NoReturn

from ptxdiff.arguments import LaunchError
from ptxdiff.model.targets import capability

# Multiprocessors of each generation's complete product: A100 (108), H100 SXM (132), B200 (148); others: CUDA's table.
_MULTIPROCESSORS = {75: 72, 80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 103: 160, 120: 188}


def multiprocessors(target: str) -> int:
    """The number of multiprocessors that host code gets by default."""
    return _MULTIPROCESSORS.get(capability(target), 132)


class StandInDriver:
    """The parts of Triton's driver that host code uses: the GPU, and the torch device of tensors."""

    def __init__(self, target: str) -> None:
        self._target = target

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

    def get_benchmarker(self) -> NoReturn:
        """Raises LaunchError: nothing can be measured. `Autotuner.run` is replaced too, so that it does not ask."""
        raise LaunchError("the emulator cannot measure times")

    def __getattr__(self, name: str) -> NoReturn:
        raise LaunchError(f"the emulator's stand-in for Triton's driver has no {name!r}")
