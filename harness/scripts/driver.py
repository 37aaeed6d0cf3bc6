"""What stands in for Triton's driver: it names a GPU that is not there."""

from __future__ import annotations

from typing import Any, NoReturn

from harness.arguments import LaunchError
from harness.model.targets import capability

# Multiprocessors of the whole products of a generation: A100 (108), H100 SXM (132), B200 (148), others by CUDA's table.
_MULTIPROCESSORS = {75: 72, 80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 103: 160, 120: 188}


def multiprocessors(target: str) -> int:
    """How many multiprocessors host code is told of, where nobody says otherwise."""
    return _MULTIPROCESSORS.get(capability(target), 132)


class StandInDriver:
    """Triton's driver as far as host code asks it: which GPU there is, and on which of torch's devices tensors lie."""

    def __init__(self, target: str) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        """The target as Triton has it."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", capability(self._target), 32)

    def get_active_torch_device(self) -> Any:
        """The CPU: there the emulator finds tensors."""
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Nothing: there is one."""

    def get_current_stream(self, device: int = 0) -> int:
        """CUDA's default stream."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Major and minor compute capability."""
        return divmod(capability(self._target), 10)

    def get_benchmarker(self) -> NoReturn:
        """Nobody measures here; `Autotuner.run` is stood in for."""
        raise LaunchError("the emulator has no times to compare")

    def __getattr__(self, name: str) -> NoReturn:
        raise LaunchError(f"Triton's driver was asked for {name!r}, which the emulator's stand-in has not")
