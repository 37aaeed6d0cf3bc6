"""Run the programs' machine code: on a GPU, in the process that owns it, or on the CPU, instruction by instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from ptxdiff.emulator import Buffer, PtxError
from ptxdiff.fuzz.oracle import THREADS, Words
from ptxdiff.fuzz.program import BLOCK, OUTPUTS
from ptxdiff.processes.child import Device, DeviceFault
from ptxdiff.sass.cubin import MachineCode, disassembled, machine_code, machine_codes
from ptxdiff.sass.run import Ran, run_machine_code
from ptxdiff.sass.scoreboards import early_uses
from ptxdiff.sass.text import ScheduleDependence, Unsupported
from ptxdiff.triton.targets import tool

LIMIT = 30.0  # seconds for the programs of one module; their loops end after eight iterations


@dataclass(frozen=True)
class NotRead:
    """A program that the interpreter of machine code does not run. schedule: its bits depend on the schedule."""

    words: str
    schedule: bool = False


class MachineCodeRunner(Protocol):
    """The protocol of what runs machine code."""

    def run(self, cubin: bytes, inputs: Sequence[Words]) -> Sequence[Words | NotRead] | str:
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


@dataclass(frozen=True)
class MachineCodeInterpreter:
    """The machine code on the CPU, for a target."""

    target: str

    def run(self, cubin: bytes, inputs: Sequence[Words]) -> Sequence[Words | NotRead] | str:
        """See `MachineCodeRunner`."""
        return [one if isinstance(one, NotRead) else one[0] for one in self.ran(cubin, inputs)]

    @staticmethod
    def code(cubin: bytes, name: str) -> MachineCode:
        """A kernel of a module. Raises Unsupported."""
        return machine_code(cubin, disassembled(cubin, tool("nvdisasm"), keep=False), name)

    def early(self, cubin: bytes, programs: int) -> list[str]:
        """For each kernel of a module, its first use of a result before its scoreboard is waited for; "" for none."""
        try:
            codes = _codes(cubin)
        except Unsupported:
            return [""] * programs
        uses = (early_uses(codes[f"p{k}"].function) for k in range(programs))
        return [found[0].words if found else "" for found in uses]

    def ran(self, cubin: bytes, inputs: Sequence[Words]) -> list[tuple[Words, Ran] | NotRead]:
        """The outputs of each kernel, with the forms of machine instructions that ran."""
        try:
            codes = _codes(cubin)
        except Unsupported as refusal:
            return [NotRead(refusal.message)] * len(inputs)
        return [_interpreted(codes[f"p{k}"], given) for k, given in enumerate(inputs)]


@lru_cache(maxsize=2)
def _codes(cubin: bytes) -> Mapping[str, MachineCode]:
    """The kernels of a module. Raises Unsupported."""
    return machine_codes(cubin, disassembled(cubin, tool("nvdisasm"), keep=False))


def _interpreted(code: MachineCode, inputs: Words) -> tuple[Words, Ran] | NotRead:
    outputs = np.zeros((len(inputs), OUTPUTS), np.uint32)
    buffers = [Buffer(np.array(inputs), "inputs"), Buffer(outputs, "outputs", defined=False)]
    try:
        ran = run_machine_code(code, buffers, (len(inputs) // BLOCK,), BLOCK, limit=LIMIT)
    except ScheduleDependence as fault:
        return NotRead(fault.message, schedule=True)
    except PtxError as error:
        return NotRead(error.message)
    return outputs, ran


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
