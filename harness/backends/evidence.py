"""What a pass on emulated bits rests on."""

from __future__ import annotations

from dataclasses import replace

from harness.jobs import Evidence, Job, Outcome
from harness.ptx.binding.approximate import ROUNDED
from harness.ptx.targets import GENERATION, of_generation


def rested(outcome: Outcome, forms: tuple[str, ...], approximate: tuple[str, ...], job: Job) -> Outcome:
    """The job's outcome with what a pass on it rests on, and where that is a model, a note on whose bits these are.

    forms: all instruction forms of the code. approximate: those among them that are approximate.
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
    """What a pass of these forms rests on: hardware, where the conformance ledger confirms every one of them.

    Approximate instructions have other bits on another generation. Where the target is not of the generation that was
    measured, or the ledger does not confirm such a form, there is nothing but a model.
    """
    from harness.conformance.ledger import confirmed

    if approximate and not (of_generation(target) and confirmed(approximate)):
        return "model"
    return "confirmed" if confirmed(forms) else "specification"
