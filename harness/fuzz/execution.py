"""Run programs: what the emulator expects of them, and what their machine code gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator import Buffer, Kernel, PtxError, UndefinedBits, load_kernel, run_kernel
from ptxdiff.fuzz.generate import words
from ptxdiff.fuzz.program import BLOCK, INPUTS, OUTPUTS, RandomProgram, entry, module
from ptxdiff.model.targets import INTRODUCED, version_number
from ptxdiff.processes.child import Device, DeviceFault
from ptxdiff.sass.cubin import MachineCode, disassembled, machine_code
from ptxdiff.sass.machine import SCHEDULES
from ptxdiff.sass.run import Ran, run_machine_code, run_schedules
from ptxdiff.sass.scoreboards import early_uses
from ptxdiff.sass.text import ScheduleDependence, Unsupported
from ptxdiff.sass.words import WordDecoder
from ptxdiff.triton.targets import tool

# ---- Inputs and modules of programs, and their outputs in the emulator -----------------------------------------------

Words = NDArray[np.uint32]
VERSION = "8.1"
"""The version of the PTX ISA that programs state; for newer targets, the first version that has the target."""
THREADS = BLOCK
"""The number of threads that run a program, each on different inputs."""


ALIKE = 16
"""So many programs in a row run on the same inputs: drawing them takes longer than running a program on them."""


def inputs_of(seed: str) -> Words:
    """The inputs of a program: shape [THREADS, INPUTS]. seed: of the program; `WORD/NUMBER` in a campaign."""
    word, _, number = seed.rpartition("/")
    return _inputs_of(f"{word}/{int(number) // ALIKE * ALIKE}" if word and number.isdigit() else seed).copy()


@lru_cache(maxsize=1024)  # a batch asks twice for those of each of its programs, and drawing them takes a while
def _inputs_of(seed: str) -> Words:
    return np.array(words(THREADS * INPUTS, seed), np.uint32).reshape(THREADS, INPUTS)


def text_of(programs: Sequence[RandomProgram], target: str) -> str:
    """The PTX of a module with some programs as kernels p0, p1, ..."""
    version = max(VERSION, INTRODUCED.get(target, VERSION), key=version_number)
    return module([entry(p, f"p{k}") for k, p in enumerate(programs)], target, version)


def expected(program: RandomProgram, inputs: Words, target: str) -> Words:
    """The right outputs, shape [THREADS, OUTPUTS]. Raises PtxError for a program that the emulator refuses."""
    return emulated(text_of([program], target), "p0", inputs)


def emulated(text: str, name: str, inputs: Words) -> Words:
    """The outputs of one kernel of a module, shape [THREADS, OUTPUTS]. Raises PtxError if the emulator refuses it."""
    return emulated_words(load_kernel(text, name), inputs)


def emulated_words(kernel: Kernel, inputs: Words) -> Words:
    """The outputs of a kernel, shape [THREADS, OUTPUTS]. Raises PtxError."""
    outputs = np.zeros((len(inputs), OUTPUTS), np.uint32)
    buffers = [Buffer(np.ascontiguousarray(inputs), "inputs"), Buffer(outputs, "outputs", defined=False)]
    run_kernel(kernel, buffers, (len(inputs) // BLOCK,), num_threads=BLOCK)
    return outputs


# ---- Machine code: on a GPU, in the process that owns it, or on the CPU, instruction by instruction ------------------

LIMIT = 30.0  # seconds for the programs of one module; their loops end after eight iterations


@dataclass(frozen=True)
class NotRead:
    """A program of which the interpreter of machine code gives no bits.

    depends: "the schedule" or "undefined bits" if it ran, and its bits depend on them; "" if it did not run.
    """

    words: str
    depends: str = ""


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
            outputs: list[Words] = self.device.call(f"{__name__}:run_here", cubin, np.stack(inputs), limit=LIMIT)
        except DeviceFault as fault:
            return str(fault)
        return outputs


Read = Mapping[str, MachineCode] | Unsupported
"""The kernels of a module by name, or why they cannot be read."""


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

    def read(self, cubins: Sequence[bytes]) -> list[Read]:
        """The kernels of some modules. Together they take fewer calls of nvdisasm."""
        return list(_decoder(self.target, str(tool("nvdisasm"))).codes(cubins))

    def early(self, read: Read, names: Sequence[str]) -> list[str]:
        """For each kernel of a module, its first use of a result before its scoreboard is waited for; "" for none."""
        if isinstance(read, Unsupported):
            return [""] * len(names)
        uses = (early_uses(read[name].function) for name in names)
        return [early_ones[0].words if early_ones else "" for early_ones in uses]

    def ran(self, cubin: bytes, inputs: Sequence[Words]) -> list[tuple[Words, Ran] | NotRead]:
        """The outputs of the kernels p0, p1, ..., with the forms of machine instructions that ran."""
        (read,) = self.read([cubin])
        return self.interpreted(read, [f"p{k}" for k in range(len(inputs))], inputs)

    @staticmethod
    def interpreted(read: Read, names: Sequence[str], inputs: Sequence[Words]) -> list[tuple[Words, Ran] | NotRead]:
        """The outputs of some kernels, with the forms of machine instructions that ran."""
        if isinstance(read, Unsupported):
            return [NotRead(read.message)] * len(inputs)
        return [_interpreted(read[name], given) for name, given in zip(names, inputs, strict=True)]


@lru_cache(maxsize=2)
def _decoder(target: str, nvdisasm: str) -> WordDecoder:
    return WordDecoder(target, nvdisasm)


def _interpreted(code: MachineCode, inputs: Words) -> tuple[Words, Ran] | NotRead:
    """The outputs of a kernel, in all schedules at once; one after the other if they differ, to tell why."""
    outputs = np.zeros((len(SCHEDULES), len(inputs), OUTPUTS), np.uint32)
    copied = Buffer(np.tile(inputs, (len(SCHEDULES), 1)), "inputs")
    try:
        made = Buffer(outputs.reshape(-1, OUTPUTS), "outputs", defined=False)
        ran = run_schedules(code, [copied, made], len(inputs) // BLOCK, BLOCK, limit=LIMIT)
        if not (outputs == outputs[0]).all():
            made = Buffer(outputs[0], "outputs", defined=False)
            buffers = [Buffer(np.array(inputs), "inputs"), made]
            ran = run_machine_code(code, buffers, (len(inputs) // BLOCK,), BLOCK, limit=LIMIT)
    except PtxError as error:
        return _not_read(error)
    return outputs[0], ran


def _not_read(error: PtxError) -> NotRead:
    kinds = ((ScheduleDependence, "the schedule"), (UndefinedBits, "undefined bits"))
    return NotRead(error.message, next((depends for kind, depends in kinds if isinstance(error, kind)), ""))


def plainly_interpreted(code: MachineCode, inputs: Words) -> Words | NotRead:
    """The outputs of a kernel by the Python steps alone, without threaded code, in one schedule after the other."""
    outputs = np.zeros((len(inputs), OUTPUTS), np.uint32)
    buffers = [Buffer(np.array(inputs), "inputs"), Buffer(outputs, "outputs", defined=False)]
    try:
        run_machine_code(code, buffers, (len(inputs) // BLOCK,), BLOCK, limit=LIMIT)
    except PtxError as error:
        return _not_read(error)
    return outputs


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
