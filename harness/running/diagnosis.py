"""Diagnoses: explanations of a failure that were tested by reproducing its bits.

A diagnosis is never a guess from the asm's text. "missing early clobber" is given only when the emulator, made to put
an output and an input in one register, computes the very bits that the variant gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.backends.snippet import fed_back
from harness.jobs import Job, Outcome
from harness.model.derive import asm_form
from harness.model.policies import policies
from harness.model.variants import AsmVariant, CaseError


def diagnose(job: Job, outcome: Outcome) -> str:
    """The diagnosis that reproduces the outcome's outputs, one of `harness.model.variants.DIAGNOSES`, or an empty
    string."""
    if not isinstance(job.variant, AsmVariant) or job.setup.context == "straight" or not outcome.outputs:
        return ""
    if job.setup.context == "shared":
        return "missing early clobber"  # what this context does is to share registers
    shared = _with_shared_registers(job)
    if shared is not None and _same_bits(shared, outcome.outputs):
        return "missing early clobber"
    return ""


def _with_shared_registers(job: Job) -> Mapping[str, Any] | None:
    """The loop's outputs with registers shared wherever the constraints allow; None where they allow it nowhere."""
    from harness.backends.snippet import run_once, shareable
    from harness.ptx import PtxError

    assert isinstance(job.variant, AsmVariant)
    carry = policies(job.case, job.variant).carry
    unpadded = replace(job, setup=replace(job.setup, padding=None))
    try:
        form = asm_form(job.case, job.variant, job.setup.pack)
        share = shareable(job.case, form, carry)
        if not share:
            return None
        units = {n: np.asarray(u).reshape(-1) for n, u in job.inputs.items()}
        outputs: dict[str, Any] = {}
        for _ in range(job.setup.steps):
            outputs = run_once(unpadded, form, units, share)
            units |= fed_back(job.case, carry, outputs)
    except (PtxError, CaseError):
        return None
    return outputs


def _same_bits(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    return all(np.array_equal(np.asarray(one[n]).reshape(-1), np.asarray(two[n]).reshape(-1)) for n in one)
