"""The evidence of a pass on emulated bits."""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.emulator import GENERATION, ROUNDED, of_generation
from ptxdiff.jobs import Evidence, Job, Outcome


def with_evidence(outcome: Outcome, forms: tuple[str, ...], approximate: tuple[str, ...], job: Job) -> Outcome:
    """The job's outcome with its evidence. If that is a model, a note names the model.

    forms: all instruction forms of the code. approximate: the approximate ones among them.
    """
    rounded = bool(approximate) and job.approximate == ROUNDED
    evidence = "model" if rounded else evidence_of(forms, approximate, job.target)
    if evidence != "model" or outcome.status != "ran":
        return replace(outcome, evidence=evidence)
    words = (
        "approximate instructions are rounded to nearest, which no GPU does"
        if rounded
        else f"approximate instructions have the bits of {GENERATION}'s unit, which were not confirmed for {job.target}"
    )
    return replace(outcome, evidence=evidence, notes=(*outcome.notes, words))


def evidence_of(forms: tuple[str, ...], approximate: tuple[str, ...], target: str) -> Evidence:
    """The evidence of a pass with these forms: "confirmed" if the conformance ledger confirms every form.

    Otherwise it is "specification". Approximate instructions have other bits on another generation, so with them it is
    "model" unless the ledger confirms them and the target is of the measured generation.
    """
    from ptxdiff.conformance.ledger import confirmed

    if approximate and not (of_generation(target) and confirmed(approximate)):
        return "model"
    return "confirmed" if confirmed(forms) else "specification"
