"""Run the programs' machine code on a GPU, in the process that owns the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ptxdiff.fuzz.oracle import THREADS, Words
from ptxdiff.fuzz.program import BLOCK, OUTPUTS
from ptxdiff.processes.child import Device, DeviceFault

LIMIT = 30.0  # seconds for the programs of one module; their loops end after eight iterations


class MachineCodeRunner(Protocol):
    """The protocol of devices that run machine code."""

    def run(self, cubin: bytes, inputs: Sequence[Words]) -> list[Words] | str:
        """The outputs of the kernels p0, p1, ... of a module on their inputs, or the device's fault as a text."""


@dataclass(frozen=True)
class GpuRunner:
    """A GPU."""

    device: Device

    def run(self, cubin: bytes, inputs: Sequence[Words]) -> list[Words] | str:
        """See `MachineCodeRunner`."""
        try:
            found: list[Words] = self.device.call(f"{__name__}:run_here", cubin, np.stack(inputs), limit=LIMIT)
        except DeviceFault as fault:
            return str(fault)
        return found


def run_here(cubin: bytes, inputs: Words) -> list[Words]:
    """Launch every kernel of a module once, on torch's current device. Raises NoDriver and DriverError."""
    import torch

    from ptxdiff.backends.driver import DriverLaunch, launch_all

    given = torch.from_numpy(inputs.view(np.int32)).cuda()
    made = torch.full((len(inputs), THREADS, OUTPUTS), 0x5A5A5A5A, dtype=torch.int32, device="cuda")
    launches = [
        DriverLaunch(
            f"p{k}", (THREADS // BLOCK,), (BLOCK, 1, 1), 0,
            (given[k].data_ptr().to_bytes(8, "little"), made[k].data_ptr().to_bytes(8, "little")),
        )
        for k in range(len(inputs))
    ]  # fmt: skip
    launch_all(cubin, launches)
    return list(made.cpu().numpy().view(np.uint32))
