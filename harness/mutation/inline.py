"""Mutants of inline asm within a variant's Triton functions: compile, run and settle them.

The asm is the text that Triton gets, whether from a constant, an f-string or a compile-time argument. A mutant replaces
it while the function is compiled (`ptxdiff.triton.compile.swapping`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxdiff.backends.compiled import compile_job
from ptxdiff.jobs import Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.model.arguments import format_of
from ptxdiff.model.constants import packs_in_code
from ptxdiff.model.variants import KernelVariant, PlainVariant
from ptxdiff.mutation.asm import AsmMutant, mutants
from ptxdiff.mutation.machine_code import Code, job_of, machine_code, setups_of
from ptxdiff.mutation.settle import Candidate, Inputs, Search, Settlement, Words, judged_of, ran_as, settled
from ptxdiff.mutation.trial import Subject, Trial, trial_of
from ptxdiff.triton.compile import swapping
from ptxdiff.triton.installation import NoTriton
from ptxdiff.triton.spec import AsmSwap


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
    found: dict[tuple[str, str], None] = {}
    for setup in setups_of(subject, name):
        try:
            compiled = compile_job(job_of(subject, name, setup))
        except NoTriton as e:  # the variant may name a Triton build that is missing
            return str(e)
        if isinstance(compiled, Outcome):
            return f"it does not compile: {compiled.words}"
        found |= {(call.text, call.constraints): None for call in compiled.compilation.asm}
    return tuple(found) or "it has no asm of its own"


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
    if words := _refusal(subject, name, mutant):
        return Trial("refused", words)
    with swapping(mutant.swap):
        return trial_of(subject.run(name))


def _refusal(subject: Subject, name: str, mutant: InlineMutant) -> str:
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
    packs = packs_in_code(variant, [format_of(a).unit_bits for a in subject.case.inputs.values()])
    words = Words(max(packs), (variant,)) if packs and subject.case.elementwise else None
    return settled(subject, search, right, [candidate(m) for m in survivors], words=words)
