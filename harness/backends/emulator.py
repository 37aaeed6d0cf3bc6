"""The emulator backend runs PTX bit-exactly on the CPU, for any target.

It runs a job in one of two ways. The compiled kernel (`ptxdiff.backends.compiled`) is the whole kernel that Triton
makes of the variant. The snippet is the asm text alone, run by `ptxdiff.emulate`: it needs no compiler, and the padding
of a partial pack can be poisoned.

In the loop context the snippet puts a carried output and the input that it becomes into one register, if the
constraints allow it. LLVM may do the same with a loop-carried value. So an asm block that writes such an output before
it has read every input gives the same wrong bits here as on the device.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends.compiled import with_evidence
from ptxdiff.backends.kept import KeptOutcomes
from ptxdiff.backends.snippet import error_line, fed_back, run_once, run_shared, shareable
from ptxdiff.emulator import HOPPER, KERNEL_SECONDS
from ptxdiff.jobs import Job, Outcome, Setup
from ptxdiff.model.arguments import format_of
from ptxdiff.model.compilers import compiler_of
from ptxdiff.model.derive import AsmForm, asm_form
from ptxdiff.model.identity.definition import Experiment, emulator, experiment
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import AsmVariant, CaseError

Units = Mapping[str, NDArray[np.generic]]

ASM_ALONE = "PTXDIFF_ASM_ALONE"
"""The environment variable that makes asm run by itself, as if Triton were not installed."""

ASM_ALONE_FROM = 1 << 20
"""Jobs with at least so many inputs run the asm by itself, not within the compiled kernel."""


class EmulatorBackend:
    """See `ptxdiff.jobs.Backend`. Keeps the latest results, so that targets with the same code are computed once.

    limit: the seconds that each run of a kernel or of asm alone may take, as `ptxdiff.emulator.kernel.run.run_kernel`
    and `ptxdiff.emulate` count them; each chunk of a sweep is one run. approximate: the bits of approximate
    instructions, as in `ptxdiff.emulate`; results of different choices are never exchanged. kept: where results are
    kept, for backends that share them; None for a place of its own.
    """

    name = "emulator"

    def __init__(
        self, limit: float = KERNEL_SECONDS, approximate: str = HOPPER, kept: KeptOutcomes | None = None
    ) -> None:
        self.limit = limit
        self.approximate = approximate
        self._once = (KeptOutcomes() if kept is None else kept).once

    def unavailable(self, target: str) -> str | None:
        """Always None: the emulator is always available. Without Triton it runs inline asm alone."""
        return None

    def run(self, job: Job) -> Outcome:
        """Run one job as a compiled kernel. The asm runs alone if Triton is missing or the setup asks for it."""
        job = replace(job, approximate=self.approximate)
        if not isinstance(job.variant, AsmVariant):
            return self._compiled(job)
        refusal = _refusal(job, job.variant)
        if refusal is not None:
            return refusal
        if _runs_in_kernel(job):
            return self._compiled(job)
        setup = job.setup
        outcome = self._snippet(job, job.variant)
        plain = setup.alone and setup.context == "straight" and setup.padding is None
        if outcome.findings and plain and _can_compile():
            # In asm alone the padding of a partial pack is undefined; Triton's kernel may define it.
            return self._compiled(job)
        return outcome

    def asm_alone(self, job: Job) -> Outcome:
        """Run a job's asm by itself, whatever its setup says. The job must have an `AsmVariant`."""
        variant = job.variant
        assert isinstance(variant, AsmVariant)
        setup = replace(job.setup, alone=True, alignment=Setup.alignment, misaligned="", num_warps=Setup.num_warps)
        job = replace(job, approximate=self.approximate, setup=setup)
        return _refusal(job, variant) or self._snippet(job, variant)

    def prepare(self, job: Job) -> None:
        """See `ptxdiff.jobs.CompilingBackend`."""
        if isinstance(job.variant, AsmVariant) and (_refusal(job, job.variant) or not _runs_in_kernel(job)):
            return
        from ptxdiff.backends.compiled import begin_compiling

        begin_compiling(replace(job, approximate=self.approximate))

    def _compiled(self, job: Job) -> Outcome:
        from ptxdiff.backends.compiled import compile_job, run_compiled
        from ptxdiff.triton.builds import NoTriton

        try:
            kernel = compile_job(job)
        except NoTriton as e:
            return Outcome("not run", str(e))
        if isinstance(kernel, Outcome):
            return kernel
        outcome = run_compiled(job, kernel, self._once, self.limit)
        return replace(outcome, approximate=approximate_outputs(job, outcome.approximate))

    def _snippet(self, job: Job, variant: AsmVariant) -> Outcome:
        from ptxdiff.emulator import analyse

        form = asm_form(job.case, variant, job.setup.pack)
        facts = analyse(form.text, form.constraints, target=job.target)
        identity = _experiment(job, form, facts.contraction_open)
        outcome = self._once(identity, lambda: self._execute(job, form, facts.contraction_open))
        outcome = with_evidence(outcome, facts.forms, facts.approximate, job)
        approximate = approximate_outputs(job, dict.fromkeys(job.case.outputs, facts.approximate))
        return replace(outcome, contraction_open=facts.contraction_open, approximate=approximate)

    def _execute(self, job: Job, form: AsmForm, contraction_open: bool) -> Outcome:
        from ptxdiff.emulator import PtxError, UndefinedBits

        carry = dict(policies(job.case, job.variant).carry)
        share = shareable(job.case, form, carry) if job.setup.context == "loop" else {}
        fuse = job.setup.fusion and contraction_open
        try:
            if job.setup.context == "shared":
                return run_shared(job, form, fuse, self.limit)
            units: dict[str, NDArray[np.generic]] = dict(job.inputs)
            outputs: dict[str, NDArray[np.generic]] = {}
            for _ in range(job.setup.steps if job.setup.context == "loop" else 1):
                outputs = run_once(job, form, units, share, fuse, self.limit)
                units |= fed_back(job.case, carry, outputs)
        except UndefinedBits as e:
            return Outcome("ran", findings=(error_line(e),), element=e.element or 0)
        except PtxError as e:
            return Outcome("error", error_line(e))
        return Outcome("ran", outputs=outputs)


def _refusal(job: Job, variant: AsmVariant) -> Outcome | None:
    """The outcome if the emulator refuses the asm itself, so that no compiler needs to run; else None."""
    from ptxdiff.emulator import NotElementwise, PtxError, UnsupportedOnTarget, analyse

    try:
        form = asm_form(job.case, variant, job.setup.pack)
        analyse(form.text, form.constraints, target=job.target)
    except UnsupportedOnTarget as e:
        return Outcome("unsupported", error_line(e))
    except NotElementwise as e:
        return Outcome("not run", f"{error_line(e)}; give a whole kernel that has it: kernel(...) or ptx(...)")
    except (PtxError, CaseError) as e:
        return Outcome("error", error_line(e))
    return None


def _runs_in_kernel(job: Job) -> bool:
    """Whether asm runs in the kernel that Triton makes of it, not by itself."""
    setup = job.setup
    named = compiler_of(job.case, job.variant)  # a variant that names a Triton build tests that build's code
    alone = (setup.alone and not named) or setup.context != "straight" or setup.padding is not None
    return not (alone or _is_large(job)) and bool(named or _can_compile())


def _is_large(job: Job) -> bool:
    """Whether the job is so large that the asm runs alone, which is much faster without loads, stores and masks."""
    return any(np.size(u) >= ASM_ALONE_FROM for u in job.inputs.values())


def _can_compile() -> bool:
    """Whether Triton's kernel around asm can be compiled: Triton is installed, and `ASM_ALONE` is not set."""
    from ptxdiff.triton.builds import NoTriton, triton_folder

    if os.environ.get(ASM_ALONE, "0") not in ("", "0"):
        return False
    try:
        triton_folder()
    except NoTriton:
        return False
    return True


def approximate_outputs(job: Job, approximate: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The outputs that may depend on approximate instructions, with the instructions' names.

    approximate: for each output, the approximate instructions of the kernel that may reach it, by
    `approximate_tensors`. For inline asm the result is narrowed by the data flow between the asm's operands, except in
    a loop, which feeds results back.
    """
    everything = {n: names for n, names in approximate.items() if names}
    if not everything or not isinstance(job.variant, AsmVariant) or job.setup.context == "loop":
        return everything
    from ptxdiff.emulator import approximate_results, bind, parse_constraints

    form = asm_form(job.case, job.variant, job.setup.pack)
    approximate_names = approximate_results(form.text, form.constraints, target=job.target)
    inside = {name for names in approximate_names for name in names}
    if not {name for names in everything.values() for name in names} <= inside:
        return everything
    widths = [[format_of(a).unit_bits for a in side.values()] for side in (job.case.inputs, job.case.outputs)]
    depends: dict[str, set[str]] = {}
    operands = bind(parse_constraints(form.constraints), widths[0], widths[1], form.pack, form.convention)
    for operand, names in zip(operands, approximate_names, strict=True):
        if operand.output:
            depends.setdefault(list(job.case.outputs)[operand.tensor], set()).update(names)
    return {n: tuple(sorted(names)) for n, names in depends.items() if names}


def _experiment(job: Job, form: AsmForm, contraction_open: bool) -> Experiment:
    """The identity of a run of the asm alone. Its code is the program that the asm becomes for the job's target."""
    from ptxdiff.emulator import program_text

    setup, case = job.setup, job.case
    operands = [tuple(side.items()) for side in (case.inputs, case.outputs)]
    carry = policies(case, job.variant).carry
    launch = (form, operands, setup, carry, setup.fusion and contraction_open)
    code = program_text(form.text, form.constraints, job.target)
    return experiment(emulator(job.approximate), code, launch, job.inputs)
