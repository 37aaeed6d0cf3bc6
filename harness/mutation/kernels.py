"""Mutants of a kernel's PTX, for Triton kernels and for variants that are PTX files.

Each kernel of a quick run is compiled for one setup (sizes, alignment, warps, fusion). A mutant is one mistake in one
of these texts. It replaces that text wherever the run compiles it (`ptxdiff.triton.compile.rewriting`), as if a
compiler had made the mistake for this setup.
"""

from __future__ import annotations

import itertools
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
from ptxdiff.model.packs import packs_read
from ptxdiff.model.variants import KernelVariant, PlainVariant, PtxVariant
from ptxdiff.mutation.asm import AsmMutant, KernelMutant, kernel_mutants, mutants, replaced
from ptxdiff.mutation.settle import (
    Candidate,
    Inputs,
    Search,
    Settlement,
    Words,
    job_in,
    judged_in,
    judged_of,
    missed,
    ran_as,
    settled,
)
from ptxdiff.mutation.trial import Code, Subject, Trial, job_of, machine_code, setups_of, trial_of
from ptxdiff.running.run import jobs
from ptxdiff.triton.assemble import assemble
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.compile import Rewriting, rewriting, swapping
from ptxdiff.triton.cubin import loaded_sections
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.spec import AsmSwap, Compilation
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
    by_text: dict[str, Compiled] = {}
    for _, job in jobs(subject.item(name), subject.backend, "quick"):
        if job is None:
            continue
        made = compile_job(job)
        if isinstance(made, Outcome):
            return f"it does not compile: {made.words}"
        by_text.setdefault(made.compilation.ptx, Compiled(made.compilation, job.setup))
    return list(by_text.values()) or "it has no kernel"


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
    if reason := _refusal(subject, mutant):
        return Trial("refused", reason)
    with mutant.in_place() as swap:
        trial = trial_of(subject.run(name))
    if trial.fate == "survived" and not swap.used:
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
        settlements = settled(subject, search, right, [_candidate(subject, name, m) for m in same], sizes)
        for mutant, settlement in zip(same, settlements, strict=True):
            if settlement.fate == "sampled":
                pair = kernel.compilation, replace(kernel.compilation, ptx=mutant.text)
                settlement = _proved_alike([pair], search) or settlement
            found.append(settlement)
    return found


def _proved_alike(pairs: Sequence[tuple[Compilation, Compilation]], search: Search) -> Settlement | None:
    """The settlement by a proof that kernels and their mutants store the same; None where there is none."""
    from ptxdiff.proving import solving

    if not pairs or not solving.available():
        return None
    from ptxdiff.proving.equivalence import prove_kernels

    solvers = set()
    for right, wrong in pairs:
        texts, given = (right.ptx, wrong.ptx), right.spec.given
        if given is not None:
            texts = retargeted(texts[0], right.spec.target), retargeted(texts[1], right.spec.target)
        block = given.block if given else (32 * right.num_warps, 1, 1)
        proof = prove_kernels(texts, right.entry if given else None, block, seconds=search.seconds)
        if proof.verdict != "proved":
            return None
        solvers.add(proof.solver)
    by = f" by {' and '.join(sorted(s for s in solvers if s))}" if any(solvers) else ""
    return Settlement("equivalent", f"the same stores in every thread, for all inputs, proved{by}")


def _candidate(subject: Subject, name: str, mutant: PlacedMutant) -> Candidate:
    kernel = mutant.kernel

    def ran(inputs: Inputs) -> Outcome:
        with mutant.in_place() as swap:
            outcome = _ran(subject, name, kernel, inputs)
        return outcome if swap.used else Outcome("not run", "no kernel had the text that was changed")

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


# Mutants of inline asm within a variant's Triton functions: compile, run and settle them ---------------------------
#
# The asm is the text that Triton gets, whether from a constant, an f-string or a compile-time argument. A mutant
# replaces it while the function is compiled (`ptxdiff.triton.compile.swapping`).


@dataclass(frozen=True)
class InlineMutant:
    """One mistake in one block of inline asm of a variant's Triton functions."""

    mutant: AsmMutant
    swap: AsmSwap


Blocks = tuple[tuple[str, str], ...]
"""Texts of inline asm, each with its constraints."""


def blocks_of(subject: Subject, name: str) -> Blocks | str:
    """Text and constraints of the inline asm in a variant's Triton functions, as compiled for the subject's target.

    Returns the reason as a text if there is none, or if the variant cannot be compiled here.
    """
    variant = subject.case.variants[name]
    if not isinstance(variant, PlainVariant | KernelVariant):
        return "it has no asm of its own"
    blocks: dict[tuple[str, str], None] = {}
    for setup in setups_of(subject, name):
        try:
            compiled = compile_job(job_of(subject, name, setup))
        except NoTriton as e:  # the variant may name a Triton build that is missing
            return str(e)
        if isinstance(compiled, Outcome):
            return f"it does not compile: {compiled.words}"
        blocks |= {(call.text, call.constraints): None for call in compiled.compilation.asm}
    return tuple(blocks) or "it has no asm of its own"


def inline_mutants(blocks: Blocks) -> list[InlineMutant]:
    """Every mutant of some blocks. Raises PtxError if a block cannot be parsed."""
    made = []
    for text, constraints in blocks:
        outputs = sum(c.strip().startswith("=") for c in constraints.split(","))
        for mutant in mutants(text, constraints, outputs):
            made.append(InlineMutant(mutant, AsmSwap(text, constraints, mutant.text, mutant.constraints)))
    return made


def try_inline(subject: Subject, name: str, mutant: InlineMutant) -> Trial:
    """Run a variant with a mutant in place of its asm."""
    if reason := _inline_refusal(subject, name, mutant):
        return Trial("refused", reason)
    with swapping(mutant.swap):
        return trial_of(subject.run(name))


def _inline_refusal(subject: Subject, name: str, mutant: InlineMutant) -> str:
    """The reason why the binder refuses a mutant; "" if it does not."""
    from ptxdiff.emulator import NotElementwise, PtxError, analyse, written_input

    swap = mutant.swap
    try:
        analyse(swap.new_text, swap.new_constraints, target=subject.target)
    except NotElementwise:  # asm with side effects can be bound only within its kernel
        return _refused_within(subject, name, swap)
    except PtxError as e:
        return " ".join(str(e).split())
    return " ".join((written_input(swap.new_text, swap.new_constraints) or "").split())


def _refused_within(subject: Subject, name: str, swap: AsmSwap) -> str:
    """The reason why the binder refuses a variant's kernel with a mutant in it; "" if it does not."""
    from ptxdiff.emulator import PtxError, load_kernel

    for setup in setups_of(subject, name):
        with swapping(swap):
            compiled = compile_job(job_of(subject, name, setup))
        if isinstance(compiled, Outcome):
            continue  # the mutant's own run reports this
        try:
            load_kernel(compiled.compilation.ptx)
        except PtxError as e:
            return " ".join(str(e).split())
    return ""


def settle_inline(subject: Subject, name: str, survivors: Sequence[InlineMutant], search: Search) -> list[Settlement]:
    """Settle the surviving mutants of a variant. Each is compiled into the kernel while it runs."""

    def candidate(mutant: InlineMutant) -> Candidate:
        def code() -> Code | None:
            with swapping(mutant.swap):
                return machine_code(subject, name)

        def ran(inputs: Inputs) -> Outcome:
            with swapping(mutant.swap):
                return ran_as(subject, name, 1, inputs)

        def judged(inputs: Inputs) -> Judgement | str:
            with swapping(mutant.swap):
                return judged_of(subject, name, 1, inputs)

        same_constraints = mutant.swap.constraints == mutant.swap.new_constraints
        return Candidate(ran, judged, code if same_constraints else None)

    right = Candidate(lambda inputs: ran_as(subject, name, 1, inputs), code=lambda: machine_code(subject, name))
    variant = subject.case.variants[name]
    packs = packs_read(subject.case, variant)
    input_words = Words(max(packs), (variant,)) if packs and subject.case.elementwise else None
    settlements = settled(subject, search, right, [candidate(m) for m in survivors], words=input_words)
    for index, (mutant, settlement) in enumerate(zip(survivors, settlements, strict=True)):
        same_constraints = mutant.swap.constraints == mutant.swap.new_constraints
        if settlement.fate == "sampled" and not same_constraints:
            settlements[index] = _proved_sharing(subject, mutant, search) or settlement
        elif settlement.fate == "sampled":
            settlement = _proved_alike(_compiled_both(subject, name, mutant), search) or settlement
            if settlement.fate == "sampled" and subject.case.elementwise:
                settlement = _proved_inline(subject, name, mutant, candidate(mutant), search) or settlement
            settlements[index] = settlement
    return settlements


def _proved_sharing(subject: Subject, mutant: InlineMutant, search: Search) -> Settlement | None:
    """The settlement of an early clobber that was dropped by proofs that no assignment of registers changes a bit; None
    where there are none."""
    from ptxdiff.emulator import PtxError, sharing
    from ptxdiff.proving import solving
    from ptxdiff.proving.registers import changed_by_sharing
    from ptxdiff.proving.solving import SolverFault
    from ptxdiff.proving.terms import NotModelled

    text, constraints = mutant.swap.new_text, mutant.swap.new_constraints
    if text != mutant.swap.text or not solving.available():
        return None
    try:
        shared = sharing(text, constraints, subject.target)
        if not shared.complete or any(h.tied >= 0 for h in shared.hazards):
            return None
        for share in shared.assignments:
            chosen = tuple(sorted(share.items()))
            if changed_by_sharing(text, constraints, subject.target, chosen, (), search.seconds) is not False:
                return None
    except (PtxError, NotModelled, SolverFault):
        return None
    return Settlement("equivalent", "no sharing of registers changes a bit for any input, proved")


def _compiled_both(subject: Subject, name: str, mutant: InlineMutant) -> list[tuple[Compilation, Compilation]]:
    """The kernels of a variant without and with a mutant, with each setting of fusion; none if one does not compile."""
    pairs = []
    for setup, fusion in itertools.product(setups_of(subject, name), subject.case.variants[name].fusions):
        job = job_of(subject, name, replace(setup, fusion=fusion))
        right = compile_job(job)
        with swapping(mutant.swap):
            wrong = compile_job(job)
        if isinstance(right, Outcome) or isinstance(wrong, Outcome):
            return []
        pairs.append((right.compilation, wrong.compilation))
    return pairs


def _proved_inline(
    subject: Subject, name: str, mutant: InlineMutant, candidate: Candidate, search: Search
) -> Settlement | None:
    """The settlement by a proof that the judge accepts a mutant for all inputs, or by an input for which it does not.

    None where the extra `prove` is not installed, or a solver settles nothing.
    """
    from ptxdiff.proving import solving

    if not solving.available():
        return None
    from ptxdiff.proving.elements import prove_elements
    from ptxdiff.proving.on_device import arrays_of

    with swapping(mutant.swap):
        proof = prove_elements(subject.loaded, name, subject.target, seconds=search.seconds)
    if proof.verdict == "proved":
        by = f" by {proof.solver}" if proof.solver else ""
        return Settlement("allowed", f"within the policies for all inputs, proved{by}")
    if proof.verdict != "counterexample":
        return None
    judged = candidate.judged(arrays_of(subject.case.inputs, proof.inputs))
    return None if isinstance(judged, str) or judged.passed else missed(judged, 1)
