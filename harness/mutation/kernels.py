"""Mutants of a kernel's PTX, for Triton kernels and for variants that are PTX files.

Each kernel of a quick run is compiled for one setup (sizes, alignment, warps, fusion). A mutant is one mistake in one
of these texts. It replaces that text wherever the run compiles it (`ptxdiff.triton.compile.rewriting`), as if a
compiler had made the mistake for this setup.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from ptxdiff.backends.compiled import compile_job
from ptxdiff.emulator import STILL_RUNNING
from ptxdiff.emulator.text import retargeted
from ptxdiff.jobs import Outcome, Setup
from ptxdiff.judging.judge import Judgement
from ptxdiff.model.ptx_variant import PtxVariant
from ptxdiff.mutation.asm import KernelMutant, kernel_mutants, replaced
from ptxdiff.mutation.machine_code import Code
from ptxdiff.mutation.settle import Candidate, Inputs, Search, Settlement, job_in, judged_in, settled
from ptxdiff.mutation.trial import Subject, Trial, trial_of
from ptxdiff.running.run import jobs
from ptxdiff.triton.assemble import assemble
from ptxdiff.triton.compile import Rewriting, rewriting
from ptxdiff.triton.cubin import loaded_sections
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.installation import NoTriton
from ptxdiff.triton.spec import Compilation
from ptxdiff.triton.targets import assembler

TIMES, AT_LEAST = 20.0, 10.0
"""The time limit of a mutant: a multiple of the time of the whole unchanged run, and the least limit in seconds."""


@dataclass(frozen=True)
class Compiled:
    """A kernel of a variant's quick run, and the first setup for which it was compiled."""

    compilation: Compilation
    setup: Setup


@dataclass(frozen=True)
class PlacedMutant:
    """One mistake in one kernel of a variant."""

    kernel: Compiled
    mutant: KernelMutant

    @property
    def text(self) -> str:
        """The kernel's PTX with the mistake."""
        return replaced(self.kernel.compilation.ptx, self.mutant.changes)

    def in_place(self) -> AbstractContextManager[Rewriting]:
        """A context in which this kernel is compiled to the text with the mistake."""
        return rewriting(Rewriting(self.kernel.compilation.ptx, self.text))


def kernels_of(subject: Subject, name: str) -> list[Compiled] | str:
    """The kernels of a variant's quick run, one for each text; the reason as a text if one does not compile."""
    found: dict[str, Compiled] = {}
    for _, job in jobs(subject.item(name), subject.backend, "quick"):
        if job is None:
            continue
        made = compile_job(job)
        if isinstance(made, Outcome):
            return f"it does not compile: {made.words}"
        found.setdefault(made.compilation.ptx, Compiled(made.compilation, job.setup))
    return list(found.values()) or "it has no kernel"


def placed_mutants(kernels: Sequence[Compiled]) -> Iterator[PlacedMutant]:
    """Every mutant of some kernels. Raises PtxError if a kernel cannot be parsed."""
    for kernel in kernels:
        for mutant in kernel_mutants(kernel.compilation.ptx, kernel.compilation.entry):
            yield PlacedMutant(kernel, mutant)


def seconds_of(subject: Subject, name: str) -> float:
    """The time limit of a variant's mutants in seconds. Runs the unchanged variant to measure it."""
    started = time.monotonic()
    subject.run(name)
    return max(AT_LEAST, TIMES * (time.monotonic() - started))


def try_kernel(subject: Subject, name: str, mutant: PlacedMutant) -> Trial:
    """Run a variant with one of its kernels replaced by a mutant."""
    if words := _refusal(subject, mutant):
        return Trial("refused", words)
    with mutant.in_place() as place:
        trial = trial_of(subject.run(name))
    if trial.fate == "survived" and not place.used:
        return Trial("undecided", "no kernel of the run had the text that was changed")
    # A run over the time limit is an error in every run, so no user takes it for a pass.
    return Trial("killed", trial.words) if STILL_RUNNING in trial.words else trial


def _refusal(subject: Subject, mutant: PlacedMutant) -> str:
    """The reason why the binder refuses a mutant; "" if it does not."""
    from ptxdiff.emulator import PtxError, load_kernel

    given = mutant.kernel.compilation.spec.given is not None
    text = retargeted(mutant.text, subject.target) if given else mutant.text
    try:
        load_kernel(text, mutant.kernel.compilation.entry)
    except PtxError as e:
        return " ".join(str(e).split())
    return ""


def settle_kernels(subject: Subject, name: str, survivors: Sequence[PlacedMutant], search: Search) -> list[Settlement]:
    """Settle the surviving mutants of a variant. Those of one kernel are settled together, in the kernel's setup."""
    found: list[Settlement] = []
    for _, group in groupby(survivors, key=lambda m: m.kernel.compilation.ptx):
        same = list(group)
        kernel = same[0].kernel
        right = Candidate(partial(_ran, subject, name, kernel), code=partial(_code, kernel, ""))
        sizes = None if subject.case.elementwise else kernel.setup.sizes
        found += settled(subject, search, right, [_candidate(subject, name, m) for m in same], sizes)
    return found


def _candidate(subject: Subject, name: str, mutant: PlacedMutant) -> Candidate:
    kernel = mutant.kernel

    def ran(inputs: Inputs) -> Outcome:
        with mutant.in_place() as place:
            outcome = _ran(subject, name, kernel, inputs)
        return outcome if place.used else Outcome("not run", "no kernel had the text that was changed")

    def judged(inputs: Inputs) -> Judgement | str:
        with mutant.in_place():
            return judged_in(subject, name, job_in(subject, name, _setup(kernel, inputs), inputs))

    return Candidate(ran, judged, lambda: _code(kernel, mutant.text))


def _ran(subject: Subject, name: str, kernel: Compiled, inputs: Inputs) -> Outcome:
    return subject.backend.run(job_in(subject, name, _setup(kernel, inputs), inputs))


def _setup(kernel: Compiled, inputs: Inputs) -> Setup:
    """The setup for which the kernel was compiled; for an elementwise case with the shape of the inputs."""
    if kernel.setup.sizes:
        return kernel.setup
    return replace(kernel.setup, shape=(len(next(iter(inputs.values()))),))


def _code(kernel: Compiled, text: str) -> Code | None:
    """The machine code of a kernel, with `text` in place of its PTX unless it is empty; None if ptxas refuses it."""
    compilation = replace(kernel.compilation, ptx=text) if text else kernel.compilation
    try:
        made = assemble(replace(compilation, ptxas=assembler(compilation.spec.target)))
    except (ValueError, TypeError, NoTriton):
        return None
    return None if isinstance(made, Refusal) else (loaded_sections(made.cubin),)


def is_given(subject: Subject, name: str) -> bool:
    """Whether a variant is PTX of the case, so that its mutants are those of its asm."""
    return isinstance(subject.case.variants[name], PtxVariant)
