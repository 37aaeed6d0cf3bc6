"""Inline asm within the Triton functions of a variant: where its mutants are compiled, run and settled.

The asm is what Triton was given, however the function came by it (a constant, an f-string, a compile-time argument).
A mutant takes its place while the function is compiled (`harness.triton.compile.swapping`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.backends.compiled import compile_job
from harness.jobs import Job, Outcome, Setup
from harness.model.compilers import compiler_of
from harness.model.variants import KernelVariant, PlainVariant
from harness.mutation.asm import AsmMutant, mutants
from harness.mutation.settle import Search, Settlement, judged_of, ran_as, searched, unlike
from harness.mutation.trial import Subject, Trial, trial_of
from harness.triton.compile import swapping
from harness.triton.spec import AsmSwap


@dataclass(frozen=True)
class InlineMutant:
    """One mistake in one block of inline asm of a variant's Triton functions."""

    mutant: AsmMutant
    swap: AsmSwap


def blocks_of(subject: Subject, name: str) -> tuple[tuple[str, str], ...] | str:
    """Text and constraints of the inline asm in a variant's Triton functions, as compiled for the subject's target.

    Words where there is none, or where the variant is not compiled from a Triton function here.
    """
    variant = subject.case.variants[name]
    if not isinstance(variant, PlainVariant | KernelVariant):
        return "it has no asm of its own"
    if compiler_of(subject.case, variant):
        return "another Triton build compiles it"
    found: dict[tuple[str, str], None] = {}
    for setup in _setups(subject, variant):
        compiled = compile_job(_job(subject, name, setup))
        if isinstance(compiled, Outcome):
            return f"it does not compile: {compiled.words}"
        found |= dict.fromkeys(compiled.compilation.asm)
    return tuple(found) or "it has no asm of its own"


def _setups(subject: Subject, variant: PlainVariant | KernelVariant) -> list[Setup]:
    """A setup for each kernel that is compiled of other code."""
    fusion = bool(variant.fusion)
    if subject.case.elementwise:
        return [Setup(shape=(1024,), fusion=fusion)]
    warps = variant.num_warps if isinstance(variant, KernelVariant) else 4
    return [Setup(sizes=dict(sizes), num_warps=warps, fusion=fusion) for sizes in subject.case.sizes]


def inline_mutants(blocks: tuple[tuple[str, str], ...]) -> list[InlineMutant]:
    """Every mutant of some blocks. Raises PtxError where one cannot be read."""
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
    """Why the binder refuses a mutant; "" where it does not."""
    from harness.ptx import PtxError, analyse, written_input
    from harness.ptx.errors import NotElementwise

    swap = mutant.swap
    try:
        analyse(swap.new_text, swap.new_constraints, target=subject.target)
    except NotElementwise:  # it has effects, as the original has, and is bound with the kernel around it
        return _refused_within(subject, name, swap)
    except PtxError as e:
        return " ".join(str(e).split())
    return " ".join((written_input(swap.new_text, swap.new_constraints) or "").split())


def _refused_within(subject: Subject, name: str, swap: AsmSwap) -> str:
    """Why the binder refuses a variant's kernel with a mutant in it; "" where it does not."""
    from harness.ptx import PtxError
    from harness.ptx.kernel.load import load_kernel

    variant = subject.case.variants[name]
    assert isinstance(variant, PlainVariant | KernelVariant)
    for setup in _setups(subject, variant):
        with swapping(swap):
            compiled = compile_job(_job(subject, name, setup))
        if isinstance(compiled, Outcome):
            continue  # the run of the mutant says what became of it
        try:
            load_kernel(compiled.compilation.ptx)
        except PtxError as e:
            return " ".join(str(e).split())
    return ""


def _job(subject: Subject, name: str, setup: Setup) -> Job:
    variant = subject.case.variants[name]
    return Job(subject.case, subject.loaded.name, subject.loaded.path, name, variant, subject.target, setup)


def settle_inline(subject: Subject, name: str, mutant: InlineMutant, search: Search) -> Settlement:
    """Settle a surviving mutant."""

    def differs(inputs: Mapping[str, Any]) -> Any:
        before = ran_as(subject, name, 1, inputs)
        with swapping(mutant.swap):
            after = ran_as(subject, name, 1, inputs)
        if before.status != "ran" or not before.outputs or after.status != "ran" or not after.outputs:
            return after if before.outputs else before
        return unlike(subject, inputs, before.outputs, after.outputs)

    def judged(inputs: Mapping[str, Any]) -> Any:
        with swapping(mutant.swap):
            return judged_of(subject, name, 1, inputs)

    return searched(subject, search, differs, judged)
