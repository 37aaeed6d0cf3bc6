"""The sass backend runs a kernel's machine code on the CPU and compares it with the PTX.

The kernel is compiled and assembled as for a GPU of the target. Its bits count only if every form of machine
instruction that ran is taught for the target (`ptxdiff.conformance.taught`), and if the PTX emulator gives the same
bits, with or without contraction. Otherwise the job is not run, and the words say what is unsettled: nobody is accused
on the word of this backend alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ptxdiff.backends.assembler import AssemblerBackend, artifacts, assembled, machine, notes
from ptxdiff.backends.compiled import CompiledKernel, EmulatedTensor, run_compiled
from ptxdiff.backends.snippet import error_line
from ptxdiff.emulator import KERNEL_SECONDS, PtxError
from ptxdiff.jobs import Job, Outcome
from ptxdiff.triton.build import Built
from ptxdiff.triton.launch import Launch, entry_parameters, launched_experiment
from ptxdiff.triton.targets import tool

TIMING = "machine code ran on the CPU, which never shows faults of timing"
"""A note of every result."""


class SassBackend:
    """See `ptxdiff.jobs.Backend`. limit: seconds for each run of machine code, and of PTX."""

    name = "sass"

    def __init__(self, limit: float = KERNEL_SECONDS) -> None:
        self.limit = limit
        self._assembler = AssemblerBackend("never")

    def unavailable(self, target: str) -> str | None:
        """The reason why machine code for `target` cannot be made or read here; None if it can."""
        words = self._assembler.unavailable(target)
        if words is None and not tool("nvdisasm").exists():
            return "nvdisasm, which Triton carries, is missing"
        return words

    def prepare(self, job: Job) -> None:
        """See `ptxdiff.jobs.CompilingBackend`."""
        self._assembler.prepare(job)

    def run(self, job: Job) -> Outcome:
        """Run one job's machine code."""
        made = assembled(job)
        if isinstance(made, Outcome):
            return made
        launch, built = made
        outcome = self._ran(job, launch, built)
        identity = launched_experiment(f"sass {machine(built)}", job, launch, built.compilation).digest
        return replace(outcome, artifacts=artifacts(built), identity=identity if outcome.outputs else "")

    def _ran(self, job: Job, launch: Launch, built: Built) -> Outcome:
        from ptxdiff.conformance.taught import unsettled
        from ptxdiff.sass.cubin import machine_code
        from ptxdiff.sass.disassembly import disassembled
        from ptxdiff.sass.errors import Unsupported
        from ptxdiff.sass.run import run_machine_code

        expected = run_compiled(job, CompiledKernel(launch, built.compilation), limit=self.limit)
        if expected.status != "ran" or expected.findings:
            words = expected.words or expected.findings[0]
            return Outcome("not run", f"the PTX has no bits to compare machine code with: {words}")
        tensors = {
            t.name: EmulatedTensor(
                t, job.setup.alignment_of(t.name), job.inputs.get(t.name), written=t in launch.outputs
            )
            for t in launch.tensors
        }
        values = entry_parameters(launch, built.compilation, {n: t.buffer for n, t in tensors.items()})
        given = built.compilation.spec.given
        block = given.block if given else (32 * built.compilation.num_warps, 1, 1)
        try:
            if built.compilation.scratch:
                raise Unsupported("scratch memory of a kernel does not run as machine code yet")
            text = disassembled(built.assembly.cubin, tool("nvdisasm"))
            code = machine_code(built.assembly.cubin, text, built.compilation.entry)
            shared = built.compilation.shared
            ran = run_machine_code(code, values, launch.grid, block, shared_bytes=shared, limit=self.limit)
        except Unsupported as refusal:
            return Outcome("not run", f"machine code: {refusal.message}")
        except PtxError as error:
            return Outcome("not run", f"unsettled: {error_line(error)}; the PTX runs without a fault")
        if left := unsettled(ran.forms, job.target):
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            return Outcome("not run", f"unsettled: {left[0]}{more} is not taught for {job.target}")
        outputs = {t.name: tensors[t.name].read() for t in launch.outputs}
        findings = [f for t in launch.outputs for f in tensors[t.name].findings()]
        findings += [f for t in tensors.values() if not t.written for f in t.changes()]
        apart = min((_apart(outputs, bits) for bits in (expected.outputs, expected.alternative) if bits), key=len)
        if apart or findings:
            return Outcome("not run", f"unsettled: {apart or findings[0]}")
        lanes = math.prod(launch.grid) * math.prod(block)
        return Outcome(
            "ran",
            outputs=outputs,
            evidence="model",
            approximate=expected.approximate,
            notes=(
                *notes(built),
                f"{machine(built)}: {len(ran.forms)} forms of machine instructions ran, all taught; what moves data or "
                f"orders threads has only the PTX's bits for it; {lanes} threads",
                TIMING,
            ),
        )


def _apart(outputs: dict[str, Any], expected: Any) -> str:
    """Where machine code and PTX differ first, with both words; "" if nowhere."""
    for name, bits in outputs.items():
        unit = f"u{bits.itemsize}"
        got, wanted = np.asarray(bits).view(unit).reshape(-1), np.asarray(expected[name]).view(unit).reshape(-1)
        wrong = np.flatnonzero(got != wanted)
        if len(wrong):
            at, digits = int(wrong[0]), 2 * bits.itemsize
            return (
                f"machine code gives 0x{int(got[at]):0{digits}x} and the PTX 0x{int(wanted[at]):0{digits}x} "
                f"in element {at} of {name} ({len(wrong)} elements differ)"
            )
    return ""
