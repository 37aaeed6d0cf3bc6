"""Jobs and their outcomes, and the protocol of backends, which turn jobs into outcomes.

A backend takes a job (a variant, a target, a setup, inputs) and returns output bits, or the reason why there are none.
It never judges: the outcome contains all that it knows about the bits (the compiled code, the contents of the guard
zones, their evidence). An error of a compiler or a device is an outcome, not an exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from ptxdiff.model.case import Case
from ptxdiff.model.compilers import PtxasChoice
from ptxdiff.model.dialect import AsmCall
from ptxdiff.model.variants import Context, Variant

Status = Literal["ran", "assembled", "unsupported", "error", "not run"]
Evidence = Literal["hardware", "confirmed", "specification", "model", "none"]

FILLING_BLOCK = 1024
"""Elements of a program in a launch that is to reach the memory's rate: enough loads are in flight."""


def block_of(pack: int) -> int:
    """Elements of a program: with four warps, each thread has at least one whole pack, to avoid mostly padding."""
    return 1 << (max(256, 128 * pack) - 1).bit_length()


@dataclass(frozen=True)
class Setup:
    """How a variant is run, apart from its inputs.

    pack: elements per asm invocation; 1 for plain Triton and kernels.
    shape: the shape of the elementwise inputs, in storage units, one or two dimensions; empty for kernels.
    sizes: for kernels, the value of each dimension's name.
    block: elements per program of the elementwise template. alignment: bytes by which every pointer is aligned: 16, or
    fewer, from the size of a storage unit on (pointers then start so many bytes past a 16-byte boundary).
    misaligned: the only tensor that is aligned so, for given PTX; the others by 16. "" if all are.
    context: "straight"; "loop": the carried outputs fed back for `steps` iterations inside one kernel; or "shared", by
    the emulator for all backends: outputs in registers of inputs, in every assignment that may change bits.
    fusion: Triton's enable_fp_fusion and ptxas's --fmad.
    padding: a seed for the bits that fill a partial pack, if the backend can choose them; None leaves them undefined.
    alone: the emulator runs the asm by itself, without the kernel that Triton makes around it.
    assembler: the ptxas of the gpu and the assembler backend; None for the one that Triton uses.
    """

    pack: int = 1
    shape: tuple[int, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    block: int = 256
    alignment: int = 16
    misaligned: str = ""
    num_warps: int = 4
    context: Context = "straight"
    steps: int = 1
    fusion: bool = False
    padding: int | None = None
    alone: bool = False
    assembler: PtxasChoice | None = None

    def alignment_of(self, tensor: str) -> int:
        """The bytes by which a tensor's pointer is aligned."""
        return self.alignment if self.misaligned in ("", tensor) else 16

    @property
    def shape_text(self) -> str:
        """The shape as keys and messages print it: `1023`, `7x129`, `M=4,N=64`."""
        if self.sizes:
            return ",".join(f"{k}={v}" for k, v in self.sizes.items())
        return "x".join(map(str, self.shape))


@dataclass(frozen=True)
class Job:
    """One thing for a backend to run. `path` is the case's file, from which compile workers load functions."""

    case: Case
    case_name: str
    path: Path
    variant_name: str
    variant: Variant
    target: str
    setup: Setup
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """numpy arrays in the formats' storage dtypes, by input name; by-value scalars are zero-dimensional."""
    approximate: str = "hopper"
    """On the emulator: the bits of approximate instructions, one of
    `ptxdiff.emulator.binding.contraction.APPROXIMATE`."""


@dataclass(frozen=True)
class Artifacts:
    """The products of a compilation: texts, and ptxas's report on resources.

    resources: "registers", "spill_stores", "spill_loads", "stack", "shared" (in bytes, except for registers), if known.
    instructions: SASS opcode to count. body: hash of the PTX without header, comments and line numbers. asm: the inline
    asm within the Triton functions that were compiled.
    """

    ptx: str | None = None
    sass: str | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    instructions: Mapping[str, int] = field(default_factory=dict)
    ptxas: str | None = None
    body: str = ""
    asm: tuple[AsmCall, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of running a job.

    status: "ran" (outputs hold bits), "assembled" (compiled, nothing executed), "unsupported" (the target lacks what
    the variant needs), "error" (no machine could run this), "not run" (this machine or backend cannot). words: the
    reason in one line, for any status but "ran" and "assembled". outputs: numpy arrays in the formats' storage dtypes,
    in the shape of the inputs (or of the case's dimensions). findings: faults that outputs alone do not show: a guard
    zone overwritten, a byte never written, undefined bits stored. Any finding is a failure. evidence: of a pass on
    these bits. contraction_open: whether ptxas may fuse a multiplication and an addition of this code. alternative: the
    outputs of the other legal reading of contraction-open code, if different; it is judged too. orders: outputs with
    the blocks of a kernel in other orders, by the order's words, if different; they are judged too. approximate: by
    output, the approximate instructions that its emulated values may depend on; empty on hardware. device: the UUID of
    the GPU that ran it. undefined: whether the finding is that undefined bits reached a store, an address or a branch.
    identity: the digest of the experiment (`ptxdiff.model.identity.definition`); "" if nothing ran. notes: remarks on
    how the bits were made, such as assignments of registers that were not tried. element: the number of the input
    element behind the first finding, if known: replays start there. suspected: of a job that was "not run", the
    outputs of machine code that ran on the CPU and differs from its PTX, where the proof that this ptxas is at
    fault lacks only another level or release that is right. doubtful: of a job that was "not run": whether machine
    code ran on the CPU and gave other bits than its PTX, or a fault, which this job alone does not settle. weakest:
    of machine code that ran on the CPU, the form with the least evidence, in words. fused: the products that ptxas
    fused into a sum, in words by the PTX line of the sum. ended: "crashed" or "hung" if ptxas ended so: a fault of
    its own, whatever the code is.
    """

    status: Status
    words: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    evidence: Evidence = "none"
    contraction_open: bool = False
    alternative: Mapping[str, Any] = field(default_factory=dict)
    orders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    artifacts: Artifacts = field(default_factory=Artifacts)
    approximate: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    device: str = ""
    undefined: bool = False
    identity: str = ""
    notes: tuple[str, ...] = ()
    element: int = 0
    suspected: Mapping[str, Any] = field(default_factory=dict)
    doubtful: bool = False
    weakest: str = ""
    fused: Mapping[str, str] = field(default_factory=dict)
    ended: str = ""


def same_bits(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the outputs of two runs are the same, bit for bit."""
    alike = (np.asarray(one[n]).tobytes() == np.asarray(other[n]).tobytes() for n in one if n in other)
    return one.keys() == other.keys() and all(alike)


class Backend(Protocol):
    """The protocol."""

    @property
    def name(self) -> str:
        """Its name in `ptxdiff.backends.BACKENDS`."""

    def unavailable(self, target: str) -> str | None:
        """Why nothing for this target can run here, in one line; None if it can."""

    def run(self, job: Job) -> Outcome:
        """Run or assemble one job. Raises only on a fault of the harness itself."""


@runtime_checkable
class CompilingBackend(Backend, Protocol):
    """A backend that can compile kernels while other work is done."""

    def prepare(self, job: Job) -> None:
        """Start compiling a job for a later `run`. Errors are reported by `run`."""


@runtime_checkable
class DisassemblingBackend(Backend, Protocol):
    """A backend that can disassemble the machine code of several jobs faster than one after the other.

    every_setup: whether `run` needs the machine code of every setup of a plan, or only of the first one.
    """

    every_setup: bool

    def disassemble_ahead(self, jobs: Sequence[Job]) -> None:
        """Disassemble now what `run` will need of each job's machine code. Errors are reported by `run`."""


@runtime_checkable
class MachineCodeBackend(Backend, Protocol):
    """A backend that can run a kernel that was built elsewhere."""

    def run_built(self, job: Job, built: Any) -> Outcome:
        """Run a job's kernel. built: a `ptxdiff.triton.build.Built`."""


@runtime_checkable
class DeviceBackend(Backend, Protocol):
    """A backend that can call the harness's functions in the process that owns its device, so that bits stay there."""

    def on_device(self, function: str, job: Job, *arguments: Any) -> tuple[Outcome, Any]:
        """Call `function` ("module:name") there for a job. Returns an outcome and the function's value; None on a
        fault.

        The arguments must be picklable. The process loads the job again by its names.
        """
